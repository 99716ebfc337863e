"""What the warps of a block multiply at a phase, if deals, copies and buffers are as the instruction wants them.

Pass, text and proof ask the same question, ``product_at``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.grammar.tree.function import Read
from tcomp.mapping.gpu.atoms import COLUMNS_FETCHED, Sides, dimensions_of, longest_first, multiplies, operands_of
from tcomp.mapping.gpu.matrices.operands import lies_for_groups
from tcomp.mapping.gpu.wholesteps import may_run_beyond
from tcomp.mapping.machines.atoms import (
    COLUMNS,
    FETCHED_BYTES,
    GROUP_COLUMNS,
    GROUP_WARPS,
    LANES_OF_COLUMNS,
    LANES_OF_ROWS,
    MOST_GROUP_COLUMNS,
    Atom,
)
from tcomp.mapping.memory.places import places
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Buffer, Cluster, Copy, Deal, Dealt, Phase, Plan
from tcomp.model.scop import Scop, ScopStatement, storage_of


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A copy that warps fetch fragments from; ``side`` and ``step`` are its dimensions along its side and the steps."""

    copy: Copy
    side: int
    step: int

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

    Each has ``row_blocks`` by ``column_blocks`` atoms of 16 by 8 results, and ``steps`` of them in turn.
    """

    atom: Atom
    row: Operand | Kept
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
    sides = dealt_sides(plan, statement, cluster, dealt, atom)
    if (
        not contracts
        or not multiplies(atom, plan.scop, statement)
        or sides is None
        or phase.shape != dealt.shape
        or not _alone(plan, phase)
    ):
        return None
    operands: dict[str, Operand | Kept] = {}
    steps = set[int]()
    zeros = set[str]()
    for read in operands_of(statement):
        found = dimensions_of(plan.scop, statement, read, sides)
        if found is None:
            return None
        name, side, step = found
        deal = dealt.deals[cluster.coordinates[statement.name].index(sides.row if name == "row" else sides.column)]
        buffer = plan.buffers.get(read.tensor)
        if buffer is not None and buffer.space == "private":
            if atom.in_groups or name != "row" or not _is_kept(buffer, side, step, deal, atom):
                return None
            operands[name] = Kept(buffer, read, side, step)
            steps.add(buffer.deals[step].threads * buffer.deals[step].elements)
            zeros.add(read.tensor)
            continue
        copy = next((c for c in copies if c.statement == statement.name and c.reads == (read,)), None)
        if copy is None or not _is_fetched(copy, side, step, deal, atom):
            return None
        warps = threaded(dealt)[0].threads // LANES_OF_ROWS if name == "row" else 0
        by_groups = copy.mark == phase.mark and lies_for_groups(copy, side, step, warps)
        if not by_groups if atom.in_groups else copy.swizzle is not None:
            return None
        operands[name] = Operand(copy, side, step)
        steps.add(copy.shape[step])
    target = plan.buffers.get(statement.target)
    if len(operands) != 2 or len(steps) != 1 or target is None or not _is_private(target, dealt):
        return None
    if atom.in_groups and [d.dimension for d in target.deals if d.dimension is not None] != [0, 1]:
        return None
    (size,) = steps
    if size % atom.granule or not may_run_beyond(plan, phase, statement, [(sides.step, size)], zeros):
        return None
    row_deal, column_deal = (d for _, d in sorted(threaded(dealt).items()))
    warps, column = row_deal.threads // LANES_OF_ROWS, operands["column"]
    assert isinstance(column, Operand)
    return Product(
        atom, operands["row"], column, target, warps, row_deal.elements // 2, column_deal.extent // COLUMNS,
        size // atom.steps,
    )  # fmt: skip


def _is_kept(buffer: Buffer, side: int, step: int, deal: Deal, atom: Atom) -> bool:
    """Whether the lanes of a warp keep of an operand what its instruction takes from them."""
    rest = [d.dimension for n, d in enumerate(buffer.deals) if n not in (side, step)]
    own = buffer.deals[step]
    dealt = (own.threads, own.vector, own.dimension) == (LANES_OF_COLUMNS, 2, 1) and buffer.deals[side] == deal
    extents = all(e == 1 for n, e in enumerate(buffer.shape) if n not in (side, step))
    whole = buffer.shape[side] == deal.elements and buffer.shape[step] == own.elements
    kinds = buffer.dtype.name in (atom.kind, "float32") and atom.itemsize == 2
    return dealt and extents and whole and kinds and rest == [None] * len(rest) and not buffer.folded


def _is_fetched(copy: Copy, side: int, step: int, deal: Deal, atom: Atom) -> bool:
    """Whether lanes can fetch their fragments from a copy of an operand."""
    rest = [e for d, e in enumerate(copy.shape) if d not in (side, step)]
    row = copy.room[-1] * copy.dtype.itemsize
    if copy.shape[side] != deal.threads * deal.elements or any(e != 1 for e in rest) or row % FETCHED_BYTES:
        return False
    if copy.order[-1] not in (side, step) or copy.dtype.name != atom.kind or copy.step != 1:
        return False
    return atom.itemsize > 1 or copy.order[-1] == step


def threaded(dealt: Dealt) -> dict[int, Deal]:
    """The deals along each dimension of the threads."""
    return {d.dimension: d for d in dealt.deals if d.dimension is not None}


def dealt_sides(plan: Plan, statement: ScopStatement, cluster: Cluster, dealt: Dealt, atom: Atom) -> Sides | None:
    """The sides of a statement whose results are dealt as the instruction leaves them."""
    along = threaded(dealt)
    if dealt.form != "serial" or dealt.shares or sorted(along) != [0, 1] or statement.name not in cluster.coordinates:
        return None
    row, column = along[0], along[1]
    warps, rest = divmod(row.threads, LANES_OF_ROWS)
    if rest or not warps or row.vector != 1 or (column.threads, column.vector) != (LANES_OF_COLUMNS, 2):
        return None
    if atom.in_groups and (warps % GROUP_WARPS or column.extent % GROUP_COLUMNS or column.extent > MOST_GROUP_COLUMNS):
        return None
    others = [d for d in dealt.deals if d.dimension is None]
    if row.elements % 2 or column.extent % COLUMNS_FETCHED or any(d.extent != 1 for d in others):
        return None
    if dealt.shape != (row.threads, column.threads) or not _is_alone(plan.scop, statement):
        return None
    positions = cluster.coordinates[statement.name]
    at = {d.dimension: positions[n] for n, d in enumerate(dealt.deals) if d.dimension is not None}
    for step in longest_first(cluster, statement):
        sides = Sides(at[0], at[1], step, atom)
        reads = operands_of(statement) if recognise_contraction(statement) else ()
        if reads and all(dimensions_of(plan.scop, statement, r, sides) is not None for r in reads):
            return sides
    return None


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
