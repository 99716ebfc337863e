"""Tiles of a plan: which loops run over tiles, and the box of two indices that each tile has."""

from __future__ import annotations

import math
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.memory.places import places
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import maps_of

MOST_TILES = 300
"""More are not drawn."""

_OUT, _SET = isl.dim_type.out, isl.dim_type.set


@dataclass(frozen=True, slots=True)
class Box:
    """What a tile has of the two indices that are drawn: the least values and the greatest."""

    low: tuple[int, int]
    high: tuple[int, int]


def tiles_of(plan: Plan, statement: ScopStatement) -> isl.Map | None:
    """Instance to tile: the loops around a group, or else the outermost loops that run over parts of an index."""
    found = next((p.prefixes[statement.name] for p in places(plan.tree)
                  if p.mark.startswith("group") and statement.name in p.prefixes), None)  # fmt: skip
    if found is not None and found.dim(_OUT):
        return found
    dates = dates_of(plan, statement)
    values = isl.PwMultiAff.from_map(dates)
    kept = []
    for d in range(dates.dim(_OUT)):
        value = values.get_at(d)
        if "floor" in str(value):
            kept.append(d)
        elif not value.is_cst():
            break
    for d in reversed(range(dates.dim(_OUT))):
        dates = dates if d in kept else dates.project_out(_OUT, d, 1)
    return dates if kept else found


def dates_of(plan: Plan, statement: ScopStatement) -> isl.Map:
    """Instance to date."""
    return next(m for m in maps_of(plan.tree.get_map()) if m.get_tuple_name(isl.dim_type.in_) == statement.name)


def boxes_of(plan: Plan, statement: ScopStatement, positions: tuple[int, int], part: isl.Set) -> tuple[Box, ...]:
    """The boxes of all tiles, in the order in which these begin; one of all where there are none, or too many."""
    tiles = tiles_of(plan, statement)
    if part.is_empty():
        return ()
    if tiles is None:
        return (_box(part, positions),)
    tiles = tiles.intersect_domain(part)
    numbers = tiles.range()
    rank = numbers.dim(_SET)
    extents = [(numbers.dim_max_val(d).sub(numbers.dim_min_val(d))).to_python() + 1 for d in range(rank)]
    if not 1 < math.prod(extents) <= MOST_TILES:
        return (_box(part, positions),)
    dates, found = dates_of(plan, statement), []
    points: list[isl.Point] = []
    numbers.foreach_point(points.append)
    for point in points:
        own = tiles.intersect_range(isl.Set.from_point(point)).domain()
        first = own.apply(dates).lexmin().sample_point()
        date = tuple(first.get_coordinate_val(_SET, d).to_python() for d in range(dates.dim(_OUT)))
        found.append((date, _box(own, positions)))
    return tuple(box for _, box in sorted(found, key=lambda pair: pair[0]))


def _box(own: isl.Set, positions: tuple[int, int]) -> Box:
    (a, b), (c, d) = ((own.dim_min_val(p).to_python(), own.dim_max_val(p).to_python()) for p in positions)
    return Box((a, c), (b, d))
