"""Pass: what the threads of a block fetch into shared memory before a phase (``docs/promotion.md``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Read, depends_on_data, walk
from tcomp.mapping.gpu.atoms import operands_of
from tcomp.mapping.gpu.banks import fetch_order, without_conflicts
from tcomp.mapping.gpu.joining import joined
from tcomp.mapping.gpu.memories import kept_by_warps, shared_budget, shared_bytes
from tcomp.mapping.gpu.turns.fetching import once_for_all_turns
from tcomp.mapping.machines.atoms import LANES_OF_COLUMNS
from tcomp.mapping.machines.fitted.gpu import SHARED
from tcomp.mapping.machines.gpu import VECTOR_BYTES, Gpu
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import Place, places
from tcomp.mapping.memory.references import extents_of_a_run
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Copy, Group, Plan
from tcomp.mapping.tiles.footprint import BoxHull, box_hull
from tcomp.mapping.tiles.strides import access_stride, coefficient
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.storages import Storage

SHORTEST_RUN = 8
"""Neighbouring elements of a box, a sector of floats, from which on fetching them in order pays."""


def promote_to_shared(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Fetch the operands of reductions that the threads of a block read more than once, while there is room."""
    if not options.use_shared_memory:
        return plan
    room = shared_budget(gpu, options)
    marks = {p.mark: p for p in places(plan.tree)}
    copies: list[Copy] = []
    for group in plan.groups:
        left = room - shared_bytes(plan, group) + _lent_bytes(plan, group, options)
        found = [c for number in group.clusters for c in _candidates(plan, number, marks)]
        for copy in sorted(found, key=lambda c: c.bytes):
            if copy.bytes <= left:
                copies.append(once_for_all_turns(plan, copy))
                left -= copy.bytes
    return replace(plan, copies=tuple(copies))


def _lent_bytes(plan: Plan, group: Group, options: MappingOptions) -> int:
    """What a block of a group that runs in turns has in shared memory now, and in registers once warps multiply it."""
    by_warps = all(plan.dealt[c].shape[-1:] == (LANES_OF_COLUMNS,) for c in group.clusters)
    if not group.turns or not by_warps or not options.matrix_units or options.max_shared_memory is not None:
        return 0
    found: dict[str, int] = {}
    for name in (s for c in group.turns for s in plan.clusters[c].statements):
        statement = plan.scop.by_name[name]
        if statement.kind == "update" and recognise_contraction(statement) is not None:
            for read in operands_of(statement):
                if plan.scop.storages[read.tensor].role == "temporary" and plan.buffers[read.tensor].space == "shared":
                    kept = kept_by_warps(plan, read.tensor, name)
                    found |= {} if kept is None else {read.tensor: plan.buffers[read.tensor].bytes}
    return sum(found.values())


def _candidates(plan: Plan, number: int, marks: dict[str, Place]) -> Iterator[Copy]:
    """Copies worth making for a cluster: what is read again and again, or by lanes that lie far apart."""
    form = plan.dealt[number].form
    for name in plan.clusters[number].statements:
        statement = plan.scop.by_name[name]
        if ranges_of(statement.value):
            continue  # what is read is where data say
        if form == "serial" and statement.kind == "update":
            phase = next(p for p in plan.phases.values() if p.mark in marks and name in marks[p.mark].prefixes)
            prefix = marks[phase.mark].prefixes[name]
            instances = math.prod(extents_of_a_run(prefix))
            for operand in operands(plan, statement, prefix):
                reuse = instances / max(1, math.prod(operand.hull.shape))
                if reuse >= SHARED.least_reuse:
                    whole = _of_whole_tile(plan, number, statement, operand)
                    yield _laid_out(plan, whole.copy(plan, phase.mark, name), reuse)

        elif form == "pointwise" and statement.kind == "assign":
            yield from _transposed(plan, statement, marks)


def _laid_out(plan: Plan, copy: Copy, reuse: float) -> Copy:
    """A copy as it had best lie: in whole vectors of joined rows where rows are none, if that costs no more."""
    in_runs = None if copy.vector > 1 else joined(copy, plan.scop.storages[copy.storage])
    return without_conflicts(plan, copy, reuse, in_runs)


def _of_whole_tile(plan: Plan, number: int, statement: ScopStatement, operand: Operand) -> Operand:
    """An operand of a contraction with room for what threads compute beyond the end of their tile.

    Where threads do not divide a tile, the last of them compute what nobody stores; they read it all the same.
    """
    if recognise_contraction(statement) is None:
        return operand
    shape = list(operand.hull.shape)
    for coordinate, deal in zip(
        plan.clusters[number].coordinates[statement.name], plan.dealt[number].deals, strict=True
    ):
        # A tile that is dealt with more elements than its index has values ends where these do.
        beyond = deal.threads * deal.elements - min(deal.extent, statement.extents[coordinate])
        if deal.dimension is None or not beyond:
            continue
        index = statement.indices[coordinate]
        for d in range(len(shape)):
            steps = [coefficient(read.subscripts[d], index, plan.scop.sizes) for read in operand.reads]
            if any(step is None or step < 0 for step in steps):
                return operand
            shape[d] += beyond * max(step or 0 for step in steps)
    return replace(operand, hull=BoxHull(operand.hull.lower, tuple(shape)))


