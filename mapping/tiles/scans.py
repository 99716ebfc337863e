"""Cumulative reductions: each result combines what the one before it did, and some more.

``Y(n,i) +=! X(n,j) where i in 0:D, j in 0:i+1`` runs over half a square of instances.  A backend may run each step
once instead and hand the value on from one result to the next.  It reads nothing that the instances at the same place
do not read, so the proofs of the plan hold for it; that the value is the same is shown here.  With ``j in i:D`` the
value is handed on from the last result to the first.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tcomp.mapping.machines.fitted.cputiles import VECTORS
from tcomp.mapping.plan.operations import indices_in, recognise_contraction
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import lane_position, main_statement
from tcomp.mapping.tiles.strides import strides_along
from tcomp.model.scop import Scop, ScopStatement


def scanned_position(scop: Scop, statement: ScopStatement) -> int | None:
    """The position of an index of an update along which it is a cumulative reduction, None if there is none.

    A product of two tensors is one where both have the same indices: the tile of a contraction would run over others.
    All steps of a result must be steps of those at greater values of the index, with the same terms: no term names
    the index.  Some results have more steps than others.
    """
    if statement.kind != "update" or not statement.plain or statement.reduction_rank != 1:
        return None
    contraction = recognise_contraction(statement)
    if contraction is not None and (contraction.m or len(contraction.n) > 1):
        return None
    start = next((s for s in scop.statements if s.kind == "init" and s.target == statement.target), None)
    if start is None or start.indices != statement.indices[:-1]:
        return None
    used = indices_in(statement.value)
    candidates = range(statement.coordinates - 1, statement.tile_rank - 1, -1)
    unused = (p for p in candidates if statement.indices[p] not in used)
    return next((p for p in unused if _grows(start, statement, p, ">") or _grows(start, statement, p, "<")), None)


def row_of_scan(scop: Scop, cluster: Cluster, scanned: int) -> int | None:
    """The position of the index of a cluster's update along which neighbours are summed up side by side, if any.

    In memory results are neighbours along it, and what they sum up, or it is the same for all of them.
    """
    update = main_statement(scop, cluster)
    row = lane_position(scop, update)
    if row is None or row == scanned or row not in cluster.coordinates[update.name]:
        return None
    written, *read = strides_along(scop, update, update.indices[row])
    sums = written == 1 and all(stride in (0, 1) for stride in read)
    return row if sums and update.extents[row] >= VECTORS.least_row_of_scan else None


def is_backwards(scop: Scop, update: ScopStatement, position: int) -> bool:
    """Whether a cumulative reduction along an index hands its value on from greater values of it to lower ones."""
    start = next(s for s in scop.statements if s.kind == "init" and s.target == update.target)
    return _grows(start, update, position, "<")


def is_independent(scop: Scop, positions: Mapping[str, int]) -> bool:
    """Whether instances need others only where these indices, one of each statement, have the same value.

    They may then run in any order of that value.  What this says of statements holds of all their instances.
    """
    for (first, second), relation in scop.pairs_among(positions.keys()).items():
        names = [f"i{d}" for d in range(len(scop.by_name[first].indices))]
        others = [f"o{d}" for d in range(len(scop.by_name[second].indices))]
        same = f"{names[positions[first]]} = {others[positions[second]]}"
        if not relation.is_subset(
            isl.Map(f"{{ {first}[{', '.join(names)}] -> {second}[{', '.join(others)}] : {same} }}")
        ):
            return False
    return True


def _grows(start: ScopStatement, update: ScopStatement, position: int, order: str) -> bool:
    """Whether the steps of each element are among those of elements further on, and not always all of them.

    Further on is a greater value of the index (``order`` is ``>``) or a lower one (``<``).
    """
    names = [f"i{d}" for d in range(len(update.indices))]
    further = [*names]
    further[position] = "further"
    inside, there = ", ".join(names), ", ".join(further)
    later = isl.Map(f"{{ {update.name}[{inside}] -> {update.name}[{there}] : further {order} i{position} }}")
    element = isl.Map(f"{{ {start.name}[{', '.join(names[:-1])}] -> {update.name}[{inside}] }}")
    everywhere = start.domain.apply(element)
    handed_on = update.domain.apply(later).intersect(everywhere)
    earlier = update.domain.apply(later.reverse()).intersect(everywhere)
    return bool(handed_on.is_subset(update.domain)) and not earlier.is_subset(update.domain)
