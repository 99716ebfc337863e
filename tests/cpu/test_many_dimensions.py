"""Arrays of many short dimensions, on whose nests a C compiler must not take minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcomp as tc

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
