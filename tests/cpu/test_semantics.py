"""What the language leaves to nobody: CPU kernels give what the reference gives, corner cases included."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp import grammar
from tcomp.backends.simulator.compiler import why_not
from tcomp.errors import ShapeError
from tests.agreement import OF_FLOATS, assert_agrees
from tests.programs import MATMUL, PROGRAMS, A, Array, B, C, integers

pytestmark = pytest.mark.sweep(3)

SPECIAL = np.array(
    [1.9, -1.9, 300, -300, np.inf, -np.inf, np.nan, 127.5, 5e9, -5e9, 1e30, -1e30, 0, -0.0, 2.5, -2.5], np.float64
)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def agrees(text: str, *inputs: Array) -> None:
    """Assert that a program's kernel gives what the reference gives: types, shapes and values."""
    (function,) = grammar.define(text).values()
    found: Any = getattr(tcomp.define(text), function.name)(*inputs, target="cpu")
    results = found if isinstance(found, tuple) else (found,)
    named = dict(zip((t.name for t in function.inputs), inputs, strict=True))
    assert_agrees(function, named, dict(zip((t.name for t in function.outputs), results, strict=True)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    text, inputs, _ = PROGRAMS[name]
    agrees(text, *inputs)


@pytest.mark.parametrize("boundary", ["repeat_edge", "mirror_image", "mirror_interior", "repeat_image"])
def test_boundaries(boundary: str) -> None:
    text = """
    def f(float(N) A) -> (O, P) {
        O(i) = fold(A)(i-7) where i in 0:N+14
        T(i) = A(i-3)
        P(i) = fold(T)(i-4) where i in 0:N+14
    }""".replace("fold", boundary)
    for extent in (1, 2, 5):
        agrees(text, np.arange(1, extent + 1, dtype=np.float32))


def test_exterior_value_may_vary() -> None:
    text = "def f(float(N) A, float(M) B) -> (O) { O(i) = constant_exterior(A, B(i))(i-1) where i in 0:N+2 }"
    agrees(text, C, integers(9, seed=7))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic(dtype: str) -> None:
    """Wrap-around, floor division and remainder by every sign, by zero, and of the lowest value by -1."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    values = [low, -7, -2, -1, 0, 2, 3, 7, high] if low else [0, 1, 2, 3, 7, high]
    x, y = (np.array(v, dtype) for v in zip(*itertools.product(values, values), strict=True))
    text = """
    def f(T(N) X, T(N) Y) -> (Q, R, S, P, M, G, L, U) {
        Q(i) = X(i) / Y(i)
        R(i) = X(i) % Y(i)
        S(i) = X(i) - Y(i)
        P(i) = X(i) * Y(i) + X(i)
        M(i) = min(X(i), Y(i)) * max(X(i), Y(i))
        G(i) = -X(i)
        L(i) = X(i) < Y(i) || X(i) == Y(i) && !(X(i) > Y(i))
        U(i) = relu(X(i)) + abs(Y(i)) * sign(X(i))
    }"""
    agrees(text.replace("T(N)", f"{dtype}(N)"), x, y)


@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize("target", [*INTEGERS, "bool", "float16"])
def test_conversions(source: str, target: str) -> None:
    values = SPECIAL.astype(np.float32 if source == "float" else np.float64)
    agrees(f"def f({source}(N) A) -> (O) {{ O(i) = {target}(A(i)) }}", values)


def test_bfloat16_rounds_to_nearest_even() -> None:
    pytest.importorskip("ml_dtypes")
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, 1e-40, np.nan], np.float32)
    agrees("def f(float(N) A) -> (bfloat16(N) O) { O(i) = bfloat16(A(i)) }", values)


@pytest.mark.parametrize("target", ["cpu", "simulator"])
@pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64", "float64"])
def test_conversions_to_bfloat16_round_once(source: str, target: str) -> None:
    """Just beside the middle of two numbers, for which float32 would take it."""
    pytest.importorskip("ml_dtypes")
    if target == "simulator" and why_not() is not None:
        pytest.skip(why_not() or "")
    dtype = np.dtype(source)
    shifts = (17, 18, 23) if dtype.itemsize == 4 else (17, 18, 30, 45) if dtype.kind == "f" else (17, 30, 46, 47, 55)
    cases = list(itertools.product(shifts, (128, 129, 254, 255), (-1, 0, 1)))
    values = np.array([(number << s) + (1 << (s - 1)) + aside for s, number, aside in cases], dtype)
    expected = [float(number + (aside + number % 2 > 0) << s) for s, number, aside in cases]
    text = f"""def f({source}(N) X) -> (bfloat16(N) Y, bfloat16(N) Z) {{
      Y(i) = bfloat16(X(i))  Z(i) = bfloat16(X(i) * {source}(1)) }}"""
    operator = tcomp.define(text).f
    for found in (*operator(values, target=target), *operator.reference(values)):
        np.testing.assert_array_equal(found.astype(np.float64), expected)


def test_integers_of_more_than_eight_bits_are_rounded_to_bfloat16() -> None:
    pytest.importorskip("ml_dtypes")
    text = (
        "def f(float(N) A) -> (O) { O(i) = A(i) + float(bfloat16(257)) + float(bfloat16(-259)) + float(bfloat16(N)) }"
    )
    agrees(text, np.zeros(1027, np.float32))
    assert tcomp.define(text).f(np.zeros(1027, np.float32), target="cpu")[0] == 256 - 260 + 1024


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_contractions(dtype: str) -> None:
    storage: Any = dtype if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    agrees(MATMUL.replace("float", dtype), A.astype(storage), B.astype(storage))


def test_narrow_sums_accumulate_wider() -> None:
    agrees("def f(int8(M,N) A) -> (O) { O(i) +=! A(i,j) }", np.full((2, 300), 127, np.int8))
    agrees("def f(float16(M,N) A) -> (O) { O(i) +=! A(i,j) }", np.full((2, 4096), 1, np.float16))
    agrees("def f(bool(M,N) A) -> (O) { O(i) +=! A(i,j) }", np.array([[False, True], [False, False]]))


@pytest.mark.parametrize("value", ["(A(i) + 1 > A(i)) ? 1 : 0", "(A(i) * 2) / 2", "(A(i) * A(i) < 0) ? 1 : 0", "-A(i)"])
def test_the_compiler_may_not_assume_that_integers_do_not_wrap(value: str) -> None:
    extremes = np.array([2**31 - 1, -(2**31), -1, 0, 123456789] + [7] * 59, np.int32)
    agrees(f"def f(int32(N) A) -> (O) {{ O(i) = {value} }}", extremes)


def test_subscripts_are_computed_in_64_bits() -> None:
    """Products of sizes that leave 32 bits must not wrap on the way to an index that is inside."""
    text = "def f(float(N) A, float(M) B) -> (O) { O(i) = A(i + N*M/M - N) where i in 0:100 }"
    array = np.arange(50_000, dtype=np.float32)
    agrees(text, array, np.zeros_like(array))


def test_guards_are_computed_in_64_bits() -> None:
    """A guard is proved in unbounded integers: were it to wrap in the kernel, it would let through what it excludes."""
    text = "def f(float(N) A) -> (O) { O(i) = (i*30000 < 2147483647) ? A(i) : 0 where i in 0:2000000 }"
    agrees(text, np.arange(71583, dtype=np.float32))


@pytest.mark.parametrize("first", [2147483646, 2147483645])
def test_an_index_beyond_32_bits_converts_to_64(first: int) -> None:
    """The second row begins where a tile does, so its loop ends at a sum of two constants."""
    text = f"def f(float(N) A) -> (int64(5) O) {{ O(i-{first}) = int64(i) where i in {first}:{first + 5} }}"
    agrees(text, np.zeros(1, np.float32))
    found = tcomp.define(text).f(np.zeros(1, np.float32))
    np.testing.assert_array_equal(found, np.arange(first, first + 5))


def test_products_of_indices_are_proved_not_checked() -> None:
    """They are computed in 64 bits, as the proof does, so no check at run time is needed, even with large products."""
    text = "def f(float(N) A, float(P) B) -> (O) { O(i,j) = A(i*j/100000) where i in 0:P, j in 49990:50000 }"
    array, sizes = np.arange(25_000, dtype=np.float32), np.zeros(50_000, np.float32)
    agrees(text, array, sizes)
    assert not tcomp.define(text).f.compile(array, sizes).compilation.source.checks


def test_nan_and_infinity() -> None:
    text = """
    def f(float(N) A, float(N) Z) -> (O, P, Q, R, S, T, U) {
        O(i) = max(A(i), Z(i))
        P(i) = fmax(A(i), Z(i))
        Q(i) = min(Z(i), A(i))
        R max=! A(i)
        S min=! Z(i)
        T(i) = relu(A(i)) + abs(A(i)) * sign(A(i))
        U(i) = A(i) % 2.0
    }"""
    agrees(text, SPECIAL.astype(np.float32), np.zeros(SPECIAL.size, np.float32))


def test_empty_arrays() -> None:
    agrees(MATMUL, A[:, :0], B[:0])
    agrees(MATMUL, A[:0], B)


@pytest.mark.parametrize("c_type", ["float", "double"])
def test_intrinsics(c_type: str) -> None:
    """All of them, in one program, where they are well conditioned."""
    pytest.importorskip("scipy")
    parameters = ", ".join(f"{c_type}(N) X{k}" for k in range(4))
    statements, outputs = [], []
    for name, intrinsic in OF_FLOATS.items():
        arguments = ", ".join(f"X{k}(i)" for k in range(intrinsic.arity))
        statements.append(f"O_{name}(i) = {name}({'1 + ' * (name == 'acosh')}{arguments})")
        outputs.append(f"O_{name}")
    text = f"def f({parameters}) -> ({', '.join(outputs)}) {{ {' '.join(statements)} }}"
    rng = np.random.default_rng(0)
    dtype = np.float32 if c_type == "float" else np.float64
    agrees(text, *(rng.uniform(0.3, 0.9, 40).astype(dtype) for _ in range(4)))


def test_indirect_subscripts_are_checked_where_they_are_read() -> None:
    guarded = "def f(float(E) T, int32(B) I) -> (O) { O(b) = I(b) >= 0 ? T(I(b)) : 0.0 }"
    both = "def f(float(E) T, int32(B) I) -> (O) { O(b) = float(I(b) >= 0 && T(I(b)) == T(3)) }"
    for text in (guarded, both):
        agrees(text, C, np.array([-5, 3], np.int32))
        with pytest.raises(ShapeError, match="T"):
            tcomp.define(text).f(C, np.array([-5, 7], np.int32), target="cpu")


@pytest.mark.parametrize("target", ["cpu", "simulator"])
@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("def f(float(M) T, int32(N) I) -> (O) { O(i) = T(I(i)) }", C[:1]),
        ("def f(float(M) T, int32(N) I) -> (O) { O(i) = T(I(i)) }", np.broadcast_to(C[:1], (5,))),
        ("def f(float(M,K) T, int32(N) I) -> (O) { O(i,k) = T(I(i), k) }", A[:1]),
        ("def f(float(M) T, int32(N) I) -> (O) { S(m) = T(m) + 1 O(i) = S(I(i)) }", C[:1]),
        ("def f(float(M,K) T, int32(N) I) -> (O) { S(m) +=! T(m,k) O(i) = S(I(i)) + S(I(i)) }", A[:1]),
    ],
)
def test_subscripts_that_move_nothing_are_checked(text: str, table: Array, target: str) -> None:
    """In dimensions of one element, and in those that a stride of 0 makes long."""
    if target == "simulator" and why_not() is not None:
        pytest.skip(why_not() or "")
    operator = tcomp.define(text).f
    inside, outside = np.zeros(3, np.int32), np.array([0, 5, 0], np.int32)
    np.testing.assert_array_equal(operator(table, inside, target=target), operator.reference(table, inside))
    with pytest.raises(
        ShapeError, match=rf"of [TS] in dimension 0 is 5 at .*i = 1.*, but must lie in 0..{len(table) - 1}"
    ):
        operator(table, outside, target=target)


def test_what_proofs_know_of_is_computed_in_64_bits() -> None:
    """``abs`` and ``relu`` of indices in guards and subscripts, whose arithmetic leaves 32 bits."""
    table = np.arange(32768, dtype=np.float32)
    i = np.arange(40000)
    near = "def f(float(N) A) -> (B) { B(i) = abs(i*65537) < 2147483000 ? A(i) : -1.0 where i in 0:40000 }"
    expected = np.where(i * 65537 < 2147483000, i, -1).astype(np.float32)
    np.testing.assert_array_equal(tcomp.define(near).f(table, target="cpu"), expected)
    agrees(near, table)
    agrees("def f(float(N) A) -> (B) { B(i) = A(relu(i*65536)/65536) where i in 0:N }", i.astype(np.float32))
    wide = "def f(float(N) A) -> (int64(N) B) { B(i) = int64(abs(i*65536*65536)) where i in 0:N }"
    np.testing.assert_array_equal(tcomp.define(wide).f(table, target="cpu"), np.arange(32768) << 32)
    agrees(wide, table)


def test_arithmetic_on_narrow_indices_is_computed_in_64_bits() -> None:
    """A conversion cuts an index off; what is made of the result is not, where it is compared or widened."""
    text = """def f(float(N) A) -> (int64(N) B, int32(N) C) {
      B(i) = int64(int8(i) + int8(i)) where i in 0:N
      C(i) = int8(i) + int8(i) < 100 ? 1 : 0 where i in 0:N }"""
    i = np.arange(200).astype(np.int8).astype(np.int64)
    found = tcomp.define(text).f(np.zeros(200, np.float32), target="cpu")
    np.testing.assert_array_equal(found[0], 2 * i)
    np.testing.assert_array_equal(found[1], (2 * i < 100).astype(np.int32))
    agrees(text, np.zeros(200, np.float32))


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_the_signs_of_zeros(dtype: str) -> None:
    """A remainder of 0 has the sign of the divisor, as any other; ``round`` and ``sign`` keep that of a zero."""
    text = f"""def f({dtype}(N) X, {dtype}(N) Y) -> (R, W, S) {{
      R(i) = X(i) % Y(i)   W(i) = round(X(i))   S(i) = sign(X(i)) }}"""
    x = np.array([-6, 6, -6, 6, -0.0, 0.0, -0.0, 0.25, -0.25], np.float32 if dtype == "float" else np.float64)
    y = np.array([3, -3, -3, 3, 1, -1, -np.inf, 0.25, 0.25], x.dtype)
    expected = (np.remainder(x, y), np.round(x), np.where(x == 0, x, np.sign(x)))
    operator = tcomp.define(text).f
    for results in (operator(x, y, target="cpu"), operator.reference(x, y)):
        for found, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_a_zero_keeps_its_sign_in_vectors() -> None:
    """``relu`` gives what is not below zero as it is; sums are spelled in vectors."""
    operator = tcomp.define("def f(float(N) X) -> (S) { S +=! 1 / relu(X(i)) }").f
    x = np.full(64, -0.0, np.float32)
    assert operator(x, target="cpu") == operator.reference(x) == -np.inf
    assert np.isnan(operator(np.append(x, np.float32(np.nan)), target="cpu"))
