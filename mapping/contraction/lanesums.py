"""Register tiles of dot products: rows by columns of sums whose lanes run along the reduction.

Where both operands are contiguous along the reduction and too few rows use a panel for packing it, every sum of the
tile has a vector of its own, whose lanes are added up at the end.  A vector that is loaded serves a row or a column of
the tile, and so many rows of memory are read side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.grammar.tree.function import Read
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpucontractions import LANE_SUMS, REGISTER_TILES
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions
from tcomp.mapping.tiles.strides import access_stride
from tcomp.model.scop import Scop, ScopStatement


@dataclass(frozen=True, slots=True)
class SumSides:
    """The coordinates along which a tile of dot products has its rows, if it has some, and its columns.

    Another row reads another part of one operand only, another column of the other only.  ``lanes`` is the position of
    the reduction index along which both operands are contiguous.
    """

    row: int | None
    column: int
    lanes: int


def sum_sides(scop: Scop, cluster: Cluster, operands: tuple[Read, ...]) -> SumSides | None:
    """The sides of a tile of dot products, of a contraction of two ``operands``; None where there can be none."""
    main = main_statement(scop, cluster)
    if len(operands) != 2 or not main.plain or not main.domain.is_box():
        return None
    if any(read.boundary is not None or read.dtype != main.value.dtype for read in operands):
        return None
    if main.value.dtype.bits < 32:
        return None
    lanes = [p for p in reduction_positions(cluster, main) if _steps(scop, main, operands, p) == (1, 1)]
    if not lanes or main.extents[lanes[-1]] < LANE_SUMS.least_lanes:
        return None
    first, second = (_side(scop, cluster, main, operands, own) for own in (0, 1))
    if first is None and second is None:
        return None
    row, column = (first, second) if second is not None else (None, first)
    assert column is not None
    return SumSides(row, column, lanes[-1])


def _side(scop: Scop, cluster: Cluster, main: ScopStatement, operands: tuple[Read, ...], own: int) -> int | None:
    """The innermost coordinate of more than one value that moves one of the operands, and not the other."""
    sizes = main.extents
    for d in reversed(range(cluster.rank)):
        position = cluster.coordinates[main.name][d]
        steps = _steps(scop, main, operands, position)
        if sizes[position] > 1 and None not in steps and steps[own] != 0 and steps[1 - own] == 0:
            return d
    return None


def _steps(scop: Scop, main: ScopStatement, operands: tuple[Read, ...], position: int) -> tuple[int | None, ...]:
    index = main.indices[position]
    return tuple(access_stride(scop, r.tensor, r.subscripts, index, scop.sizes) for r in operands)


def sum_tile(rows: int, columns: int, machine: Machine, cut: tuple[bool, bool] = (False, False)) -> tuple[int, int]:
    """Rows and columns of the tile with which so many take least time: sums in registers, edges counted.

    As register tiles of all kinds do, these lie at multiples of their sides: where a tile is ``cut`` out of more rows,
    or columns, it should be a multiple of them.
    """
    best = (True, float("inf"), 1, 1)
    for height in range(1, min(rows, LANE_SUMS.most_columns) + 1):
        for width in range(1, min(columns, LANE_SUMS.most_columns) + 1):
            if height * width + width + 2 <= machine.registers:
                torn = (cut[0] and rows % height != 0) or (cut[1] and columns % width != 0)
                best = min(best, (torn, _cost(rows, columns, height, width), height, width))
    return best[2:]


def _cost(rows: int, columns: int, height: int, width: int) -> float:
    """Cycles of a step for all tiles of a height and width, those at the edges included."""
    down, below = divmod(rows, height)
    across, beside = divmod(columns, width)
    parts = ((height, width, down * across), (below, width, across), (height, beside, down), (below, beside, 1))
    return sum(_cycles(h, w) * count for h, w, count in parts if h and w)


def _cycles(height: int, width: int) -> float:
    loads = height + width
    return (
        max(height * width, loads, REGISTER_TILES.latency * REGISTER_TILES.ports) / REGISTER_TILES.ports
        + LANE_SUMS.load * loads
    )
