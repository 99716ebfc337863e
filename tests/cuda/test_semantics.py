"""What the language promises, kept by CUDA kernels on the simulator: types, corner cases, layouts, names, checks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp import grammar
from tcomp.errors import ShapeError
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.options import MappingOptions
from tests.agreement import OF_FLOATS, assert_agrees
from tests.cpu.test_semantics import INTEGERS, SPECIAL
from tests.cuda.simulated import NEEDS_COMPILER
from tests.programs import MATMUL, PROGRAMS, A, Array, B, C, integers

pytestmark = [NEEDS_COMPILER, pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning"), pytest.mark.sweep(6)]

SMALL_TILES = MappingOptions(tile_sizes=(4, 8), threads=(8, 4))

FORMS: Mapping[str, tuple[MappingOptions, str, int]] = {
    "serial": (MappingOptions(match_reductions=False), "serial", 1),
    "in a warp": (MappingOptions(threads=(16, 4)), "shared", 16),
    "in a block": (MappingOptions(threads=(64, 2)), "shared", 64),
}
"""How threads may reduce: options, the form they give, and the threads that share a reduction."""

DTYPES = (*INTEGERS, "float16", "bfloat16", "float32", "float64", "bool")


def agrees(text: str, *inputs: Array, options: MappingOptions | None = None) -> None:
    """Assert that a simulated kernel gives what the reference gives: types, shapes and values."""
    (function,) = grammar.define(text).values()
    found = simulate(text, *inputs, options=options)
    results = found if isinstance(found, tuple) else (found,)
    named = dict(zip((t.name for t in function.inputs), inputs, strict=True))
    assert_agrees(function, named, dict(zip((t.name for t in function.outputs), results, strict=True)))


def simulate(text: str, *inputs: Array, out: Any = None, options: MappingOptions | None = None) -> Any:
    """What a program's only definition gives on the simulator."""
    (name,) = grammar.define(text)
    return getattr(tcomp.define(text), name)(*inputs, out=out, target="simulator", options=options)


def storage(dtype: str) -> Any:
    """The NumPy type of an element type; skips where there is none."""
    return pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)


def plan_of(text: str, inputs: tuple[Array, ...], options: MappingOptions) -> Any:
    """The plan that a call would run."""
    (name,) = grammar.define(text)
    kernel = getattr(tcomp.define(text), name).compile(*inputs, target="simulator", options=options)
    return kernel.compilation.plan


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [None, SMALL_TILES], ids=["default", "small tiles"])
def test_programs(name: str, options: MappingOptions | None) -> None:
    text, inputs, _ = PROGRAMS[name]
    agrees(text, *inputs, options=options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype: str, form: str) -> None:
    """Every combining operator over rows of every type, in partial warps and blocks, too."""
    options, name, threads = FORMS[form]
    text = """
    def f(T(M,N) X, T(M,N) Y) -> (S, P, L, H) {
        S(i) +=! X(i,j)
        P(i) *=! Y(i,j)
        L(i) min=! X(i,j)
        H(i) max=! X(i,j)
    }""".replace("T(M", f"{dtype}(M")
    kind = "u" if dtype == "bool" else np.dtype(storage(dtype)).kind
    low = 0 if kind == "u" else -3
    x = integers(3, 77, seed=1, low=low, high=2 if dtype == "bool" else 5).astype(storage(dtype))
    y = np.where(integers(3, 77, seed=2) > 3, 2 if dtype != "bool" else 1, 1).astype(storage(dtype))
    y[:, ::9] = -1 if kind != "u" else 1
    plan = plan_of(text, (x, y), options)
    assert {(d.form, d.group) for d in plan.dealt.values() if d.form != "pointwise"} >= {(name, threads)}
    agrees(text, x, y, options=options)


@pytest.mark.parametrize("form", FORMS)
def test_not_a_number_and_infinities_go_through_reductions(form: str) -> None:
    text = """
    def f(float(M,N) X) -> (L, H, S) {
        L(i) min=! X(i,j)
        H(i) max=! X(i,j)
        S(i) +=! X(i,j)
    }"""
    x = integers(6, 70, seed=3)
    for row, (place, value) in enumerate([(0, np.nan), (69, np.nan), (37, np.inf), (38, -np.inf), (64, np.nan)]):
        x[row, place] = value
    x[4, 3] = np.inf
    agrees(text, x, options=FORMS[form][0])


