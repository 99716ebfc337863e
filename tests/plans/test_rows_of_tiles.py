"""Rows of tiles: whether register tiles run along them, and how many there are that share what is behind them."""

from __future__ import annotations

import re

import numpy as np
import pytest

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


INTERLEAVED = """
def f(float(T,W,C) A) -> (Y) {
  Z(t,w,c) = exp(A(t,w,c))
  O(2*t,w,c) = Z(t,w,c) + 1 where t in 0:T, w in 0:W
  O(2*t+1,w,c) = Z(t,w,c) - 1 where t in 0:T, w in 0:W
  Y(h,w,c) = max(O(h,w,c), 1.5)
}"""
"""The transform of a result of Winograd's algorithm in small."""


@pytest.mark.parametrize(("rows", "members"), [(64, "0, 1, 2"), (4, "1")])
def test_tiles_have_all_rows_that_share_what_is_behind_them(rows: int, members: str) -> None:
    """With a row each, tiles would compute Z again; where they get too few, they give up rows for columns."""
    found = lower(define(INTERLEAVED)["f"], Sizes({"T": rows, "W": 256, "C": 16}), tc.MappingOptions(), CPU)
    groups = re.findall(r"^members = \[(.*)\]\nsizes = \[(\d+)", found.stages["nest"], re.MULTILINE)
    assert [own for own, _ in groups] == [members]
    assert all(int(size) % 2 == 0 for _, size in groups)


def test_rows_together_are_the_same_rows() -> None:
    A = np.linspace(-1, 1, 32 * 64 * 16, dtype="f4").reshape(32, 64, 16)
    Z = np.exp(A)
    expected = np.maximum(np.stack([Z + 1, Z - 1], 1).reshape(64, 64, 16), 1.5)
    np.testing.assert_allclose(tc.define(INTERLEAVED)["f"](A), expected, rtol=1e-6)
