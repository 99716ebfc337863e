"""Products of small matrices that a warp makes with one instruction, and which contractions may use them.

A warp's lane ``4 g + t`` has of a 16 x 8 result the rows ``g`` and ``g + 8`` and the columns ``2 t`` and ``2 t + 1``
(``machines/atoms.py``).  Which rows of a tile stand for rows of the instruction is free, as long as results
and operands agree.  So the usual deals say who has what: rows go in turn to ``8 W`` threads for W warps, columns two by
two to four.  Lanes fetch operands from shared memory for each other (``ldmatrix``), from rows of whole 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcomp.grammar.tree.function import Binary, Cast, Read
from tcomp.mapping.gpu.memories import shared_budget, shared_bytes
from tcomp.mapping.gpu.wholesteps import may_run_beyond
from tcomp.mapping.machines.atoms import (
    ATOMS,
    COLUMNS,
    FETCHED_BYTES,
    LANES_OF_COLUMNS,
    LANES_OF_ROWS,
    ROWS,
    Atom,
)
from tcomp.mapping.machines.gpu import REGISTER_BYTES, WARP, Gpu
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import places
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import TileOperation, bare, recognise_contraction
from tcomp.mapping.plan.values import Buffer, Cluster, Copy, Deal, Dealt, Phase, Plan
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


def atom_of(gpu: Gpu, scop: Scop, statement: ScopStatement, options: MappingOptions) -> Atom | None:
    """The instruction for a sum of products; None where there is none, or it is not to be used."""
    allowed = options.matrix_units and options.use_shared_memory and options.use_private_memory
    if not allowed or statement.kind != "update" or recognise_contraction(statement) is None:
        return None
    wanted = (a for a in ATOMS if gpu.matrix_flops(a) and a.math in ("", options.math))
    return next((a for a in wanted if _multiplies(a, scop, statement)), None)


def _multiplies(atom: Atom, scop: Scop, statement: ScopStatement) -> bool:
    """Whether an instruction computes what a statement says, in the types that it says.

    Its operands are converted to the type of the sums and to nothing else, which changes no value.
    """
    kinds = {read.dtype.name for read in operands_of(statement)}
    assert isinstance(statement.value, Binary)
    factors = (statement.value.lhs, statement.value.rhs)
    straight = all(isinstance(f, Read) or (isinstance(f, Cast) and isinstance(f.operand, Read)) for f in factors)
    sums = {scop.storages[statement.target].dtype.name, statement.value.dtype.name, *(f.dtype.name for f in factors)}
    return kinds == {atom.kind} and sums == {atom.sums} and straight


def operands_of(statement: ScopStatement) -> tuple[Read, Read]:
    """The two reads that a contraction multiplies."""
    assert isinstance(statement.value, Binary)
    first, second = bare(statement.value.lhs), bare(statement.value.rhs)
    assert isinstance(first, Read) and isinstance(second, Read)
    return first, second


def sides_of_atom(gpu: Gpu, scop: Scop, cluster: Cluster, box: Sequence[int], options: MappingOptions) -> Sides | None:
    """The sides of a tile of extents ``box`` that warps can multiply; None where they cannot, or are not to."""
    statement = main_statement(scop, cluster)
    atom = atom_of(gpu, scop, statement, options)
    if atom is None:
        return None
    positions = cluster.coordinates[statement.name]
    wide = [positions[d] for d, extent in enumerate(box) if extent > 1]
    contraction = recognise_contraction(statement)
    assert contraction is not None
    rows = [p for p in wide if statement.indices[p] in contraction.m]
    columns = [p for p in wide if statement.indices[p] in contraction.n]
    if len(wide) != 2 or len(rows) != 1 or len(columns) != 1 or not statement.domain.is_box():
        return None
    for row, column in ((rows[0], columns[0]), (columns[0], rows[0])):
        for sides in (Sides(row, column, step) for step in _longest_first(cluster, statement)):
            enough = statement.extents[sides.step] >= atom.steps
            if enough and _fits(scop, statement, positions, box, sides, atom, options):
                return sides
    return None


def _longest_first(cluster: Cluster, statement: ScopStatement) -> list[int]:
    """The positions of a reduction's indices."""
    return sorted(reduction_positions(cluster, statement), key=lambda p: (-statement.extents[p], -p))


def _fits(
    scop: Scop, statement: ScopStatement, positions: Sequence[int], box: Sequence[int], sides: Sides,
    atom: Atom, options: MappingOptions,
) -> bool:  # fmt: skip
    """Whether columns are those that lie together in the result, and a tile is whole numbers of atoms."""
    last = statement.subscripts[-1] if statement.subscripts else None
    if last is None or coefficient(last, statement.indices[sides.column], scop.sizes) != 1:
        return False
    rows, columns = box[positions.index(sides.row)], box[positions.index(sides.column)]
    warps = warps_of(rows, options)
    words = rows * columns * atom.parts * atom.word_bytes // (REGISTER_BYTES * WARP * max(1, warps))
    if not warps or columns % COLUMNS_FETCHED or words > MOST_WORDS:
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


