"""Programs that once failed, each for the reason that its name gives."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp

pytestmark = pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")


def test_isl_dataflow_on_divisions_in_subscripts() -> None:
    """isl gave "affine expression involves some of the domain dimensions" until accesses had their equalities found."""
    program = tcomp.define(
        """def f(float32(N) A, float32(M,N) B) -> (T0, T1, T2, T3) {
          T0(0, i1, i2 / 3, i2 % 3) +=! select(r0 > 1 && r1 > 0, (min(A(r2), A(i1)) % 2), A(i1))
            where i1 in 0:5, i2 in 0:3, r0 in 0:2, r1 in 0:N-1, r2 in 0:i2+1
          T1(i0) = T0(0, i0, 0, i0) where i0 in 0:3
          T2(i0) = T1(i0) where i0 in 0:3
          T3(i0) = T2(i0) where i0 in 0:3
        }"""
    ).f
    a, b = np.arange(6, dtype=np.float32), np.zeros((2, 6), np.float32)
    for found, expected in zip(program(a, b), program.reference(a, b), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_reduction_without_pairs() -> None:
    """One instance an element leaves no reduction dependences, of which isl then makes no map."""
    program = tcomp.define("def f(float32(N) A) -> (int8(13) T0) { T0(i0) *= int8(1) where i0 in 0:13 }").f
    out = np.arange(13, dtype=np.int8)
    np.testing.assert_array_equal(program(np.zeros(3, np.float32), out=out), np.arange(13))


def test_the_caret_of_a_kernel_that_another_text_of_the_program_compiled() -> None:
    table, index = np.zeros(10, np.float32), np.array([1, 30], np.int32)
    for text in (
        "def f(float(N) A, int32(M) I) -> (O) { O(i) = A(I(i)) }",
        "# moved\ndef f(float(N) A, int32(M) I) -> (O) {\n  O(i) =   A( I(i) )\n}",
    ):
        with pytest.raises(tcomp.ShapeError) as failure:
            tcomp.define(text).f(table, index)
        line = text.splitlines()[(failure.value.line or 1) - 1]
        assert line[(failure.value.column or 1) - 1 :].startswith("I(i)")


def test_an_initialisation_wider_than_its_reduction() -> None:
    """Where isl finds an index of the update constant, the initialisation still runs over all of its values."""
    program = tcomp.define(
        """def f(float(N) A) -> (float(5,2,2,3) T) {
          T(i,j,k,l) += A(i) where i in 0:5, j in 0:2, k in 0:2, l in 0:3, r in 0:2, q in 0:j
        }"""
    ).f
    array, content = np.arange(7, dtype=np.float32), np.ones((5, 2, 2, 3), np.float32)
    np.testing.assert_array_equal(program(array, out=content.copy()), program.reference(array, out=content.copy()))


def test_a_reduction_over_a_diagonal() -> None:
    program = tcomp.define("def f(float(N,N) A) -> (O) { O(i) +=! A(r,q) where i in 0:N, r in 0:N, q in r:r+1 }").f
    array = np.arange(49, dtype=np.float32).reshape(7, 7)
    np.testing.assert_array_equal(program(array), program.reference(array))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", ["max=!", "min=!"])
def test_extrema_of_16_bit_floats_in_a_register(dtype: str, operator: str) -> None:
    """The bit patterns of bfloat16 were compared as numbers."""
    program = tcomp.define(f"def f(float(M,N) A) -> ({dtype}(M) O) {{ O(i) {operator} {dtype}(A(i,j)) }}").f
    array = np.random.default_rng(0).integers(-50, 50, (3, 40)).astype(np.float32)
    np.testing.assert_array_equal(program(array).astype(np.float32), program.reference(array).astype(np.float32))


STENCILS = {
    "after a copy": """def f(float(N,N) A) -> (O) {
      s(i,j) = A(i,j)
      t(i,j) = s(i-1,j) + s(i+1,j) + s(i,j-1) + s(i,j+1)
      O(i,j) = t(i-1,j) + t(i+1,j) + t(i,j-1) + t(i,j+1)
    }""",
    "six with a hole": "def f(float(N) t0) -> (t6) {"
    + " ".join(f"t{k + 1}(i) = t{k}(i-1) + t{k}(i+1)" for k in range(6))
    + "}",
    "six crosses": "def f(float(N,N) t0) -> (t6) {"
    + " ".join(f"t{k + 1}(i,j) = t{k}(i,j) + t{k}(i-1,j) + t{k}(i+1,j) + t{k}(i,j-1) + t{k}(i,j+1)" for k in range(6))
    + "}",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", STENCILS)
def test_chains_of_stencils_compile(name: str) -> None:
    """Exact footprints of overlapping tiles grew until isl took minutes."""
    program = tcomp.define(STENCILS[name]).f
    rank = len(program.function.inputs[0].dims or ())
    array = np.random.default_rng(0).integers(-3, 4, (150,) * rank).astype(np.float32)
    np.testing.assert_array_equal(program(array), program.reference(array))


TRIANGLES = (
    "t(i,j) min=! 3 where i in 0:13, j in 0:3, r in 0:i, q in 0:13",
    "t(i) max=! 1.0 where i in 0:7, k in i+1:5, l in 0:(i+2)/2+1",
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("statement", TRIANGLES)
def test_a_reduction_over_triangles_is_scheduled(statement: str) -> None:
    """isl's search for rows of the reduction indices had no end, and counts no operations there."""
    program = tcomp.define(f"def f(float(N) A) -> (t) {{ {statement} }}").f
    array = np.zeros(3, np.float32)
    np.testing.assert_array_equal(program(array), program.reference(array))


