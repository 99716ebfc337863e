"""Pass: where the threads of a block wait for each other.

Phases are walked in execution order with the accesses since the last barrier in hand; a barrier stands before the first
phase that conflicts with one of them.  For a sequence of intervals that is the fewest barriers (each barrier stands as
late as it may, as in stabbing intervals with points).  Where only threads of one warp meet, the warp waits.  The body
of a loop is walked twice, so that the accesses of an iteration meet those of the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import islpy as isl

from tcomp.mapping.gpu.pipelines import AHEAD, begins_again
from tcomp.mapping.gpu.rounds import reused
from tcomp.mapping.gpu.threads import Ends, ThreadMaps, between_threads, between_warps
from tcomp.mapping.machines.gpu import WARP
from tcomp.mapping.memory.places import Place, places
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Phase
from tcomp.mapping.plan.tree import nodes_of
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.unions import by_statements, storage_of

LEVELS = ("", "warp", "block")
"""Who waits at a barrier: nobody, the threads of each warp for one another, or all threads of the block."""

COPIED = ":copied"
"""Follows a mark's name: behind the copies that are made at its entry."""


def synchronise(plan: Plan, options: MappingOptions) -> Plan:
    """Put barriers between phases that hand data from thread to thread."""
    barriers: dict[str, str] = {}
    maps = ThreadMaps.of(plan)
    pairs = by_statements(plan.scop.dependences)
    nodes = [n for n in nodes_of(plan.tree) if n.get_type() == isl.schedule_node_type.mark]
    marks = {n.mark_get_id().get_name(): n for n in nodes}
    found = {p.mark: p for p in places(plan.tree)}
    for number in range(len(plan.groups)):
        _Walk(plan, number, maps, pairs, barriers, found).visit(marks[f"group{number}"])
    return replace(plan, barriers=barriers)


