"""The tolerance itself: exact where nothing rounds, never below a kernel's error, and small enough to see a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp import grammar
from tcomp.errors import ShapeError
from tcomp.model.errorbounds import ANY_GRID, grid_of
from tcomp.model.tolerance import Model, Tolerance, error_bounds, summation_error
from tests.agreement import OF_FLOATS
from tests.library.case import Draw
from tests.numerics.exactly import ADVERSARIAL, DATA, Array
from tests.programs import INEXACT, PROGRAMS

pytestmark = pytest.mark.sweep(3)

DOT = "def dot({t}(K) A, {t}(K) B) -> (S) {{ S +=! A(k) * B(k) }}"
LENGTH = 100_003


def bounds(
    text: str, *arrays: Any, model: Model = Model.PROBABLE, out: Mapping[str, Array] | None = None
) -> dict[str, Tolerance]:
    (function,) = grammar.define(text).values()
    return error_bounds(function, dict(zip((t.name for t in function.inputs), arrays, strict=True)), out, model)


def bound(text: str, *arrays: Any, model: Model = Model.PROBABLE) -> Array:
    (found,) = bounds(text, *arrays, model=model).values()
    return found.bound


def results(text: str, *arrays: Any, **keywords: Any) -> tuple[Array, ...]:
    (name,) = grammar.define(text)
    found = getattr(tcomp.define(text), name)(*arrays, target="cpu", **keywords)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - INEXACT))
def test_whole_numbers_are_exact(name: str) -> None:
    text, inputs, _ = PROGRAMS[name]
    for tolerance in bounds(text, *inputs, model=Model.WORST_CASE).values():
        assert not tolerance.bound.any()


def test_halves_and_sixteenths_are_exact_too() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-64, 64, 1000).astype(np.float32) / 16 for _ in range(2))
    assert bound(DOT.format(t="float"), a, b) == 0
    assert bound("def mean(float(K) A) -> (S) { S +=! A(k) / K where k in 0:1000 }", a) > 0
    assert bound("def mean(float(64) A) -> (S) { S +=! A(k) / 64.0 }", a[:64]) == 0


def finest(values: Array) -> int:
    """The exponent of the largest power of two of which all are multiples, one after another."""
    ratios = [float(v).as_integer_ratio() for v in values if np.isfinite(v) and v != 0]
    return min((((n & -n).bit_length() - 1) - (d.bit_length() - 1) for n, d in ratios), default=ANY_GRID)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_a_grid_is_the_finest_of_all_values(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for length in (0, 1, 5, (1 << 15) + 3):
        if dtype == "int32":
            values = rng.integers(-(2**20), 2**20, length).astype(dtype)
        else:
            values = np.frombuffer(rng.bytes(length * np.dtype(dtype).itemsize), dtype)
        chosen = rng.random(length) < 0.5
        assert grid_of(values) == finest(values)
        assert grid_of(values, chosen) == finest(values[chosen])
    sixteenths = (rng.integers(-99, 99, (40, 30)) / 16).astype("float64" if dtype == "int32" else dtype)
    sixteenths[3, 4] = 3 / 16
    assert grid_of(sixteenths.T) == grid_of(sixteenths, np.array(True)) == -4


def test_whole_numbers_are_exact_up_to_the_size_of_the_significand() -> None:
    text = "def total(float(K) A) -> (S) { S +=! A(k) }"
    assert bound(text, np.full(16, 2.0**20, np.float32)) == 0
    assert bound(text, np.append(np.full(16, 2.0**20), 1).astype(np.float32)) > 0
    narrow = "def total(float16(K) A) -> (S) { S +=! A(k) }"
    assert bound(narrow, np.full(2048, 1, np.float16)) == 0
    assert bound(narrow, np.full(2049, 1, np.float16)) == 0, "float32 holds the sum, which is rounded once"


@pytest.mark.parametrize("model", Model)
def test_bounds_grow_as_stated(model: Model) -> None:
    """With n, with the square root of n, and for terms of mean zero with the data's own sum rather than their sizes."""
    unit = 2.0**-24
    for count in (10.0, 1e3, 1e5):
        n, one = np.asarray(count), np.asarray(1.0)
        same = float(summation_error(model, unit, n, n, n, n)) / (unit * count)
        signs = float(summation_error(model, unit, n, n, n, 0 * one)) / (unit * count)
        expected = {
            Model.WORST_CASE: (count - 1, count - 1),
            Model.PROBABLE: (min(count, 6 * count**0.5), min(count, 6 * count**0.5)),
            Model.RANDOM_ORDER: (min(count, 6 * (count / 3) ** 0.5), 6 / 6**0.5),
        }[model]
        assert same == pytest.approx(expected[0], rel=0.15)
        assert signs == pytest.approx(expected[1], rel=0.15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_missing_term_of_a_long_sum_shows(dtype: str) -> None:
    """Of a hundred thousand terms with random signs, a single one of average size."""
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(LENGTH).astype(dtype) for _ in range(2))
    text = DOT.format(t=dtype)
    (tolerance,) = bounds(text, a, b, model=Model.RANDOM_ORDER).values()
    (found,) = results(text, a, b)
    assert tolerance.shares(found) <= 1
    term = np.median(np.abs(a * b))
    for wrong in (found - term, found + term):
        assert tolerance.shares(wrong.astype(dtype)) > 1


