"""What the warps of a block multiply at a phase, if deals, copies and buffers are as the instruction wants them.

Pass, text and proof ask the same question, ``product_at``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.function import Index, Read
from tcomp.mapping.gpu.atoms import (
    Sides,
    box_of,
    dimensions_of,
    longest_first,
    may_be_turned,
    multiplies,
    operands_of,
    places_of,
    room_of,
)
from tcomp.mapping.gpu.matrices.deals import column_blocks, follow_each_other, warps_of_rows
from tcomp.mapping.gpu.matrices.operands import lies_for_groups
from tcomp.mapping.gpu.wholesteps import may_run_beyond
from tcomp.mapping.machines.atoms import (
    FETCHED_BYTES,
    GROUP_COLUMNS,
    GROUP_WARPS,
    LANES_OF_COLUMNS,
    LANES_OF_ROWS,
    MOST_GROUP_COLUMNS,
    Atom,
)
from tcomp.mapping.memory.places import Place, places
from tcomp.mapping.plan.deals import Deal, Dealt, Phase
from tcomp.mapping.plan.layouts import Swizzle
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Buffer, Cluster, Copy, Plan
from tcomp.mapping.tiles.sizes import reduction_positions
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import storage_of


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A copy that warps fetch fragments from; ``side`` and ``step`` are its dimensions along its side and the steps.

    ``places`` are, for each dimension, the coefficients of the indices that move in the phase, by their positions.
    """

    copy: Copy
    side: int
    step: int
    places: tuple[Mapping[int, int], ...]

    @property
    def storage(self) -> str:
        """What it is a copy of."""
        return self.copy.storage

    @property
    def turned(self) -> bool:
        """Whether neighbours along the side lie together, not those along the steps."""
        return self.copy.order[-1] == self.side


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """An operand that threads keep as the instruction wants it: its results are dealt as its first operand is.

    Lane ``4 g + t`` has of rows ``g`` and ``g + 8`` the steps ``2 t`` and ``2 t + 1`` of each 8.  Floats are rounded
    when fragments are made of them.
    """

    buffer: Buffer
    read: Read
    side: int
    step: int

    @property
    def storage(self) -> str:
        """What threads keep."""
        return self.buffer.storage


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """What the warps of a block multiply at a phase.

    Each has ``row_blocks`` by ``column_blocks`` atoms of 16 by 8 results, and ``steps`` of them in turn for each of the
    ``taps``: positions of indices with the numbers of their values.  ``rows`` and ``columns`` are the deals of
    ``sides``; ``dimensions`` are those of the target along which the indices of both run.
    """

    atom: Atom
    row: Operand | Kept
    column: Operand
    target: Buffer
    sides: Sides
    rows: tuple[Deal, ...]
    columns: tuple[Deal, ...]
    dimensions: Mapping[int, int]
    steps: int
    taps: tuple[tuple[int, int], ...]

    @property
    def warps(self) -> int:
        """Warps that share the index of rows that lanes have."""
        return self.rows[-1].threads // LANES_OF_ROWS

    @property
    def groups(self) -> int:
        """Warpgroups that share the rows."""
        return warps_of_rows(self.rows) // GROUP_WARPS

    @property
    def row_blocks(self) -> int:
        """Atoms of rows that a warp has."""
        return math.prod(d.elements for d in self.rows) // 2

    @property
    def column_blocks(self) -> int:
        """Atoms of columns that a warp has."""
        return column_blocks(self.columns)


