"""Tiles that hold all elements along a dimension, wherever the first of these is."""

from __future__ import annotations

import pytest

import tcomp as tc

STENCIL = "def f(double(N) A) -> (B) { B(i) = A(i-1) + A(i) + A(i+1) where i in FIRST:N-1 }"


@pytest.mark.parametrize("first", [1, 5, 300])
def test_a_row_that_does_not_begin_at_zero_is_one_tile(first: int) -> None:
    """Tiles are counted from 0: one as long as the row would leave its last elements to a second."""
    text = STENCIL.replace("FIRST", str(first))
    assert "tiles of 1999\n" in tc.define(text)["f"].compile(sizes={"N": 2000}).explain()