def test_a_missing_term_of_one_sign_shows_where_the_type_can_hold_it() -> None:
    rng = np.random.default_rng(7)
    a, b = rng.uniform(0.5, 1.5, LENGTH), np.ones(LENGTH)
    (tolerance,) = bounds(DOT.format(t="double"), a, b, model=Model.WORST_CASE).values()
    assert tolerance.shares(np.asarray(tolerance.reference - a[0])) > 1
    whole = rng.integers(1, 5, LENGTH).astype(np.float32)
    (tolerance,) = bounds(DOT.format(t="float"), whole, b.astype(np.float32), model=Model.WORST_CASE).values()
    assert tolerance.shares(np.asarray(tolerance.reference - 1)) == np.inf


def test_a_missing_term_of_a_matrix_product_shows() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((4, LENGTH)).astype(np.float32), rng.standard_normal((LENGTH, 3)).astype(np.float32)
    text = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    (tolerance,) = bounds(text, a, b, model=Model.RANDOM_ORDER).values()
    (found,) = results(text, a, b)
    assert (tolerance.shares(found) <= 1).all()
    term = np.median(np.abs(a[:, :, None] * b))
    assert (tolerance.shares(found + np.float32(term)) > 1).all()


@pytest.mark.parametrize(
    ("model", "kind"), [(m, k) for m in Model for k in DATA if k not in ADVERSARIAL or m is Model.WORST_CASE]
)
def test_no_kernel_exceeds_its_bound(model: Model, kind: str) -> None:
    """Softmax, norms and chains of statements on all kinds of data, whose errors run through several statements."""
    rng = np.random.default_rng(9)
    x = np.stack([DATA[kind](rng, 257) for _ in range(6)])
    for dtype in ("float", "double"):
        arrays = (x.astype(np.float32 if dtype == "float" else np.float64),)
        for text in CHAINS:
            typed = text.replace("float(", f"{dtype}(")
            found = results(typed, *arrays)
            for tolerance, array in zip(bounds(typed, *arrays, model=model).values(), found, strict=True):
                assert (tolerance.shares(array) <= 1).all(), typed


CHAINS = (
    """def softmax(float(N,D) X) -> (Y) {
        m(n) max=! X(n,d)  e(n,d) = exp(X(n,d) - m(n))  s(n) +=! e(n,d)  Y(n,d) = e(n,d) / s(n) }""",
    """def variance(float(N,D) X) -> (M, V) {
        M(n) +=! X(n,d) / D  V(n) +=! (X(n,d) - M(n)) * (X(n,d) - M(n)) / D }""",
    """def layer_norm(float(N,D) X) -> (Y) {
        m(n) +=! X(n,d) / D  v(n) +=! (X(n,d) - m(n)) * (X(n,d) - m(n)) / D
        Y(n,d) = (X(n,d) - m(n)) * rsqrt(v(n) + 1e-5) }""",
    """def chain(float(N,D) X) -> (Y, Z) {
        p(n) *=! 1 + 0.001 * tanh(X(n,d))  Y(n,m) +=! sigmoid(X(n,d)) * X(m,d)
        Z(n) = log(p(n) * p(n) + 1) - pow(abs(p(n)), 1.5) + Y(n,n) % 3.0 }""",
    """def choices(float(N,D) X) -> (Y) {
        m(n) +=! X(n,d)  Y(n,d) = X(n,d) > m(n) / D ? sqrt(abs(X(n,d))) : min(X(n,d), m(n)) - floor(X(n,d)) }""",
)


JUMPING = ("ceil", "fdim", "floor", "fmod", "logb", "remainder", "round", "sign", "trunc")
"""Functions that give 0, or jump, somewhere in the test's range."""


