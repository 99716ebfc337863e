"""Sums of products in vector types: whole tiles, edges of every kind, and what is no case for them."""

from __future__ import annotations

import platform
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import toolchain
from tcomp.mapping.machines.cpu import this_machine

Use = Callable[..., None]

pytestmark = pytest.mark.sweep(4)

Array = np.ndarray[Any, np.dtype[Any]]
VECTOR = re.compile(r"\btc_c\d+_\d+ (\+=|= tc_dot_)")
"""A step of a register tile."""


def integers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).integers(-3, 4, shape).astype(dtype)


def vectors_in(kernel: tc.Kernel) -> bool:
    return VECTOR.search(kernel.source) is not None or "tc_matrix_product" in kernel.source


MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SIDES = (1, 3, 8, 17, 26, 65, 129)


@pytest.mark.parametrize("rows", SIDES)
def test_products_of_all_sizes(rows: int) -> None:
    f = tc.define(MATMUL)["f"]
    for number, columns in enumerate(SIDES):
        depth = (1, 5, 32)[number % 3]
        A, B = integers((rows, depth)), integers((depth, columns))
        assert (f(A, B) == A @ B).all(), (rows, columns, depth)


@pytest.mark.parametrize("tile", [(1, 8), (3, 5), (4, 24), (6, 64), (13, 26), (2, 100)])
@pytest.mark.parametrize("blocks", [(8, 16), (7, 9), (100, 100)])
def test_any_tile(tile: tuple[int, int], blocks: tuple[int, int]) -> None:
    f = tc.define(MATMUL)["f"]
    A, B = integers((61, 20)), integers((20, 75))
    options = tc.MappingOptions(tile_sizes=blocks, register_tile=tile)
    assert (f(A, B, options=options) == A @ B).all()


@pytest.mark.parametrize("sizes", [(50, 64), (48, 75), (50, 75), (7, 75)])
def test_whole_register_tiles_are_spelled_once(sizes: tuple[int, int]) -> None:
    """Where a tile is not full there is no version for all of its rows and columns."""
    f = tc.define(MATMUL)["f"]
    A, B = integers((sizes[0], 20)), integers((20, sizes[1]))
    kernel = f.compile(A, B, options=tc.MappingOptions(tile_sizes=(24, 32), register_tile=(6, 16)))
    tiles = Counter(re.findall(r"\btc_c5_\d+ = \{0\};", kernel.source))
    assert max(tiles.values()) == 1 + (sizes[1] % 16 > 0)
    assert (kernel(A, B) == A @ B).all()


