"""Products of small matrices that a warp makes with one instruction, and which contractions may use them.

A warp's lane ``4 g + t`` has of a 16 x 8 result the rows ``g`` and ``g + 8`` and the columns ``2 t`` and ``2 t + 1``
(``machines/atoms.py``).  Which rows of a tile stand for rows of the instruction is free, as long as results
and operands agree.  So the usual deals say who has what: rows go in turn to ``8 W`` threads for W warps, columns two by
two to four.  Lanes fetch operands from shared memory for each other (``ldmatrix``), from rows of whole 16 bytes.
Warpgroups have results alike, and operands as ``matrices/operands.py`` lays them out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.grammar.tree.function import Binary, Cast, Expr, Read
from tcomp.mapping.gpu.memories import shared_budget
from tcomp.mapping.machines.atoms import (
    ATOMS,
    GROUP_COLUMNS,
    GROUP_WARPS,
    LANES_OF_COLUMNS,
    LANES_OF_ROWS,
    MOST_GROUP_COLUMNS,
    ROWS,
    Atom,
)
from tcomp.mapping.machines.gpu import REGISTER_BYTES, WARP, Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import bare, recognise_contraction
from tcomp.mapping.plan.values import Cluster, Deal, Dealt
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop, ScopStatement

COLUMNS_FETCHED = 16
"""Columns that one fetch of an operand brings to a warp."""

MOST_WARPS = 8

MOST_WORDS = 128
"""Registers of a thread for its results."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Positions in a statement of the indices that run along the rows, the columns and the steps of the atom."""

    row: int
    column: int
    step: int
    atom: Atom


def atoms_of(gpu: Gpu, scop: Scop, statement: ScopStatement, options: MappingOptions) -> tuple[Atom, ...]:
    """The instructions for a sum of products, the fastest first; none where they are not to be used."""
    allowed = options.matrix_units and options.use_shared_memory and options.use_private_memory
    if not allowed or statement.kind != "update" or recognise_contraction(statement) is None:
        return ()
    known = (a for a in ATOMS if gpu.matrix_flops(a) and (options.warpgroups or not a.in_groups))
    wanted = (a for a in known if a.math in ("", options.math))
    return tuple(a for a in wanted if multiplies(a, scop, statement))


def atom_of(gpu: Gpu, scop: Scop, statement: ScopStatement, options: MappingOptions) -> Atom | None:
    """The instruction of single warps for a sum of products; None where there is none, or it is not to be used."""
    return next((a for a in atoms_of(gpu, scop, statement, options) if not a.in_groups), None)


def multiplies(atom: Atom, scop: Scop, statement: ScopStatement) -> bool:
    """Whether an instruction computes what a statement says, in the types that it says.

    Its operands are converted to the type of the sums and to nothing else, which changes no value.  A temporary may
    have been rounded to the type of the operands before, if threads keep it in registers (``Kept``).
    """
    assert isinstance(statement.value, Binary)
    factors = (statement.value.lhs, statement.value.rhs)
    sums = {scop.storages[statement.target].dtype.name, statement.value.dtype.name, *(f.dtype.name for f in factors)}
    return sums == {atom.sums} and all(_is_operand(atom, scop, f) for f in factors)


def _is_operand(atom: Atom, scop: Scop, factor: Expr) -> bool:
    """Whether a factor is an element of the kind that an instruction takes."""
    operand = factor.operand if isinstance(factor, Cast) and factor.dtype.name == atom.sums else factor
    if operand.dtype.name != atom.kind:
        return False
    if isinstance(operand, Read):
        return True
    rounded = operand.operand if isinstance(operand, Cast) else None
    in_registers = isinstance(rounded, Read) and scop.storages[rounded.tensor].role == "temporary"
    return in_registers and isinstance(rounded, Read) and rounded.dtype.name == atom.sums == "float32"


def operands_of(statement: ScopStatement) -> tuple[Read, Read]:
    """The two reads that a contraction multiplies."""
    assert isinstance(statement.value, Binary)
    first, second = bare(statement.value.lhs), bare(statement.value.rhs)
    assert isinstance(first, Read) and isinstance(second, Read)
    return first, second


def sides_of_atom(gpu: Gpu, scop: Scop, cluster: Cluster, box: Sequence[int], options: MappingOptions) -> Sides | None:
    """The sides of a tile of extents ``box`` that warps can multiply; None where they cannot, or are not to."""
    statement = main_statement(scop, cluster)
    atoms = atoms_of(gpu, scop, statement, options)
    if not atoms:
        return None
    positions = cluster.coordinates[statement.name]
    wide = [positions[d] for d, extent in enumerate(box) if extent > 1]
    contraction = recognise_contraction(statement)
    assert contraction is not None
    rows = [p for p in wide if statement.indices[p] in contraction.m]
    columns = [p for p in wide if statement.indices[p] in contraction.n]
    if len(wide) != 2 or len(rows) != 1 or len(columns) != 1 or not statement.domain.is_box():
        return None
    along = ((rows[0], columns[0]), (columns[0], rows[0]))
    for atom, (row, column) in itertools.product(atoms, along):
        for sides in (Sides(row, column, step, atom) for step in longest_first(cluster, statement)):
            enough = statement.extents[sides.step] >= atom.granule
            if enough and _fits(scop, statement, positions, box, sides, options):
                steps = steps_of_atoms(atom, statement.extents[sides.step], options) if atom.in_groups else 0
                # Both operands must be in shared memory, where they are fetched to with some padding first.
                if 4 * sum(box) * steps * atom.itemsize <= 3 * shared_budget(gpu, options):
                    return sides
    return None


