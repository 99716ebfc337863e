"""An index of which a quotient is read as two indices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.fusion import quotients
from tcomp.mapping.fusion.quotients import can_part, parted, quotients_of
from tcomp.model.build import build
from tcomp.model.scop import Scop
from tcomp.model.terms.sizes import Sizes

TEXT = """def f(float(B,D) A, float(G,D) X, float(B) W) -> (float(B,D) O) {
  t(b,d) = A(b,d) * X(b/3,d) + W(b)
  s(b) +=! t(b,d)
  O(b,d) = t(b,d) - s(b)
}"""
SIZES = {"B": 12, "G": 4, "D": 5}


def scop_of(text: str = TEXT, **sizes: int) -> Scop:
    return build(define(text)["f"], Sizes(SIZES | sizes))


def first(scop: Scop) -> str:
    return next(s.name for s in scop.statements if list(quotients_of(scop, s.name)))


def test_everything_that_goes_through_an_element_has_two_indices() -> None:
    scop = scop_of()
    assert list(quotients_of(scop, first(scop))) == [("b", 3)]
    found = parted(scop, first(scop), "b", 3)
    assert all(s.indices[:2] == ("b_group", "b_rest") for s in found.statements)
    assert {name: s.box.extent for name, s in found.storages.items() if s.role != "input"} == {
        name: (4, 3, *s.box.extent[1:]) for name, s in scop.storages.items() if s.role != "input"
    }
    assert found.storages["A"].argument == scop.storages["A"] and found.storages["X"] == scop.storages["X"]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (TEXT, {"B": 11}),
        (TEXT.replace("t(b,d) - s(b)", "t(b,d) - s(B-1-b)"), {}),
        (TEXT.replace("t(b,d) - s(b)", "t(b,d) - s(d)"), {"D": 12}),
        (TEXT.replace("+=! t(b,d)", "+=! t(b,d) where d in 0:b"), {"B": 3, "G": 1}),
    ],
    ids=["a rest", "another order", "another index", "no box"],
)
def test_what_would_have_to_stay_is_left_alone(text: str, sizes: dict[str, int]) -> None:
    scop = scop_of(text, **sizes)
    assert not can_part(scop, first(scop), "b", 3)


def test_an_instance_that_would_touch_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scop = scop_of()
    right = quotients._Parting._statement

    def wrong(self: Any, *arguments: Any) -> Any:
        made = right(self, *arguments)
        return replace(made, reads=made.reads[::-1])

    monkeypatch.setattr(quotients._Parting, "_statement", wrong)
    with pytest.raises(LegalityError, match="touch other elements"):
        parted(scop, first(scop), "b", 3)


def test_numbers_of_indices_are_those_of_the_program() -> None:
    scop = scop_of()
    found = parted(scop, first(scop), "b", 3)
    statement = next(s for s in found.statements if "b_rest" in s.indices)
    assert [i for i, _ in statement.reported] == list(scop.by_name[statement.name].indices)
