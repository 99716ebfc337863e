"""Sums, products and conditions of thousands of terms."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar import parse
from tcomp.grammar.parsing.chains import DEEPEST
from tcomp.grammar.tree.limits import measure
from tcomp.grammar.tree.syntax import children

CHAINS = {
    "a sum": (lambda k: f"A(i)*{k % 7}", " + ", lambda x, n: sum(x * (k % 7) for k in range(n))),
    "differences": (lambda k: f"A(i)*{k % 7}", " - ", lambda x, n: -sum(x * (k % 7) for k in range(n))),
    "sums and differences": (lambda k: f"A(i) - {k % 5}", " + ", lambda x, n: sum(x - k % 5 for k in range(n))),
    "a product": (lambda k: f"{1 + (k % 500 == 3)}", " * ", lambda _, n: 2 ** ((n + 496) // 500)),
    "all of": (lambda k: f"A(i) != {k + 2}", " && ", lambda x, n: not 2 <= x < n + 2),
    "one of": (lambda k: f"A(i) == {k}", " || ", lambda x, n: 0 <= x < n),
    "guards": (lambda k: f"i != {k + 2}", " && ", lambda x, n: not 2 <= x < n + 2),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("length", [199, 200, 250, 2000])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_any_length(name: str, length: int) -> None:
    term, operator, expected = CHAINS[name]
    value = operator.join(term(k) for k in range(length))
    if operator in (" && ", " || "):
        value = f"{value} ? 1 : 0"
    f = tc.define(f"def f(int(N) A) -> (int(N) O) {{ O(i) = {value} where i in 0:N }}")["f"]
    A = np.arange(5, dtype=np.int32)
    wanted = np.array([expected(int(x), length) for x in A], np.int64).astype(np.int32)
    np.testing.assert_array_equal(f(A), wanted)
    np.testing.assert_array_equal(f.reference(A), wanted)


def test_only_what_was_too_deep_is_cut() -> None:
    def depth(terms: int) -> int:
        (definition,) = parse(f"def f(float a) -> (S) {{ S = {' - '.join(['a'] * terms)} }}")
        (statement,) = definition.body
        return measure(statement.value, children)[1]

    assert depth(DEEPEST) == DEEPEST
    assert depth(DEEPEST + 1) < 12
    (definition,) = parse(f"def f(float a) -> (S) {{ S = {' - '.join(f'a * {k}' for k in range(300))} }}")
    assert parse(str(definition)) == (definition,)


def test_floats_are_as_near_as_those_of_shorter_sums() -> None:
    value = " + ".join(f"A(i) / {k + 3}" for k in range(1000))
    f = tc.define(f"def f(float(N) A) -> (O) {{ O(i) = {value} }}")["f"]
    A = np.random.default_rng(1).random(17, dtype=np.float32)
    exact = sum(A.astype(np.float64) / (k + 3) for k in range(1000))
    for found in (f(A), f.reference(A)):
        np.testing.assert_allclose(found, exact, rtol=12 * 2.0**-24)
