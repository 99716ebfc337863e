"""Derived texts as a person would write them: names for what occurs again, one sum from another, plain alternatives."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcomp as tc


def body(name: str, wrt: str | None = None) -> list[str]:
    """The statements of a gradient, without comments and clauses."""
    text = tc.library[name].gradient(wrt).text.split("\n}")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ") and "# " not in line]


def test_softmax_has_the_lines_of_textbooks() -> None:
    assert body("softmax") == [
        "d_total(n) +=! d_Y(n, d) * Y(n, d)",
        "d_X(n, d) = (d_Y(n, d) - d_total(n)) * Y(n, d)",
    ]


def test_a_sum_of_what_another_has_added_up() -> None:
    assert body("batch_norm")[-1] == "d_eps +=! d_var(c)"
    text = """def f(double(N,D) X, double(N) a, double b, double c) -> (Y) {
        Y(n,d) = sin(X(n,d)) * (a(n) + b + c) }"""
    g = tc.define(text).f.gradient(("a", "b", "c"))
    assert "d_b +=! d_a(n)" in g.text and "d_c = d_b" in g.text
    rng = np.random.default_rng(0)
    X, a, d_Y = rng.random((4, 3)), rng.random(4), rng.random((4, 3))
    d_a, d_b, d_c = g(X, a, 1.0, 2.0, d_Y)
    np.testing.assert_allclose(d_a, (np.sin(X) * d_Y).sum(1))
    np.testing.assert_allclose([d_b, d_c], [d_a.sum()] * 2)


def test_sums_over_ranges_that_depend_stay_apart() -> None:
    """Where the range of one index ends with another, the elements of one sum need not be all parts of the other."""
    text = (
        "def f(double(N) X, double(N) a, double b) -> (Y) { Y(i) +=! X(j) * (a(j) + b) where i in 0:N, j in 0:i + 1 }"
    )
    g = tc.define(text).f.gradient(("a", "b"))
    X, a, d_Y = np.arange(1.0, 5), np.ones(4), np.arange(2.0, 6)
    d_a, d_b = g(X, a, 1.0, d_Y)
    expected = [X[j] * d_Y[j:].sum() for j in range(4)]
    np.testing.assert_allclose(d_a, expected)
    np.testing.assert_allclose(d_b, sum(expected))


def test_halves_are_not_summed_again() -> None:
    text = "def f(half(N,D) X, half(N) a, half b) -> (Y) { Y(n,d) = X(n,d) * (a(n) + b) }"
    assert "d_a(n)" not in tc.define(text).f.gradient(("a", "b")).text.split("d_b: the adjoint of b")[-1]


def test_alternatives_are_no_sums() -> None:
    assert body("elu", "X") == ["d_X(n) = X(n) > 0.0 ? d_Y(n) : d_Y(n) * alpha * (expm1(X(n)) + 1.0)"]


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("avg_pool2d", ["i = (h + P) / S - u", "j = (w + P) / S - v"]),
        ("conv2d_transposed", []),
        ("gelu_tanh", ["y = tanh("]),
        ("cosine_similarity", ["z = sqrt(XX(n))", "v = sqrt(YY(n))", "y = fmax(z * v, eps)"]),
    ],
)
def test_what_occurs_again_has_a_name(name: str, names: list[str]) -> None:
    text = tc.library[name].gradient().text
    for own in names:
        assert own in text
    assert not re.search(r"\b[uvyz]_+\b", text)


def test_long_heads_are_broken() -> None:
    text = tc.library.batch_norm_training.gradient().text
    assert "    -> (\n        float(N, C, H, W) d_X,\n" in text
    assert tc.define(text).batch_norm_training_grad.function.outputs[0].name == "d_X"
