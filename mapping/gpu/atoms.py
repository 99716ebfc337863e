"""Products of small matrices that a warp makes with one instruction, and which contractions may use them.

A warp's lane ``4 g + t`` has of a 16 x 8 result the rows ``g`` and ``g + 8`` and the columns ``2 t`` and ``2 t + 1``
(``machines/atoms.py``).  Which rows of a tile stand for rows of the instruction is free, as long as results
and operands agree.  So the usual deals say who has what: rows go in turn to ``8 W`` threads for W warps, columns two by
two to four.  Lanes fetch operands from shared memory for each other (``ldmatrix``), from rows of whole 16 bytes.
Warpgroups have results alike, and operands as ``matrices/operands.py`` lays them out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.grammar.tree.function import Binary, Cast, Expr, Read
from tcomp.mapping.gpu.matrices.deals import deals_of_columns, deals_of_rows
from tcomp.mapping.gpu.memories import shared_budget
from tcomp.mapping.gpu.wholesteps import is_zero_outside
from tcomp.mapping.machines.atoms import ATOMS, FETCHED_BYTES, GROUP_COLUMNS, MOST_GROUP_COLUMNS, MOST_SHORT_STEPS, Atom
from tcomp.mapping.machines.fitted.gpu import CONTRACTIONS
from tcomp.mapping.machines.gpu import REGISTER_BYTES, Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Deal, Dealt
from tcomp.mapping.plan.operations import bare, recognise_contraction
from tcomp.mapping.plan.values import TENSOR, Cluster
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions
from tcomp.mapping.tiles.strides import access_stride, coefficient
from tcomp.model.scop import Scop, ScopStatement

COLUMNS_FETCHED = 16
"""Columns that one fetch of an operand brings to a warp."""

MOST_WORDS = 128
"""Registers of a thread for its results."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Positions in a statement of the indices of a tile that run along the rows, the columns and the steps of an atom.

    Of ``rows`` and ``columns``, outermost first, lanes have the last.  ``taps`` are other indices of the reduction, all
    of whose values are steps of a phase, too: those of windows.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    step: int
    taps: tuple[int, ...]
    atom: Atom

    @property
    def row(self) -> int:
        """The index of rows that lanes have."""
        return self.rows[-1]

    @property
    def column(self) -> int:
        """The index of columns that lanes have."""
        return self.columns[-1]

    @property
    def moving(self) -> tuple[int, ...]:
        """All indices that move in a phase."""
        return (*self.rows, *self.columns, self.step, *self.taps)


@dataclass(frozen=True, slots=True)
class AtomTile:
    """A tile that warps multiply: its ``sides``, the deals of their rows and columns, and how many ``steps`` a phase
    takes of the index of steps."""

    sides: Sides
    rows: tuple[Deal, ...]
    columns: tuple[Deal, ...]
    steps: int

    @property
    def atom(self) -> Atom:
        """The instruction."""
        return self.sides.atom

    def room(self, statement: ScopStatement) -> dict[int, int]:
        """How many values each index of a tile takes in a phase, those beyond the end of the tile included."""
        return room_of(statement, self.sides, self.rows, self.columns, self.steps)


def room_of(
    statement: ScopStatement, sides: Sides, rows: Sequence[Deal], columns: Sequence[Deal], steps: int
) -> dict[int, int]:
    """How many values each index that moves in a phase takes there, those beyond the end of the tile included."""
    deals = zip((*sides.rows, *sides.columns), (*rows, *columns), strict=True)
    return (
        {p: d.threads * d.elements for p, d in deals}
        | {sides.step: steps}
        | {p: statement.extents[p] for p in sides.taps}
    )


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
    kinds = sorted(_operand(atom, f).dtype.name for f in factors)
    return sums == {atom.sums} and kinds == sorted(atom.kinds) and all(_is_operand(atom, scop, f) for f in factors)


def _operand(atom: Atom, factor: Expr) -> Expr:
    """What a factor is before it is converted to the type of the sums."""
    return factor.operand if isinstance(factor, Cast) and factor.dtype.name == atom.sums else factor


def _is_operand(atom: Atom, scop: Scop, factor: Expr) -> bool:
    """Whether a factor is an element as it is stored, or rounded to what it would be stored as."""
    operand = _operand(atom, factor)
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


def tile_of_atom(
    gpu: Gpu, scop: Scop, cluster: Cluster, box: Sequence[int], options: MappingOptions
) -> AtomTile | None:
    """How warps can multiply a tile of extents ``box``; None where they cannot, or are not to."""
    statement = main_statement(scop, cluster)
    atoms = atoms_of(gpu, scop, statement, options)
    if not atoms:
        return None
    extents = dict(zip(cluster.coordinates[statement.name], box, strict=True))
    contraction = recognise_contraction(statement)
    assert contraction is not None
    first, second = (
        _outermost_first(scop, statement, [p for p, e in extents.items() if e > 1 and statement.indices[p] in side])
        for side in (contraction.m, contraction.n)
    )
    wide = sum(e > 1 for e in extents.values())
    if len(first) + len(second) != wide or not first or not second or not statement.domain.is_box():
        return None
    for atom, (rows, columns) in itertools.product(atoms, ((first, second), (second, first))):
        for step in longest_first(cluster, statement):
            if statement.extents[step] >= atom.granule:
                sides = Sides(rows, columns, step, (), atom)
                found = _tile(gpu, scop, statement, extents, sides, options)
                if found is not None:
                    return found
    return None


