"""The register tile of a contraction: rows by vectors of accumulators, chosen by what a step of the reduction costs.

A step loads the vectors once, broadcasts one operand a row and multiplies and adds every pair.  It takes as long as its
multiply-adds, its loads or the latency of one multiply-add, whichever is longest (after Low, Igual, Smith and
Quintana-Orti, "Analytical modeling is enough for high-performance BLIS", TOMS 2016, with loads and edges added).
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass

from tcomp.mapping.machines.cpu import LINE_BYTES, PAGE, Machine
from tcomp.mapping.machines.fitted.cpucontractions import REGISTER_TILES


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """``rows`` by ``columns`` accumulators in vectors of ``lanes``; ``cycles`` is what a step of the reduction takes.

    Columns that do not fill the last vector are covered by one that overlaps the vector before it; if there is none,
    the vector reaches past them.
    """

    rows: int
    columns: int
    lanes: int
    cycles: float

    @property
    def vectors(self) -> int:
        """Vectors of a row."""
        return -(-self.columns // self.lanes)


@dataclass(frozen=True, slots=True)
class Loads:
    """What the operands of a contraction ask of a step.

    ``shared`` says that a vector that is loaded serves all rows, ``both`` that both operands are vectors: those of one
    pass by, one at a time for all rows, of which each asks for ``pointers`` to what it reads.  ``steps`` are those of
    the reduction, where many rows read the vectors of all of them again: if these do not stay in the nearest cache they
    come from the next.  Vectors are ``aligned`` unless they may straddle lines of it.  So many columns lie in a
    ``line`` of the tensor that they are packed from, which should be read once; 0 where that does not matter.
    ``beyond`` says that a vector may reach past the columns, so that a wide one serves columns that do not fill it.
    ``afar`` says that columns come from far away as they lie, with few rows to wait for them.  Neighbouring rows read
    ``apart`` bytes from each other.
    """

    shared: bool
    itemsize: int
    steps: int = 0
    aligned: bool = True
    line: int = 0
    beyond: bool = False
    afar: bool = False
    apart: int = 0
    both: bool = False
    pointers: int = 0


@functools.lru_cache(maxsize=4096)
def vectorised(rows: int, columns: int, loads: Loads, machine: Machine) -> RegisterTile | None:
    """The best vectors for a tile of so many rows and columns; None if no vectors of it fit the registers."""
    best: RegisterTile | None = None
    width = machine.vector_bytes
    while width >= 2 * loads.itemsize:
        lanes = width // loads.itemsize
        vectors = -(-columns // lanes)
        taken = rows * vectors + (vectors if loads.shared else 1) + 1
        fits = lanes <= columns or (loads.beyond and lanes < 2 * columns)
        if fits and taken <= machine.registers:
            found = RegisterTile(rows, columns, lanes, _cycles(rows, vectors, width, loads, machine))
            if best is None or found.cycles < best.cycles:
                best = found
        width //= 2
    return best


def single_column(rows: int, loads: Loads, machine: Machine) -> RegisterTile | None:
    """A tile of one column that others left over, an element for each row; None if they do not fit the registers."""
    loaded = 1 if loads.shared else rows
    if rows + loaded + 1 > machine.registers:
        return None
    return RegisterTile(
        rows,
        1,
        1,
        max(
            rows / REGISTER_TILES.ports,
            (rows + loaded) / REGISTER_TILES.ports,
            REGISTER_TILES.latency + REGISTER_TILES.spare,
        ),
    )


def _cycles(rows: int, vectors: int, width: int, loads: Loads, machine: Machine) -> float:
    passes = max(1.0, width / machine.datapath_bytes)
    multiplied = rows * vectors * passes
    straddling = 1 if loads.aligned or width < LINE_BYTES else REGISTER_TILES.straddling
    loaded = vectors * passes * straddling * (1 if loads.shared else rows)
    broadcast = 1 if machine.registers >= REGISTER_TILES.many_registers else REGISTER_TILES.broadcast
    loaded += vectors * passes + _addressed(rows, vectors * passes, loads) if loads.both else rows * broadcast
    fetched = 0.0
    lines = (-(-vectors * width // LINE_BYTES) + (not loads.aligned)) * LINE_BYTES
    if lines * loads.steps > REGISTER_TILES.nearest_share * machine.nearest_cache:
        whole = loads.aligned and lines * loads.steps > machine.nearest_cache
        fetched = (lines if whole else vectors * width) / REGISTER_TILES.far_bytes
    if _crowd(rows, loads.apart, machine):
        fetched += REGISTER_TILES.crowded * rows
    return max(
        multiplied / REGISTER_TILES.ports,
        loaded / REGISTER_TILES.ports,
        (REGISTER_TILES.latency + REGISTER_TILES.spare) * passes,
        fetched,
    )


def _addressed(rows: int, vectors: float, loads: Loads) -> float:
    """Loads that pointers to rows come to: those for which there is no register are loaded for each vector."""
    pointers = rows * loads.pointers
    return pointers * REGISTER_TILES.pointer + max(0, pointers - REGISTER_TILES.most_pointers) * vectors


@functools.lru_cache(maxsize=1024)
def _crowd(rows: int, apart: int, machine: Machine) -> bool:
    """Whether lines of so many rows throw each other out of a set of the nearest cache, before they are read through.

    One line of a set is left to the vectors.
    """
    lines = {row * apart // LINE_BYTES for row in range(rows)}
    most = max(Counter(line % (PAGE // LINE_BYTES) for line in lines).values())
    return most >= machine.nearest_cache // PAGE


def best_register_tile(
    rows: int, columns: int, loads: Loads, machine: Machine, cut: tuple[bool, bool] = (False, False)
) -> RegisterTile | None:
    """The register tile with which a tile of so many rows and columns takes least time; None if no vector fits.

    Register tiles lie at multiples of their sides.  Where a tile is ``cut`` out of more rows, or columns, it should
    therefore be a multiple of them, lest every tile begin and end in the midst of one.
    """
    best: tuple[tuple[bool, float, int, int], RegisterTile] | None = None
    widths = {
        min(columns, v * lanes) for lanes in _lanes(loads, machine) for v in range(1, REGISTER_TILES.most_vectors + 1)
    }
    for height in range(1, min(rows, REGISTER_TILES.most_rows) + 1):
        for width in sorted(widths, reverse=True):
            tile = vectorised(height, width, loads, machine)
            if tile is None:
                continue
            torn = (cut[0] and rows % height != 0) or (cut[1] and columns % width != 0)
            cycles, area = _cost(tile, rows, columns, loads, machine), tile.rows * tile.columns
            cost = torn, cycles, -min(tile.columns, loads.line), -area
            if best is None or cost <= best[0]:
                best = (cost, tile)
    return None if best is None else best[1]


def _lanes(loads: Loads, machine: Machine) -> list[int]:
    width, found = machine.vector_bytes, []
    while width >= 2 * loads.itemsize:
        found.append(width // loads.itemsize)
        width //= 2
    return found


def _cost(tile: RegisterTile, rows: int, columns: int, loads: Loads, machine: Machine) -> float:
    """Cycles of a step for all register tiles together, those at the edges included."""
    down, below = divmod(rows, tile.rows)
    across, beside = divmod(columns, tile.columns)
    total = down * across * tile.cycles
    if loads.afar:
        total += REGISTER_TILES.strip * (across + (beside > 0))
    for height, width, count in (
        (below, tile.columns, across),
        (tile.rows, beside, down),
        (below, beside, 1),
    ):
        if height and width and count:
            edge = vectorised(height, width, loads, machine)
            if edge is None and width == 1:
                edge = single_column(height, loads, machine)
            cycles = REGISTER_TILES.plain * height * width if edge is None else edge.cycles
            total += count * cycles * REGISTER_TILES.edge_cost
    return total


_MATRIX_SIDE = 16
"""Rows, and columns of 32 bits, of a register for matrices."""

_MATRIX_REGISTERS = 8


def matrix_tile(rows: int, columns: int) -> RegisterTile | None:
    """A tile of accumulators in registers for matrices; None if there are not enough registers for so large a one."""
    down, across = -(-rows // _MATRIX_SIDE), -(-columns // _MATRIX_SIDE)
    fits = down * across + down + min(across, 2) <= _MATRIX_REGISTERS
    return RegisterTile(rows, columns, _MATRIX_SIDE, float(_MATRIX_SIDE * down * across)) if fits else None


def best_matrix_tile(rows: int, columns: int) -> RegisterTile:
    """The largest of the tiles that load least for what they multiply: two by two registers, or several in a line."""
    height = min(rows, 2 * _MATRIX_SIDE if columns > _MATRIX_SIDE else 3 * _MATRIX_SIDE)
    width = min(columns, 2 * _MATRIX_SIDE if rows > _MATRIX_SIDE else 4 * _MATRIX_SIDE)
    found = matrix_tile(height, width)
    assert found is not None
    return found


def given_tile(rows: int, columns: int, in_matrices: bool) -> tuple[int, int]:
    """Rows and columns of the register tile that a user asks for: of registers for matrices as many as there are."""
    if not in_matrices or matrix_tile(rows, columns) is not None:
        return rows, columns
    fitting = best_matrix_tile(rows, columns)
    return fitting.rows, fitting.columns
