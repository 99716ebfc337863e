"""Pass: what rows are reduced to is kept by every thread of the row, not by one for all others.

Threads that share a reduction combine what each warp has in each of them, so all have the result: in the same bits, for
all add up in the same order.  What is computed of results alone, each computes for itself.  No thread waits for another
one to store them.
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.grammar.tree.function import depends_on_data
from tcomp.mapping.gpu.memories import dealt_corner
from tcomp.mapping.gpu.threads import ThreadMaps, between_threads, shared_dimensions
from tcomp.mapping.memory.owners import BLOCK_LEVEL, ownership
from tcomp.mapping.memory.places import Place, places
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Deal, Phase
from tcomp.mapping.plan.values import Buffer, Group, Plan
from tcomp.model.scop import ScopStatement


def keep_results(plan: Plan, options: MappingOptions) -> Plan:
    """Give each thread of a row a copy of what the row is reduced to, where all that use it are in that row."""
    if not options.use_private_memory:
        return plan
    for group in plan.groups:
        if _shares_rows(plan, group):
            plan = _kept(plan, group)
    return plan


def written_everywhere(plan: Plan, phase: Phase) -> bool:
    """Whether all threads may run a phase alike: it reads what they all have, or nobody of the group writes."""
    group = next(g for g in plan.groups if phase.cluster in g.clusters)
    own = {plan.scop.by_name[s].target for c in group.clusters for s in plan.clusters[c].statements}
    copies = {b.storage for b in plan.buffers.values() if b.space in ("private", "register")}
    operation = plan.operations.get(phase.mark)
    # A shared reduction reads its steps once, each in one thread.
    read = frozenset[str]() if operation is not None else phase.reads
    return phase.writes <= copies and all(s in copies for s in read & own) and _all_everywhere(plan, phase, read & own)


def _all_everywhere(plan: Plan, phase: Phase, read: frozenset[str]) -> bool:
    """Whether all that write what a phase reads, or what it writes, run in all threads, too."""
    return all(p.everywhere for p in plan.phases.values() if p.writes & (read | phase.writes))


def _shares_rows(plan: Plan, group: Group) -> bool:
    dealt = [plan.dealt[c] for c in group.clusters]
    shared = [d for d in dealt if d.form == "shared"]
    return (
        len({d.shape for d in dealt}) == 1
        and bool(shared)
        and all(len(d.shares) == 1 and d.shares[0].dimension == len(d.shape) - 1 for d in shared)
    )


def _kept(plan: Plan, group: Group) -> Plan:
    """The plan with as many results as can be in all threads of their rows."""
    last = len(plan.dealt[group.root].shape) - 1
    own = [p for p in plan.phases.values() if p.cluster in group.clusters]
    chosen = [p for p in own if _could_run(plan, p, last)]
    marks = {p.mark: p for p in places(plan.tree)}
    while chosen:
        trial = _with(plan, chosen, marks)
        kept = [p for p in chosen if written_everywhere(trial, trial.phases[p.mark]) and _stays(trial, p)]
        if len(kept) == len(chosen):
            return trial
        chosen = kept
    return plan


def _could_run(plan: Plan, phase: Phase, last: int) -> bool:
    """Whether a phase leaves results of rows in temporaries of the block."""
    alone = last not in phase.dimensions or last in shared_dimensions(plan, phase)
    buffers = [plan.buffers.get(s) for s in phase.writes]
    return alone and all(
        b is not None and b.space in ("shared", "register", "private") and b.mark.startswith(BLOCK_LEVEL)
        for b in buffers
    )


def _with(plan: Plan, chosen: list[Phase], marks: dict[str, Place]) -> Plan:
    """The plan in which some phases run in all threads; what others write, too, keeps its place."""
    phases = {**plan.phases, **{p.mark: replace(p, everywhere=True) for p in chosen}}
    buffers = dict(plan.buffers)
    for storage in {s for p in chosen for s in p.writes}:
        buffer = plan.buffers[storage]
        writers = [s for s in plan.scop.users[storage] if s.target == storage]
        everywhere = all(any(s.target in p.writes for p in chosen) for s in writers)
        private = _private(plan, buffer, writers, marks) if everywhere else None
        buffers[storage] = private or buffer
    return replace(plan, phases=phases, buffers=buffers)


def _private(plan: Plan, buffer: Buffer, writers: list[ScopStatement], marks: dict[str, Place]) -> Buffer | None:
    """The buffer with a copy in each thread of the row that an element belongs to."""
    if buffer.space == "register":
        return buffer
    extents = plan.scop.storages[buffer.storage].box.extent
    folded = {d for d, extent in enumerate(extents) if extent == 1 or d in buffer.folded}
    owners = {ownership(plan, s, s.subscripts, folded) for s in writers}
    owner = owners.pop()
    if owners or owner is None or any(map(depends_on_data, writers[0].subscripts)):
        return None
    deals = tuple(Deal(1, 1, 1, None) if d is None else d[0] for d in owner.dimensions)
    storage = plan.scop.storages[buffer.storage]
    lower = dealt_corner(plan, writers[0], storage, marks[buffer.mark])
    shape = tuple(d.elements for d in deals)
    return Buffer(storage.name, storage.dtype, "private", shape, (), lower, buffer.mark, deals, folded=buffer.folded)


def _stays(plan: Plan, phase: Phase) -> bool:
    """Whether all that a phase leaves is used in the threads that have it."""
    maps = ThreadMaps.of(plan)
    for storage in phase.writes:
        if plan.buffers[storage].space not in ("private", "register"):
            return False
        for (source, sink), passed in plan.scop.values_through[storage].items():
            if not between_threads(maps.ends(plan, source, sink), passed).is_empty():
                return False
    return True
