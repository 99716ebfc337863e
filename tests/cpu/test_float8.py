"""Floats of 8 bits: all of them, and what floats and doubles are rounded to, as torch has it; sums in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar.tree.conversions import rounded
from tcomp.values.operators import DTYPES
from tests.cuda.simulated import NEEDS_COMPILER

ml_dtypes = pytest.importorskip("ml_dtypes")
torch = pytest.importorskip("torch")

Array = np.ndarray[Any, np.dtype[Any]]

KINDS = ("float8_e4m3fn", "float8_e5m2")
TARGETS = ("cpu", pytest.param("simulator:sm_90", marks=NEEDS_COMPILER))


def every(kind: str) -> Array:
    """Every number of a type, infinite ones and NaN included."""
    return np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, kind))


def around(kind: str) -> Array:
    """Numbers of a type, the middles between neighbours, the floats next to both, and floats of any size."""
    own = np.unique(every(kind).astype(np.float64)[np.isfinite(every(kind).astype(np.float64))])
    ends = np.asarray([own[0] * 1.125, own[-1] * 1.125, own[-1] * 1.04, 1e9, np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30])
    near = np.concatenate([own, (own[1:] + own[:-1]) / 2, ends, [464, -464, 480, 61440, -61440]]).astype(np.float32)
    next_to = [np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf)]
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 4000, np.uint32).view(np.float32)
    return np.concatenate([near, *next_to, drawn])


def bits(array: Array) -> Array:
    return np.asarray(array).view(np.uint8)


def of_torch(values: Array, kind: str) -> Array:
    return np.asarray(torch.from_numpy(values).to(getattr(torch, kind)).view(torch.uint8).numpy())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_is_a_float(kind: str, target: str) -> None:
    """Rows of all of them, in vectors, and of three, one by one."""
    text = f"def f({kind}(N) X, {kind}(M) x) -> (float(N) Y, float(M) y) {{ Y(i) = X(i)  y(i) = x(i) }}"
    for first in (0, 5, 125):
        own, few = every(kind), every(kind)[first : first + 3]
        found, found_few = tc.define(text).f(own, few, target=target)
        np.testing.assert_array_equal(found, own.astype(np.float32))
        np.testing.assert_array_equal(found_few, few.astype(np.float32))
        assert (np.signbit(found) == (np.arange(256) >= 128)).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_floats_are_rounded_as_torch_does(kind: str, target: str) -> None:
    values = around(kind)
    text = f"def f(float(N) X, float(M) x) -> (Y, y) {{ Y(i) = {kind}(X(i))  y(i) = {kind}(x(i)) }}"
    found, few = tc.define(text).f(values, values[:3], target=target)
    np.testing.assert_array_equal(bits(found), of_torch(values, kind))
    np.testing.assert_array_equal(bits(few), of_torch(values[:3], kind))
    expected, _ = tc.define(text).f.reference(values, values[:3])
    np.testing.assert_array_equal(np.float32(found), np.float32(expected))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_doubles_and_integers_are_rounded_once(kind: str, target: str) -> None:
    """What is just beyond the middle between two numbers, by less than a float holds, is rounded away from it."""
    own = np.unique(np.abs(every(kind).astype(np.float64)[np.isfinite(every(kind).astype(np.float64))]))
    middles = (own[1:] + own[:-1]) / 2
    values = np.concatenate([middles, middles * (1 + 2.0**-40), middles * (1 - 2.0**-40)])
    whole = np.arange(-500, 500, dtype=np.int32)
    text = f"def f(double(N) X, int(M) x) -> (Y, y) {{ Y(i) = {kind}(X(i))  y(i) = {kind}(x(i)) }}"
    found, of_whole = tc.define(text).f(values, whole, target=target)
    below, above = own[:-1], own[1:]
    np.testing.assert_array_equal(found[len(middles) :].astype(np.float64), [*above, *below])
    even = np.where(np.arange(len(middles)) % 2 == 0, below, above)
    np.testing.assert_array_equal(found[: len(middles)].astype(np.float64), even)
    np.testing.assert_array_equal(bits(of_whole), of_torch(whole.astype(np.float32), kind))


@pytest.mark.parametrize("kind", KINDS)
def test_literals_are_rounded_alike(kind: str) -> None:
    values = around(kind)
    found = [rounded(float(v), DTYPES[kind]) for v in values]
    np.testing.assert_array_equal(found, torch.from_numpy(values).to(getattr(torch, kind)).float().numpy())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_summed_in_floats(kind: str, target: str) -> None:
    """2,000 ones would stay 16 in these types; float32 holds the sum, and the result is rounded once."""
    kinds, rng = getattr(ml_dtypes, kind), np.random.default_rng(0)
    mm = tc.define(f"""def f({kind}(M,K) A, {kind}(K,N) B) -> (float(M,N) C, {kind}(M,N) S) {{
        C(m,n) +=! A(m,k) * B(k,n)
        S(m,n) +=! A(m,k) * B(k,n) }}""").f
    ones = np.ones((3, 200), kinds)
    found, short = mm(ones, ones.T.copy(), target=target)
    assert (found == 200).all() and (bits(short) == bits(np.asarray([200.0], kinds))).all()
    A, B = (rng.integers(-2, 3, s).astype(kinds) for s in ((33, 70), (70, 50)))
    found, short = mm(A, B, target=target)
    exact = A.astype(np.float32) @ B.astype(np.float32)
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(bits(short), of_torch(exact, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_extrema_begin_at_what_the_type_has(kind: str) -> None:
    """A type without infinities begins at its largest number; NaN is passed on."""
    text = f"def f({kind}(N,M) X) -> (most, least) {{ most(i) max=! X(i,j)  least(i) min=! X(i,j) }}"
    X = every(kind)[:120].reshape(4, 30).copy()
    for rows in (X, -X):
        most, least = tc.define(text).f(rows)
        np.testing.assert_array_equal(np.float32(most), np.float32(rows).max(1))
        np.testing.assert_array_equal(np.float32(least), np.float32(rows).min(1))
    X[2, 5] = np.nan
    assert np.isnan(np.float32(tc.define(text).f(X)[0])).tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_torch(kind: str) -> None:
    scale = tc.define(f"def f({kind}(N,M) X, float(M) s) -> (Y) {{ Y(i,j) = {kind}(float(X(i,j)) * s(j)) }}").f
    X, s = torch.randn(5, 40).to(getattr(torch, kind)), torch.rand(40)
    found = scale(X, s)
    assert found.dtype is getattr(torch, kind)
    assert torch.equal(found.view(torch.uint8), (X.float() * s).to(found.dtype).view(torch.uint8))
