"""Tiles of a side that has several indices, as the pixels of an image: how many of each."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from tcomp.mapping.machines.atoms import LANES_OF_ROWS


def boxes_of_sides(
    whole: Sequence[int], members: Collection[int], rows: Sequence[int], columns: Sequence[int], pair: tuple[int, int]
) -> Iterator[dict[int, int]]:
    """Extents of the coordinates of both sides, innermost first, that make so many rows and columns: a ``pair``."""
    for across in _boxes(whole, members, columns, pair[1]):
        for along in _boxes(whole, members, rows, pair[0]):
            yield along | across


def _boxes(
    whole: Sequence[int], members: Collection[int], side: Sequence[int], wanted: int
) -> Iterator[dict[int, int]]:
    """Extents of a side: all of its innermost coordinate, or eight of it and more, with some of those around it."""
    if wanted <= whole[side[0]]:
        yield {side[0]: wanted}
    inner = LANES_OF_ROWS
    while inner < wanted and inner < whole[side[0]] + LANES_OF_ROWS:
        extents = {side[0]: min(inner, whole[side[0]])}
        left = wanted // inner
        for d in (d for d in side[1:] if d in members):
            if left > 1:
                extents[d] = min(left, whole[d])
                left //= min(left, 1 << (whole[d] - 1).bit_length())
        if left == 1 and math.prod(extents.values()) > 1:
            yield extents
        inner *= 2