FORMS: dict[str, tuple[str, list[tuple[int, ...]], str]] = {
    "batched": (
        "def f(float(B,N,K) X, float(B,K,M) Y) -> (Z) { Z(b,n,m) +=! X(b,n,k) * Y(b,k,m) }",
        [(5, 26, 7), (5, 7, 26)], "bnk,bkm->bnm",
    ),
    "left transposed": (
        "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }", [(9, 21), (9, 35)], "km,kn->mn",
    ),
    "two reduced indices": (
        "def f(float(A,E,F) X, float(E,F,D) Y) -> (Z) { Z(a,d) +=! X(a,e,f) * Y(e,f,d) }",
        [(6, 3, 5), (3, 5, 40)], "aef,efd->ad",
    ),
    "four free indices": (
        "def f(float(A,E,B) X, float(C,E,D) Y) -> (Z) { Z(a,b,c,d) +=! X(a,e,b) * Y(c,e,d) }",
        [(3, 5, 4), (6, 5, 37)], "aeb,ced->abcd",
    ),
    "a batch along the vectors": (
        "def f(float(M,K,B) X, float(K,B) Y) -> (Z) { Z(m,b) +=! X(m,k,b) * Y(k,b) }", [(7, 5, 48), (5, 48)],
        "mkb,kb->mb",
    ),
    "an outer product": (
        "def f(float(M,K) X, float(K,N) Y) -> (Z) { Z(n,m) +=! X(m,k) * Y(k,n) }", [(40, 3), (3, 50)], "mk,kn->nm",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("threads", [True, False])
def test_forms(name: str, threads: bool) -> None:
    text, shapes, formula = FORMS[name]
    f = tc.define(text)["f"]
    arrays = [integers(shape, seed=n) for n, shape in enumerate(shapes)]
    assert (f(*arrays, options=tc.MappingOptions(parallel=threads)) == np.einsum(formula, *arrays)).all()


@pytest.mark.parametrize("image", [(5, 5), (12, 31), (20, 70)])
def test_convolution_is_a_contraction(image: tuple[int, int]) -> None:
    f = tc.define("def f(float(C,H,W) I, float(O,C,3,3) K) -> (Y) { Y(o,h,w) +=! I(c,h+kh,w+kw) * K(o,c,kh,kw) }")["f"]
    pixels, K = integers((4, *image)), integers((6, 4, 3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (3, 3), (1, 2))
    expected = np.einsum("chwij,ocij->ohw", windows, K)
    kernel = f.compile(pixels, K)
    assert (kernel(pixels, K) == expected).all()
    assert vectors_in(kernel)


TYPES = {
    "float64": ("double", "double", "double"),
    "int32": ("int32", "int32", "int32"),
    "int8 into int32": ("int8", "int8", "int32"),
    "uint8 and int8": ("uint8", "int8", "int32"),
    "int16 into int64": ("int16", "int16", "int64"),
    "int16": ("int16", "int16", "int16"),
    "uint16": ("uint16", "uint16", "uint16"),
    "int8 and int16": ("int8", "int16", "int16"),
    "float into double": ("float", "float", "double"),
    "float64 and a float32": ("double", "float", "double"),
}
NUMPY = {"float": np.float32, "double": np.float64, "int32": np.int32, "int8": np.int8, "uint8": np.uint8,
         "int16": np.int16, "uint16": np.uint16, "int64": np.int64}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_types(name: str) -> None:
    first, second, result = TYPES[name]
    value = f"{result}(A(m,k)) * {result}(B(k,n))"
    f = tc.define(f"def f({first}(M,K) A, {second}(K,N) B) -> ({result}(M,N) C) {{ C(m,n) +=! {value} }}")["f"]
    A = np.abs(integers((19, 11))).astype(NUMPY[first])
    B = integers((11, 43)).astype(NUMPY[second])
    kernel = f.compile(A, B)
    assert vectors_in(kernel)
    assert (kernel(A, B) == (A.astype(np.int64) @ B.astype(np.int64)).astype(NUMPY[result])).all()


def test_conversions_on_the_way_count() -> None:
    """A negative number that becomes a wider unsigned one is large from then on."""
    value = "int32(uint16(A(m,k))) * int32(B(k,n))"
    f = tc.define(f"def f(int8(M,K) A, int8(K,N) B) -> (int32(M,N) C) {{ C(m,n) +=! {value} }}")["f"]
    A, B = integers((19, 11), np.int8), integers((11, 43), np.int8)
    assert (f(A, B) == A.astype(np.uint16).astype(np.int32) @ B.astype(np.int32)).all()


def test_integers_wrap() -> None:
    f = tc.define("def f(int32(M,K) A, int32(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")["f"]
    A = np.full((5, 9), 2**30 + 7, np.int32)
    B = np.full((9, 33), 12345, np.int32)
    with np.errstate(over="ignore"):
        assert (f(A, B) == (A.astype(np.int64) @ B.astype(np.int64)).astype(np.int32)).all()


def test_bfloat16_operands() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    f = tc.define(
        "def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (float(M,N) C) { C(m,n) +=! float(A(m,k)) * float(B(k,n)) }"
    )
    A, B = integers((9, 14)), integers((14, 40))
    kernel = f["f"].compile(A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16))
    assert vectors_in(kernel)
    assert (kernel(A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)) == A @ B).all()


@pytest.mark.parametrize("columns", [17, 40, 129])
@pytest.mark.parametrize("second", ["B(k,n)", "B(n,k)"])
def test_float16_operands(second: str, columns: int) -> None:
    """Subnormal numbers, the largest ones and infinities are converted as they are."""
    shape = (14, columns) if second == "B(k,n)" else (columns, 14)
    text = f"def f(float16(M,K) A, float16({'K,N' if shape[0] == 14 else 'N,K'}) B) -> (float(M,N) C)"
    f = tc.define(f"{text} {{ C(m,n) +=! float(A(m,k)) * float({second}) }}")["f"]
    A, B = integers((9, 14), np.float16), integers(shape, np.float16, 1)
    A[2, 3], A[4, 5], B[1, 2] = 2.0**-24, 65504, 2.0**-20
    A[5, 1] = np.inf
    kernel = f.compile(A, B)
    assert vectors_in(kernel) or second == "B(n,k)"
    with np.errstate(invalid="ignore"):
        expected = A.astype(np.float32) @ (B if shape[0] == 14 else B.T).astype(np.float32)
    np.testing.assert_allclose(kernel(A, B), expected, rtol=1e-5, atol=1e-5)


def test_strided_and_reversed_arrays() -> None:
    f = tc.define(MATMUL)["f"]
    A, B = integers((60, 20)), integers((20, 120))
    assert (f(A[::3], B[:, ::2]) == A[::3] @ B[:, ::2]).all()
    assert (f(A[::-1], B[::-1]) == A[::-1] @ B[::-1]).all()
    assert (f(A.T[:8].T, B.T[::-1][:, :8].T) == A[:, :8] @ B[:8, ::-1]).all()


def test_nan_and_infinity_come_through_every_lane() -> None:
    f = tc.define(MATMUL)["f"]
    A, B = np.ones((14, 6), np.float32), np.ones((6, 45), np.float32)
    A[3, 2], B[1, 44], B[4, 17] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(f(A, B), A @ B)


def test_epilogue_reads_what_the_registers_held() -> None:
    f = tc.define("""def f(float(M,K) A, float(K,N) B, float(N) b) -> (C) {
        C(m,n) +=! A(m,k) * B(k,n)
        C(m,n) = fmax(C(m,n) + b(n), 0) }""")["f"]
    A, B, b = integers((37, 8)), integers((8, 70)), integers((70,))
    kernel = f.compile(A, B, b)
    assert vectors_in(kernel)
    assert (kernel(A, B, b) == np.maximum(A @ B + b, 0)).all()


def test_accumulating_into_an_argument() -> None:
    with pytest.warns(tc.ProgramWarning):
        f = tc.define("def f(float(M,K) A, float(K,N) B) -> (float(M,N) C) { C(m,n) += A(m,k) * B(k,n) }")["f"]
    A, B, C = integers((18, 5)), integers((5, 37)), integers((18, 37))
    expected = C + A @ B
    assert (f(A, B, out=C) == expected).all()


def test_results_go_straight_to_the_output() -> None:
    """Accumulators that are only copied are never in memory."""
    f = tc.define(MATMUL)["f"]
    A, B = integers((37, 11)), integers((11, 70))
    kernel = f.compile(sizes={"M": 32, "K": 11, "N": 64})
    assert "tc_r" in kernel.source
    assert re.search(r"C_acc0\[.*\] =", kernel.source) is None
    C = np.full((40, 140), np.nan, np.float32)
    f(A, B, out=C[3:, ::2])
    assert (C[3:, ::2] == A @ B).all() and np.isnan(C[:3]).all() and np.isnan(C[:, 1::2]).all()


FINISHED = {
    "more than copied": ("C(m,n) = fmax(C(m,n) + D(n), 0)", lambda C, D: np.maximum(C + D, 0)),
    "read by others": ("E(m,n) = C(m,n) * D(n)  C(m,n) = E(m,n) + C(m,n)", lambda C, D: C * D + C),
}


@pytest.mark.parametrize("name", FINISHED)
@pytest.mark.parametrize("depth", [9, 2500])
def test_accumulators_that_are_not_only_copied(name: str, depth: int) -> None:
    text, expected = FINISHED[name]
    f = tc.define(f"def f(float(M,K) A, float(K,N) B, float(N) D) -> (C) {{ C(m,n) +=! A(m,k) * B(k,n)  {text} }}")["f"]
    A, B, D = integers((21, depth)), integers((depth, 50)), integers((50,))
    assert (f(A, B, D) == expected(A @ B, D)).all()


LONG: dict[str, tuple[str, list[tuple[int, ...]], str]] = {
    "one index": (MATMUL, [(21, 4999), (4999, 50)], "mk,kn->mn"),
    "an index in blocks below one that is not": (
        "def f(float(M,J,K) A, float(J,K,N) B) -> (C) { C(m,n) +=! A(m,j,k) * B(j,k,n) }",
        [(21, 3, 2500), (3, 2500, 40)], "mjk,jkn->mn",
    ),
    "an index in blocks above one that is not": (
        "def f(float(M,J,K) A, float(J,N,K) B) -> (C) { C(m,n) +=! A(m,j,k) * B(j,n,k) }",
        [(21, 200, 17), (200, 48, 17)], "mjk,jnk->mn",
    ),
    "a batch": (
        "def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }",
        [(3, 10, 3001), (3, 3001, 33)], "bmk,bkn->bmn",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("threads", [True, False])
def test_long_reductions_run_in_blocks(name: str, threads: bool) -> None:
    text, shapes, formula = LONG[name]
    arrays = [integers(shape, seed=n) for n, shape in enumerate(shapes)]
    options = tc.MappingOptions(parallel=threads)
    kernel = tc.define(text)["f"].compile(*arrays, options=options)
    assert 'mark: "block0"' in kernel.stages["pack"]
    assert (kernel(*arrays) == np.einsum(formula, *arrays)).all()


PLAIN_STEP = re.compile(r"C_acc0\[.*\] = \(.* \+ ")
"""A step of a contraction element by element."""


def test_partial_blocks_run_in_vectors() -> None:
    """A prime number of steps has no equal blocks: the last one is shorter, and in vectors all the same."""
    kernel = tc.define(MATMUL)["f"].compile(sizes={"M": 64, "K": 1511, "N": 64})
    assert vectors_in(kernel) and PLAIN_STEP.search(kernel.source) is None
    A, B = integers((64, 1511)), integers((1511, 64))
    assert (kernel(A, B) == A @ B).all()


@pytest.mark.parametrize("shape", [(37, 70), (100, 33), (129, 255), (61, 1000)])
def test_tiles_of_every_extent_run_in_vectors(shape: tuple[int, int]) -> None:
    """Where all extents that a tile may have are known, there is nothing else to spell."""
    kernel = tc.define(MATMUL)["f"].compile(sizes={"M": shape[0], "K": 40, "N": shape[1]})
    assert vectors_in(kernel) and PLAIN_STEP.search(kernel.source) is None
    A, B = integers((shape[0], 40)), integers((40, shape[1]))
    assert (kernel(A, B) == A @ B).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint16"])
@pytest.mark.parametrize("columns", [17, 33, 49, 65])
def test_a_column_that_is_left_over_stays_in_registers(columns: int, dtype: str) -> None:
    kernel = tc.define(MATMUL.replace("float", dtype))["f"].compile(sizes={"M": 64, "K": 40, "N": columns})
    assert vectors_in(kernel) and PLAIN_STEP.search(kernel.source) is None
    A, B = integers((64, 40)).astype(dtype), integers((40, columns)).astype(dtype)
    assert (kernel(A, B) == A @ B).all()


@pytest.mark.parametrize("rows", [16, 50])
@pytest.mark.parametrize("step", [1, 2])
def test_a_column_of_an_image_that_is_left_over_stays_in_registers(rows: int, step: int) -> None:
    """Tiles that are torn on both sides have versions of their own; what strides leave between columns is packed."""
    f = tc.define(f"""def f(float(C,H,W) I, float(F,C,Y,X) K) -> (O) {{
        O(f,h,w) +=! I(c,{step}*h+y,{step}*w+x) * K(f,c,y,x) where h in 0:5, w in 0:33 }}""")["f"]
    image, K = integers((40, 5 * step + 2, 33 * step + 2)), integers((rows, 40, 3, 3))
    kernel = f.compile(image, K, options=tc.MappingOptions(parallel=False))
    assert vectors_in(kernel) and re.search(r"O_acc0\[.*\] = \(.* \+ ", kernel.source) is None
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(1, 2))[:, ::step, ::step][:, :5, :33]
    assert (kernel(image, K) == np.einsum("chwyx,fcyx->fhw", windows, K)).all()


@pytest.mark.parametrize("extent", [70, 90, 100])
def test_tiles_of_a_triangle_may_have_any_extent(extent: int) -> None:
    """On the diagonal, and there at the end, too."""
    f = tc.define("""def f(float(N,N) A, float(N,N) B) -> (C) {
        C(m,n) = 0.0 where m in 0:N, n in 0:N
        C(m,n) += A(m,k) * B(k,n) where m in 0:N, n in 0:m+1 }""")
    kernel = f["f"].compile(sizes={"N": extent})
    A, B = integers((extent, extent)), integers((extent, extent))
    assert re.search(r"acc1\[.*\] = \(.* \+ ", kernel.source) is None  # no plain loops: tiles on the diagonal are whole
    assert (kernel(A, B) == np.tril(A @ B)).all()


PERMUTED = "def f(float(F,B,E,A) X, float(C,E,D,F) Y) -> (Z) { Z(d,c,b,a) +=! X(f,b,e,a) * Y(c,e,d,f) }"


@pytest.mark.parametrize("sizes", [(7, 3, 5, 20), (33, 4, 40, 36)])
def test_steps_follow_the_operand_that_is_not_packed(sizes: tuple[int, int, int, int]) -> None:
    """Its neighbours are read one after another, and rows are taken from where it is contiguous, too."""
    F, B, E, A = sizes
    X, Y = integers((F, B, E, A)), integers((6, E, 13, F))
    f = tc.define(PERMUTED)["f"]
    kernel = f.compile(X, Y)
    update = re.search(r"S0\[i0, i1, i2, i3, i4, i5\] -> \[\(i\d\)\].*", kernel.stages["nest"].split("contract0")[1])
    assert update is not None
    order = re.findall(r"S0\[[^]]*\] -> \[\(i(\d)\)\]", update[0])
    indices = kernel.compilation.plan.scop.by_name["S0"].indices
    loops = [indices[int(p)] for p in order]
    assert loops.index("e") < loops.index("f")
    assert (f(X, Y) == np.einsum("fbea,cedf->dcba", X, Y)).all()


def marks_of(sizes: dict[str, int]) -> list[str]:
    """The marks of a product's plan, in the order of its text."""
    return re.findall(r'mark: "(\w+)"', tc.define(MATMUL)["f"].compile(sizes=sizes).stages["pack"])


def test_short_reductions_run_in_one_block() -> None:
    assert "block0" not in marks_of({"M": 64, "K": 512, "N": 64})


def test_what_is_read_once_from_far_away_is_read_in_its_order(machine: Use) -> None:
    """Few rows use a large matrix once: a few of its own rows at a time are fetched ahead."""
    machine(datapath_bytes=this_machine().vector_bytes, nearest_cache=48 << 10)
    assert "block0" in marks_of({"M": 8, "K": 1000, "N": 1024})
    assert "block0" not in marks_of({"M": 8, "K": 400, "N": 64})
    assert "block0" not in marks_of({"M": 100, "K": 1000, "N": 1024})
    A, B = integers((8, 1000)), integers((1000, 1024))
    assert (tc.define(MATMUL)["f"](A, B) == A @ B).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1000, 3001), (2048, 1024), (517, 2500)])
