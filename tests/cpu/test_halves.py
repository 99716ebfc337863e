"""Rows of 16-bit floats: widened and rounded in vectors, to the bits that conversions one by one give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import this_machine

Array = np.ndarray[Any, np.dtype[Any]]

SERIAL = tc.MappingOptions(parallel=False)
LENGTHS = (5, 16, 131)

needs_conversions = pytest.mark.skipif(not this_machine().widens, reason="the processor converts no vectors of float16")


@pytest.fixture(params=[32, 64])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Makes kernels for vectors of so many bytes."""
    if request.param > this_machine().vector_bytes:
        pytest.skip("this processor has shorter vectors")
    other = replace(this_machine(), vector_bytes=request.param)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
    monkeypatch.setenv("TCOMP_CACHE", "0")
    return int(request.param)


def halves(*shape: int) -> Array:
    """All kinds of numbers: normal, denormal, infinite, NaN."""
    bits = np.random.default_rng(shape).integers(0, 1 << 16, shape, np.uint16)
    return bits.view(np.float16)


@needs_conversions
def test_rows_of_halves_are_converted_in_vectors(width: int) -> None:
    f = tc.define(
        """def f(half(N,D) X, half(D) g) -> (half(N,D) Y, float(N,D) Z) {
          Y(n,d) = X(n,d) * g(d)
          Z(n,d) = relu(X(n,d)) - 1
        }"""
    )["f"]
    for length in LENGTHS:
        X, g = halves(7, length), halves(length)
        kernel = f.compile(X, g, options=SERIAL)
        lanes = width // 4
        assert (f"tc_narrowed_float16_x{lanes}(" in kernel.source) == (length >= lanes)
        Y, Z = kernel(X, g)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(Y, (X.astype(np.float32) * g.astype(np.float32)).astype(np.float16))
            np.testing.assert_array_equal(Z, np.where(X < 0, 0, X.astype(np.float32)) - 1)


