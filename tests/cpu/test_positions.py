"""``argmax=!`` and ``argmin=!``: where the extremum is, as NumPy finds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tests.cuda.simulated import NEEDS_COMPILER

Array = np.ndarray[Any, np.dtype[Any]]

pytestmark = pytest.mark.sweep(2)

TARGETS = ["cpu", pytest.param("simulator", marks=NEEDS_COMPILER)]
TYPES = ["float", "double", "half", "int8", "uint8", "int32", "int64"]
NUMPY = {"float": "f4", "double": "f8", "half": "f2"}


def rows(kind: str, shape: tuple[int, ...] = (9, 37)) -> Array:
    """Few values, so that each occurs several times in a row."""
    values = np.random.default_rng(len(kind)).integers(0 if kind.startswith("u") else -5, 6, shape)
    return values.astype(NUMPY.get(kind, kind))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("which", ["argmax", "argmin"])
def test_the_first_of_several_wins(which: str, kind: str, target: str) -> None:
    f = tc.define(f"def f({kind}(N,D) X) -> (I, J) {{ I(n) {which}=! X(n,d)  J(d) {which}=! X(n,d) }}").f
    X = rows(kind)
    at, J = f(X, target=target)
    assert at.dtype == J.dtype == np.int32
    np.testing.assert_array_equal(at, getattr(np, which)(X, 1))
    np.testing.assert_array_equal(J, getattr(np, which)(X, 0))
    for got, expected in zip(f.reference(X), (at, J), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("which", ["argmax", "argmin"])
@pytest.mark.parametrize("kind", ["float", "double", "half"])
def test_nan_and_zeros_and_infinities(kind: str, which: str) -> None:
    f = tc.define(f"def f({kind}(N,D) X) -> (int64(N) I) {{ I(n) {which}=! X(n,d) }}").f
    X = np.ones((7, 130), NUMPY[kind])
    X[0, 60] = X[0, 90] = np.nan
    X[1, 100], X[1, 3], X[1, 50] = np.nan, np.inf, -np.inf
    X[2], X[2, 7] = -0.0, 0.0
    X[3], X[3, 5] = 0.0, -0.0
    X[4] = np.inf
    X[5] = -np.inf
    X[6] = np.nan
    got = f(X)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, getattr(np, which)(X, 1))


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 1000, 100_003])
def test_long_and_short_rows(size: int) -> None:
    f = tc.define("def f(float(D) X) -> (I) { I argmax=! X(d) }").f
    for seed in range(4):
        X = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
        assert f(X) == X.argmax()
        assert f(X[::-1]) == X[::-1].argmax()


def test_ranges_values_and_guards() -> None:
    f = tc.define("""def f(float(N,D) X, float(D) w) -> (I, J, K) {
        I(n) argmax=! X(n,d) where d in 3:D
        J(n) argmin=! z * z where z = X(n,d) * w(d)
        K(n) argmax=! d % 2 == 0 ? X(n,d) : -100.0
    }""").f
    X, w = rows("float"), rows("float", (37,))
    at, J, K = f(X, w)
    np.testing.assert_array_equal(at, 3 + X[:, 3:].argmax(1))
    np.testing.assert_array_equal(J, ((X * w) ** 2).argmin(1))
    np.testing.assert_array_equal(K, 2 * X[:, ::2].argmax(1))


def test_values_are_computed_once() -> None:
    """Two loops that round differently would find no element equal to the largest."""
    f = tc.define("def f(float(N,D) X, float(N,D) Y) -> (I) { I(n) argmax=! X(n,d) * Y(n,d) + X(n,d) * 0.1 }").f
    random = np.random.default_rng(0)
    X, Y = (random.standard_normal((200, 501), dtype=np.float32) for _ in range(2))
    at = f(X, Y)
    assert ((at >= 0) & (at < 501)).all()
    exact = X.astype(float) * Y + X * 0.1
    np.testing.assert_allclose(np.take_along_axis(exact, at[:, None], 1)[:, 0], exact.max(1), rtol=1e-6)


def test_the_two_largest() -> None:
    f = tc.define("""def top2(float(N,D) X) -> (A, B, I, J) {
        I(n) argmax=! X(n,d)
        A(n) = X(n, I(n))
        J(n) argmax=! d == I(n) ? -1000.0 : X(n,d)
        B(n) = X(n, J(n))
    }""").top2
    X = np.random.default_rng(1).permutation(9 * 37).reshape(9, 37).astype("f4")
    A, B, at, J = f(X)
    order = np.argsort(-X, 1)
    np.testing.assert_array_equal(np.stack([at, J], 1), order[:, :2])
    np.testing.assert_array_equal(np.stack([A, B], 1), -np.sort(-X, 1)[:, :2])


def test_in_no_elements_it_is_the_largest_number() -> None:
    f = tc.define("def f(float(N,D) X) -> (I) { I(n) argmax=! X(n,d) }").f
    assert (f(np.empty((3, 0), "f4")) == 2**31 - 1).all()


def test_gradients_go_through_the_element_that_was_found() -> None:
    f = tc.define("def f(double(N,D) X) -> (M) { I(n) argmax=! X(n,d)  M(n) = X(n, I(n)) * X(n, I(n)) }").f
    X = np.random.default_rng(2).standard_normal((5, 11))
    got = f.gradient("X")(X, np.ones(5))
    expected = np.zeros_like(X)
    place = np.arange(5), X.argmax(1)
    expected[place] = 2 * X[place]
    np.testing.assert_allclose(got, expected)


def test_inside_calls_and_batches() -> None:
    ops = tc.define("""
        def where_largest(float(D) x) -> (i) { i argmax=! x(d) }
        def f(float(D) X) -> (y) { j = where_largest(X)  y = X(j) }
    """)
    X = rows("float")
    assert ops.f(X[0]) == X[0].max()
    np.testing.assert_array_equal(ops.where_largest.batched((0,))(X), X.argmax(1))


LU = """def lu(double(N,N) M) -> (double(N,N) A, int32(N) rows) {
    A(i,j) = M(i,j)
    rows(i) = i where i in 0:N
    for k in 0:N {
        p argmax=! abs(A(i,k)) where i in k:N
        B(i,j) = A(i == k ? p : (i == p ? k : i), j) where i in 0:N, j in 0:N
        q(i) = rows(i == k ? p : (i == p ? k : i)) where i in 0:N
        rows(i) = q(i)
        C(i,j) = i > k && j == k ? B(i,j) / B(k,k) : B(i,j) where i in 0:N, j in 0:N
        A(i,j) = i > k && j > k ? C(i,j) - C(i,k) * C(k,j) : C(i,j) where i in 0:N, j in 0:N
    }
}"""


def test_nothing_is_sought_over_the_steps_of_a_block() -> None:
    m = np.random.default_rng(0).integers(-9, 10, (7, 7)) + 0.5 * np.eye(7)
    found, rows = tc.define(LU).lu(m)
    lower, upper = np.tril(found, -1) + np.eye(7), np.triu(found)
    np.testing.assert_allclose(lower @ upper, m[rows], atol=1e-12)
    assert np.abs(lower).max() <= 1