def _transposed(plan: Plan, statement: ScopStatement, marks: dict[str, Place]) -> Iterator[Copy]:
    """Copies of what neighbouring lanes read far apart, but neighbouring elements of the box lie together."""
    phase = next(p for p in plan.phases.values() if statement.name in marks[p.lanes].prefixes)
    prefix = marks[phase.mark].prefixes[statement.name]
    instances = math.prod(extents_of_a_run(prefix))
    lane = index_of_lanes(plan, statement)
    if lane is None:
        return
    for operand in operands(plan, statement, prefix):
        strides = plan.scop.storages[operand.storage].strides
        apart = [access_stride(plan.scop, operand.storage, r.subscripts, lane, plan.scop.sizes) for r in operand.reads]
        runs = max((e for e, s in zip(operand.hull.shape, strides, strict=True) if abs(s) == 1), default=1)
        box = math.prod(operand.hull.shape)
        if runs >= SHORTEST_RUN and box <= instances and all(s is not None and abs(s) > 1 for s in apart):
            yield _laid_out(plan, operand.copy(plan, phase.mark, statement.name), instances / box)


def index_of_lanes(plan: Plan, statement: ScopStatement) -> str | None:
    """The index of a statement that neighbouring threads run along."""
    number = home_of(plan, statement.name)[1]
    dealt, coordinates = plan.dealt[number], plan.clusters[number].coordinates[statement.name]
    innermost = len(dealt.shape) - 1
    found = [d for d, own in enumerate(dealt.deals) if own.dimension == innermost]
    return statement.indices[coordinates[found[0]]] if found else None


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """References of a statement to one storage whose footprints overlap, and the box around them."""

    storage: str
    reads: tuple[Read, ...]
    hull: BoxHull

    def copy(self, plan: Plan, mark: str, statement: str) -> Copy:
        """The copy of the box at a mark, in the order of the tensor."""
        storage, shape = plan.scop.storages[self.storage], self.hull.shape
        order = tuple(range(len(shape)))
        vector = vector_of(storage, self.hull)
        return Copy(self.storage, storage.dtype, mark, statement, self.reads, shape, self.hull.lower, order, 0, vector)


def operands(plan: Plan, statement: ScopStatement, prefix: isl.Map) -> Iterator[Operand]:
    """The groups of references that can be fetched: affine, to what nothing in the group of the statement writes.

    Those that never happen, under a guard that never holds, have no box to fetch.  Slices that some steps lack are not
    fetched, for a fetch asks no guard.
    """
    group, _ = home_of(plan, statement.name)
    written = {plan.scop.by_name[s].target for c in group.clusters for s in plan.clusters[c].statements}
    exprs = [e for e in walk(statement.value) if isinstance(e, Read)]
    for storage in dict.fromkeys(e.tensor for e in exprs):
        own = [e for e in exprs if e.tensor == storage]
        maps = [m for m in statement.reads if m.get_tuple_name(isl.dim_type.out) == storage]
        in_memory = plan.scop.storages[storage].role != "temporary" or plan.buffers[storage].space == "global"
        if storage in written or storage in plan.scop.partly or not in_memory:
            continue
        if any(depends_on_data(s) for e in own for s in e.subscripts):
            continue
        if any(e.boundary is not None and e.boundary.kind != "constant_exterior" for e in own):
            continue
        if not own[0].subscripts or not maps:
            continue
        footprints = [prefix.reverse().apply_range(m).reset_tuple_id(isl.dim_type.out) for m in maps]
        apart = recognise_contraction(statement) is not None
        yield from (operand for operand in _grouped(storage, own, footprints, apart) if 0 not in operand.hull.shape)


def vector_of(storage: Storage, hull: BoxHull, width: int = VECTOR_BYTES) -> int:
    """How many neighbouring elements of a box a thread may fetch at a time: so many bytes, or one.

    They must lie together in the tensor; every row of the tensor, of the box and of the space between must be a whole
    number of vectors, so that none is half outside, at every step of a loop around the kernel.  Where the tensor begins
    is looked at when the kernel runs.
    """
    vector = max(1, width // storage.dtype.itemsize)
    fastest = fetch_order(hull.shape, storage.strides)[-1]
    rest = [
        s for d, (s, e) in enumerate(zip(storage.strides, storage.box.extent, strict=True)) if d != fastest and e > 1
    ]
    corner = hull.lower.get_at(fastest)
    if corner.dim(isl.dim_type.div):
        return 1
    steps = [
        corner.get_coefficient_val(kind, d).to_python()
        for kind in (isl.dim_type.in_, isl.dim_type.param)
        for d in range(corner.dim(kind))
    ]
    start = corner.get_constant_val().to_python() - storage.box.origin[fastest]
    whole = (hull.shape[fastest], storage.box.extent[fastest], start, *steps, *rest)
    return vector if storage.strides[fastest] == 1 and all(n % vector == 0 for n in whole) else 1


def _grouped(storage: str, reads: list[Read], footprints: list[isl.Map], apart: bool) -> Iterator[Operand]:
    """References joined where their footprints overlap, or where they are spelled alike, transitively.

    A copy says what it holds by the text of its references, which under other guards may read other elements.  Sides of
    a contraction are kept ``apart``: what lies between two tiles of one tensor would be fetched with them.
    """
    if len(reads) != len(footprints):
        union = footprints[0]
        for f in footprints[1:]:
            union = union.union(f)
        yield Operand(storage, tuple(reads), box_hull(union))
        return
    groups: list[tuple[list[Read], isl.Map]] = []
    for read, footprint in zip(reads, footprints, strict=True):
        touching = [g for g in groups if read in g[0] or (not apart and not g[1].is_disjoint(footprint))]
        joined = ([read], footprint)
        for g in touching:
            groups.remove(g)
            joined = (g[0] + joined[0], g[1].union(joined[1]))
        groups.append(joined)
    for own, footprint in groups:
        yield Operand(storage, tuple(dict.fromkeys(own)), box_hull(footprint, rounded=True))
