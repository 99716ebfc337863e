"""The place of an extremum in a long row is sought in one part of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.fitted.cpusharing import SEEKING
from tcomp.mapping.text.writer import plan_text

ROWS = "def f(TYPE(N,K) A) -> (I) { I(n) argOP=! A(n,k) }"


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As if short rows were long."""
    monkeypatch.setenv("TCOMP_CACHE", "0")
    before = SEEKING.steps, SEEKING.least_parts
    object.__setattr__(SEEKING, "steps", 96)
    object.__setattr__(SEEKING, "least_parts", 3)
    yield
    object.__setattr__(SEEKING, "steps", before[0])
    object.__setattr__(SEEKING, "least_parts", before[1])


def rows(dtype: str, count: int, length: int) -> Any:
    """Rows with the extremum at several places; in floats one with NaN, one of infinities, one without a finite one."""
    found = np.random.default_rng(length).integers(-5, 6, (count, length)).astype(dtype)
    if dtype.startswith("float"):
        found[0, [length // 2, length - 1]] = np.nan
        found[1 % count] = -np.inf
        found[2 % count] = np.inf
    return found


@pytest.mark.parametrize("operator", ["min", "max"])
@pytest.mark.parametrize(
    ("dtype", "count", "length"), [("float", 5, 1000), ("float", 1, 96 * 4 + 1), ("double", 3, 700), ("int32", 4, 289)]
)
def test_places_are_those_of_numpy(dtype: str, count: int, length: int, operator: str) -> None:
    f = tc.define(ROWS.replace("TYPE", dtype).replace("OP", operator)).f
    a = rows("float32" if dtype == "float" else "float64" if dtype == "double" else dtype, count, length)
    kernel = f.compile(a)
    assert len(kernel.compilation.plan.sought) == 1
    np.testing.assert_array_equal(kernel(a), getattr(np, f"arg{operator}")(a, axis=1))
    a[:, :] = 0
    a[:, -1] = 1 if operator == "max" else -1
    np.testing.assert_array_equal(kernel(a), [length - 1] * count)


TWO = """def f(float(N,K) A) -> (I, V, J, W) {
    I(n) argmax=! A(n,k)
    V(n) = A(n,I(n))
    J(n) argmax=! k == I(n) ? -3.4e38 : A(n,k) where k in 0:K
    W(n) = A(n,J(n)) }"""


def test_the_two_largest_and_ranges_that_begin_later() -> None:
    a = np.random.default_rng(0).integers(0, 50, (6, 800)).astype(np.float32)
    f = tc.define(TWO).f
    kernel = f.compile(a)
    assert kernel.compilation.plan.sought
    order = np.argsort(-a, axis=1, kind="stable")[:, :2]
    first, best, second, next_best = kernel(a)
    np.testing.assert_array_equal(np.stack([first, second], 1), order)
    np.testing.assert_array_equal(np.stack([best, next_best], 1), np.take_along_axis(a, order, 1))
    part = tc.define("def g(float(N,K) A) -> (I) { I(n) argmin=! A(n,k) where k in 37:K-5 }").g
    assert part.compile(a).compilation.plan.sought
    np.testing.assert_array_equal(part(a), 37 + a[:, 37:-5].argmin(1))


def test_a_plan_keeps_it() -> None:
    f = tc.define(ROWS.replace("TYPE", "float").replace("OP", "max")).f
    a = rows("float32", 5, 1000)
    kernel = f.compile(a)
    plan = plan_text(kernel.compilation.plan, [*kernel.compilation.plans][-1])
    row = '[[sought]]\nstatement = "S1"\nparts = 11\n'
    assert row in plan
    np.testing.assert_array_equal(f.compile(a, plan=plan)(a), a.argmax(1))
    with pytest.raises(tc.PlanError, match="S0 is no search for the place of an extremum in so many parts"):
        f.compile(a, plan=plan.replace(row, row.replace("S1", "S0")))
    with pytest.raises(tc.PlanError):
        f.compile(a, plan=plan.replace(row, ""))