@needs_conversions
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_extrema_down_columns_of_halves_are_taken_in_vectors(width: int, reduction: str) -> None:
    f = tc.define(f"def f(half(N,D) X, half(N) r) -> (E) {{ E(d) {reduction}=! X(n,d) * r(n) }}")["f"]
    for length in LENGTHS:
        X, r = halves(7, length), halves(7)
        kernel = f.compile(X, r, options=SERIAL)
        lanes = width // 4
        assert (f"value[0] = tc_widened_float16_x{lanes}(" in kernel.source) == (length >= lanes)
        np.testing.assert_array_equal(kernel(X, r), f.reference(X, r))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_reductions_of_16_bits(width: int, dtype: str) -> None:
    storage: Any = dtype if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    f = tc.define(
        f"""def f({dtype}(N,D) X) -> (low, high, rows, columns) {{
          low(n)     min=! X(n,d)
          high(n)    max=! X(n,d)
          rows(n)     +=! X(n,d) * X(n,d)
          columns(d)  +=! float(X(n,d))
        }}"""
    )["f"]
    for length in LENGTHS:
        exact = np.random.default_rng(length).integers(-1, 2, (9, length)).astype(np.float32)
        X = exact.astype(storage)
        kernel = f.compile(X, options=SERIAL)
        assert (f"tc_widened_{dtype}_x{width // 4}(" in kernel.source) == (length >= width // 4)
        low, high, rows, columns = (result.astype(np.float32) for result in kernel(X))
        np.testing.assert_array_equal(low, exact.min(1))
        np.testing.assert_array_equal(high, exact.max(1))
        np.testing.assert_array_equal(rows, (exact * exact).sum(1))
        np.testing.assert_array_equal(columns, exact.sum(0))


@needs_conversions
@pytest.mark.parametrize("value", [np.nan, -np.inf, 65504])
def test_a_special_value_reaches_the_extrema_of_its_row_alone(value: float) -> None:
    f = tc.define("def f(half(N,D) X) -> (low, high) { low(n) min=! X(n,d)  high(n) max=! X(n,d) }")["f"]
    X = np.ones((40, 40), np.float16)
    np.fill_diagonal(X, value)
    low, high = f(X)
    np.testing.assert_array_equal(low, X.min(1))
    np.testing.assert_array_equal(high, X.max(1))


@needs_conversions
def test_what_only_some_elements_read_is_not_read_in_blocks() -> None:
    f = tc.define(
        """def f(half(N,D) X, half(D) g) -> (half(N,D) Y) {
          Y(n,d) = d < D / 2 ? X(n,d) * g(d) : X(n,d-D/2) where n in 0:N, d in 0:D
        }"""
    )["f"]
    X, g = np.arange(6 * 128, dtype=np.float16).reshape(6, 128) / 64, np.full(128, 2, np.float16)
    kernel = f.compile(X, g, options=SERIAL)
    assert "tc_narrowed_float16" in kernel.source
    assert "tc_widened_float16" not in kernel.source
    np.testing.assert_array_equal(kernel(X, g), np.concatenate([X[:, :64] * g[:64], X[:, :64]], 1))


def test_float64_is_rounded_once() -> None:
    """Just above the middle of two numbers, which float32 would take it for."""
    f = tc.define(
        "def f(double(N) X, half(N) g) -> (half(N) Y, half(N) Z) { Y(n) = half(X(n)) Z(n) = half(X(n) * g(n)) }"
    ).f
    X = np.tile([1 + 2**-11 + 2**-30, 1 + 2**-11, 1 + 3 * 2**-11 - 2**-35, 2**-25 + 2**-60], 26)
    for found in f(X, np.ones(104, np.float16), options=SERIAL):
        np.testing.assert_array_equal(found, X.astype(np.float16))


def test_doubles_and_integers_are_rounded_once_to_bfloat16() -> None:
    """Middles between neighbours, the least and greatest too, go to the even one, what is beside them to its side."""
    below = np.arange(0x7F80, dtype=np.uint32)
    lower, upper = ((below + more << 16).view(np.float32) for more in (0, 1))
    middle = (below << 16 | 0x8000).view(np.float32).astype(np.float64)
    even = np.where(below % 2 == 0, lower, upper)
    sides = [(middle, even), (np.nextafter(middle, 0.0), lower), (np.nextafter(middle, np.inf), upper)]
    doubles, rounded = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    text = "def f({0}(N) X) -> (Y) {{ Y(i) = float(bfloat16(X(i))) }}"
    found = tc.define(text.format("double")).f(np.concatenate([doubles, -doubles]), options=SERIAL)
    np.testing.assert_array_equal(found, np.concatenate([rounded, -rounded]))
    whole = (middle > 2**25) & (middle < 2**30)
    for name, dtype in (("int32", np.int32), ("uint32", np.uint32)):
        near = [middle[whole].astype(dtype) + dtype(more) for more in (0, -1 if dtype is np.int32 else 1)]
        expected = [even[whole], (lower if dtype is np.int32 else upper)[whole]]
        for numbers, wanted in zip(near, expected, strict=True):
            np.testing.assert_array_equal(tc.define(text.format(name)).f(numbers, options=SERIAL), wanted)


def test_every_subscript_of_a_block_is_checked() -> None:
    """Each depends on data: neighbouring iterations need not read neighbours, nor elements of the tensor."""
    X, at = np.arange(512, dtype=np.float16), np.array([0, 5, 450], np.int32)
    f = tc.define("def f(half(N) X, int(M) at) -> (Y) { Y(j,i) = float(X(at(j) + i)) where i in 0:64 }").f
    with pytest.raises(tc.ShapeError, match="is 512 at j = 2, i = 62"):
        f(X, at, options=SERIAL)
    g = tc.define("def g(half(N) X, int(M) at) -> (Y) { Y(j,i) = float(X(at(j) + uint8(i + 3))) where i in 0:512 }").g
    np.testing.assert_array_equal(g(X, at[:2], options=SERIAL), g.reference(X, at[:2]))