def _outermost_first(scop: Scop, statement: ScopStatement, positions: Sequence[int]) -> tuple[int, ...]:
    """Positions of indices, those of which neighbours lie nearest in the result last."""

    def apart(position: int) -> tuple[int, int]:
        index = statement.indices[position]
        stride = access_stride(scop, statement.target, statement.subscripts, index, scop.sizes)
        return (1 << 60 if stride is None else abs(stride), -position)

    return tuple(sorted(positions, key=apart, reverse=True))


def longest_first(cluster: Cluster, statement: ScopStatement) -> list[int]:
    """The positions of a reduction's indices."""
    return sorted(reduction_positions(cluster, statement), key=lambda p: (-statement.extents[p], -p))


def _tile(
    gpu: Gpu, scop: Scop, statement: ScopStatement, extents: dict[int, int], sides: Sides, options: MappingOptions
) -> AtomTile | None:
    """The tile if columns are those that lie together in the result, and sides are whole numbers of atoms."""
    atom = sides.atom
    last = statement.subscripts[-1] if statement.subscripts else None
    if last is None or coefficient(last, statement.indices[sides.column], scop.sizes) != 1:
        return None
    if atom.in_groups and len(sides.columns) > 1:
        return None
    rows = deals_of_rows([extents[p] for p in sides.rows], options, atom.in_groups)
    if rows is None:
        return None
    columns = deals_of_columns([extents[p] for p in sides.columns], 1 + max(d.dimension or 0 for d in rows))
    words = (
        math.prod(d.elements for d in (*rows, *(columns or ()))) * atom.sums_kept * atom.word_bytes // REGISTER_BYTES
    )
    if columns is None or words > MOST_WORDS:
        return None
    across = extents[sides.column]
    if atom.in_groups and (across % GROUP_COLUMNS or across > MOST_GROUP_COLUMNS):
        return None
    reads = operands_of(statement)
    found = [dimensions_of(scop, statement, read, sides) for read in reads]
    if len(sides.rows) > 1 and atom.in_groups and not _in_boxes(scop, statement, sides, options):
        return None
    kinds = [None if f is None else atom.kind_of(f[0]) for f in found]
    stored = [scop.storages[read.tensor].dtype.name for read in reads]
    if None in found or (atom.kinds[0] != atom.kinds[1] and kinds != stored):
        return None
    if atom.itemsize == 1:
        # Bytes are not turned: neighbours along the steps must lie together.
        steps = [f[2] for f in found if f is not None]
        if [scop.storages[r.tensor].strides[d] for r, d in zip(reads, steps, strict=True)] != [1, 1]:
            return None
    for taps, size in _phases(scop, statement, sides, options):
        tile = AtomTile(replace(sides, taps=taps), rows, columns, size)
        boxes = [box_of(scop, statement, read, tile.sides, tile.room(statement)) for read in reads]
        if None in boxes or any(dimensions_of(scop, statement, read, tile.sides) is None for read in reads):
            continue
        # Both operands must be in shared memory, fetched with some padding, and those of windows in two stages.
        fetched = atom.itemsize * sum(math.prod(box) for box in boxes if box is not None)
        padded = 4 * fetched // 3 if atom.in_groups else 2 * fetched * (size + atom.chunk) // size if taps else 0
        if padded <= shared_budget(gpu, options):
            return tile
    return None


def _in_boxes(scop: Scop, statement: ScopStatement, sides: Sides, options: MappingOptions) -> bool:
    """Whether a device brings rows of several indices by itself: one tap at a time, so threads had better fetch all.

    Each index stands alone in a subscript, but for taps, with coefficient 1.
    """
    for read in operands_of(statement):
        places, storage = places_of(scop, statement, read, sides), scop.storages[read.tensor]
        strides = [s * storage.dtype.itemsize for s in storage.strides if s != 1]
        if places is None or any(s % FETCHED_BYTES for s in strides):
            return False
        if any(len(own) > 1 or set(own.values()) > {1} for own in places):
            return False
    return options.route in (None, TENSOR) and options.prefetch and options.stages != 1