def warps_of(rows: int, options: MappingOptions) -> int:
    """How many warps share so many rows of a tile: each has two atoms of them where there are enough; 0 if none fit.

    The threads of a block that a user gives must be four columns by eight rows for each warp.
    """
    blocks, rest = divmod(rows, ROWS)
    if rest or not blocks:
        return 0
    each = min(2, -(-blocks // 2))
    possible = [w for w in range(1, MOST_WARPS + 1) if blocks % w == 0]
    if options.threads is not None:
        given = [w for w in possible if options.threads == (LANES_OF_COLUMNS, LANES_OF_ROWS * w)]
        return max(given, default=0)
    return max(w for w in possible if w == 1 or blocks // w >= each)


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
    warps = warps_of(box[positions.index(sides.row)], options)
    deals = [Deal(extent, 1, max(1, extent), None) for extent in box]
    row, column = positions.index(sides.row), positions.index(sides.column)
    deals[row] = Deal(box[row], LANES_OF_ROWS * warps, 1, 0)
    deals[column] = Deal(box[column], LANES_OF_COLUMNS, 2, 1)
    return Dealt("serial", tuple(deals), (), (LANES_OF_ROWS * warps, LANES_OF_COLUMNS))


def steps_of_atoms(atom: Atom, extent: int, options: MappingOptions) -> int:
    """Steps of a tile: the usual number, or the user's in whole instructions; less where tiles are whole only so."""
    wanted = atom.tile if options.reduction_tile is None else options.reduction_tile
    most = max(atom.steps, wanted - wanted % atom.steps)
    sizes = range(min(most, extent - extent % atom.steps), 0, -atom.steps)
    if extent % atom.steps:
        return sizes[0]
    return next(size for size in sizes if extent % size == 0)


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A copy that warps fetch fragments from; ``side`` and ``step`` are its dimensions along its side and the steps."""

    copy: Copy
    side: int
    step: int

    @property
    def turned(self) -> bool:
        """Whether neighbours along the side lie together, not those along the steps."""
        return self.copy.order[-1] == self.side


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """What the warps of a block multiply at a phase.

    Each has ``row_blocks`` by ``column_blocks`` atoms, and ``steps`` of them in turn.
    """

    atom: Atom
    row: Operand
    column: Operand
    target: Buffer
    warps: int
    row_blocks: int
    column_blocks: int
    steps: int


def product_at(plan: Plan, phase: Phase, copies: Sequence[Copy], atom: Atom) -> Product | None:
    """The product of a phase that these copies feed; None where one of the facts that it needs does not hold."""
    place = next((p for p in places(plan.tree) if p.mark == phase.mark), None)
    if place is None or len(place.prefixes) != 1:
        return None
    statement = plan.scop.by_name[next(iter(place.prefixes))]
    dealt, cluster = plan.dealt[phase.cluster], plan.clusters[phase.cluster]
    contracts = statement.kind == "update" and recognise_contraction(statement) is not None
    sides = _dealt_sides(plan, statement, cluster, dealt)
    if (
        not contracts
        or not _multiplies(atom, plan.scop, statement)
        or sides is None
        or phase.shape != dealt.shape
        or not _alone(plan, phase)
    ):
        return None
    operands: dict[str, Operand] = {}
    steps = set[int]()
    for read in operands_of(statement):
        found = dimensions_of(plan.scop, statement, read, sides)
        copy = next((c for c in copies if c.statement == statement.name and c.reads == (read,)), None)
        if found is None or copy is None:
            return None
        name, side, step = found
        deal = dealt.deals[cluster.coordinates[statement.name].index(sides.row if name == "row" else sides.column)]
        rest = [e for d, e in enumerate(copy.shape) if d not in (side, step)]
        row = copy.room[-1] * copy.dtype.itemsize
        if copy.shape[side] != deal.extent or any(e != 1 for e in rest) or row % FETCHED_BYTES:
            return None
        if copy.order[-1] not in (side, step) or copy.dtype.name != atom.kind or copy.step != 1:
            return None
        operands[name] = Operand(copy, side, step)
        if operands[name].turned and atom.itemsize == 1:
            return None
        steps.add(copy.shape[step])
    target = plan.buffers.get(statement.target)
    if len(operands) != 2 or len(steps) != 1 or target is None or not _is_private(target, dealt):
        return None
    (size,) = steps
    if size % atom.steps or not may_run_beyond(plan, phase, statement, [(sides.step, size)]):
        return None
    row_deal, column_deal = (d for _, d in sorted(_threaded(dealt).items()))
    warps = row_deal.threads // LANES_OF_ROWS
    return Product(
        atom, operands["row"], operands["column"], target, warps, row_deal.extent // (ROWS * warps),
        column_deal.extent // COLUMNS, size // atom.steps,
    )  # fmt: skip


def _threaded(dealt: Dealt) -> dict[int, Deal]:
    return {d.dimension: d for d in dealt.deals if d.dimension is not None}


def _dealt_sides(plan: Plan, statement: ScopStatement, cluster: Cluster, dealt: Dealt) -> Sides | None:
    """The sides of a statement whose results are dealt as the instruction leaves them."""
    along = _threaded(dealt)
    if dealt.form != "serial" or dealt.shares or sorted(along) != [0, 1] or statement.name not in cluster.coordinates:
        return None
    row, column = along[0], along[1]
    warps, rest = divmod(row.threads, LANES_OF_ROWS)
    if rest or not warps or row.vector != 1 or (column.threads, column.vector) != (LANES_OF_COLUMNS, 2):
        return None
    others = [d for d in dealt.deals if d.dimension is None]
    if row.extent % (ROWS * warps) or column.extent % COLUMNS_FETCHED or any(d.extent != 1 for d in others):
        return None
    if dealt.shape != (row.threads, column.threads) or not statement.domain.is_box():
        return None
    positions = cluster.coordinates[statement.name]
    at = {d.dimension: positions[n] for n, d in enumerate(dealt.deals) if d.dimension is not None}
    for step in _longest_first(cluster, statement):
        sides = Sides(at[0], at[1], step)
        reads = operands_of(statement) if recognise_contraction(statement) else ()
        if reads and all(dimensions_of(plan.scop, statement, r, sides) is not None for r in reads):
            return sides
    return None


def _is_private(target: Buffer, dealt: Dealt) -> bool:
    """Whether threads keep the results as they are dealt."""
    kept = [d for d in target.deals if d.dimension is not None]
    return target.space == "private" and sorted(kept, key=str) == sorted(_threaded(dealt).values(), key=str)


def _alone(plan: Plan, phase: Phase) -> bool:
    """Whether all threads of the block, and no others, are those of the phase: warps are whole."""
    group = next(g for g in plan.groups if phase.cluster in g.clusters)
    return all(plan.dealt[c].shape == phase.shape for c in group.clusters)


def use_matrix_units(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Let warps multiply matrices where a tile was dealt to them so, with operands as the instruction fetches them."""
    if not options.matrix_units:
        return plan
    for phase in plan.phases.values():
        own = [c for c in plan.copies if c.mark == phase.mark]
        statement = next((plan.scop.by_name[c.statement] for c in own), None)
        atom = None if statement is None else atom_of(gpu, plan.scop, statement, options)
        if statement is None or atom is None:
            continue
        laid_out = [_with_whole_rows(plan, c) for c in own]
        product = product_at(plan, phase, laid_out, atom) if len(own) == 2 else None
        if product is not None:
            contraction = recognise_contraction(statement)
            operation = TileOperation(phase.mark, "contract", statement.name, contraction, atom.name)
            apart = {o.copy.reads: _apart(o) for o in (product.row, product.column)}
            copies = tuple(apart[c.reads] if c in own else c for c in plan.copies)
            changed = replace(plan, copies=copies, operations={**plan.operations, phase.mark: operation})
            group, _ = home_of(plan, statement.name)
            if shared_bytes(changed, group) <= max(shared_bytes(plan, group), shared_budget(gpu, options)):
                plan = changed
    return plan


def _with_whole_rows(plan: Plan, copy: Copy) -> Copy:
    """The copy as it lies in the tensor, with rows that lanes read without meeting in a bank."""
    strides = plan.scop.storages[copy.storage].strides
    order = tuple(sorted(range(len(copy.shape)), key=lambda d: (copy.shape[d] > 1, -abs(strides[d]), d)))
    length, each = copy.shape[order[-1]], FETCHED_BYTES // copy.dtype.itemsize
    if copy.dtype.itemsize == 8:
        # Lanes read single elements: four rows of four, as far apart as a row of 4 in 16.
        return replace(copy, order=order, padding=(4 - length) % 16)
    rest = -length % each
    padding = rest if (length + rest) // each % 2 else rest + each
    return replace(copy, order=order, padding=padding)


def _apart(operand: Operand) -> Copy:
    """The copy with rows as far apart as lanes want them that read single floats, eight of each of four rows."""
    copy = operand.copy
    if copy.dtype.itemsize != 4 or not operand.turned:
        return copy
    return replace(copy, padding=(8 - copy.shape[copy.order[-1]]) % 32)
