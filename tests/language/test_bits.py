"""``& | ^ ~ << >>``, ``popcount`` and ``clz``: the values of NumPy on every target, and Python's precedence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar.parsing.parser import parse
from tests.cuda.simulated import NEEDS_COMPILER

TARGETS = ["reference", "cpu", pytest.param("simulator", marks=NEEDS_COMPILER)]
TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def call(f: Any, target: str, *arrays: Any) -> Any:
    return f.reference(*arrays) if target == "reference" else f(*arrays, target=target)


def whole(rng: np.random.Generator, dtype: str, n: int = 300) -> Any:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, n, dtype, endpoint=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", TYPES)
def test_values_are_numpys(dtype: str, target: str) -> None:
    f = tc.define(f"""def f({dtype}(N) A, {dtype}(N) B, {dtype}(N) S) -> (O, P, Q, L, R) {{
        O(i) = A(i) & B(i)  P(i) = A(i) | ~B(i)  Q(i) = A(i) ^ B(i)  L(i) = A(i) << S(i)  R(i) = A(i) >> S(i) }}""").f
    rng = np.random.default_rng(0)
    A, B = whole(rng, dtype), whole(rng, dtype)
    S = rng.integers(0 if dtype[0] == "u" else -9, 80, A.size).astype(dtype)
    expected = A & B, A | ~B, A ^ B, A << S, A >> S
    for found, wanted in zip(call(f, target, A, B, S), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", TYPES)
def test_counts(dtype: str, target: str) -> None:
    f = tc.define(f"def f({dtype}(N) A) -> (P, Z) {{ P(i) = popcount(A(i))  Z(i) = clz(A(i)) }}").f
    A = whole(np.random.default_rng(1), dtype) >> np.arange(300).astype(dtype) % np.iinfo(dtype).bits
    A[0] = 0
    bits = np.iinfo(dtype).bits
    texts = [format(int(a) % (1 << bits), f"0{bits}b") for a in A]
    ones, zeros = call(f, target, A)
    assert ones.tolist() == [t.count("1") for t in texts]
    assert zeros.tolist() == [len(t) - len(t.lstrip("0")) for t in texts]


@pytest.mark.parametrize("target", TARGETS)
def test_truth_values(target: str) -> None:
    f = tc.define("""def f(bool(N) A, bool(N) B) -> (O, P, Q, R) {
        O(i) = A(i) & B(i)  P(i) = A(i) | B(i)  Q(i) = A(i) ^ B(i)  R(i) = ~A(i) }""").f
    A, B = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for found, wanted in zip(call(f, target, A, B), (A & B, A | B, A ^ B, ~A), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_a_shift_has_the_type_of_what_is_shifted(target: str) -> None:
    f = tc.define("""def f(uint64(N) A, int8(N) B, int64(N) S) -> (O, P, Q) {
        O(i) = A(i) >> 60  P(i) = B(i) << S(i)  Q(i) = B(i) >> 300 }""").f
    A, B = whole(np.random.default_rng(2), "uint64", 5), np.array([-1, 3, -128, 127, 5], np.int8)
    N, P, Q = call(f, target, A, B, np.array([1, 256, -(1 << 40), 1 << 40, 3], np.int64))
    np.testing.assert_array_equal(N, A >> np.uint64(60))
    assert (N.dtype, P.dtype) == (np.uint64, np.int8)
    assert P.tolist() == [-2, 0, 0, 0, 40]
    assert Q.tolist() == [-1, 0, -1, 0, 0]


@pytest.mark.parametrize("target", TARGETS)
def test_of_indices_and_in_subscripts(target: str) -> None:
    X = np.arange(8, dtype=np.float32)
    f = tc.define("""def f(float(N) X) -> (Y, G) {
        swapped(i) = i ^ 1 where i in 0:N
        Y(i) = X(swapped(i))
        G(i) = i ^ i >> 1 where i in 0:N }""").f
    Y, G = call(f, target, X)
    assert Y.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
    assert G.tolist() == [i ^ i >> 1 for i in range(8)]


def test_a_subscript_made_of_bits_is_checked() -> None:
    X = np.arange(7, dtype=np.float32)
    f = tc.define("def f(float(N) X, int32(N) I) -> (Y) { Y(i) = X(I(i) ^ 1) }").f
    assert f(X, np.array([1, 0, 3, 2, 5, 4, 4], np.int32)).tolist() == [0, 1, 2, 3, 4, 5, 5]
    with pytest.raises(tc.ShapeError, match="X"):
        f(X, np.arange(7, dtype=np.int32))
    with pytest.raises(tc.ShapeError, match="reaches 7 but dimension 0 of X has 7 elements"):
        tc.define("def f(float(N) X) -> (Y) { Y(i) = X(i ^ 1) where i in 0:N }").f(X)


@pytest.mark.parametrize(
    "text",
    ["a | b ^ c & d", "a & b == c", "a << b + c", "~a & b | c", "a >> b >> c", "(a | b) & c", "a - b << c * d",
     "a == b & c", "a & (b | c) << d", "-a >> b ^ ~c"],
)  # fmt: skip
def test_precedence_is_pythons(text: str) -> None:
    names = "abcd"
    program = text
    for name in names:
        program = program.replace(name, f"{name.upper()}(i)")
    f = tc.define(f"def f(int32(N) A, int32(N) B, int32(N) C, int32(N) D) -> (O) {{ O(i) = int32({program}) "
                  "where exists A(i), exists B(i), exists C(i), exists D(i) }").f  # fmt: skip
    rng = np.random.default_rng(3)
    arrays = [rng.integers(0, 6, 200).astype(np.int32) for _ in names]
    expected = [
        int(eval(text, dict(zip(names, map(int, values), strict=True)))) for values in zip(*arrays, strict=True)
    ]
    assert f.reference(*arrays).tolist() == expected
    (definition,) = parse(str(f))
    assert parse(str(definition)) == (definition,)


def test_there_is_no_gradient_through_bits() -> None:
    f = tc.define("def f(float(N) X, int32(N) A) -> (Y) { Y(i) = X(i) * popcount(A(i) ^ 5) }").f
    X, A = np.ones(3, np.float32), np.array([5, 4, 0], np.int32)
    np.testing.assert_array_equal(f.gradient()(X, A, X), [0, 1, 2])


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_of_64_bits(target: str) -> None:
    f = tc.define("""def f(uint64(N) u) -> (odd, h, all) {
        odd(i) = u(i) & uint64(0xAAAAAAAAAAAAAAAA)
        h(i)   = (u(i) ^ (u(i) >> 33)) * uint64(0xff51afd7ed558ccd)
        all(i) = u(i) == uint64(18446744073709551615)
    }""").f
    u = np.array([200, 3, 2**64 - 1, 2**63], np.uint64)
    odd, h, every = call(f, target, u)
    np.testing.assert_array_equal(odd, u & np.uint64(0xAAAAAAAAAAAAAAAA))
    np.testing.assert_array_equal(h, (u ^ (u >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD))
    np.testing.assert_array_equal(every, [0, 0, 1, 0])


def test_too_large_a_number_says_how_it_is_written() -> None:
    with pytest.raises(tc.CompileError, match=r"(?s)63 bits and a sign.*write `uint64\(0xAAAAAAAAAAAAAAAA\)`"):
        tc.define("def f(uint64(N) u) -> (v) { v(i) = u(i) & 0xAAAAAAAAAAAAAAAA }")