def product_at(plan: Plan, phase: Phase, copies: Sequence[Copy], atom: Atom) -> Product | None:
    """The product of a phase that these copies feed; None where one of the facts that it needs does not hold."""
    place = next((p for p in places(plan.tree) if p.mark == phase.mark), None)
    if place is None or len(place.prefixes) != 1:
        return None
    statement = plan.scop.by_name[next(iter(place.prefixes))]
    dealt = plan.dealt[phase.cluster]
    contracts = statement.kind == "update" and recognise_contraction(statement) is not None
    found = sides_of_phase(plan, phase, place, atom)
    if (
        not contracts
        or not multiplies(atom, plan.scop, statement)
        or found is None
        or phase.shape != dealt.shape
        or not _alone(plan, phase)
    ):
        return None
    sides, rows, columns = found.sides, found.rows, found.columns
    if sides.taps and (atom.in_groups or atom.leave):
        return None
    operands: dict[str, Operand | Kept] = {}
    for read in operands_of(statement):
        operand = _operand(plan, phase, statement, read, copies, found)
        if operand is None:
            return None
        operands[operand[0]] = operand[1]
    steps = {_steps_of(operand) for operand in operands.values()}
    zeros = {operand.storage for operand in operands.values() if isinstance(operand, Kept)}
    target = plan.buffers.get(statement.target)
    if len(operands) != 2 or len(steps) != 1 or target is None or not _is_private(target, dealt):
        return None
    across = [d.dimension for d in target.deals if d.dimension is not None]
    if atom.in_groups and across != list(range(len(dealt.shape))):
        return None
    (size,) = steps
    taps = tuple((p, statement.extents[p]) for p in sides.taps)
    if size % atom.granule or not may_run_beyond(plan, phase, statement, [(sides.step, size), *taps], zeros, True):
        return None
    along = _dimensions_of_target(statement, (*sides.rows, *sides.columns))
    column = operands["column"]
    assert isinstance(column, Operand)
    if along is None:
        return None
    return Product(atom, operands["row"], column, target, sides, rows, columns, along, size // atom.steps, taps)


def _operand(
    plan: Plan, phase: Phase, statement: ScopStatement, read: Read, copies: Sequence[Copy], found: DealtSides
) -> tuple[str, Operand | Kept] | None:
    """Which side a read is, and where warps take it from; None if it is nowhere as they need it."""
    sides, rows, atom = found.sides, found.rows, found.sides.atom
    dimensions = dimensions_of(plan.scop, statement, read, sides)
    moving = places_of(plan.scop, statement, read, sides)
    if dimensions is None or moving is None:
        return None
    name, side, step = dimensions
    buffer = plan.buffers.get(read.tensor)
    if buffer is not None and buffer.space == "private":
        simple = name == "row" and not sides.taps and len(rows) == 1 and not atom.in_groups
        kept = simple and _is_kept(buffer, side, step, rows[0], atom)
        return (name, Kept(buffer, read, side, step)) if kept else None
    copy = next((c for c in copies if c.statement == statement.name and c.reads == (read,)), None)
    if copy is None or len(copy.shape) != len(moving):
        return None
    room = room_of(statement, sides, rows, found.columns, copy.shape[step])
    box = box_of(plan.scop, statement, read, sides, room)
    if box is None or copy.dtype.name != atom.kind_of(name):
        return None
    if not _is_fetched(copy, side, step, box, may_be_turned(moving, side), atom):
        return None
    by_groups = copy.mark == phase.mark and lies_for_groups(copy, swizzle_of(found, moving, name, side, step))
    if not by_groups if atom.in_groups else copy.swizzle is not None:
        return None
    return name, Operand(copy, side, step, moving)


def swizzle_of(found: DealtSides, moving: Sequence[Mapping[int, int]], name: str, side: int, step: int) -> Swizzle:
    """How a warpgroup wants the operand of a side, "row" or "column", whose dimensions ``moving`` tells of."""
    if name == "column":
        return Swizzle(side, step)
    outer = [p for p, d in zip(found.sides.rows[:-1], found.rows[:-1], strict=True) if d.extent > 1]
    around = tuple(next((d for d, own in enumerate(moving) if p in own), -1) for p in outer)
    return Swizzle(side, step, warps_of_rows(found.rows), around)


def _steps_of(operand: Operand | Kept) -> int:
    """Steps of a phase for which an operand is there."""
    if isinstance(operand, Kept):
        deal = operand.buffer.deals[operand.step]
        return deal.threads * deal.elements
    return operand.copy.shape[operand.step]


def _taps(cluster: Cluster, statement: ScopStatement, prefix: isl.Map, sides: Sides) -> tuple[int, ...]:
    """The other indices of the reduction that take several values in a run of the phase."""
    names = [f"i{d}" for d in range(len(statement.indices))]
    run = prefix.reverse()

    def moves(position: int) -> bool:
        value = isl.Map(f"{{ {statement.name}[{', '.join(names)}] -> [{names[position]}] }}")
        return not run.apply_range(value).is_single_valued()

    rest = (p for p in sorted(reduction_positions(cluster, statement)) if p != sides.step)
    return tuple(p for p in rest if statement.extents[p] > 1 and moves(p))


def _dimensions_of_target(statement: ScopStatement, positions: Sequence[int]) -> dict[int, int] | None:
    """For some indices the dimension of the target that each is; None where one is none by itself."""
    names = [s.name if isinstance(s, Index) else None for s in statement.subscripts]
    found = {p: names.index(statement.indices[p]) for p in positions if statement.indices[p] in names}
    return found if len(found) == len(positions) else None


def _is_kept(buffer: Buffer, side: int, step: int, deal: Deal, atom: Atom) -> bool:
    """Whether the lanes of a warp keep of an operand what its instruction takes from them."""
    rest = [d.dimension for n, d in enumerate(buffer.deals) if n not in (side, step)]
    own = buffer.deals[step]
    dealt = (own.threads, own.vector, own.dimension) == (LANES_OF_COLUMNS, 2, 1) and buffer.deals[side] == deal
    extents = all(e == 1 for n, e in enumerate(buffer.shape) if n not in (side, step))
    whole = buffer.shape[side] == deal.elements and buffer.shape[step] == own.elements
    kinds = buffer.dtype.name in (atom.kind, "float32") and atom.itemsize == 2
    return dealt and extents and whole and kinds and rest == [None] * len(rest) and not buffer.folded


def _is_fetched(copy: Copy, side: int, step: int, box: Sequence[int], turned: bool, atom: Atom) -> bool:
    """Whether lanes can fetch their fragments from a copy that holds a ``box``; ``turned`` if it may lie so."""
    row = copy.room[-1] * copy.dtype.itemsize
    if any(have < want for have, want in zip(copy.shape, box, strict=True)) or row % FETCHED_BYTES:
        return False
    if atom.in_groups and copy.shape != tuple(box):
        return False
    if copy.order[-1] not in (side, step) or copy.step != 1:
        return False
    return copy.order[-1] == step or (atom.itemsize > 1 and (turned or atom.itemsize > 2))


def threaded(dealt: Dealt) -> dict[int, Deal]:
    """The deals along each dimension of the threads."""
    return {d.dimension: d for d in dealt.deals if d.dimension is not None}


@dataclass(frozen=True, slots=True)
class DealtSides:
    """The sides of a product, and the deals of the indices of both, outermost first."""

    sides: Sides
    rows: tuple[Deal, ...]
    columns: tuple[Deal, ...]


def sides_of_phase(plan: Plan, phase: Phase, place: Place, atom: Atom) -> DealtSides | None:
    """The sides of the update of a phase whose results are dealt as the instruction leaves them, with its taps."""
    statement, cluster = plan.scop.by_name[next(iter(place.prefixes))], plan.clusters[phase.cluster]
    found = _dealt_sides(plan, statement, cluster, plan.dealt[phase.cluster], atom)
    if found is None:
        return None
    taps = _taps(cluster, statement, place.prefixes[statement.name], found.sides)
    return replace(found, sides=replace(found.sides, taps=taps))


def _dealt_sides(plan: Plan, statement: ScopStatement, cluster: Cluster, dealt: Dealt, atom: Atom) -> DealtSides | None:
    along, count = threaded(dealt), len(dealt.shape)
    if dealt.form != "serial" or dealt.shares or count not in (2, 3) or sorted(along) != list(range(count)):
        return None
    if statement.name not in cluster.coordinates or not recognise_contraction(statement):
        return None
    row, column = along[count - 2], along[count - 1]
    warps, rest = divmod(row.threads, LANES_OF_ROWS)
    if rest or not warps or row.vector != 1 or (column.threads, column.vector) != (LANES_OF_COLUMNS, 2):
        return None
    if count == 3 and along[0].vector != 1:
        return None
    warps *= along[0].threads if count == 3 else 1
    if atom.in_groups and (warps % GROUP_WARPS or column.extent % GROUP_COLUMNS or column.extent > MOST_GROUP_COLUMNS):
        return None
    if dealt.shape != tuple(along[d].threads for d in range(count)) or not _is_alone(plan.scop, statement):
        return None
    grouped = _grouped(statement, cluster, dealt, row, column)
    if grouped is None:
        return None
    rows, columns = (tuple(deal for _, deal in side) for side in grouped)
    if atom.in_groups and (len(columns) > 1 or not follow_each_other(rows)):
        return None
    if math.prod(d.elements for d in rows) % 2 or column_blocks(columns) % 2:
        return None
    for step in longest_first(cluster, statement):
        sides = Sides(*_positions(grouped), step, (), atom)
        if all(dimensions_of(plan.scop, statement, r, sides) is not None for r in operands_of(statement)):
            return DealtSides(sides, rows, columns)
    return None


_Side = list[tuple[int, Deal]]


def _positions(sides: tuple[_Side, _Side]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(p for p, _ in sides[0]), tuple(p for p, _ in sides[1])


def _grouped(
    statement: ScopStatement, cluster: Cluster, dealt: Dealt, row: Deal, column: Deal
) -> tuple[_Side, _Side] | None:
    """Positions and deals of the indices of rows, and of columns, the dealt ones last; None where others move."""
    contraction = recognise_contraction(statement)
    assert contraction is not None
    pairs = list(zip(cluster.coordinates[statement.name], dealt.deals, strict=True))
    at_row, at_column = (next(pair for pair in pairs if pair[1] is deal) for deal in (row, column))
    bundle_of = {i: number for number, side in enumerate((contraction.m, contraction.n)) for i in side}
    sides: tuple[_Side, _Side] = ([], [])
    own = [bundle_of.get(statement.indices[position]) for position, _ in (at_row, at_column)]
    if None in own or own[0] == own[1]:
        return None
    for position, deal in pairs:
        if (position, deal) in (at_row, at_column) or (deal.extent == 1 and deal.dimension is None):
            continue
        bundle = bundle_of.get(statement.indices[position])
        if bundle is None or (bundle == own[1] and deal.dimension is not None):
            return None
        sides[own.index(bundle)].append((position, deal))
    return [*sides[0], at_row], [*sides[1], at_column]


def _is_alone(scop: Scop, statement: ScopStatement) -> bool:
    """Whether nobody uses results of a tile that a sum of products lacks: the instruction leaves something there."""
    if statement.domain.is_box():
        return True
    results = statement.write.range()
    users = [s for s in scop.users[statement.target] if s is not statement]
    used = [s.write for s in users if s.target == statement.target]
    used += [r for s in users for r in s.all_reads if storage_of(r) == statement.target]
    return all(bool(access.range().is_subset(results)) for access in used)


def _is_private(target: Buffer, dealt: Dealt) -> bool:
    """Whether threads keep the results as they are dealt."""
    kept = [d for d in target.deals if d.dimension is not None]
    return target.space == "private" and sorted(kept, key=str) == sorted(threaded(dealt).values(), key=str)


def _alone(plan: Plan, phase: Phase) -> bool:
    """Whether all threads of the block, and no others, are those of the phase: warps are whole."""
    group = next(g for g in plan.groups if phase.cluster in g.clusters)
    return all(plan.dealt[c].shape == phase.shape for c in group.clusters)