@pytest.mark.parametrize("form", FORMS)
def test_reductions_over_two_axes_and_over_everything(form: str) -> None:
    options = FORMS[form][0]
    agrees("def f(float(M,H,W) X) -> (S) { S(i) +=! X(i,h,w) }", integers(3, 9, 37), options=options)
    agrees("def f(float(H,W) X) -> (S) { S +=! X(h,w) }", integers(19, 37), options=options)
    agrees("def f(float(N) X) -> (S) { S max=! X(i) }", integers(515, low=-90, high=90), options=options)
    agrees("def f(float(H,N,W) X) -> (S) { S(n) +=! X(h,n,w) }", integers(35, 3, 5), options=options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("extents", [(1, 1), (1, 40), (40, 1), (0, 5), (5, 0), (0, 0)])
def test_extents_of_one_and_none(extents: tuple[int, int], form: str) -> None:
    text = "def f(float(M,N) X) -> (S, H, T) { S(i) +=! X(i,j)  H(i) max=! X(i,j)  T(j,i) = 2 * X(i,j) }"
    agrees(text, integers(*extents), options=FORMS[form][0])


def test_empty_contractions() -> None:
    agrees(MATMUL, A[:, :0], B[:0])
    agrees(MATMUL, A[:0], B)
    agrees(MATMUL, A[:1, :1], B[:1, :1])


@pytest.mark.parametrize(
    "change",
    [np.asfortranarray, lambda a: a[::-1], lambda a: a[:, ::-2], lambda a: np.broadcast_to(a[:1], a.shape)],
    ids=["columns first", "rows backwards", "every second column backwards", "one row again and again"],
)
def test_strides(change: Any) -> None:
    x, y = integers(37, 40, seed=1), integers(40, 36, seed=2)
    agrees(MATMUL, change(x)[:, :18], change(y)[:18])
    agrees("def f(float(M,N) X) -> (T, S) { T(j,i) = X(i,j) + 1  S(i) +=! X(i,j) }", change(x))


def test_outputs_in_the_middle_of_other_arrays() -> None:
    x, y = integers(37, 20, seed=1), integers(20, 33, seed=2)
    wide = np.full((74, 70), 9, np.float32)
    simulate(MATMUL, x, y, out=wide[::2, 1:67:2])
    np.testing.assert_array_equal(wide[::2, 1:67:2], x @ y)
    wide[::2, 1:67:2] = 9
    assert (wide == 9).all()
    backwards = np.zeros((37, 33), np.float32)[::-1, ::-1]
    assert simulate(MATMUL, x, y, out=backwards) is backwards
    np.testing.assert_array_equal(backwards, x @ y)


@pytest.mark.parametrize("form", FORMS)
def test_updates_in_place(form: str) -> None:
    x, before = integers(5, 67, seed=1), integers(5, seed=2)
    for symbol, combine in (("+=", np.add), ("max=", np.maximum), ("min=", np.minimum)):
        text = f"def f(float(M,N) X) -> (S) {{ S(i) {symbol} X(i,j) }}"
        out = before.copy()
        assert simulate(text, x, out=out, options=FORMS[form][0]) is out
        np.testing.assert_array_equal(out, combine(before, combine.reduce(x, axis=1)))


def test_contractions_add_to_what_is_there() -> None:
    out = integers(6, 7, seed=3)
    expected = out + A @ B
    simulate(MATMUL.replace("+=!", "+="), A, B, out=out)
    np.testing.assert_array_equal(out, expected)


def test_several_outputs_of_several_kernels() -> None:
    text = """
    def f(float(M,N) X) -> (R, K, T, U) {
        R(i) +=! X(i,j)
        K(j) max=! X(i,j)
        T(i,j) = X(i,j) * R(i) + K(j)
        U(j,i) = T(i,j) + T(i,0)
    }"""
    for options in (None, SMALL_TILES, MappingOptions(fusion_strategy="min")):
        agrees(text, integers(37, 45), options=options)


@pytest.mark.parametrize("boundary", ["repeat_edge", "mirror_image", "mirror_interior", "repeat_image"])
def test_boundaries(boundary: str) -> None:
    text = """
    def f(float(M,N) X) -> (O, P) {
        O(i,j) = fold(X)(i-3,j+2) where i in 0:M+5, j in 0:N
        T(i,j) = X(i,j-1) where i in 0:M, j in 1:N+1
        P(i,j) = fold(T)(i,j-4) where i in 0:M, j in 0:N+9
    }""".replace("fold", boundary)
    agrees(text, integers(9, 13))
    agrees(text, integers(1, 1))


def test_constant_exteriors() -> None:
    text = """
    def f(float(M,N) X) -> (O) {
        O(i,j) +=! constant_exterior(X, 3)(i+k-2,j-1) where i in 0:M, j in 0:N+3, k in 0:5
    }"""
    for options in (None, SMALL_TILES):
        agrees(text, integers(21, 34), options=options)


@pytest.mark.parametrize("condition", ["j <= i", "j > i", "i + j < N"])
def test_triangles(condition: str) -> None:
    texts = (
        f"def f(float(N,N) X) -> (S) {{ S(i) +=! X(i,j) where j in 0:N, {condition} }}",
        f"def f(float(N,N) X) -> (S) {{ S(i) +=! ({condition}) ? X(i,j) : 0 }}",
    )
    for text, options in itertools.product(texts, (None, SMALL_TILES, FORMS["in a block"][0])):
        try:
            grammar.define(text)
        except tcomp.CompileError:
            continue
        agrees(text, integers(43, 43), options=options)


LOOKUP = "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }"


@pytest.mark.parametrize("options", [None, SMALL_TILES], ids=["default", "small tiles"])
def test_indirect_subscripts_are_checked(options: MappingOptions | None) -> None:
    table, indices = integers(11, 19), integers(9, 4, low=0, high=11, dtype=np.int32)
    agrees(LOOKUP, table, indices, options=options)
    for wrong in (11, -1, 2**31 - 1, -(2**31)):
        bad = indices.copy()
        bad[7, 3] = wrong
        with pytest.raises(ShapeError, match=rf"I\(b,l\) of T in dimension 0 is {wrong} at b = 7") as caught:
            simulate(LOOKUP, table, bad, options=options)
        assert "l = 3, but must lie in 0..10" in str(caught.value)


def test_checks_are_made_where_values_are_read() -> None:
    text = "def f(float(E) T, int32(B) I) -> (O) { O(b) = I(b) >= 0 ? T(I(b)) : 0.0 }"
    agrees(text, C, np.array([-5, 3], np.int32))
    with pytest.raises(ShapeError, match=r"I\(b\) of T in dimension 0 is 7 at b = 1, but must lie in 0..6"):
        simulate(text, C, np.array([-5, 7], np.int32))


@pytest.mark.parametrize("target", ["cpu", "simulator"])
@pytest.mark.parametrize("dtype", ["half", "bfloat16", "float", "int8"])
def test_checks_of_tensors_without_elements(dtype: str, target: str) -> None:
    """There is nothing to load behind such a check, whatever the conversion around it."""
    indices, table = (
        np.array([2, -1], np.int32),
        np.zeros(0, storage({"half": "float16", "float": "float32"}.get(dtype, dtype))),
    )
    operator = tcomp.define(f"def f({dtype}(E) T, int32(B) I) -> (O) {{ O(b) = T(I(b)) }}").f
    with pytest.raises(ShapeError, match=r"is (2|-1) at b = (0|1), but that dimension has no elements"):
        operator(table, indices, target=target)


def test_64_bit_indices() -> None:
    """Subscripts that leave 32 bits on their way to an index that is inside."""
    text = "def f(float(N) X, float(M) Y) -> (O) { O(i) = X(i + N*M/M - N) where i in 0:100 }"
    array = np.arange(50_000, dtype=np.float32)
    agrees(text, array, np.zeros_like(array))
    agrees(
        "def f(float(N) X) -> (int64(5) O) { O(i-2147483646) = int64(i) where i in 2147483646:2147483651 }",
        np.zeros(1, np.float32),
    )
    text = "def f(float(N) X) -> (O) { O(i) = (i*30000 < 2147483647) ? X(i) : 0 where i in 0:100000 }"
    agrees(text, np.arange(71583, dtype=np.float32))


def test_arrays_of_more_than_32_bits_of_elements() -> None:
    wide = np.broadcast_to(np.float32(3), (1 << 32, 99))
    text = "def f(float(N,M) X) -> (O) { O(i) = X(N - 1 - i, M - 1) where i in 0:4 }"
    np.testing.assert_array_equal(simulate(text, wide), [3, 3, 3, 3])


NAMES = """
def main(float(thread,int_) float4, float(int_) threadIdx) -> (expf, report, b_m, e) {
    expf(blockIdx,class) = float4(blockIdx,class) * threadIdx(class)
    report(blockIdx) +=! expf(blockIdx,__syncthreads)
    b_m(asm) max=! expf(t_m,asm)
    part(thread_,A_tile) = report(thread_) + b_m(A_tile)
    e(warp,lane) = part(warp,lane) - 1
}"""


@pytest.mark.parametrize("options", [None, SMALL_TILES], ids=["default", "small tiles"])
def test_names_that_mean_something_else_in_cuda(options: MappingOptions | None) -> None:
    agrees(NAMES, integers(19, 45, seed=1), integers(45, seed=2), options=options)


def test_tiles_are_not_named_like_tensors() -> None:
    text = """
    def tc_check(float(m_part,k_tile) A, float(k_tile,gridDim) A_tile, float(gridDim) C_acc) -> (C) {
        C(t_m,t_n) +=! A(t_m,k) * A_tile(k,t_n)
        C(b_m,b_n) = C(b_m,b_n) + C_acc(b_n)
    }"""
    agrees(text, integers(37, 41, seed=1), integers(41, 35, seed=2), integers(35, seed=3))


@pytest.mark.parametrize(
    ("text", "shapes", "shared"),
    [
        ("float(M,K,L) A, float(K,L,N) B) -> (C) { C(m,n) +=! A(m,k,k_part) * B(k,k_part,n) }", (17, 20, 3, 24), 8192),
        ("float(M,K) A, float(K,N) B) -> (C) { C(m,m_part) +=! A(m,e) * B(e,m_part) }", (17, 9, 40), 0),
        ("float(M,K) A, float(K,N) k_part) -> (C) { C(m,n) +=! A(m,k) * k_part(k,n) }", (17, 32, 40), 9),
        ("float(M,K) e, float(K,N) element) -> (r) { r(m,n) +=! e(m,k) * element(k,n) }", (17, 9, 40), 8192),
    ],
)
def test_indices_and_tensors_named_like_loops(text: str, shapes: tuple[int, ...], shared: int) -> None:
    options = MappingOptions(tile_sizes=(16, 16), threads=(4, 4), reduction_tile=8, max_shared_memory=shared)
    agrees(f"def f({text}", integers(*shapes[:-1], seed=1), integers(*shapes[1:], seed=2), options=options)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_contractions(dtype: str) -> None:
    x, y = integers(37, 41, seed=1).astype(storage(dtype)), integers(41, 35, seed=2).astype(storage(dtype))
    agrees(MATMUL.replace("float", dtype), x, y)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64", "float64"])
def test_contractions_of_every_width(dtype: str) -> None:
    x, y = (integers(*s, seed=4, low=0).astype(dtype) for s in ((37, 41), (41, 35)))
    agrees(MATMUL.replace("float", dtype if dtype != "float64" else "double"), x, y)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic(dtype: str) -> None:
    """Wrap-around, floor division and remainder by every sign, by zero, and of the lowest value by -1."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    values = [low, -7, -2, -1, 0, 2, 3, 7, high] if low else [0, 1, 2, 3, 7, high]
    x, y = (np.array(v, dtype) for v in zip(*itertools.product(values, values), strict=True))
    text = """
    def f(T(N) X, T(N) Y) -> (Q, R, P, M, L) {
        Q(i) = X(i) / Y(i)
        R(i) = X(i) % Y(i)
        P(i) = X(i) * Y(i) + X(i) - Y(i)
        M(i) = min(X(i), Y(i)) * max(X(i), Y(i)) + abs(Y(i)) * sign(X(i)) + relu(-X(i))
        L(i) = X(i) < Y(i) || X(i) == Y(i) && !(X(i) > Y(i))
    }"""
    agrees(text.replace("T(N)", f"{dtype}(N)"), x, y)


@pytest.mark.parametrize("target", [*INTEGERS, "bool", "float16", "bfloat16"])
def test_conversions(target: str) -> None:
    storage(target)
    for source, dtype in (("float", np.float32), ("double", np.float64)):
        agrees(f"def f({source}(N) X) -> (O) {{ O(i) = {target}(X(i)) }}", SPECIAL.astype(dtype))


@pytest.mark.parametrize("c_type", ["float", "double"])
def test_intrinsics(c_type: str) -> None:
    """All of them, where they are well conditioned, a quarter of them in a program."""
    pytest.importorskip("scipy")
    rng = np.random.default_rng(0)
    dtype = np.float32 if c_type == "float" else np.float64
    inputs = tuple(rng.uniform(0.3, 0.9, 40).astype(dtype) for _ in range(4))
    parameters = ", ".join(f"{c_type}(N) X{k}" for k in range(4))
    for quarter in range(4):
        chosen = list(OF_FLOATS.items())[quarter::4]
        statements = []
        for name, intrinsic in chosen:
            arguments = ", ".join(f"X{k}(i)" for k in range(intrinsic.arity))
            statements.append(f"O_{name}(i) = {name}({'1 + ' * (name == 'acosh')}{arguments})")
        outputs = ", ".join(f"O_{name}" for name, _ in chosen)
        agrees(f"def f({parameters}) -> ({outputs}) {{ {' '.join(statements)} }}", *inputs)


@pytest.mark.parametrize(("architecture", "least"), [("sm_75", 0), ("sm_80", 128 << 10), ("sm_90", 128 << 10)])
def test_no_block_takes_more_shared_memory_than_the_device_has(architecture: str, least: int) -> None:
    """What a user allows beyond that is not used; beyond 48 KiB it is asked for at the launch."""
    text = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }"
    options = tcomp.MappingOptions(
        tile_sizes=(128, 128), reduction_tile=128, max_shared_memory=1 << 20, split_reduction=1
    )
    sizes = {"M": 256, "N": 256, "K": 256}
    kernel = tcomp.define(text).mm.compile(sizes=sizes, target=f"cuda:{architecture}", options=options)
    asked = [launch.shared_bytes for launch in kernel.compilation.source.launches]
    most = gpu_of(architecture).shared_per_block
    assert all(least <= count <= most for count in asked), asked


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.float16])
@pytest.mark.parametrize("offset", [0, 1, 2, 4])
@NEEDS_COMPILER
def test_fetches_of_16_bytes_take_arrays_that_begin_anywhere(dtype: Any, offset: int) -> None:
    """Whether 16 bytes may be fetched at a time is seen when the kernel is called."""
    name = {np.float32: "float", np.float64: "double", np.int32: "int32", np.float16: "half"}[dtype]
    text = f"def mm({name}(M,K) A, {name}(N,K) B) -> (C) {{ C(m,n) +=! A(m,kk) * B(n,kk) }}"
    operator = tcomp.define(text).mm
    rng = np.random.default_rng(offset)
    a, b = (rng.integers(-3, 4, 48 * 64 + offset).astype(dtype)[offset:].reshape(48, 64) for _ in range(2))
    source = operator.compile(a, b, target="simulator").source
    assert "tc_load16" in source or "tc_ask16" in source
    np.testing.assert_array_equal(operator(a, b, target="simulator"), operator.reference(a, b))


def test_float64_becomes_float16_in_one_step() -> None:
    """Just beside the middle of two numbers, at the ends of the range, and where float16 gets sparse."""
    middles = (np.arange(1024, 1324) + 0.5) * 2.0 ** np.arange(-30, 0).repeat(10)
    ends = [65520, np.nextafter(65520, 0), 1e300, -np.inf, np.nan, -0.0, 2**-25, np.nextafter(2**-25, 1), 5e-324]
    x = np.concatenate([middles, middles * (1 + 2**-40), -middles * (1 - 2**-40), ends])
    text = "def f(double(N) X) -> (float16(N) Y, float16(N) Z) { Y(i) = half(X(i)) Z(i) = half(X(i) * double(1)) }"
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    for found in simulate(text, x):
        np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))
