"""Long sums and products on the CPU against exact ones: within what theory allows, for every type and kind of data.

Nothing here comes from ``tcomp.model.tolerance`` but the factor of the probabilistic bound.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp.model.tolerance import LAMBDA
from tests.numerics.exactly import DATA, RANDOM, Array, exact_dot, exact_sum

pytestmark = pytest.mark.sweep(5)

UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""The unit roundoff of each type."""

ACCUMULATORS = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
LENGTHS = (1, 2, 7, 97, 1000, 4099, 65537, 1_000_003)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

DOT = "def dot({t}(K) A, {t}(K) B) -> ({out} S) {{ S +=! A(k) * B(k) }}"
SUM = "def total({t}(K) A) -> ({out} S) {{ S +=! A(k) }}"
PRODUCT = "def product({t}(K) A) -> (P) {{ P *=! A(k) }}"


@functools.cache
def operation(text: str) -> Any:
    (found,) = [getattr(tcomp.define(text), n) for n in tcomp.define(text)]
    return found


def storage(dtype: str) -> Any:
    return pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)


def run(text: str, *arrays: Array, options: tcomp.MappingOptions | None = None) -> Array:
    return np.asarray(operation(text)(*arrays, target="cpu", options=options))


def worst_case(unit: float, roundings: int) -> float:
    """Higham's gamma."""
    return roundings * unit / (1 - roundings * unit) if roundings * unit < 1 else math.inf


def check_sum(found: Array, exact: float, magnitude: float, count: int, dtype: str, out: str, kind: str) -> None:
    """``count`` counts the roundings on the way of one term: its product and all additions."""
    unit, last = UNITS[ACCUMULATORS[dtype]], UNITS[out] if out != ACCUMULATORS[dtype] else 0.0
    error = abs(float(found) - exact)
    rest = last * abs(exact) * (1 + 1e-6) + UNITS["float64"] * abs(exact)
    limit = worst_case(unit, count) * magnitude * (1 + last) + rest
    assert error <= limit, f"{kind}: {error} exceeds the worst case {limit}"
    if kind in RANDOM:
        probable = LAMBDA * math.sqrt(count) * unit * magnitude * (1 + last) + rest
        assert error <= probable, f"{kind}: {error} exceeds {probable}, that is {LAMBDA} sqrt(K) u sum |x|"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", UNITS)
def test_sum(dtype: str, length: int) -> None:
    rng = np.random.default_rng(length)
    text = SUM.format(t=dtype, out=ACCUMULATORS[dtype])
    for kind, draw in DATA.items():
        a = draw(rng, length).astype(storage(dtype))
        wide = a.astype(np.float64)
        check_sum(run(text, a), exact_sum(wide), np.abs(wide).sum(), length - 1, dtype, ACCUMULATORS[dtype], kind)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", UNITS)
def test_dot_product(dtype: str, length: int) -> None:
    rng = np.random.default_rng(length)
    text = DOT.format(t=dtype, out=ACCUMULATORS[dtype])
    for kind, draw in DATA.items():
        a, b = draw(rng, length).astype(storage(dtype)), rng.uniform(0.5, 1.5, length).astype(storage(dtype))
        magnitude = float(np.abs(a.astype(np.float64) * b.astype(np.float64)).sum())
        check_sum(run(text, a, b), exact_dot(a, b), magnitude, length, dtype, ACCUMULATORS[dtype], kind)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("length", [7, 4099, 65537])
def test_narrow_results_are_rounded_once(dtype: str, length: int) -> None:
    """A sum over 16-bit floats accumulates in float32: in its own type it would stop growing after some terms."""
    rng = np.random.default_rng(length)
    a = rng.uniform(0.01, 0.02, length).astype(storage(dtype))
    found = run(SUM.format(t=dtype, out=dtype), a)
    assert found.dtype == storage(dtype)
    wide = a.astype(np.float64)
    check_sum(found, exact_sum(wide), wide.sum(), length - 1, dtype, dtype, "one sign")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_grow_with_the_square_root(dtype: str) -> None:
    """The root mean square over rows of data of one sign stays below u sqrt(K) sum |x|, hence far below K u sum |x|."""
    rng = np.random.default_rng(5)
    for length in (31, 1021, 32749):
        a = rng.uniform(0, 1, (64, length)).astype(dtype)
        found = run(f"def rows({dtype}(N,K) A) -> (S) {{ S(n) +=! A(n,k) }}", a).astype(np.float64)
        errors = [(float(f) - exact_sum(row)) / row.sum() for f, row in zip(found, a.astype(np.float64), strict=True)]
        assert math.sqrt(np.mean(np.square(errors))) <= math.sqrt(length) * UNITS[dtype]


@pytest.mark.parametrize("length", [1, 7, 97, 4099, 100_003])
@pytest.mark.parametrize("dtype", UNITS)
def test_product(dtype: str, length: int) -> None:
    rng = np.random.default_rng(length)
    a = (rng.uniform(0.999, 1.001, length) * rng.choice([-1, 1], length)).astype(storage(dtype))
    wide = a.astype(np.longdouble)
    exact = float(np.exp(np.log(np.abs(wide)).sum()) * np.prod(np.sign(wide)))
    if np.finfo(np.longdouble).nmant < 60:
        pytest.skip("there is nothing wider than double")
    found, unit = float(run(PRODUCT.format(t=dtype), a)), UNITS[ACCUMULATORS[dtype]]
    last = UNITS[dtype] * (1 + 1e-6) + length * 2.0**-63
    assert abs(found - exact) <= (worst_case(unit, length - 1) + last) * abs(exact)
    assert abs(found - exact) <= (LAMBDA * math.sqrt(length) * unit + last) * abs(exact)


def wrapped(value: int, dtype: np.dtype[Any]) -> int:
    """An integer of any size as the type has it."""
    bits = 8 * dtype.itemsize
    low = value % (1 << bits)
    return low - (1 << bits) if dtype.kind == "i" and low >> (bits - 1) else low


@pytest.mark.parametrize("length", [1, 97, 65537, 1_000_003])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_exact_and_wrap(dtype: str, length: int) -> None:
    """Over the whole range of the type, so that sums, products and sums of products overflow many times."""
    rng = np.random.default_rng(length)
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, length, dtype, endpoint=True) for _ in range(2))
    out = "int32" if info.bits == 8 else dtype
    wide = np.dtype(out)
    total = run(SUM.format(t=dtype, out=out), a)
    assert total.dtype == wide and int(total) == wrapped(sum(a.tolist()), wide)
    dot = run(DOT.format(t=dtype, out=out), a, b)
    assert int(dot) == wrapped(sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True)), wide)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_products_of_integers_wrap(dtype: str) -> None:
    """Of odd numbers, whose product never gets stuck at 0."""
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, 1009, dtype, endpoint=True) | np.dtype(dtype).type(1)
    found = run(PRODUCT.format(t=dtype), a)
    assert found.dtype == np.dtype("int32" if info.bits == 8 else dtype)
    assert int(found) == wrapped(math.prod(a.tolist()), found.dtype)
