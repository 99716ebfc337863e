"""How elements of a copy lie in memory for instructions that want them in an order of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_DEPTH = 16
"""Groups that an instruction for matrices takes at a time at most."""

SUM_BYTES, SUM_ALIGNMENT, OVERHANG = 4, 64, 16
"""Bytes of a sum of a copy's elements, of what the first one is aligned to, and of the narrowest vector: one may begin
at the last element of a copy with groups."""

SWIZZLED_ROW, SWIZZLED_CHUNK, CORE_ROWS, PAIRED = 128, 16, 8, 2
"""Bytes of a row and of its chunks, rows after which chunks are permuted alike, and groups of rows of a warp."""


@dataclass(frozen=True, slots=True)
class StepGroups:
    """How a copy holds the steps of a sum of products for instructions that take ``size`` of them at a time.

    ``dimension`` is subscripted by the reduction index at position ``step`` of the statement.  So many neighbours along
    it lie together, inside all other dimensions, and zeros fill up the last group.  ``flipped`` says that the copy has
    the highest bit of every element inverted: what is signed becomes unsigned and larger by half the range, what is
    unsigned becomes signed and smaller by as much.  To make up for that in the other operand, a copy has sums behind
    its box where ``summed`` is not None: for each place along these dimensions, that of all elements.

    Instructions for whole matrices take ``depth`` groups at a time, of which zeros fill up the last ones; the others,
    for which ``depth`` is 0, take one.
    """

    dimension: int
    size: int
    step: int
    flipped: bool = False
    summed: tuple[int, ...] | None = None
    depth: int = 0

    @property
    def whole(self) -> int:
        """Steps that an instruction takes: so many, or a multiple of that, are in a copy."""
        return self.size * max(1, self.depth)


@dataclass(frozen=True, slots=True)
class Swizzle:
    """How a copy lies for instructions that read it by themselves, with the 128-byte swizzle of the PTX manual.

    The innermost dimension is cut into panels of 128 bytes, each with a row for every element of the other one of
    ``side`` and ``step``; chunks of 16 bytes change places with others of their row.  Eight elements along ``side``
    stay together.  Where rows have several indices, those of the dimensions ``around`` are counted around the side,
    outermost first.  With ``warps``, to which groups of eight are dealt in turn, the two that a warp has of an
    instruction's 64 rows lie one behind the other.
    """

    side: int
    step: int
    warps: int = 0
    around: tuple[int, ...] = ()

    def rows(self, shape: Sequence[int]) -> int:
        """How many rows, or columns, a copy of some shape holds."""
        return math.prod(shape[d] for d in (*self.around, self.side))

    def stands_for(self, position: int) -> int:
        """Where along the side an element of a tile comes to lie."""
        if not self.warps:
            return position
        group, within = divmod(position, CORE_ROWS)
        turn, warp = divmod(group, self.warps)
        pair, half = divmod(turn, PAIRED)
        return CORE_ROWS * (PAIRED * (pair * self.warps + warp) + half) + within

    def place(self, side: int, step: int, shape: tuple[int, ...], along_side: bool, itemsize: int) -> int:
        """The element at (``side``, ``step``) of a tile of a ``shape``, counted from the first one.

        Where there are dimensions around the side, all rows are counted by it.
        ``along_side`` says that neighbours along the side lie together, not those along the steps.
        """
        row_elements, chunk = SWIZZLED_ROW // itemsize, SWIZZLED_CHUNK // itemsize
        side = self.stands_for(side)
        inner, row, rows = (side, step, shape[self.step]) if along_side else (step, side, self.rows(shape))
        panel, within = divmod(inner, row_elements)
        straight = (panel * rows + row) * row_elements + within
        return straight ^ (straight // row_elements % (SWIZZLED_ROW // SWIZZLED_CHUNK)) * chunk
