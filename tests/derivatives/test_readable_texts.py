"""Derived texts as a person would write them: names for what occurs again, one sum from another, plain alternatives."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor, wait

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.derivatives.restating.choices import with_settled_choices
from tcomp.grammar.parsing.parser import parse
from tcomp.storage.forks import ISL


def body(name: str, wrt: str | None = None) -> list[str]:
    """The statements of a gradient, without comments and clauses."""
    text = tc.library[name].gradient(wrt).text.split("\n}")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ") and "# " not in line]


def test_softmax_has_the_lines_of_textbooks() -> None:
    assert body("softmax") == [
        "d_total(n) +=! d_Y(n, d) * Y(n, d)",
        "d_X(n, d) = (d_Y(n, d) - d_total(n)) * Y(n, d)",
    ]


def test_what_a_choice_has_computed_is_read() -> None:
    """Only where it was chosen: the other alternative is computed again."""
    text = """def f(double(N,D) X, double(D) V) -> (O) {{
        p(n,d) = d <= n ? exp(X(n,d)) : {}
        O(n) +=! p(n,d) * V(d) }}"""
    assert "V(d) * p(n, d) : 0.0" in tc.define(text.format("0.0")).f.gradient("X").text
    g = tc.define(text.format("exp(2 * X(n,d))")).f.gradient("X")
    assert " p(n, d)" not in g.text
    rng = np.random.default_rng(0)
    X, V, d_O = rng.random((5, 4)), rng.random(4), rng.random(5)
    seen = np.arange(4) <= np.arange(5)[:, None]
    for zero, expected in (("0.0", 0.0 * X), ("7.0", 0.0 * X), ("exp(2 * X(n,d))", 2 * np.exp(2 * X))):
        found = tc.define(text.format(zero)).f.gradient("X")(X, V, d_O)
        np.testing.assert_allclose(found, d_O[:, None] * V * np.where(seen, np.exp(X), expected), rtol=1e-12)


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


def test_blocks_say_nothing_that_their_steps_say() -> None:
    text = "def f(double(N) X) -> (S) { S(0) = X(0) for t in 1:N { S(t) = S(t-1) * X(t) } }"
    gradient = tc.define(text).f.gradient()
    assert "        d_all_S(N - t) = d_S(N - t) + (1 < t ? d_all_S(N - t + 1) * X(N - t + 1) : 0.0)\n" in gradient.text
    assert "    d_X(0) += d_S(0) + (0 < N - 1 ? d_all_S(1) * X(1) : 0.0)\n" in gradient.text
    again = gradient.gradient().text
    assert "        d_X_(min(t + 1, N - 1)) += 1 < N - t ? d_d_all_S(t) * d_all_S(t + 1) : 0.0\n" in again
    assert "N - (N - t)" not in again and "t + 0" not in again


WRITTEN = {
    "a range settles it": ("Y(t) = 0 <= t && t < N ? X(t) : 0.0 where t in 0:N", "Y(t) = X(t) where t in 0:N"),
    "a range does not": ("Y(t) = 1 <= t ? X(t) : 0.0 where t in 0:N", ""),
    "for some sizes": ("Y(t) = t < max(1, N) ? X(t) : 0.0 where t in 0:M", ""),
    "a choice around it": (
        "Y(t) = t < 3 ? (t < 5 && X(t) > 0.0 ? X(t) : 0.0) : t < 2 ? 1.0 : X(t) where t in 0:N",
        "Y(t) = t < 3 ? X(t) > 0.0 ? X(t) : 0.0 : X(t) where t in 0:N",
    ),
    "never": ("Y(t) = X(t) + (t < 0 ? X(0) : 0.0) where t in 0:N", "Y(t) = X(t) where t in 0:N"),
    "a number alone is of another type": ("Y(t) = t < 0 ? X(t) : 0.0 where t in 0:N", ""),
    "two types": ("Y(t) = 0 <= t ? H(t) : X(t) where t in 0:N", ""),
    "one type": ("Y(t) = 0 <= t ? X(t) : Z(t) where t in 0:N", "Y(t) = X(t) where t in 0:N"),
    "data": ("Y(t) = X(t) < 0.0 ? X(t) : 0.0 where t in 0:N", ""),
    "no instance at all": ("Y(t) = t < 3 ? X(t) : 0.0 where t in 4:2", ""),
    "rounded": (
        "Y(t) = (2*t + 1) / 2 >= t && t % 4 < 4 ? X(t / 2) : 0.0 where t in 0:N",
        "Y(t) = X(t / 2) where t in 0:N",
    ),
    "clamps": ("Y(t) = X(min(max(N - (N - t), 0), N - 1)) where t in 0:N", "Y(t) = X(t) where t in 0:N"),
    "places": ("Y(min(t, N - 1) + 0) += X(t) where t in 0:N", "Y(t) += X(t) where t in 0:N"),
    "a step as a place": ("for t in 1:N { Y(t + 0) = X(t) }", "for t in 1:N {\n    Y(t) = X(t)\n}"),
    "a name that is no index as a place": ("Y(K + 0) = X(K)", ""),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_choices(name: str) -> None:
    given, expected = WRITTEN[name]
    head = "def f(const int N, const int M, const int K, double(64) X, double(64) Z, half(64) H) -> (double(64) Y)"
    ((definition,), types) = parse(f"{head} {{ {given} }}"), {"X": "double", "Z": "double", "H": "half"}
    (item,) = definition.body
    assert str(with_settled_choices(item, ("N", "M", "K"), types)) == (expected or str(item))


def test_choices_wait_for_a_thread_that_bounds_what_isl_does() -> None:
    (definition,) = parse("def f(float(64) X) -> (Y) { Y(t) = t < 64 ? X(t) : 0.0 where t in 0:64 }")
    context = isl.DEFAULT_CONTEXT
    with ThreadPoolExecutor(1) as pool:
        with ISL.value:
            context.reset_operations()
            context.set_max_operations(1)
            try:
                found = pool.submit(with_settled_choices, definition.body[0], (), {"X": "float"})
                wait([found], 0.2)
            finally:
                context.set_max_operations(0)
                context.reset_operations()
        assert str(found.result()) == "Y(t) = X(t) where t in 0:64"