@dataclass(frozen=True, slots=True)
class _Accesses:
    """What a phase touches that other threads may touch, too; memory that is used again and again is in ``folded``.

    ``statements`` are those that run in it; ``warps_waited`` says that each warp has waited for its own threads since.
    """

    statements: tuple[str, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    folded: frozenset[str] = frozenset()
    warps_waited: bool = False


@dataclass(slots=True)
class _Walk:
    """A walk over the phases of a group; ``pending`` are the accesses since the last barrier."""

    plan: Plan
    group: int
    maps: ThreadMaps
    pairs: Mapping[tuple[str, str], isl.Map]
    barriers: dict[str, str]
    marks: Mapping[str, Place]
    pending: list[_Accesses] = field(default_factory=list)
    known: dict[tuple[str, str], str] = field(default_factory=dict)

    def visit(self, node: isl.ScheduleNode) -> None:
        """Walk a subtree in execution order."""
        kinds = isl.schedule_node_type
        match node.get_type():
            case kinds.mark if node.mark_get_id().get_name() in self.plan.phases:
                self._phase(self.plan.phases[node.mark_get_id().get_name()])
            case kinds.mark:
                mark = node.mark_get_id().get_name()
                if any(c.mark == mark for c in self.plan.copies):
                    self._wait(mark + COPIED, "block")
                self.visit(node.child(0))
            case kinds.band:
                for _ in range(2):
                    self.visit(node.child(0))
            case kinds.leaf:
                pass
            case _:
                for child in range(node.n_children()):
                    self.visit(node.child(child))

    def _phase(self, phase: Phase) -> None:
        statements = tuple(s for s, p in self.maps.phase_of.items() if p.mark == phase.mark)
        fetched = frozenset(f"copy of {c.storage} at {c.mark}" for c in self.plan.copies if c.mark == phase.mark)
        scratch = frozenset({f"lanes of {phase.mark}"} if shares_beyond_a_warp(self.plan, phase) else ())
        reads = frozenset(s for s in phase.reads if self._is_exchanged(s))
        writes = frozenset(s for s in phase.writes if self._is_exchanged(s))
        own = _Accesses(statements, reads, writes, frozenset(s for s in reads | writes if self._is_folded(s)))
        fill = _Accesses((), frozenset(), fetched | scratch, fetched | scratch)
        if phase.mark in self.plan.pipelines:
            if begins_again(self.plan, phase.mark):
                self._wait(phase.mark + AHEAD, "block")
            self._wait(phase.mark + COPIED, "block")
        elif fetched:
            self._wait(phase.mark, self._conflicts(fill))
            self._wait(phase.mark + COPIED, "block")
        else:
            self._wait(phase.mark, max(self._conflicts(fill), self._conflicts(own), key=LEVELS.index))
        if scratch:
            # The barrier inside a shared reduction stands behind the reads of its steps.
            self.pending.clear()
            own = replace(own, reads=own.reads & own.writes)
        self.pending.append(own)
        self.pending.append(_Accesses((), fetched | scratch, frozenset(), fetched | scratch))

    def _conflicts(self, later: _Accesses) -> str:
        """Who must wait between what is pending and a later phase: one of ``LEVELS``."""
        return max((self._conflict(earlier, later) for earlier in self.pending), key=LEVELS.index, default="")

    def _conflict(self, earlier: _Accesses, later: _Accesses) -> str:
        met = (earlier.writes & (later.reads | later.writes)) | (earlier.reads & later.writes)
        if not met:
            return ""
        if met & (earlier.folded | later.folded):
            return "block"
        pairs = [(source, sink) for source in earlier.statements for sink in later.statements]
        crossings = [self._crosses(source, sink) for source, sink in pairs]
        crossings += [self._takes_place(source, sink, storage) for source, sink in pairs for storage in met]
        level = max(crossings, key=LEVELS.index, default="")
        return "" if level == "warp" and earlier.warps_waited else level

    def _crosses(self, source: str, sink: str) -> str:
        """How far apart the threads are of which the second statement's depend on the first's."""
        pairs = self.pairs.get((source, sink))
        if pairs is None:
            return ""
        if (source, sink) not in self.known:
            levels = (_apart(ends, own) for ends, own in self.maps.meetings(self.plan, source, sink, pairs))
            self.known[source, sink] = max(levels, key=LEVELS.index)
        return self.known[source, sink]

    def _takes_place(self, source: str, sink: str, storage: str) -> str:
        """How far apart the threads are of which the second statement's write where the first's used other elements."""
        buffer, first, second = self.plan.buffers.get(storage), *(self.plan.scop.by_name[s] for s in (source, sink))
        touches = first.target == storage or any(storage_of(r) == storage for r in first.reads)
        if buffer is None or second.target != storage or not touches:
            return ""
        if not buffer.folded and not buffer.mark.startswith("turn"):
            return ""
        key = (source, f"{sink} takes its place in {storage}")
        if key not in self.known:
            pairs = reused(self.plan, self.marks, buffer, first, second)
            assert pairs is not None
            self.known[key] = _apart((self.maps.touching(first, storage), self.maps.touching(second, storage)), pairs)
        return self.known[key]

    def _wait(self, place: str, level: str) -> None:
        if not level:
            return
        self.barriers[place] = max(level, self.barriers.get(place, ""), key=LEVELS.index)
        if level == "block":
            self.pending.clear()
        else:
            self.pending = [replace(earlier, warps_waited=True) for earlier in self.pending]

    def _is_folded(self, storage: str) -> bool:
        """Whether rounds of a loop use the same memory for different elements."""
        buffer = self.plan.buffers.get(storage)
        return buffer is not None and buffer.mark.startswith("round")

    def _is_exchanged(self, storage: str) -> bool:
        """Whether threads of a block may see each other's values of a storage."""
        buffer = self.plan.buffers.get(storage)
        if buffer is not None and buffer.space in ("register", "private"):
            return False
        names = {s for c in self.plan.groups[self.group].clusters for s in self.plan.clusters[c].statements}
        return any(s.target == storage for s in self.plan.scop.statements if s.name in names)


def _apart(ends: Ends, pairs: isl.Map) -> str:
    """How far apart the threads of pairs of instances are: one of ``LEVELS``."""
    crossing = between_threads(ends, pairs)
    if crossing.is_empty():
        return ""
    return "warp" if between_warps(ends, crossing).is_empty() else "block"


def shares_beyond_a_warp(plan: Plan, phase: Phase) -> bool:
    """Whether the threads that share a reduction are more than one warp."""
    if phase.mark not in plan.operations:
        return False
    return plan.dealt[phase.cluster].group > WARP
