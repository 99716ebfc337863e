"""Operands of contractions whose indices are in another order than the results are copied ahead."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of

pytestmark = pytest.mark.sweep(4)

Array = np.ndarray[Any, np.dtype[Any]]
SIZES = {"y": 14, "w": 5, "v": 3, "p": 4, "u": 5, "r": 9}


def contraction(left: str, right: str, result: str, sizes: dict[str, int]) -> tc.Operation:
    a, b = (",".join(str(sizes[i]) for i in side) for side in (left, right))
    body = f"C({','.join(result)}) +=! A({','.join(left)}) * B({','.join(right)})"
    return tc.define(f"def f(float({a}) A, float({b}) B) -> (C) {{ {body} }}")["f"]


def plan_of(operation: tc.Operation, target: str = "cpu") -> Plan:
    return lower(operation.function, Sizes({}), tc.MappingOptions(), backend_of(target), True).plan


def integers(side: str, sizes: dict[str, int]) -> Array:
    shape = [sizes[i] for i in side]
    return np.random.default_rng(shape).integers(-4, 5, shape).astype(np.float32)


def test_columns_in_another_order_become_one() -> None:
    sizes = {"y": 58, "w": 20, "v": 12, "p": 18, "u": 17, "r": 11}
    plan = plan_of(contraction("rupv", "yrw", "ywvpu", sizes), "cpu:x86-64-v4")
    assert {order for _, _, order in plan.unfolded} == {("r", "v", "p", "u")}
    assert {*map(len, (s.indices for s in plan.program.statements if s.kind == "update"))} == {4}


@pytest.mark.parametrize(
    ("left", "right", "result", "sizes"),
    [
        ("rvpu", "ywr", "ywvpu", {"y": 58, "w": 20, "v": 12, "p": 18, "u": 17, "r": 11}),
        ("tpxu", "wqytux", "pwyq", {"p": 2, "w": 3, "q": 51, "y": 34, "u": 74, "t": 3, "x": 3}),
    ],
    ids=["in order", "an operand that is hardly used again"],
)
def test_others_stay_where_they_are(left: str, right: str, result: str, sizes: dict[str, int]) -> None:
    assert plan_of(contraction(left, right, result, sizes)).unfolded == ()


@pytest.mark.parametrize("left", ["".join(p) for p in itertools.permutations("rupv", 4)][::3])
@pytest.mark.parametrize("result", ["ywvpu", "vpuyw", "wvpuy", "yvwpu"])
def test_any_order_gives_the_same(left: str, result: str) -> None:
    f = contraction(left, "yrw", result, SIZES)
    a, b = integers(left, SIZES), integers("yrw", SIZES)
    assert (f(a, b) == np.einsum(f"{left},yrw->{result}", a, b)).all()