def test_one_row_takes_a_large_matrix_a_few_long_rows_at_a_time(
    shape: tuple[int, int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight or so rows go by side by side, a page of each, and their steps are unrolled."""
    other = replace(this_machine(), threads=threads)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
    kernel = tc.define("def f(float(K) x, float(K,N) A) -> (y) { y(n) +=! x(k) * A(k,n) }")["f"].compile(
        sizes=dict(zip("KN", shape, strict=True))
    )
    (steps,) = {int(size) for size in re.findall(r"floor\(\(i1\)/(\d+)\)", kernel.stages["nest"])}
    assert steps in range(4, 13) and "#pragma GCC unroll" in kernel.source
    assert kernel.compilation.nest.startswith("p0") or (threads, shape[1]) == (1, 1024), "threads share the columns"
    x, A = integers(shape[:1]), integers(shape)
    assert (kernel(x, A) == x @ A).all()


@pytest.mark.parametrize("depth", [1, 2, 8, 100])
def test_results_of_short_reductions_are_written_row_by_row(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The panel of a whole tile stays near: its register tiles run along the rows."""
    machine = replace(this_machine(), middle_cache=1 << 20)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: machine)
    plan = tc.define(MATMUL)["f"].compile(sizes={"M": 300, "K": depth, "N": 500}).stages["pack"]
    inside = plan[plan.index('mark: "panel0"') :]
    bands = re.findall(r"S0\[i0, i1, i2\] -> \[\(floor\(\(i(\d)\)/", inside)
    assert bands == (["0", "1"] if depth < 50 else ["0"])
    A, B = integers((300, depth)), integers((depth, 500))
    assert (tc.define(MATMUL)["f"](A, B) == A @ B).all()


TURNED = "def f(float(A,D,B) X, float(C,D) Y) -> (Z) { Z(c,b,a) +=! X(a,d,b) * Y(c,d) }"


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("sizes", [(40, 100, 70, 9), (16, 64, 16, 3), (7, 300, 33, 20), (33, 1200, 40, 5)])
def test_results_are_turned_where_an_operand_is_contiguous_elsewhere(
    sizes: tuple[int, int, int, int], threads: bool
) -> None:
    """Columns are what an operand has side by side; the accumulators of a tile have them side by side, too."""
    A, D, B, C = sizes
    X, Y = integers((A, D, B)), integers((C, D))
    f = tc.define(TURNED)["f"]
    kernel = f.compile(X, Y, options=tc.MappingOptions(parallel=threads))
    assert kernel.compilation.plan.buffers["Z_acc0"].order == (0, 2, 1)
    assert vectors_in(kernel)
    assert (kernel(X, Y) == np.einsum("adb,cd->cba", X, Y)).all()
    again = f.compile(X, Y, options=tc.MappingOptions(parallel=threads), plan=kernel.stages["pack"])
    assert again.source == kernel.source


def test_results_that_are_more_than_copied_are_turned_too() -> None:
    text = """def f(float(A,D,B) X, float(C,D) Y, float(B) W) -> (Z) {
        Z(c,b,a) +=! X(a,d,b) * Y(c,d)
        Z(c,b,a) = fmax(Z(c,b,a) + W(b), 0) }"""
    X, Y, W = integers((20, 90, 37)), integers((6, 90)), integers((37,))
    expected = np.maximum(np.einsum("adb,cd->cba", X, Y) + W[:, None], 0)
    assert (tc.define(text)["f"](X, Y, W) == expected).all()


def test_an_order_that_is_none_is_refused() -> None:
    f = tc.define(TURNED)["f"]
    plan = f.compile(sizes={"A": 40, "D": 100, "B": 70, "C": 9}).stages["pack"]
    assert "order = [0, 2, 1]" in plan
    with pytest.raises(tc.PlanError, match="order must name every dimension of a tile once"):
        f.compile(
            sizes={"A": 40, "D": 100, "B": 70, "C": 9}, plan=plan.replace("order = [0, 2, 1]", "order = [0, 2, 2]")
        )


LOOP = re.compile(r"^(\.L\d+):\n((?:\t.*\n)*?)\tj\w+\t\1\n", re.MULTILINE)
"""An innermost loop in machine code, and what is in it."""


def test_accumulators_stay_in_registers_where_several_versions_of_a_tile_load_them(machine: Use) -> None:
    """gcc loaded some before the versions, and one stayed in memory in the loop: half of the speed."""
    machine(datapath_bytes=this_machine().vector_bytes)
    chain = toolchain.find()
    if chain.family is not toolchain.GCC or platform.machine() != "x86_64":
        pytest.skip("about gcc's code for x86-64")
    f = tc.define("def f(float(D,C,F,E) A, float(F,E,B,N) X) -> (O) { O(d,b,c,n) +=! A(d,c,f,e) * X(f,e,b,n) }")["f"]
    columns = 72 if this_machine().vector_bytes == 64 else 56
    source = f.compile(sizes={"D": 20, "C": 48, "F": 48, "E": 48, "B": 4, "N": columns}).source
    assert "not all rows and columns" in source and "= {0};" not in source
    command = (*chain.command, "-S", *chain.arguments(source, ()), "-o", "-")
    code = subprocess.run(command, input=source, text=True, capture_output=True, check=True).stdout
    loops = [body for _, body in LOOP.findall(code) if body.count("vfmadd") >= 8]
    assert loops
    for body in loops:
        assert not re.search(r"\tv\w+\t.*\(%r[sb]p\)", body)


@pytest.mark.parametrize("rows", [40, 83])
def test_tiles_of_elements_may_lie_behind_the_rows_of_a_contraction(rows: int) -> None:
    """A torn tile of its last rows is not what tiles of other elements run."""
    text = """def f(float(N,D) A, float(D,E) B, float(M) S) -> (O) {
      O(i,e) = 0.0 where i in 0:M, e in 0:E
      O(i,e) += A(i,k) * B(k,e) where i in 0:N
      O(i,e) = O(i,e) / S(i)
    }"""
    values = [np.ones((rows, 8), np.float32), np.ones((8, 2), np.float32), np.ones(100, np.float32)]
    expected = np.zeros((100, 2))
    expected[:rows] = 8
    np.testing.assert_array_equal(tc.define(text).f(*values), expected)
