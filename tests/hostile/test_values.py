"""Values that arithmetic treats specially, signs of zeros included: kernels give what IEEE 754 and the language say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.model.evaluation import numpy_dtype
from tcomp.values.operators import DTYPES

pytestmark = pytest.mark.sweep(3)

Array = np.ndarray[Any, np.dtype[Any]]

FLOATS = ("float16", "bfloat16", "float32", "float64")
TARGETS = ("cpu", "simulator")
NAN_FIRST_AND_LAST = (1, 2, 7, 8, 15, 16, 17, 33, 64, 65)

POINTWISE = """
def f(T(N) X, T(N) Y) -> (
  sum, difference, product, quotient, least, most, less, equal, unequal, chosen, minus, size, copy
) {
  sum(i)        = X(i) + Y(i)
  difference(i) = X(i) - Y(i)
  product(i)    = X(i) * Y(i)
  quotient(i)   = X(i) / Y(i)
  least(i)      = min(X(i), Y(i))
  most(i)       = max(X(i), Y(i))
  less(i)       = X(i) < Y(i) || X(i) >= Y(i)
  equal(i)      = X(i) == Y(i)
  unequal(i)    = X(i) != Y(i)
  chosen(i)     = X(i) > Y(i) ? X(i) : -Y(i)
  minus(i)      = -X(i)
  size(i)       = abs(X(i))
  copy(i)       = X(i)
}"""


def specials(dtype: str) -> Array:
    """Zeros, ones, infinities, NaN, the largest, the smallest normal, and subnormal numbers, of both signs."""
    element = numpy_dtype(DTYPES[dtype])
    bits = np.dtype(f"uint{8 * element.itemsize}")
    one = np.ones((), element).view(bits)
    infinity = np.full((), np.inf, element).view(bits)
    normal = (infinity & ~(infinity - 1)).astype(bits)
    patterns = [0, 1, 2, normal - 1, normal, normal + 1, one - 1, one, one + 1, infinity - 1, infinity]
    positive = np.array(patterns, bits).view(element)
    return np.concatenate([positive, -positive, np.array([np.nan], element)])


def pairs(values: Array) -> tuple[Array, Array]:
    x, y = zip(*itertools.product(values, values), strict=True)
    return np.array(x, values.dtype), np.array(y, values.dtype)


def same(found: Array, expected: Array, name: str, signs: bool = True) -> None:
    """Equal, NaN where NaN is expected, and zeros of the same sign."""
    assert found.dtype == expected.dtype and found.shape == expected.shape, name
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected, err_msg=name)
        return
    wide, right = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(wide, right, err_msg=name)
    if signs:
        numbers = ~np.isnan(right)
        np.testing.assert_array_equal(np.signbit(wide[numbers]), np.signbit(right[numbers]), err_msg=name)


def agrees(text: str, *arrays: Array, target: str, loose: tuple[str, ...] = ()) -> None:
    """A kernel gives what the interpreter gives; for outputs in ``loose`` the sign of zero is left open."""
    operation = tc.define(text).f
    found, expected = operation(*arrays, target=target), operation.reference(*arrays)
    names = [t.name for t in operation.function.outputs]
    outputs = (found, expected) if len(names) > 1 else ((found,), (expected,))
    for name, result, right in zip(names, *outputs, strict=True):
        same(result, right, name, name not in loose)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_pair_of_special_floats(dtype: str, target: str) -> None:
    """The sign of the smaller or larger of two zeros is not defined; all else is."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    agrees(POINTWISE.replace("T(N)", f"{dtype}(N)"), *pairs(specials(dtype)), target=target, loose=("least", "most"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_and_extremes_of_special_floats(dtype: str, target: str) -> None:
    """First or last among ones, alone, and beside their opposites, in vectors of every remainder."""
    text = """def f(T(M,N) X) -> (total, product, least, most) {
        total(i) +=! X(i,j)  product(i) *=! X(i,j)  least(i) min=! X(i,j)  most(i) max=! X(i,j) }"""
    text = text.replace("T(", f"{dtype}(")
    tiny = np.nextafter(np.zeros((), dtype), np.ones((), dtype))
    special = np.array([0.0, -0.0, tiny, -tiny, np.inf, -np.inf, np.nan], dtype)
    for count in (1, 2, 7, 16, 33, 65):
        rows = np.ones((len(special) * 4, count), dtype)
        for k, value in enumerate(special):
            rows[4 * k, 0] = rows[4 * k + 1, -1] = rows[4 * k + 2] = value
            rows[4 * k + 3, :2] = -value
            rows[4 * k + 3, 0] = value
        agrees(text, rows, target=target, loose=("least", "most"))


