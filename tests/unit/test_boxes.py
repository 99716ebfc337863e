"""Boxes of elements that statements write and read."""

from __future__ import annotations

import itertools
import random

from tcomp.grammar.ranges.accesses import covered, fills_box
from tcomp.grammar.tree.forms import Form, constant_form, index_form


def test_boxes_are_covered_exactly() -> None:
    rng = random.Random(1)
    told = {True: 0, False: 0}
    for _ in range(400):
        boxes = [
            tuple((low, low + rng.randint(0, 3)) for low in (rng.randint(0, 3), rng.randint(0, 2))) for _ in range(5)
        ]
        box = ((rng.randint(0, 2), 3), (1, rng.randint(0, 4)))
        points = set(itertools.product(*(range(low, high + 1) for low, high in box)))
        inside = {p for other in boxes for p in itertools.product(*(range(low, high + 1) for low, high in other))}
        assert covered(box, boxes) == (points <= inside)
        told[points <= inside] += 1
    assert min(told.values()) > 40


def test_subscripts_that_fill_their_box() -> None:
    i, j = index_form("i"), index_form("j")
    assert fills_box((i.plus(3), constant_form(2), j.scaled(-1), None))
    assert not fills_box((i, i)) and not fills_box((i.scaled(2),)) and not fills_box((i.add(j),))
    assert fills_box(()) and fills_box((Form((), 1),))
