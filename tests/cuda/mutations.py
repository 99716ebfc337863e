"""Ways to make a plan for a GPU wrong: one fact of it changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.gpu.banks import fetch_order
from tcomp.mapping.gpu.barriers import COPIED
from tcomp.mapping.memory.places import places
from tcomp.mapping.memory.references import access_of
from tcomp.mapping.plan.deals import Deal, Phase
from tcomp.mapping.plan.values import Buffer, Copy, Plan
from tcomp.mapping.tiles.footprint import box_hull

KINDS = (
    "barrier removed",
    "barrier of a warp only",
    "barrier late",
    "copy too small",
    "copy shifted",
    "copy elsewhere",
    "copy with rows that overlap",
    "copy without an order",
    "joined rows apart",
    "joined rows of another length",
    "copy of what is written",
    "buffer too small",
    "buffer shifted",
    "buffer dropped",
    "buffer declared inside",
    "private buffer too small",
    "shared made private",
    "shared made a register",
    "private made a register",
    "deal changed",
    "dimensions swapped",
    "threads missing",
    "sharing forgotten",
    "one thread for all",
    "all threads for one",
    "place in use",
)
"""What mutants have wrong with them."""


@dataclass(frozen=True, eq=False)
class Mutant:
    """A plan that must be refused, and what was done to it."""

    kind: str
    change: str
    plan: Plan

    def __str__(self) -> str:
        return f"{self.kind}: {self.change}"


def mutants(plan: Plan) -> Iterator[Mutant]:
    """All mutants of a plan, kind by kind."""
    yield from _barriers(plan)
    for number, copy in enumerate(plan.copies):
        for kind, change, changed in _copies(plan, copy):
            copies = (*plan.copies[:number], changed, *plan.copies[number + 1 :])
            yield Mutant(kind, f"{copy.storage} at {copy.mark}: {change}", replace(plan, copies=copies))
    yield from _copies_of_what_is_written(plan)
    for buffer in plan.buffers.values():
        for kind, change, other in _buffers(plan, buffer):
            buffers = {**plan.buffers, buffer.storage: other}
            yield Mutant(kind, f"{buffer.storage}: {change}", replace(plan, buffers=buffers))
        without = {name: b for name, b in plan.buffers.items() if name != buffer.storage}
        yield Mutant("buffer dropped", buffer.storage, replace(plan, buffers=without))
    for phase in plan.phases.values():
        for kind, change, moved in _phases(phase):
            yield Mutant(kind, f"{phase.mark}: {change}", replace(plan, phases={**plan.phases, phase.mark: moved}))
    yield from _sharing(plan)
    yield from _everywhere(plan)
    yield from _pipelines(plan)


def _pipelines(plan: Plan) -> Iterator[Mutant]:
    """Tiles asked for where one is still in use, or in another order than they are waited for."""
    if len(plan.pipelines) > 1:
        mark, pipeline = next(iter(plan.pipelines.items()))
        further = replace(pipeline, stages=pipeline.stages + 1, distance=pipeline.distance + 1)
        yield Mutant(
            "place in use", f"{mark} further ahead", replace(plan, pipelines={**plan.pipelines, mark: further})
        )
    for mark, pipeline in plan.pipelines.items():
        for distance in (pipeline.stages, pipeline.stages + 1):
            changed = {**plan.pipelines, mark: replace(pipeline, distance=distance)}
            yield Mutant("place in use", f"{distance} tiles ahead", replace(plan, pipelines=changed))


def _barriers(plan: Plan) -> Iterator[Mutant]:
    tiles = [f"group{number}" for number in range(len(plan.groups))]
    order = [place for mark in (*tiles, *plan.phases) for place in (mark, mark + COPIED)]
    for place, level in plan.barriers.items():
        rest = {p: other for p, other in plan.barriers.items() if p != place}
        yield Mutant("barrier removed", place, replace(plan, barriers=rest))
        if level == "block":
            yield Mutant("barrier of a warp only", place, replace(plan, barriers={**plan.barriers, place: "warp"}))
        later = next((p for p in order[order.index(place) + 1 :] if p not in plan.barriers), None)
        if later is not None and not later.endswith(COPIED):
            yield Mutant("barrier late", f"{place} to {later}", replace(plan, barriers={**rest, later: level}))


def _copies(plan: Plan, copy: Copy) -> Iterator[tuple[str, str, Copy]]:
    for d, (extent, read) in enumerate(zip(copy.shape, _read_of(plan, copy), strict=True)):
        smaller = tuple(read - 1 if k == d else e for k, e in enumerate(copy.shape))
        yield "copy too small", f"{read - 1} elements of dimension {d}", replace(copy, shape=smaller)
        for step in (-1 - extent + read, 1):
            yield "copy shifted", f"{step} in dimension {d}", replace(copy, lower=_shifted(copy.lower, d, step))
    for mark in plan.phases:
        if mark != copy.mark:
            yield "copy elsewhere", mark, replace(copy, mark=mark)
    fastest = fetch_order(copy.shape, plan.scop.storages[copy.storage].strides)[-1]
    if copy.vector > 1 and copy.shape[fastest] % copy.vector:
        yield "joined rows apart", "padding 4", replace(copy, padding=4)
        for d in range(len(copy.shape)):
            if copy.shape[d] > 1:
                larger = tuple(e + (k == d) for k, e in enumerate(copy.shape))
                yield "joined rows of another length", f"1 more in dimension {d}", replace(copy, shape=larger)
    yield "copy with rows that overlap", "padding -1", replace(copy, padding=-1)
    if len(copy.shape) > 1:
        yield "copy without an order", "one dimension twice", replace(copy, order=(0,) * len(copy.shape))


def _read_of(plan: Plan, copy: Copy) -> tuple[int, ...]:
    """The extents of what is read from a copy, which may have room for more: for what threads compute beyond a tile."""
    prefix = next(p for p in places(plan.tree) if p.mark == copy.mark).prefixes[copy.statement]
    accesses = access_of(plan.scop.by_name[copy.statement], copy.storage, copy.reads)
    found = [prefix.reverse().apply_range(a).reset_tuple_id(isl.dim_type.out) for a in accesses]
    together = found[0]
    for other in found[1:]:
        together = together.union(other)
    return box_hull(together).shape


def _shifted(lower: isl.MultiAff, d: int, step: int) -> isl.MultiAff:
    return lower.set_at(d, lower.get_at(d).add_constant_val(isl.Val(step)))


def _copies_of_what_is_written(plan: Plan) -> Iterator[Mutant]:
    """Tensors that a group writes, fetched as if they were there before it starts."""
    marks = {p.mark: p for p in places(plan.tree)}
    for group in plan.groups:
        names = [s for c in group.clusters for s in plan.clusters[c].statements]
        written = {plan.scop.by_name[s].target for s in names}
        for phase in plan.phases.values():
            for name in marks[phase.mark].prefixes:
                statement = plan.scop.by_name[name]
                reads = tuple(e for e in walk(statement.value) if isinstance(e, Read) and e.tensor in written)
                for storage in dict.fromkeys(e.tensor for e in reads):
                    if name in names and storage != statement.target:
                        copy = _whole(plan, storage, phase, name, tuple(e for e in reads if e.tensor == storage))
                        barriers = {**plan.barriers, phase.mark: "block", phase.mark + COPIED: "block"}
                        changed = replace(plan, copies=(*plan.copies, copy), barriers=barriers)
                        yield Mutant("copy of what is written", f"{storage} at {phase.mark}", changed)


def _whole(plan: Plan, storage: str, phase: Phase, statement: str, reads: tuple[Read, ...]) -> Copy:
    box = plan.scop.storages[storage].box
    depth = {p.mark: p for p in places(plan.tree)}[phase.mark].prefixes[statement].dim(isl.dim_type.out)
    space = isl.Space.alloc(plan.tree.get_domain().get_ctx(), 0, depth, len(box.extent))
    lower = isl.MultiAff.zero(space)
    dtype = plan.scop.storages[storage].dtype
    return Copy(storage, dtype, phase.mark, statement, reads, box.extent, lower, tuple(range(len(box.extent))))


def _buffers(plan: Plan, buffer: Buffer) -> Iterator[tuple[str, str, Buffer]]:
    for d, extent in enumerate(buffer.shape):
        smaller = tuple(e - (k == d) for k, e in enumerate(buffer.shape))
        kind = "private buffer too small" if buffer.space == "private" else "buffer too small"
        yield kind, f"{extent - 1} elements of dimension {d}", replace(buffer, shape=smaller)
        if buffer.space in ("shared", "block") and buffer.lower is not None:
            yield "buffer shifted", f"1 in dimension {d}", replace(buffer, lower=_shifted(buffer.lower, d, 1))
    if buffer.space == "shared":
        alone = tuple(Deal(e, 1, max(1, e), None) for e in buffer.shape)
        yield "shared made private", "a thread has all of it", replace(buffer, space="private", deals=alone)
        yield "shared made a register", "", replace(buffer, space="register", shape=(), lower=None)
    if buffer.space == "private" and max(buffer.shape, default=1) > 1:
        yield "private made a register", "", replace(buffer, space="register", shape=(), lower=None)
        for d, deal in enumerate(buffer.deals):
            if deal.dimension is not None and deal.elements > 1:
                doubled = [replace(deal, threads=deal.threads * 2)] if deal.chunks > 1 else []
                for other in (*doubled, replace(deal, vector=deal.vector + 1)):
                    deals = tuple(other if k == d else own for k, own in enumerate(buffer.deals))
                    yield "deal changed", f"{deal} to {other}", replace(buffer, deals=deals)
    for mark in plan.phases:
        if buffer.space in ("shared", "private", "register", "block") and mark != buffer.mark:
            yield "buffer declared inside", mark, replace(buffer, mark=mark)
            break


def _phases(phase: Phase) -> Iterator[tuple[str, str, Phase]]:
    if len(phase.dimensions) > 1 and phase.shape[phase.dimensions[0]] != phase.shape[phase.dimensions[1]]:
        swapped = (phase.dimensions[1], phase.dimensions[0], *phase.dimensions[2:])
        yield "dimensions swapped", str(list(swapped)), replace(phase, dimensions=swapped)
    for position in phase.dimensions:
        # A quarter of them: the last vectors of a row may have no thread for themselves.
        fewer = tuple(min(e - 1, 3 * e // 4) if k == position else e for k, e in enumerate(phase.shape))
        yield "threads missing", str(list(fewer)), replace(phase, shape=fewer)


def _everywhere(plan: Plan) -> Iterator[Mutant]:
    """What all threads of a row do left to one of them, and the other way round."""
    for phase in plan.phases.values():
        rest = [d for d, e in enumerate(phase.shape) if e > 1 and d not in phase.dimensions]
        shared = phase.mark in plan.operations and plan.operations[phase.mark].kind != "contract"
        if phase.everywhere or rest or shared:
            kind = "one thread for all" if phase.everywhere else "all threads for one"
            other = replace(phase, everywhere=not phase.everywhere)
            yield Mutant(kind, phase.mark, replace(plan, phases={**plan.phases, phase.mark: other}))


def _sharing(plan: Plan) -> Iterator[Mutant]:
    """Reductions of several threads taken for those of one, and products of warps that lend each other operands."""
    for mark in (m for m, o in plan.operations.items() if o.kind != "contract" or _lends(plan, o.statement)):
        rest = {name: operation for name, operation in plan.operations.items() if name != mark}
        yield Mutant("sharing forgotten", mark, replace(plan, operations=rest))


def _lends(plan: Plan, statement: str) -> bool:
    """Whether threads keep an operand of a product that others multiply."""
    product = plan.scop.by_name[statement]
    buffers = [plan.buffers.get(e.tensor) for e in walk(product.value) if isinstance(e, Read)]
    return any(b is not None and b.space == "private" for b in buffers)