def _phases(
    scop: Scop, statement: ScopStatement, sides: Sides, options: MappingOptions
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Taps and steps that a phase may take, those of whole windows first: all of them share what is fetched."""
    atom, usual = sides.atom, steps_of_atoms(sides.atom, statement.extents[sides.step], options)
    windows = () if atom.in_groups or atom.leave else _windows(scop, statement, sides)
    for taps in (windows[n:] for n in range(len(windows))):
        count = math.prod(statement.extents[p] for p in taps)
        for steps in dict.fromkeys((usual, atom.steps) if options.reduction_tile is None else (usual,)):
            if count * steps <= CONTRACTIONS.window_atoms * atom.steps:
                yield taps, steps
    yield (), usual


def _windows(scop: Scop, statement: ScopStatement, sides: Sides) -> tuple[int, ...]:
    """The indices of the reduction that stand beside an index of a side in a subscript."""
    subscripts = [s for read in operands_of(statement) for s in read.subscripts]

    def beside(position: int) -> bool:
        own = [s for s in subscripts if coefficient(s, statement.indices[position], scop.sizes)]
        sides_too = (
            coefficient(s, statement.indices[p], scop.sizes) for s in own for p in (*sides.rows, *sides.columns)
        )
        return any(sides_too)

    steps = range(statement.coordinates, len(statement.indices))
    return tuple(p for p in steps if p != sides.step and statement.extents[p] > 1 and beside(p))


def places_of(scop: Scop, statement: ScopStatement, read: Read, sides: Sides) -> tuple[dict[int, int], ...] | None:
    """For each dimension of a read, the coefficients of the indices that move in a phase, by their positions.

    None where one is not linear, or negative.
    """
    found: list[dict[int, int]] = []
    for subscript in read.subscripts:
        along = {p: coefficient(subscript, statement.indices[p], scop.sizes) for p in sides.moving}
        if any(c is None or c < 0 for c in along.values()):
            return None
        found.append({p: c for p, c in along.items() if c})
    return tuple(found)


def box_of(
    scop: Scop, statement: ScopStatement, read: Read, sides: Sides, room: Mapping[int, int]
) -> tuple[int, ...] | None:
    """The extents of what a phase reads, if ``room`` says how many values indices take; None where they are unknown."""
    places = places_of(scop, statement, read, sides)
    if places is None:
        return None
    return tuple(1 + sum(c * (room[p] - 1) for p, c in own.items()) for own in places)


def dimensions_of(scop: Scop, statement: ScopStatement, read: Read, sides: Sides) -> tuple[str, int, int] | None:
    """Which side an operand is, "row" or "column", and its dimensions along that and along the steps; None if neither.

    Steps are subscripted by their index alone, with coefficient 1, the index of lanes stands in one subscript.
    Outside of its tensor an operand is 0.
    """
    places = places_of(scop, statement, read, sides)
    if places is None or not is_zero_outside(read):
        return None
    steps = [d for d, own in enumerate(places) if sides.step in own]
    if len(steps) != 1 or places[steps[0]] != {sides.step: 1}:
        return None
    for name, own, others in (("row", sides.rows, sides.columns), ("column", sides.columns, sides.rows)):
        along = [d for d, place in enumerate(places) if own[-1] in place]
        if len(along) == 1 and not any(p in place for p in others for place in places):
            return name, along[0], steps[0]
    return None


def may_be_turned(places: Sequence[Mapping[int, int]], side: int) -> bool:
    """Whether neighbours along a side begin at whole fetches: nothing else moves along it, and in steps of one."""
    return list(places[side].values()) == [1]


def deal_to_atoms(cluster: Cluster, statement: ScopStatement, box: Sequence[int], tile: AtomTile) -> Dealt:
    """The deal of a tile whose results the instruction leaves in its lanes."""
    positions = cluster.coordinates[statement.name]
    deals = [Deal(extent, 1, max(1, extent), None) for extent in box]
    own = (*zip(tile.sides.rows, tile.rows, strict=True), *zip(tile.sides.columns, tile.columns, strict=True))
    for position, deal in own:
        deals[positions.index(position)] = deal
    along = {d.dimension: d.threads for _, d in own if d.dimension is not None}
    return Dealt("serial", tuple(deals), (), tuple(threads for _, threads in sorted(along.items())))


def steps_of_atoms(atom: Atom, extent: int, options: MappingOptions) -> int:
    """Steps of a tile: the usual number, or the user's in whole instructions; less where tiles are whole only so."""
    wanted = atom.tile if options.reduction_tile is None else options.reduction_tile
    wanted = min(wanted, MOST_SHORT_STEPS) if atom.leave and atom.itemsize == 1 else wanted
    most = max(atom.granule, wanted - wanted % atom.granule)
    sizes = range(min(most, extent - extent % atom.granule), 0, -atom.granule)
    if extent % atom.granule:
        return sizes[0]
    return next(size for size in sizes if extent % size == 0)


def whole_steps_of_atoms(atom: Atom, extent: int, most: int) -> int:
    """Steps of a tile of at most so many: all, or else a part that leaves few steps too many."""
    if extent <= most and extent % atom.steps == 0:
        return extent
    tiles = -(-extent // most)
    return -(-extent // (tiles * atom.steps)) * atom.steps