def test_erfcx_overflows_to_infinity() -> None:
    program = tcomp.define("def f(float(N) X) -> (Y) { Y(i) = erfcx(X(i)) }").f
    np.testing.assert_array_equal(program(np.array([-88, -40, -27.4], np.float32)), [np.inf] * 3)


UNNEEDED = {
    "a statement": """def f(float(N) A) -> (O) {
      t(i) = A(0) where i in 5:6
      u(i) = constant_exterior(t,2)(i) where i in 0:7
      O(j) = u(j) where j in 0:4
    }""",
    "a reduction": """def f(float(N) A) -> (O) {
      s +=! A(i)
      u(i) = i >= 5 ? s : 1.0 where i in 0:7
      O(j) = u(j) where j in 0:4
    }""",
    "the updates": """def f(float(N) A) -> (O) {
      t(i) +=! A(r) where i in 0:6, r in 0:i
      O(j) = t(0) where j in 0:4
    }""",
    "a read outside the tiles": """def f(float(N) A) -> (W, Z) {
      y(i) = A(i) + A(i+1)
      W(i) = i > 1000 ? y(i) : 0.0 where i in 0:4
      Z(i) = y(i) + y(i+1) + y(i+2)
    }""",
}


@pytest.mark.parametrize("name", UNNEEDED)
@pytest.mark.parametrize("tile", [None, (4,)])
def test_what_no_tile_needs(name: str, tile: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances that nobody needs left empty domains, and reads that never happen named storages of other tiles."""
    monkeypatch.setenv("TCOMP_CHECK", "1")
    program = tcomp.define(UNNEEDED[name]).f
    array = np.arange(40, dtype=np.float32)
    found = program(array, options=tcomp.MappingOptions(tile_sizes=tile, recompute_limit=10))
    expected = program.reference(array)
    pairs = [(found, expected)] if isinstance(found, np.ndarray) else zip(found, expected, strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def test_the_negative_of_an_index_with_one_negative_value() -> None:
    """The text was `--1`, which is a decrement."""
    program = tcomp.define("def f(float(2) B) -> (T) { T *=! B(-i) where i in -1:0 }").f
    assert program(np.array([2, 3], np.float32)) == 3


def test_products_of_indices_with_one_value_have_64_bits() -> None:
    """The text was the product of two literals, which C computes in 32 bits: the kernel read far outside."""
    program = tcomp.define("""def f(float(200) A) -> (B) {
      B(i) = A(i * i - 10000199914) where i in 100001:100002 }""").f
    array = np.arange(200, dtype=np.float32)
    assert program(array).tolist() == [100001**2 - 10000199914]


@pytest.mark.parametrize("factor", [1, 2])
def test_a_rest_in_a_dimension_of_one_element(factor: int) -> None:
    """``x / S`` and ``x % S`` were read at ``x`` along the rest's dimension, which addresses leave out: at 0."""
    shuffle = tcomp.define("""def f(float(N,C,H,W) X, const int S) -> (Y) {
      Y(n,c,h,w) = X(n, c, h/S, w/S) where h in 0:H*S, w in 0:W*S }
    def g(float(C,H,K) X) -> (Y) { Y(c,h) = X(c, h/K, h%K) where h in 0:H*K }
    def sliced(float(N,1) X) -> (Y) { Y(i) = X(4*i/4, 4*i%4) where i in 0:N }""")
    x = np.arange(3 * 7 * factor, dtype=np.float32).reshape(3, 7, factor)
    np.testing.assert_array_equal(shuffle.g(x), x.reshape(3, -1))
    rows = np.arange(40, dtype=np.float32).reshape(10, 4)
    np.testing.assert_array_equal(shuffle.sliced(rows[:, 1:2]), rows[:, 1])
    image = x[None, :, :, :]
    np.testing.assert_array_equal(shuffle.f(image, factor), image.repeat(factor, 2).repeat(factor, 3))


NAMED = {
    "packed": (
        """def f(float(M,K) A, float(K,N) B, float(N) NAME) -> (C) {
          C(m,n) +=! A(m,kk) * B(kk,n)
          C(m,n) = C(m,n) + NAME(n) }""",
        ((40, 600), (600, 1100), (1100,)),
        ("B_of_S0", "B_of_S0_at0"),
    ),
    "tiled": (
        """def f(float(H,W) A, float(H,W) NAME) -> (O) {
          B(h,w) = A(h,w) + A(h,w+1)
          O(h,w) = B(h,w) + B(h+1,w) + NAME(h,w) }""",
        ((40, 50), (40, 50)),
        ("B_1_at0",),
    ),
    "split": (
        "def f(float(N) A, float(M) NAME) -> (S, Q) { S +=! A(i)  Q(i) = NAME(i) + S }",
        ((1 << 21,), (7,)),
        ("S_acc0_parts",),
    ),
}


@pytest.mark.parametrize("kind", NAMED)
def test_names_that_kernels_make_up_are_free_for_tensors(kind: str) -> None:
    """Corners of tiles, panels and parts of reductions hid the tensors that had their names."""
    text, shapes, names = NAMED[kind]
    arrays = [np.random.default_rng(0).integers(-2, 3, shape).astype(np.float32) for shape in shapes]
    usual = tcomp.define(text.replace("NAME", "Z")).f
    source = usual.compile(*arrays).source
    assert {"packed": "p_B_of_S0_low1", "tiled": "at0_B_1", "split": "S_acc0_parts"}[kind] in source
    expected = usual(*arrays)
    for name in names:
        found = tcomp.define(text.replace("NAME", name)).f(*arrays)
        pairs = [(found, expected)] if isinstance(found, np.ndarray) else zip(found, expected, strict=True)
        for a, b in pairs:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "read",
    [
        "A(m,k) * repeat_image(B)(m * k, j + 3)",
        "A(m,k) * constant_exterior(B, 0)(m * k, j)",
        "repeat_edge(A)(m, uint8(k + 230)) * B(k,j)",
        "A(m,k) * repeat_image(B)(k, uint8(j + 230))",
        "A(m,k) * constant_exterior(B, 0)(k, uint8(j + 230))",
    ],
)
def test_what_boundaries_are_asked_for_without_being_affine(read: str) -> None:
    """Panels were filled with the tensor and then read where the subscripts said, outside of them."""
    text = f"def f(float(M,K) A, float(K,N) B) -> (O) {{ O(m,j) +=! {read} where m in 0:32, k in 0:48, j in 0:40 }}"
    program = tcomp.define(text).f
    a, b = (np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32) for shape in ((32, 48), (48, 40)))
    np.testing.assert_array_equal(program(a, b, target="cpu"), program.reference(a, b))


