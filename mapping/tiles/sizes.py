"""Which loop becomes the vector loop, and which the rows of a register tile."""

from __future__ import annotations

import math
from collections.abc import Callable

import islpy as isl

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Select
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputiles import VECTORS
from tcomp.mapping.plan.operations import indices_in
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.strides import strides_along, strides_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import storage_of


def lane_position(scop: Scop, statement: ScopStatement) -> int | None:
    """The index for the lanes of a processor, for which loops that walk through memory as one are one.

    As ``vector_position``, but what an index fills is what all of those fill, and short reductions share vectors if
    they are all that is reduced.
    """
    sizes, runs = statement.extents, runs_of(scop, statement)

    def filled(position: int) -> float:
        run = runs[position]
        length = math.prod(max(1, sizes[p]) for p in run)
        reduced = range(statement.coordinates, len(sizes))
        lanes = VECTORS.sum_lanes if position in reduced and {*reduced} <= {*run} else VECTORS.lanes
        return length / (-(-length // lanes) * lanes)

    return vector_position(scop, statement, filled)


def vector_position(scop: Scop, statement: ScopStatement, filled: Callable[[int], float] | None = None) -> int | None:
    """The index whose neighbouring values touch neighbouring memory in most accesses, and is long enough.

    Contiguous and invariant accesses are cheap, anything else costs a gather or scatter; the cost is divided by the
    share of vector lanes that are ``filled``, by the extent if nobody says.  None for a statement without indices.
    """
    best: tuple[float, int] | None = None
    everywhere, ends = strides_of(scop, statement), indices_of_ends(statement)
    for position in range(statement.tile_rank, len(statement.indices)):
        if statement.indices[position] in ends:
            continue
        extent, strides = statement.extents[position], everywhere[position]
        cost = 0.0 if strides[0] in (0, 1) else VECTORS.scattered_write_cost
        cost += sum(1.0 if s == 1 else 0.5 if s == 0 else VECTORS.scattered_cost for s in strides[1:])
        if strides[0] == 0:
            cost += 1.0
        blocks = -(-extent // VECTORS.lanes)
        unfilled = blocks * VECTORS.lanes / max(1, extent) if filled is None else 1 / filled(position)
        cost = (cost + 0.5) * unfilled
        if best is None or cost <= best[0]:
            best = (cost, position)
    return None if best is None else best[1]


def indices_of_ends(statement: ScopStatement) -> frozenset[str]:
    """The indices on which the ends of ranges that data give depend: their neighbours run for different times."""
    ends = [end for within in ranges_of(statement.value) for end in (within.lower, within.upper)]
    return frozenset[str]().union(*map(indices_in, ends))


def runs_of(scop: Scop, statement: ScopStatement) -> list[tuple[int, ...]]:
    """For each index the positions of those that walk through memory as one: it, innermost, and those around it.

    Each goes as far in one step as all steps of those before it, wherever the statement reads or writes.  All are
    indices of the element that is written, or all of the reduction.
    """
    sizes, strides, rectangular = statement.extents, strides_of(scop, statement), statement.domain.is_box()
    runs = []
    for position, far in enumerate(strides):
        first = statement.tile_rank if position < statement.coordinates else statement.coordinates
        outermost = position
        while outermost > first and None not in far and rectangular:
            far = tuple(None if step is None else step * max(1, sizes[outermost]) for step in far)
            if far != strides[outermost - 1]:
                break
            outermost -= 1
        runs.append(tuple(range(position, outermost - 1, -1)))
    return runs


def main_statement(scop: Scop, cluster: Cluster) -> ScopStatement:
    """The statement that decides loop order and tile sizes: the reduction, else the last one."""
    statements = [scop.by_name[s] for s in cluster.statements]
    return next((s for s in statements if s.kind == "update"), statements[-1])


def made_by(scop: Scop, cluster: Cluster) -> set[str]:
    """The tensors that the statements of a cluster write."""
    return {scop.by_name[s].target for s in cluster.statements}


def reduction_positions(cluster: Cluster, statement: ScopStatement) -> list[int]:
    """Indices of a statement that are neither coordinates nor the tile in front of an expanded statement.

    They are the reduction indices of an update; elsewhere there are some only where isl found an index of the update
    constant, which is then no coordinate of the cluster.
    """
    coordinates = cluster.coordinates[statement.name]
    return [p for p in range(statement.tile_rank, len(statement.indices)) if p not in coordinates]


def runs_in_long_rows(machine: Machine, scop: Scop, cluster: Cluster, vector: int, columns: int) -> bool:
    """Whether a reduction runs over a tile of so many columns row by row, some rows between two loads of accumulators.

    It does if they are long, or all that there are but more than one register tile has, and no two elements read the
    same where the vector loop moves, as in sums down columns.  What every step reads again does not count.
    """
    main = main_statement(scop, cluster)
    steps = math.prod(main.extents[p] for p in reduction_positions(cluster, main))
    least = max(min(VECTORS.long_row, main.extents[vector]), row_tile(machine, scop, main) + 1)
    if columns < least or steps < VECTORS.least_steps:
        return False
    strides = strides_of(scop, main)
    for read in range(1, len(strides[vector])):
        moves = strides[vector][read] != 0 and any(strides[p][read] != 0 for p in reduction_positions(cluster, main))
        if moves and any(strides[p][read] == 0 for p in cluster.coordinates[main.name]):
            return False
    return True


def row_tile(machine: Machine, scop: Scop, statement: ScopStatement) -> int:
    """Columns of a register tile of one row: as many vectors as hide how long one operation takes."""
    return VECTORS.row_vectors * machine.vector_bytes // scop.storages[statement.target].dtype.itemsize


def row_coordinate(scop: Scop, cluster: Cluster, vector: int, shape: tuple[int, ...]) -> int | None:
    """The coordinate over which a register tile has its rows: the one that shares most vector loads between rows.

    Among those that share as many it is one whose rows have the same steps, and of these the one whose rows are read
    from next to each other.  None where every coordinate but the vector loop has one value per tile.
    """
    main = main_statement(scop, cluster)
    along_vector = strides_along(scop, main, main.indices[vector])[1:]
    best: tuple[tuple[int, bool, bool, float], int] | None = None
    for d, position in enumerate(cluster.coordinates[main.name]):
        if position == vector or shape[d] == 1:
            continue
        along_row = strides_along(scop, main, main.indices[position])[1:]
        loads = sum(v != 0 and r != 0 for v, r in zip(along_vector, along_row, strict=True))
        apart = max((math.inf if r is None else abs(r) for r in along_row), default=0)
        cost = (loads, _steps_differ(main, position), shape[d] < VECTORS.few_rows, apart)
        if best is None or cost <= best[0]:
            best = (cost, d)
    return None if best is None else best[1]


def _steps_differ(main: ScopStatement, position: int) -> bool:
    """Whether the steps of a reduction depend on one of its coordinates."""
    if main.domain.is_box():
        return False
    others = [p for p in range(main.coordinates) if p != position]
    left = main.domain
    for p in reversed(others):
        left = left.project_out(isl.dim_type.set, p, 1)
    return not left.is_box()


def register_tile(extent: int, rows: int, lanes: int, registers: int) -> tuple[int, int]:
    """Rows and vector extent of a register tile whose accumulators take at most half of the registers.

    Up to four vectors a row that fits whole is not cut, since whatever is left of it would run apart.
    """
    width = extent if extent <= 4 * lanes else 2 * lanes
    fitting = max(1, registers // 2 // -(-width // lanes))
    return min(rows, fitting), width


def even_share(extent: int, most: int, unit: int) -> int:
    """An even share of an extent, in whole units, that is not above ``most`` unless one unit is; or all of it."""
    if extent <= most:
        return extent
    share = -(-extent // -(-extent // max(most, unit)))
    return min(extent, -(-share // unit) * unit)


def reads_rows_again(scop: Scop, main: ScopStatement) -> bool:
    """Whether a reduction is an extremum of rows in which another one seeks its place, or is that one.

    A row that one has read should be near when the other does, which ends where it has found the place.
    """
    others = [s for s in scop.statements if s.kind == "update" and s is not main and s.extents == main.extents]
    return any(_seeks_in(main, o) or _seeks_in(o, main) for o in others)


def _seeks_in(seeking: ScopStatement, extremum: ScopStatement) -> bool:
    """Whether one reduction looks through what the other has read for what it has found."""
    read, of = ({storage_of(r) for r in s.reads} for s in (seeking, extremum))
    chooses = seeking.reduction == "min" and isinstance(seeking.value, Select)
    return chooses and extremum.target in read and not read.isdisjoint(of)
