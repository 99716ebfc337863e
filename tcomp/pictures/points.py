"""Points of a small part of what a plan runs: for each its tile, when it runs, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.pictures.tiles import Box, boxes_of, dates_of, tiles_of

MOST = 24
"""Points along each side of a picture."""


@dataclass(frozen=True, slots=True)
class Point:
    """One instance: its statement, the two indices that are drawn, its tile, its date."""

    statement: str
    at: tuple[int, int]
    tile: tuple[int, ...]
    date: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """The instances of a statement in a part of its domain; ``axes`` are the names of the indices that are drawn.

    Where that is not the ``whole`` domain, ``boxes`` are its tiles.
    """

    statement: str
    target: str
    axes: tuple[str, str]
    points: tuple[Point, ...]
    whole: bool
    boxes: tuple[Box, ...] = ()


def shown(plan: Plan, statement: ScopStatement, sides: tuple[int, int] | None = None) -> Shown:
    """The first ``MOST`` by ``MOST`` points along two indices, the first two unless ``sides`` says which; others are at
    their least value."""
    rank = statement.tile_rank
    own = len(statement.indices) - rank
    chosen = sides or (0, 1 if own > 1 else 0)
    positions = [rank + d for d in chosen]
    part = _part(statement, positions, set(range(rank, rank + own)) - {*positions})
    tiles = tiles_of(plan, statement)
    found: list[Point] = []
    if own and not part.is_empty():
        both = dates_of(plan, statement).intersect_domain(part)
        date = both.dim(isl.dim_type.out)
        if tiles is not None:
            both = tiles.intersect_domain(part).flat_range_product(both)
        count, total = statement.domain.dim(isl.dim_type.set), both.dim(isl.dim_type.out)
        for numbers in numbers_of(both):
            first, second = (numbers[p] for p in positions)
            behind = numbers[count:]
            tile = tuple(behind[: total - date])
            found.append(Point(statement.name, (first, second), tile, tuple(behind[total - date :])))
    names = statement.indices[rank:]
    axes = (names[chosen[0]], names[chosen[1]] if own > 1 else "") if own else ("", "")
    extents = statement.extents
    whole = all(extents[p] <= MOST for p in positions) if own else True
    others = set(range(rank, rank + own)) - {*positions}
    boxes = (
        () if whole else boxes_of(plan, statement, (positions[0], positions[-1]), with_least(statement.domain, others))
    )
    return Shown(statement.name, statement.target, axes, tuple(sorted(found, key=lambda p: p.date)), whole, boxes)


def threads_of(plan: Plan, panel: Shown, sides: tuple[int, int]) -> list[int]:
    """The thread of a block that runs each point; of threads that share a reduction, the first."""
    statement = plan.scop.by_name[panel.statement]
    _, number = home_of(plan, panel.statement)
    dealt, coordinates = plan.dealt[number], plan.clusters[number].coordinates[panel.statement]
    corners: dict[tuple[int, ...], tuple[int, int]] = {}
    for point in panel.points:
        known = corners.get(point.tile, point.at)
        corners[point.tile] = (min(known[0], point.at[0]), min(known[1], point.at[1]))
    found = []
    for point in panel.points:
        inside = {
            statement.tile_rank + s: at - corner
            for s, at, corner in zip(sides, point.at, corners[point.tile], strict=True)
        }
        own = [0] * len(dealt.shape)
        for position, deal in zip(coordinates, dealt.deals, strict=True):
            if deal.dimension is not None:
                own[deal.dimension] = inside.get(position, 0) // deal.vector % deal.threads
        thread = 0
        for extent, value in zip(dealt.shape, own, strict=True):
            thread = thread * extent + value
        found.append(thread)
    return found


def _part(statement: ScopStatement, positions: list[int], others: set[int]) -> isl.Set:
    part = statement.domain
    for position in {*positions}:
        low = part.dim_min_val(position).to_python()
        part = part.upper_bound_val(isl.dim_type.set, position, isl.Val(low + MOST - 1))
    return with_least(part, others)


def with_least(part: isl.Set, positions: set[int]) -> isl.Set:
    """The part in which some indices have their least value."""
    for position in sorted(positions):
        part = part.fix_val(isl.dim_type.set, position, part.dim_min_val(position))
    return part


def numbers_of(relation: isl.Map) -> list[tuple[int, ...]]:
    """The pairs of a bounded relation, each as one row of numbers."""
    return points_of(relation.wrap().flatten())


def points_of(bounded: isl.Set) -> list[tuple[int, ...]]:
    """The points of a bounded set."""
    rank = bounded.dim(isl.dim_type.set)
    found: list[tuple[int, ...]] = []

    def collect(point: isl.Point) -> None:
        found.append(tuple(point.get_coordinate_val(isl.dim_type.set, d).to_python() for d in range(rank)))

    bounded.foreach_point(collect)
    return found


def needs(
    plan: Plan,
    of: Point,
    statement: ScopStatement,
    sides_of: Callable[[ScopStatement], tuple[int, int]],
    drawn: Collection[str],
) -> list[tuple[str, tuple[int, int]]]:
    """The instances of ``drawn`` statements that one needs, and the two indices of each that are drawn.

    What it needs of others, as of the end of a reduction, is what these need.
    """
    rank, sides = statement.tile_rank, sides_of(statement)
    instance = statement.domain.fix_val(isl.dim_type.set, rank + sides[0], isl.Val(of.at[0]))
    if len(statement.indices) - rank > 1:
        instance = instance.fix_val(isl.dim_type.set, rank + sides[1], isl.Val(of.at[1]))
    waiting = [(statement.name, isl.Set.from_point(instance.sample_point()))]
    found: dict[tuple[str, tuple[int, int]], None] = {}
    passed: set[str] = set()
    while waiting:
        name, sinks = waiting.pop()
        passed.add(name)
        for (source, sink), pairs in plan.scop.values_between.items():
            back = pairs.intersect_range(sinks).domain() if sink == name else None
            if back is None or back.is_empty():
                continue
            origin = plan.scop.by_name[source]
            if source not in drawn:
                waiting += [] if source in passed else [(source, back)]
            elif len(origin.indices) > origin.tile_rank:
                first, second = (origin.tile_rank + side for side in sides_of(origin))
                found |= {(source, (numbers[first], numbers[second])): None for numbers in points_of(back)[:MOST]}
    return sorted(found)
