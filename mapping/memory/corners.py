"""The places of a panel: where the corners of its copies lie, of all that are made while a kernel runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.memory.places import Place
from tcomp.mapping.plan.values import Copy


@dataclass(frozen=True, slots=True)
class Corners:
    """Points of a grid: along each dimension so many, from the first one on, so far apart.

    All corners of a panel are among them, and different corners are different points.
    """

    first: tuple[int, ...]
    apart: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def number(self) -> int:
        """How many points there are."""
        return math.prod(self.counts)


def corners_of(place: Place, copy: Copy) -> Corners | None:
    """The corners of a copy that is made at a place; None if there are none."""
    around = place.prefixes[copy.statement].range()
    found = around.apply(isl.Map.from_multi_aff(copy.lower))
    if found.is_empty():
        return None
    dimensions = range(len(copy.shape))
    first = tuple(found.dim_min_val(d).to_python() for d in dimensions)
    last = tuple(found.dim_max_val(d).to_python() for d in dimensions)
    apart = tuple(max(1, found.get_stride(d).to_python()) for d in dimensions)
    counts = tuple((b - a) // step + 1 for a, b, step in zip(first, last, apart, strict=True))
    return Corners(first, apart, counts)
