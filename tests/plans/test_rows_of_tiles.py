"""In which order the register tiles of a tile run: down its columns, or along its rows."""

from __future__ import annotations

import re

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

LAST = "def f(float(H,W,C) I, float(KH,KW,C) K) -> (O) { O(h,w,c) +=! I(h+kh,w+kw,c) * K(kh,kw,c) }"


def test_tiles_of_two_vectors_run_along_rows() -> None:
    """With channels innermost both operands are vectors of channels: what is behind a tile in memory follows it."""
    sizes = Sizes({"H": 130, "W": 130, "C": 256, "KH": 3, "KW": 3})
    plan = lower(define(LAST)["f"], sizes, tc.MappingOptions(tile_sizes=(64, 64, 64)), CPU).stages["nest"]
    tiles = next(line for line in plan.split('mark: "group0"')[1].splitlines() if "schedule" in line)
    assert re.findall(r"S0f\[[^]]*\] -> \[\(floor\(\((i[12])\)/", tiles) == ["i1", "i2"]
