"""Arrays of many short dimensions, on whose nests neither tcomp nor a C compiler may take minutes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar.tree.function import Expr
from tcomp.mapping.tiles import strides

RANK = 20
NAMES = [f"i{k}" for k in range(RANK)]
ALL, REVERSED, HALF = ",".join(NAMES), ",".join(NAMES[::-1]), ",".join(NAMES[: RANK // 2])
CASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "pointwise": (f"Y({ALL}) = 2 * X({ALL})", lambda x: 2 * x),
    "transposed": (f"Y({REVERSED}) = 2 * X({ALL})", lambda x: 2 * x.T),
    "reduced": (f"Y({HALF}) +=! X({ALL})", lambda x: x.sum(tuple(range(RANK // 2, RANK)))),
}


@pytest.mark.parametrize("name", CASES)
def test_two_to_the_power_of_twenty(name: str) -> None:
    statement, expected = CASES[name]
    operation = tc.define(f"def f(float({ALL.replace('i', 'N')}) X) -> (Y) {{ {statement} }}").f
    x = np.arange(2**RANK, dtype=np.float32).reshape([2] * RANK) % 5
    np.testing.assert_array_equal(operation(x), expected(x))


def test_every_index_is_asked_for_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far its values lie apart in memory.  Asked for each of the indices within it, 64 took half a minute."""
    asked, coefficient = Counter[str](), strides.coefficient

    def counted(expr: Expr, index: str, sizes: Mapping[str, int]) -> int | None:
        asked[index] += 1
        return coefficient(expr, index, sizes)

    monkeypatch.setattr(strides, "coefficient", counted)
    monkeypatch.setenv("TCOMP_CACHE", "0")
    operation = tc.define(
        f"def f(float({ALL.replace('i', 'N')}) X) -> (Y, s) {{ Y({ALL}) = X({ALL})  s +=! X({ALL}) }}"
    ).f
    operation.compile(sizes={f"N{k}": 2 if k < RANK // 2 else 1 for k in range(RANK)}, target="cuda:sm_90")
    operation.compile(sizes={f"N{k}": 2 if k < RANK // 2 else 1 for k in range(RANK)})
    assert len(asked) == RANK
    assert max(asked.values()) < 100 * RANK