def longest_first(cluster: Cluster, statement: ScopStatement) -> list[int]:
    """The positions of a reduction's indices."""
    return sorted(reduction_positions(cluster, statement), key=lambda p: (-statement.extents[p], -p))


def _fits(
    scop: Scop, statement: ScopStatement, positions: Sequence[int], box: Sequence[int], sides: Sides,
    options: MappingOptions,
) -> bool:  # fmt: skip
    """Whether columns are those that lie together in the result, and a tile is whole numbers of atoms."""
    atom = sides.atom
    last = statement.subscripts[-1] if statement.subscripts else None
    if last is None or coefficient(last, statement.indices[sides.column], scop.sizes) != 1:
        return False
    rows, columns = box[positions.index(sides.row)], box[positions.index(sides.column)]
    warps = warps_of(rows, options, atom.in_groups)
    words = rows * columns * atom.parts * atom.word_bytes // (REGISTER_BYTES * WARP * max(1, warps))
    if not warps or columns % COLUMNS_FETCHED or words > MOST_WORDS:
        return False
    if atom.in_groups and (columns % GROUP_COLUMNS or columns > MOST_GROUP_COLUMNS):
        return False
    found = [dimensions_of(scop, statement, read, sides) for read in operands_of(statement)]
    if any(f is None for f in found):
        return False
    if atom.itemsize > 1:
        return True
    # Bytes are not turned: neighbours along the steps must lie together.
    steps = [f[2] for f in found if f is not None]
    strides = [scop.storages[r.tensor].strides[d] for r, d in zip(operands_of(statement), steps, strict=True)]
    return strides == [1, 1]


def warps_of(rows: int, options: MappingOptions, in_groups: bool = False) -> int:
    """How many warps share so many rows of a tile: each has two atoms of them where there are enough; 0 if none fit.

    Where they are ``in_groups`` of four, each has one where there are enough.  The threads of a block that a user gives
    must be four columns by eight rows for each warp.
    """
    blocks, rest = divmod(rows, ROWS)
    if rest or not blocks:
        return 0
    each = 1 if in_groups else min(2, -(-blocks // 2))
    possible = [w for w in range(1, MOST_WARPS + 1) if blocks % w == 0 and (w % GROUP_WARPS == 0 or not in_groups)]
    if options.threads is not None:
        given = [w for w in possible if options.threads == (LANES_OF_COLUMNS, LANES_OF_ROWS * w)]
        return max(given, default=0)
    return max((w for w in possible if w == 1 or blocks // w >= each), default=0)


def dimensions_of(scop: Scop, statement: ScopStatement, read: Read, sides: Sides) -> tuple[str, int, int] | None:
    """Which side an operand is, "row" or "column", and its dimensions along that and along the steps; None if neither.

    Each is subscripted by its index with coefficient 1 and by no other index that moves in a tile.
    """
    if read.boundary is not None:
        return None
    row, column, step = (statement.indices[p] for p in (sides.row, sides.column, sides.step))
    along = [tuple(coefficient(s, i, scop.sizes) for i in (row, column, step)) for s in read.subscripts]
    moving = {d: c for d, c in enumerate(along) if c != (0, 0, 0)}
    for name, own in (("row", (1, 0, 0)), ("column", (0, 1, 0))):
        if sorted(moving.values(), key=str) == sorted([own, (0, 0, 1)], key=str):
            by = {c: d for d, c in moving.items()}
            return name, by[own], by[0, 0, 1]
    return None


def deal_to_atoms(
    cluster: Cluster, statement: ScopStatement, box: Sequence[int], sides: Sides, options: MappingOptions
) -> Dealt:
    """The deal of a tile whose results the instruction leaves in its lanes."""
    positions = cluster.coordinates[statement.name]
    warps = warps_of(box[positions.index(sides.row)], options, sides.atom.in_groups)
    deals = [Deal(extent, 1, max(1, extent), None) for extent in box]
    row, column = positions.index(sides.row), positions.index(sides.column)
    deals[row] = Deal(box[row], LANES_OF_ROWS * warps, 1, 0)
    deals[column] = Deal(box[column], LANES_OF_COLUMNS, 2, 1)
    return Dealt("serial", tuple(deals), (), (LANES_OF_ROWS * warps, LANES_OF_COLUMNS))


def steps_of_atoms(atom: Atom, extent: int, options: MappingOptions) -> int:
    """Steps of a tile: the usual number, or the user's in whole instructions; less where tiles are whole only so."""
    wanted = atom.tile if options.reduction_tile is None else options.reduction_tile
    most = max(atom.granule, wanted - wanted % atom.granule)
    sizes = range(min(most, extent - extent % atom.granule), 0, -atom.granule)
    if extent % atom.granule:
        return sizes[0]
    return next(size for size in sizes if extent % size == 0)


def whole_steps_of_atoms(atom: Atom, extent: int, most: int) -> int:
    """Steps of a tile of at most so many: all, or else a part that leaves few steps too many."""
    if extent <= most and extent % atom.steps == 0:
        return extent
    tiles = max(2, -(-extent // most))
    return -(-extent // (tiles * atom.steps)) * atom.steps
