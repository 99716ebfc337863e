"""``argmin=!`` and ``argmax=!``: the first place of an extremum, as NumPy and torch have it, on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar.parsing.parser import parse
from tests.cuda.simulated import NEEDS_COMPILER

Array = np.ndarray[Any, np.dtype[Any]]

pytestmark = pytest.mark.sweep(3)

ROWS = "def f(float(N,K) A) -> (I) { I(n) argmax=! A(n,k) }"
TYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TARGETS = ["reference", "cpu", pytest.param("simulator", marks=NEEDS_COMPILER)]


def few(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Values with many ties."""
    return rng.integers(0, 5, shape).astype(dtype)


def call(f: Any, target: str, *arrays: Array) -> Any:
    return f.reference(*arrays) if target == "reference" else f(*arrays, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_and_columns(dtype: str, name: str, target: str) -> None:
    rng = np.random.default_rng(0)
    for shape in ((4, 33), (33, 4), (1, 1), (3, 130)):
        A = few(rng, shape, dtype)
        for axis, left in ((1, "n"), (0, "k")):
            f = tc.define(f"def f({dtype}(N,K) A) -> (I) {{ I({left}) {name}=! A(n,k) }}").f
            np.testing.assert_array_equal(call(f, target, A), getattr(np, name)(A, axis=axis))


@pytest.mark.parametrize("target", TARGETS)
def test_bfloat16_is_torchs(target: str) -> None:
    torch = pytest.importorskip("torch")
    A = torch.randint(0, 5, (5, 40)).to(torch.bfloat16)
    f = tc.define("def f(bfloat16(N,K) A) -> (I) { I(n) argmax=! A(n,k) }").f
    np.testing.assert_array_equal(np.asarray(call(f, target, A)), np.argmax(A.float().numpy(), axis=1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_nan_zeros_and_infinities(name: str, target: str) -> None:
    rows = [
        [1, np.nan, 9, np.nan], [-0.0, 0.0, -0.0, 0.0], [0.0, -0.0, 0.0, 0.0], [np.nan] * 4, [-np.inf] * 4,
        [np.inf] * 4, [np.inf, np.nan, -np.inf, 0], [-np.inf, np.inf, -np.inf, np.inf], [3, 1, 1, 3],
    ]  # fmt: skip
    A = np.repeat(np.array(rows, np.float32), 9, axis=1)
    f = tc.define(ROWS.replace("argmax", name)).f
    np.testing.assert_array_equal(call(f, target, A), getattr(np, name)(A, axis=1))


@pytest.mark.parametrize("target", TARGETS)
def test_several_indices_are_a_target_each(target: str) -> None:
    f = tc.define("def f(float(N,H,W) A) -> (I, J) { I, J(n) argmax=! A(n,i,j) }").f
    A = few(np.random.default_rng(1), (6, 5, 9))
    A[2, 3, 1] = A[2, 4, 0] = np.nan
    i, j = call(f, target, A)
    np.testing.assert_array_equal(9 * i + j, A.reshape(6, -1).argmax(axis=1))


@pytest.mark.parametrize("target", TARGETS)
def test_of_everything(target: str) -> None:
    f = tc.define("def f(float(H,W) A) -> (I, J) { I, J argmin=! A(i,j) }").f
    A = few(np.random.default_rng(2), (7, 70)) + 1
    A[3, 40] = A[4, 2] = 0
    assert [int(place) for place in call(f, target, A)] == [3, 40]


@pytest.mark.parametrize("target", TARGETS)
def test_expressions_with_ties_that_contraction_would_tear(target: str) -> None:
    f = tc.define("""def f(float(N,K) A, float(K) b) -> (I, V) {
        I(n) argmax=! A(n,k) * b(k) + A(n,k) * A(n,k)
        V(n) = A(n, I(n)) }""").f
    rng = np.random.default_rng(3)
    A, b = rng.standard_normal((40, 200)).astype(np.float32), rng.standard_normal(200).astype(np.float32)
    place, value = call(f, target, A, b)
    exact = A.astype(np.float64) * b + A.astype(np.float64) ** 2
    np.testing.assert_array_equal(place, exact.argmax(axis=1))
    np.testing.assert_array_equal(value, np.take_along_axis(A, place[:, None].astype(int), 1)[:, 0])


@pytest.mark.parametrize("target", TARGETS)
def test_top_2(target: str) -> None:
    f = tc.define("""def f(float(N,K) A) -> (I, J) {
        I(n) argmax=! A(n,k)
        J(n) argmax=! k == I(n) ? -1.0 / 0.0 : A(n,k) }""").f
    assert "values" not in str(f)
    A = few(np.random.default_rng(4), (9, 50))
    order = np.argsort(-A, axis=1, kind="stable")
    for found, rank in zip(call(f, target, A), (0, 1), strict=True):
        np.testing.assert_array_equal(found, order[:, rank])


@pytest.mark.parametrize("target", TARGETS)
def test_ranges_lets_and_boundaries(target: str) -> None:
    f = tc.define("""def f(float(N,K) A) -> (P, Q, R) {
        P(n) argmax=! A(n,k) where k in 3:K-1
        Q(k) argmin=! v where n in 0:k+1, k in 0:N, v = A(n,k)
        R(n) argmax=! constant_exterior(A, 9)(n, k) where n in 0:N, k in -2:K }""").f
    A = few(np.random.default_rng(5), (6, 20))
    P, Q, R = call(f, target, A)
    np.testing.assert_array_equal(P, 3 + A[:, 3:-1].argmax(axis=1))
    np.testing.assert_array_equal(Q, [A[: k + 1, k].argmin() for k in range(6)])
    np.testing.assert_array_equal(R, np.full(6, -2))


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_has_no_place(target: str) -> None:
    f = tc.define("def f(float(N) A) -> (I) { I(n) argmax=! A(k) where n in 0:N, k in 0:n }").f
    A = np.array([1, 3, 3, 2], np.float32)
    np.testing.assert_array_equal(call(f, target, A), [2**31 - 1, 0, 1, 1])


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_views(target: str) -> None:
    A = few(np.random.default_rng(6), (20, 60))
    f = tc.define(ROWS).f
    for view in (A[::2, ::3], A.T, A[3:, 1:]):
        np.testing.assert_array_equal(call(f, target, view), view.argmax(axis=1))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float"])
def test_declared_types(dtype: str) -> None:
    f = tc.define(f"def f(float(N,K) A) -> ({dtype}(N) I) {{ I(n) argmax=! A(n,k) }}").f
    A = few(np.random.default_rng(7), (4, 50))
    np.testing.assert_array_equal(f(A), A.argmax(axis=1))
    assert f(A).dtype == {"float": "float32"}.get(dtype, dtype)


def test_threads_give_the_same() -> None:
    A = few(np.random.default_rng(8), (1 << 20,))
    f = tc.define("def f(float(K) A) -> (I) { I argmax=! A(k) }").f
    assert int(f(A)) == A.argmax()
    A[777_777] = 7
    assert int(f(A)) == 777_777


def test_calls_and_names() -> None:
    f = tc.define("""def f(float(N,K) A) -> (I, I_best) {
        I = place(A)
        I_best(n) argmin=! A(n,k) }
    def place(float(N,K) X) -> (I) { I(n) argmax=! X(n,k) }""").f
    A = few(np.random.default_rng(9), (4, 50))
    first, second = f(A)
    np.testing.assert_array_equal(first, A.argmax(axis=1))
    np.testing.assert_array_equal(second, A.argmin(axis=1))


def test_the_gradient_of_the_extremum_goes_through_its_place() -> None:
    f = tc.define("def f(double(N,K) A) -> (I, V) { I(n) argmax=! A(n,k)  V(n) = A(n, I(n)) * A(n, I(n)) }").f
    A = np.random.default_rng(10).standard_normal((5, 12))
    place, _ = f(A)
    backward = f.gradient()
    assert "d_A(n, I(n)) +=!" in backward.text
    wanted = np.zeros_like(A)
    np.put_along_axis(wanted, place[:, None].astype(int), 2 * A.max(axis=1, keepdims=True), 1)
    np.testing.assert_array_equal(backward(A, np.ones(5)), wanted)


def test_printing_and_parsing_again() -> None:
    text = "def f(float(N, H, W) A) -> (I, J) {\n    I, J(n) argmax=! A(n, i, j) where i in 1:H\n}"
    (definition,) = parse(text)
    assert str(definition) == text
    assert parse(str(definition)) == (definition,)


def test_the_names_are_free() -> None:
    f = tc.define("def f(float(N) argmax, float(N) argmin) -> (O) { O(i) = argmax(i) - argmin(i) }").f
    np.testing.assert_array_equal(f(np.ones(3, np.float32), np.ones(3, np.float32)), np.zeros(3))


def test_what_it_stands_for_is_what_the_text_shows() -> None:
    f = tc.define("def f(float(N,K) A) -> (I) { I(n) argmax=! A(n,k) }").f
    assert str(f) == (
        "def f(float(N, K) A) -> (I) {\n"
        "    I_best(n) max=! A(n, k)\n"
        "    I(n) min=! A(n, k) == I_best(n) || A(n, k) != A(n, k) ? k : 2147483647\n"
        "}"
    )
