"""What isl was asked is kept for equal sets."""

from __future__ import annotations

import islpy as isl
import pytest

from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.terms.remembered import remembered


def test_a_function_of_a_set_runs_once_for_equal_sets() -> None:
    asked: list[str] = []

    @remembered
    def told(points: isl.Set, more: int = 0) -> str:
        asked.append(str(points))
        return f"{points.dim_max_val(0)} {more}"

    first, same = isl.Set("{ S[i, j] : 0 <= i <= 3 and 0 <= j <= 5 }"), "{ S[i, j] : 0 <= j <= 5 and 0 <= i <= 3 }"
    assert told(first) == told(isl.Set(same)) == "3 0" and len(asked) == 1
    assert told(first, 2) == "3 2" and told(first, 2) == "3 2" and len(asked) == 2
    assert told(isl.Set("{ S[i, j] : 0 <= i <= 4 and 0 <= j <= 5 }")) == "4 0"
    assert told(isl.Set("{ T[i, j] : 0 <= i <= 3 and 0 <= j <= 5 }")) == "3 0" and len(asked) == 3


def test_what_is_raised_is_not_kept() -> None:
    tries: list[isl.Set] = []

    @remembered
    def fails_once(points: isl.Set) -> int:
        tries.append(points)
        if len(tries) == 1:
            raise KeyError("first")
        return len(tries)

    points = isl.Set("{ [i] : 0 <= i <= 3 }")
    with pytest.raises(KeyError, match="first"):
        fails_once(points)
    assert fails_once(points) == fails_once(points) == 2


def test_a_hull_does_not_depend_on_the_order_of_constraints() -> None:
    bounds = ["2a <= e", "e <= 2a + 5", "b <= e", "e <= b + 5", "0 <= a <= 9", "0 <= b <= 9"]
    texts = ["{ [a, b] -> [e] : " + " and ".join(order) + " }" for order in (bounds, bounds[::-1])]
    first, second = (box_hull(isl.Map(text)) for text in texts)
    assert str(first.lower) == str(second.lower) and first.shape == second.shape == (6,)
