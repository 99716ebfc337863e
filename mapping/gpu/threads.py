"""Which thread of a block runs an instance, as maps: what barriers are decided by and threads are proved with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.machines.gpu import WARP
from tcomp.mapping.memory.places import own_element, places
from tcomp.mapping.plan.deals import Phase
from tcomp.mapping.plan.values import Buffer, Plan
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import map_from_text, storage_of

Ends = tuple[isl.Map, isl.Map]
"""For two statements, instance to the number of a thread in its block."""

_WARP_OF_THREAD = isl.Map(f"{{ [t] -> [floor(t/{WARP})] }}")


@dataclass(frozen=True, slots=True, eq=False)
class ThreadMaps:
    """For each statement, instance to the number of a thread in its block.

    ``threads`` run the instance, several where a phase runs everywhere; ``leaders`` have the result of a reduction
    that threads share, and otherwise are the same.  ``phase_of`` gives the phase of a statement.  Warps that multiply
    matrices take some operands from the threads that keep them: these are the ``lenders`` of a statement's storage.
    """

    threads: Mapping[str, isl.Map]
    leaders: Mapping[str, isl.Map]
    phase_of: Mapping[str, Phase]
    lenders: Mapping[tuple[str, str], isl.Map]

    @classmethod
    def of(cls, plan: Plan) -> ThreadMaps:
        """The threads of a plan whose tiles are dealt."""
        marks = {p.mark: p for p in places(plan.tree)}
        threads: dict[str, isl.Map] = {}
        leaders: dict[str, isl.Map] = {}
        phase_of: dict[str, Phase] = {}
        for phase in plan.phases.values():
            for statement, prefix in marks[phase.lanes].prefixes.items():
                depth = prefix.dim(isl.dim_type.out)
                shared = shared_dimensions(plan, phase)
                alone = _everywhere(phase, shared)
                leaders[statement] = prefix.apply_range(_number(phase, depth, shared, alone))
                threads[statement] = prefix.apply_range(_number(phase, depth, set(), () if shared else alone))
                phase_of[statement] = phase
        lenders: dict[tuple[str, str], isl.Map] = {}
        for operation in plan.operations.values():
            if operation.kind != "contract" or operation.mark not in plan.phases:
                continue
            product = plan.scop.by_name[operation.statement]
            for read in product.reads:
                buffer = plan.buffers.get(storage_of(read))
                if buffer is not None and buffer.space == "private" and buffer.storage != product.target:
                    prefix, shape = marks[buffer.mark].prefixes[product.name], plan.phases[operation.mark].shape
                    lenders[product.name, buffer.storage] = _keepers(buffer, read, prefix, shape)
        return cls(threads, leaders, phase_of, lenders)

    def crossing(self, plan: Plan, source: str, sink: str, pairs: isl.Map) -> isl.Map:
        """Those pairs of instances of which the second is run by another thread than has what the first left."""
        return between_threads(self.ends(plan, source, sink), pairs)

    def ends(self, plan: Plan, source: str, sink: str) -> Ends:
        """The threads that have what the first statement leaves, and that need it for the second."""
        return self.leaders[source], self.touching(plan.scop.by_name[sink], plan.scop.by_name[source].target)

    def meetings(self, plan: Plan, source: str, sink: str, pairs: isl.Map) -> Iterator[tuple[Ends, isl.Map]]:
        """The threads that must meet for pairs of dependent instances of two statements.

        Threads that share a reduction all read what they reduce, and one of them has the result: so beside its thread
        they all meet those that overwrite what they have read (``overwritten``).
        """
        yield self.ends(plan, source, sink), pairs
        yield from self.overwritten(plan, source, sink, pairs)

    def overwritten(self, plan: Plan, source: str, sink: str, pairs: isl.Map) -> Iterator[tuple[Ends, isl.Map]]:
        """The threads that share a reduction and those that overwrite what they have read for its steps."""
        first, second = plan.scop.by_name[source], plan.scop.by_name[sink]
        if first.target == second.target or self.leaders[source].plain_is_equal(self.threads[source]):
            return
        for read in (r for r in first.reads if storage_of(r) == second.target):
            early = pairs.intersect(read.apply_range(second.write.reverse()))
            if not early.is_empty():
                yield (self.touching(first, second.target), self.touching(second, second.target)), early

    def touching(self, statement: ScopStatement, storage: str) -> isl.Map:
        """The threads that read or write a storage when they run a statement."""
        if (statement.name, storage) in self.lenders:
            return self.lenders[statement.name, storage]
        return self.leaders[statement.name] if statement.target == storage else self.threads[statement.name]


def between_threads(ends: Ends, pairs: isl.Map) -> isl.Map:
    """Those pairs of instances of which the second's thread, or one of them, is none of the first's."""
    apart = pairs.subtract(ends[0].apply_range(ends[1].reverse()))
    if ends[1].is_single_valued():
        return apart
    reading, leaving = pairs.range_map().apply_range(ends[1]), pairs.domain_map().apply_range(ends[0])
    return apart.union(reading.subtract(leaving).domain().unwrap())


def _everywhere(phase: Phase, shared: set[int]) -> tuple[int, ...]:
    """Dimensions along which all threads do what one of them would do."""
    if not phase.everywhere:
        return ()
    return tuple(d for d, extent in enumerate(phase.shape) if extent > 1 and (d not in phase.dimensions or d in shared))


def between_warps(ends: Ends, pairs: isl.Map) -> isl.Map:
    """Those pairs of instances of which the second's thread is in another warp than the first's."""
    writer, reader = (m.apply_range(_WARP_OF_THREAD) for m in ends)
    return pairs.subtract(writer.apply_range(reader.reverse()))


def shared_dimensions(plan: Plan, phase: Phase) -> set[int]:
    """Dimensions of the threads along which a phase shares a reduction."""
    if phase.mark not in plan.operations:
        return set()
    return {s.dimension for s in plan.dealt[phase.cluster].shares}


def _keepers(buffer: Buffer, access: isl.Map, prefix: isl.Map, shape: tuple[int, ...]) -> isl.Map:
    """Instance to the number of the thread that keeps the element of a buffer which it reads."""
    assert buffer.lower is not None
    element = own_element(access, len(buffer.shape))
    offsets = element.sum(prefix.apply_range(isl.Map.from_multi_aff(buffer.lower)).neg())
    names = [f"o{d}" for d in range(len(buffer.shape))]
    terms = [
        f"{math.prod(shape[deal.dimension + 1 :])}*(floor({name}/{deal.vector}) mod {deal.threads})"
        for name, deal in zip(names, buffer.deals, strict=True)
        if deal.dimension is not None
    ]
    return offsets.apply_range(isl.Map(f"{{ [{', '.join(names)}] -> [{' + '.join(terms) or '0'}] }}"))


def _number(phase: Phase, depth: int, leading: set[int], alone: tuple[int, ...] = ()) -> isl.Map:
    """Values of the bands around a thread to its number; its coordinates along ``leading`` count as 0.

    It is one of all those that differ ``alone`` in some dimensions.
    """
    members = len(phase.dimensions)
    names, others = [f"i{d}" for d in range(depth)], [f"e{d}" for d in alone]
    coordinates = {
        dimension: f"i{depth - members + position}"
        for position, dimension in enumerate(phase.dimensions)
        if dimension not in leading
    } | {d: f"e{d}" for d in alone}
    terms = [f"{math.prod(phase.shape[d + 1 :])}*{name}" for d, name in sorted(coordinates.items())]
    number = " + ".join(terms) or "0"
    if not alone:
        return map_from_text(f"{{ [{', '.join(names)}] -> [{number}] }}")
    within = " and ".join(f"0 <= e{d} < {phase.shape[d]}" for d in alone)
    return isl.Map(f"{{ [{', '.join(names)}] -> [t] : exists ({', '.join(others)} : t = {number} and {within}) }}")
