"""Blocks that combine one element with the next run as cumulative reductions, where that changes no value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function
from tcomp.model.stepwise.running import Running, as_reductions, prove_running

HEAD = "def f(float(N,M) A, int32(M) K) -> (P)"
BASE = "def f(int32(M) K, int32(M) L) -> (P) { P(0) = K(0) - 7  for t in 1:M { P(t) = P(t-1) + K(t) * L(t) } }"
GUARDED = f"{HEAD} {{ for j in 0:M {{ P(i,j) = max(j == 0 ? A(i,j) : P(i,j-1), A(i,j)) }} }}"
OTHERS = {
    "two before": f"{HEAD} {{ P(i,j) = A(i,j) where j in 0:2  for j in 2:M {{ P(i,j) = max(P(i,j-2), A(i,j)) }} }}",
    "its own value again": f"{HEAD} {{ for j in 0:M {{ P(i,j) = j == 0 ? 1.0 : max(P(i,j-1), A(i,j) - P(i,j-1)) }} }}",
    "down the columns": f"{HEAD} {{ for j in 0:M {{ P(j,i) = j == 0 ? A(i,j) : max(P(j-1,i), A(i,j)) }} }}",
    "not from the first step on": f"{HEAD} {{ for j in 0:M {{ P(i,j) = j < 3 ? A(i,j) : max(P(i,j-1), A(i,j)) }} }}",
    "another statement": f"{HEAD} {{ for j in 0:M {{ P(i,j) = j == 0 ? 1.0 : max(P(i,j-1), A(i,j))  Q(j) = 1 }} }}",
    "floats": f"{HEAD} {{ for j in 0:M {{ P(i,j) = (j == 0 ? 0.0 : P(i,j-1)) + A(i,j) }} }}",
    "halves": "def f(half(M) A) -> (half(M) P) { for j in 0:M { P(j) = half((j == 0 ? 0.0 : P(j-1)) + A(j)) } }",
}


def made_of(text: str, reassociate: bool = False) -> tuple[Function, Running | None]:
    function = define(text)["f"]
    sizes = {"N": 3, "M": 40}
    return function, as_reductions(function, infer(function, {n: sizes[n] for n in function.sizes}), reassociate)


@pytest.mark.parametrize("text", [BASE, GUARDED])
def test_integers_and_extrema_are_combined_as_reductions(text: str) -> None:
    f = tc.define(text).f
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, (3, 40)[2 - t.rank :]).astype(t.dtype.name) for t in f.function.inputs]
    kernel = f.compile(*arrays)
    assert "tc_running" in kernel.source
    expected = f.reference(*arrays)
    np.testing.assert_array_equal(kernel(*arrays), expected)
    np.testing.assert_array_equal(f(*arrays, target="simulator"), expected)
    again = f.compile(*arrays, plan=kernel.compilation.stages["pack"])
    assert again.source == kernel.source


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_running_reduction_runs_step_by_step(name: str) -> None:
    assert made_of(OTHERS[name])[1] is None


def test_sums_of_floats_are_reassociated_with_fast_math_alone() -> None:
    f = tc.define(OTHERS["floats"]).f
    A, K = np.random.default_rng(0).integers(-9, 9, (3, 40)).astype("f4"), np.zeros(40, np.int32)
    kernel = f.compile(A, K, options="fast_math=true")
    assert "tc_running" in kernel.source
    np.testing.assert_array_equal(kernel(A, K), A.cumsum(1))
    _, made = made_of(OTHERS["floats"], reassociate=True)
    assert made is not None and not made.after.recurs


@pytest.mark.parametrize("text", [BASE, GUARDED])
def test_a_reduction_over_other_steps_is_refused(text: str) -> None:
    function, made = made_of(text)
    assert made is not None
    prove_running(made, infer(made.after, made.ranges.sizes))
    statements = [*made.after.statements]
    update = statements[made.number + made.update]
    *others, last = update.ranges
    further = replace(last, upper=next(r.upper for r in others if r.index == function.statements[-1].steps[0].index))
    statements[made.number + made.update] = replace(update, ranges=(*others, further))
    wrong = replace(made.after, statements=tuple(statements))
    for first, after in ((made.first + 1, made.after), (made.first, wrong)):
        with pytest.raises(LegalityError, match="is no cumulative reduction"):
            prove_running(replace(made, first=first), infer(after, made.ranges.sizes))