@pytest.mark.parametrize("border", ["float(half(0.1))", "float(bfloat16(257))", "-float(half(100000))", "0.1"])
def test_borders_of_panels_are_rounded_as_they_are_written(border: str) -> None:
    pytest.importorskip("ml_dtypes")
    text = f"""def f(float(M,K) A, float(K,N) B) -> (O) {{
      O(m,j) +=! A(m,k) * constant_exterior(B, {border})(k,j+3) where j in 0:40 }}"""
    program = tcomp.define(text).f
    a = np.eye(32, 48, dtype=np.float32)
    b = np.random.default_rng(0).integers(-3, 4, (48, 40)).astype(np.float32)
    a[:, 32:] = 0
    np.testing.assert_array_equal(program(a, b, target="cpu"), program.reference(a, b))


def test_a_failed_check_tells_the_indices_of_the_program_only() -> None:
    """Statements that several tiles run have the tile in front of them, which the report has no room for."""
    program = tcomp.define("""def f(float(N) A, int32(M) I, float(M,K) W) -> (O) {
        T(i) +=! A(I(i)) * W(i,k)
        O(i) = T(i) + T(i+1) where i in 0:M-1 }""").f
    index = np.zeros(40, np.int32)
    index[20], options = 5, tcomp.MappingOptions(tile_sizes=(8,))
    with pytest.raises(tcomp.ShapeError, match=r"is 5 at i = 20, k = 0, but"):
        program(np.ones(5, np.float32), index, np.ones((40, 6), np.float32), options=options)


def test_a_failed_check_in_a_part_of_a_long_sum_tells_its_step() -> None:
    """The steps of a part are counted anew."""
    program = tcomp.define("def f(float(M) A, int32(N) I) -> (O) { O +=! A(I(k)) }").f
    index = np.zeros(300_000, np.int32)
    index[200_001] = 5
    kernel = program.compile(np.ones(5, np.float32), index)
    assert "S0p" in kernel.stages["share"]
    with pytest.raises(tcomp.ShapeError, match=r"is 5 at k = 200001, but"):
        kernel(np.ones(5, np.float32), index)


@pytest.mark.parametrize(("rows", "columns"), [(1400, 700), (1024, 1024)])
def test_tiles_of_a_covariance_that_give_up_every_loop(rows: int, columns: int) -> None:
    """Either side of the triangle is needed for an element, so that no loop of the reader could be tiled."""
    program = tcomp.define(
        """def f(double(N,M) d) -> (cov) {
          c(i,j) +=! d(k,i) * d(k,j) where i in 0:M, j in i:M
          cov(i,j) = (i <= j ? c(i,j) : c(j,i)) where i in 0:M, j in 0:M
        }"""
    ).f
    d = np.random.default_rng(rows).random((rows, columns))
    np.testing.assert_allclose(program(d), d.T @ d, rtol=1e-12)