@pytest.mark.parametrize("target", TARGETS)
def test_a_nan_is_found_wherever_it_is(target: str) -> None:
    operation = tc.define("def f(float(M,N) X) -> (a, b) { a(i) max=! X(i,j)  b(i) min=! X(i,j) }").f
    for count in NAN_FIRST_AND_LAST:
        rows = np.zeros((count, count), np.float32)
        np.fill_diagonal(rows, np.nan)
        for result in operation(rows, target=target):
            assert np.isnan(result).all(), f"{count} columns"


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_nothing_and_of_zeros(target: str) -> None:
    text = (
        "def f(float(M,N) X) -> (s, p, a, b) { s(i) +=! X(i,j)  p(i) *=! X(i,j)  a(i) max=! X(i,j)  b(i) min=! X(i,j) }"
    )
    agrees(text, np.zeros((3, 0), np.float32), target=target)
    agrees(text, np.full((3, 5), -0.0, np.float32), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_round_overflow_and_underflow(dtype: str, target: str) -> None:
    """From float32: ties, what is just too large, and what is subnormal or vanishes in 16 bits."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    element = numpy_dtype(DTYPES[dtype])
    exact = np.unique(np.abs(np.arange(0, 1 << 16, 37, dtype=np.uint16).view(element).astype(np.float32)))
    exact = exact[np.isfinite(exact)]
    between = exact[:-1] / 2 + exact[1:] / 2
    values = np.concatenate([exact, between, np.nextafter(between, np.inf), np.nextafter(between, -np.inf)])
    extreme = np.array([65504, 65519.996, 65520, 65536, 3.39e38, 3.4e38, 1e-8, 2**-24, 2**-25, 1e-40], np.float32)
    values = np.concatenate([values, extreme, -values, -extreme]).astype(np.float32)
    agrees(f"def f(float(N) X) -> (narrow) {{ narrow(i) = {dtype}(X(i)) }}", values, target=target)
    agrees(f"def f(float(N) X) -> (again) {{ again(i) = float({dtype}(X(i))) }}", values, target=target)


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_divide_by_anything(dtype: str, target: str) -> None:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    values = sorted({low, low + 1, max(low, -3), max(low, -1), 0, 1, 2, 7, high - 1, high})
    text = """def f(T(N) X, T(N) Y) -> (s, d, p, q, r, m, a, n, x) {
        s(i) = X(i) + Y(i)  d(i) = X(i) - Y(i)  p(i) = X(i) * Y(i)  q(i) = X(i) / Y(i)  r(i) = X(i) % Y(i)
        m(i) = -X(i)  a(i) = abs(X(i))  n(i) = min(X(i), Y(i))  x(i) = max(X(i), Y(i)) }"""
    agrees(text.replace("T(N)", f"{dtype}(N)"), *pairs(np.array(values, dtype)), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_become_integers(source: str, target: str) -> None:
    """Toward zero, at the ends of the type where it is left, and 0 for NaN."""
    edges = [s * (2.0**b + d) for b in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, -0.5, 0, 0.5, 1) for s in (1, -1)]
    values = np.array([*edges, 0.5, -0.5, 1.9, -1.9, 0, -0.0, 1e-45, np.inf, -np.inf, np.nan, 1e38, -1e38], source)
    outputs = ", ".join(f"o_{t}" for t in (*INTEGERS, "bool"))
    body = " ".join(f"o_{t}(i) = {t}(X(i))" for t in (*INTEGERS, "bool"))
    agrees(f"def f({source}(N) X) -> ({outputs}) {{ {body} }}", values, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_stored_bools_are_0_or_1(target: str) -> None:
    values = np.array([0, -0.0, 1e-45, np.nan, np.inf, 2, -3], np.float32)
    found = tc.define("def f(float(N) X) -> (b) { b(i) = bool(X(i)) }").f(values, target=target)
    assert found.view(np.uint8).tolist() == [0, 0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("target", TARGETS)
def test_bools_of_any_bits_are_true_or_false(target: str) -> None:
    given = np.array([0, 1, 2, 128, 255], np.uint8).view(np.bool_)
    text = "def f(bool(N) X) -> (n, c, e) { n(i) = !X(i)  c(i) = X(i) ? 3 : 4  e(i) = X(i) && X(i) }"
    n, c, e = tc.define(text).f(given, target=target)
    assert c.tolist() == [4, 3, 3, 3, 3]
    assert n.view(np.uint8).tolist() == [1, 0, 0, 0, 0] and e.view(np.uint8).tolist() == [0, 1, 1, 1, 1]


def test_nothing_flushes_denormals() -> None:
    """Neither a kernel, on any thread, nor loading one with fast_math, which may flush them inside it only."""
    tiny = np.full((64, 4096), 1e-40, np.float32)
    operation = tc.define("def f(float(M,N) X) -> (O) { O(i,j) = X(i,j) * 0.5 }").f
    relaxed = operation(tiny, options=tc.MappingOptions(fast_math=True))
    assert relaxed.shape == tiny.shape
    for _ in range(2):
        assert (operation(tiny) == np.float32(5e-41)).all()
        assert (tiny * np.float32(0.5) == np.float32(5e-41)).all() and np.float32(1e-40) / np.float32(2) != 0
    assert operation.compile(tiny).source


@pytest.mark.parametrize("target", TARGETS)
def test_fast_math_computes_ordinary_values(target: str) -> None:
    """What it may break is what special values give; ordinary ones stay within rounding."""
    values = np.random.default_rng(0).uniform(0.5, 2, (17, 33)).astype(np.float32)
    text = """def f(float(M,N) X) -> (O) {
        m(i) max=! X(i,j)  e(i,j) = exp(X(i,j) - m(i))  s(i) +=! e(i,j)  O(i,j) = e(i,j) / s(i) }"""
    operation = tc.define(text).f
    found = operation(values, target=target, options=tc.MappingOptions(fast_math=True))
    np.testing.assert_allclose(found, operation.reference(values), rtol=1e-5)