@pytest.mark.parametrize("name", sorted(OF_FLOATS))
@pytest.mark.parametrize("fast_math", [False, True])
def test_functions_stay_within_their_bound(name: str, fast_math: bool) -> None:
    """Of arguments that come with errors of their own."""
    pytest.importorskip("scipy")
    draw = Draw(11)
    names = "XYZW"[: OF_FLOATS[name].arity]
    parameters = ", ".join(f"float(N) {n}" for n in names)
    least = 1.3 if name == "acosh" else 0.3
    calls = ", ".join(f"{least} + 0.3 * {n}(i) * {n}(i) / (1 + {n}(i) * {n}(i))" for n in names)
    text = f"def f({parameters}) -> (R) {{ R(i) = {name}({calls}) }}"
    arrays = tuple(draw(1000) for _ in names)
    (function,) = grammar.define(text).values()
    (tolerance,) = error_bounds(function, dict(zip(names, arrays, strict=True)), fast_math=fast_math).values()
    (found,) = results(text, *arrays, options=tcomp.MappingOptions(fast_math=fast_math))
    assert (tolerance.shares(found) <= 1).all()
    if name not in JUMPING:
        assert (tolerance.shares(found * np.float32(1.01)) > 1).mean() > 0.9


def test_what_rounding_decides_is_unknown() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(64).astype(np.float32)
    text = "def f(float(N) X) -> (Y) { s +=! X(i)  Y(i) = s * X(i) > s * X(i) ? 100.0 : X(i) }"
    assert (bound(text, x) > 90).all()
    certain = "def f(float(N) X) -> (Y) { s +=! X(i)  Y(i) = s * X(i) > s * X(i) + 1 ? 100.0 : X(i) }"
    assert not bound(certain, x).any()


def test_overflow_that_depends_on_the_order_is_unknown() -> None:
    x = np.array([3e38, 3e38, -3e38, -3e38], np.float32)
    assert bound("def f(float(N) X) -> (S) { S +=! X(i) }", x) == np.inf
    assert bound("def f(double(N) X) -> (S) { S +=! X(i) }", x.astype(np.float64)) < 1e25
    assert bound("def f(float(N) X) -> (P) { P *=! X(i) }", np.array([1e30, 1e30, 1e-30, 1e-30], np.float32)) == np.inf


def test_infinities_and_nan_are_certain() -> None:
    text = "def f(float(N,D) X) -> (S, M) { S(n) +=! X(n,d)  M(n) max=! X(n,d) }"
    x = np.array([[np.inf, 1.1], [np.nan, 0.3], [np.inf, -np.inf]], np.float32)
    sums, largest = bounds(text, x).values()
    assert not sums.bound.any() and not largest.bound.any()
    assert sums.shares(np.array([np.inf, np.nan, np.nan])).tolist() == [0, 0, 0]
    assert sums.shares(np.array([-np.inf, 0, 1])).tolist() == [np.inf] * 3


def test_a_masked_score_is_certain() -> None:
    """Minus infinity plus anything, as masks have it: its exponential is 0."""
    text = "def f(float(N) X, float(N) M) -> (Y) { s +=! X(i)  Y(i) = exp(s * X(i) + M(i)) }"
    x, mask = np.array([0.1, 0.2, 0.3], np.float32), np.array([0, -np.inf, 0], np.float32)
    found = bound(text, x, mask)
    assert found[1] == 0 and 0 < found[0] < 1e-5


def test_content_of_outputs_counts() -> None:
    text = "def f(float(N) X) -> (S) { S(i) += X(i) }"
    x, before = np.array([0.1, 0.1], np.float32), np.array([1e6, 1.0], np.float32)
    (tolerance,) = bounds(text, x, out={"S": before}).values()
    assert tolerance.bound[0] > 1e-2 and 0 < tolerance.bound[1] < 1e-6


@pytest.mark.parametrize(
    ("result", "reference", "expected"),
    [
        (np.array([1.0, 2.5]), np.array([1.0, 2.0]), [0, 0.5]),
        (np.array([np.inf, np.nan]), np.array([np.inf, np.nan]), [0, 0]),
        (np.array([1.0, np.nan]), np.array([np.nan, 1.0]), [np.inf, np.inf]),
        (np.array([np.inf]), np.array([-np.inf]), [np.inf]),
        (np.array([255], np.uint8), np.array([0], np.uint8), [255]),
        (np.array([-(2**63)]), np.array([2**63 - 1]), [2.0**64]),
        (np.array([True]), np.array([False]), [1]),
        (np.zeros((0, 3)), np.zeros((0, 3)), []),
    ],
)
def test_differences(result: Array, reference: Array, expected: list[float]) -> None:
    found = Tolerance(reference, np.zeros(reference.shape)).differences(result)
    assert found.dtype == np.float64
    assert found.ravel().tolist() == expected


def test_errors_are_those_of_the_reference() -> None:
    with pytest.raises(ShapeError, match="argument 'A' is missing"):
        error_bounds(grammar.define("def f(float(N) A) -> (S) { S +=! A(i) }")["f"], {})
