"""Pass: which copies are asked for asynchronously, tiles ahead of the one that threads work on.

Threads that fetch the next tile through registers keep what is on its way there, and store it between two barriers.
Devices from sm_80 on copy to shared memory by themselves (PTX ISA, ``cp.async``).  Each copy then has several places,
its stages; at every tile threads wait for that tile alone, meet at one barrier, and ask for the tile that takes the
place of the one before (CUTLASS calls this a multistage mainloop).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcomp.mapping.gpu.banks import ASYNCHRONOUS_BYTES, asynchronous_layout, is_asynchronous
from tcomp.mapping.gpu.memories import SCRATCH_BYTES, shared_budget, shared_bytes
from tcomp.mapping.gpu.promotion import vector_of
from tcomp.mapping.machines.atoms import BY_NAME
from tcomp.mapping.machines.fitted.gpu import SHARED
from tcomp.mapping.machines.gpu import REGISTER_BYTES, STATIC_SHARED_BYTES, Gpu, is_wide
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import places
from tcomp.mapping.memory.references import extents_of_a_run
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.tree import nodes_of
from tcomp.mapping.plan.values import Copy, Pipeline, Plan
from tcomp.mapping.tiles.footprint import BoxHull

AHEAD = ":ahead"
"""Follows a mark's name: in front of the loop around it, where the first tiles are asked for."""


def pipeline_fetches(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Let the copies of loops over tiles of steps run ahead where the device can and shared memory has room."""
    if not gpu.copies_asynchronously or not options.prefetch or options.stages == 1:
        return plan
    for marks in _by_loops(plan):
        laid_out: list[Copy] = []
        for mark in marks:
            copies = [_layout(plan, c) for c in plan.copies if c.mark == mark]
            if None not in copies:
                laid_out += [c for c in copies if c is not None]
        if not laid_out:
            continue
        # A warp of its own fetches on from one loop over taps to the next.
        tiles = (tiles_of_all_loops if _in_groups(plan, marks[0]) else tiles_of_steps)(plan, marks[0])
        stages = min(_stages(gpu, plan, laid_out, options), tiles)
        if stages > 1:
            kept = tuple(next((n for n in laid_out if _is_of(n, c)), c) for c in plan.copies)
            flight = int(stages > 2 and len(marks) == 1 and runs_on(plan, marks[0]))
            own = {c.mark: Pipeline(stages, stages - 1 - flight, flight) for c in laid_out}
            plan = replace(plan, copies=kept, pipelines={**plan.pipelines, **own})
    return plan


def _by_loops(plan: Plan) -> list[list[str]]:
    """The marks of copies that are made in loops over at least two tiles, those of one loop together."""
    found: list[tuple[isl.ScheduleNode, list[str]]] = []
    for mark in dict.fromkeys(c.mark for c in plan.copies if c.mark in plan.phases):
        loop = loop_of_tiles(plan, mark)
        if loop is None or tiles_of_steps(plan, mark) < 2:
            continue
        together = next((marks for other, marks in found if other.is_equal(loop)), None)
        if together is None:
            found.append((loop, [mark]))
        else:
            together.append(mark)
    return [marks for _, marks in found]


def _layout(plan: Plan, copy: Copy) -> Copy | None:
    """The copy as the device can make it; as it is where warps fetch matrices from it."""
    storage = plan.scop.storages[copy.storage]
    hull = BoxHull(copy.lower, copy.shape)
    widths = ASYNCHRONOUS_BYTES if copy.shape and copy.vector == 1 else ()
    # Rows that are no multiples of 16 bytes may be such of 8 or 4.
    narrow = [v for w in sorted(widths, reverse=True) if (v := vector_of(storage, hull, w)) > 1]
    if copy.mark in plan.operations:
        wide_first = (*(replace(copy, vector=v) for v in narrow), copy)
        return next((c for c in wide_first if is_asynchronous(c, storage.strides)), None)
    return asynchronous_layout(plan, copy, _reuse(plan, copy), narrow)


def loop_of_tiles(plan: Plan, mark: str) -> isl.ScheduleNode | None:
    """The band of one member whose iterations consist of a phase, or of a turn with it; None if there is none."""
    kinds = isl.schedule_node_type
    marks = (n for n in nodes_of(plan.tree) if n.get_type() == kinds.mark)
    above = next((n.parent() for n in marks if n.mark_get_id().get_name() == mark), None)
    if above is not None and above.get_type() == kinds.filter:
        while above.get_type() in (kinds.filter, kinds.sequence):
            above = above.parent()
        turn = above.get_type() == kinds.mark and above.mark_get_id().get_name().startswith("turn")
        above = above.parent() if turn else None
    if above is None or above.get_type() != kinds.band or above.band_n_member() != 1:
        return None
    return above


def begins_again(plan: Plan, mark: str) -> bool:
    """Whether control can reach the loop around a phase more than once in a tile of a block."""
    kinds = isl.schedule_node_type
    node = loop_of_tiles(plan, mark)
    assert node is not None
    while node.parent().get_type() != kinds.domain:
        node = node.parent()
        if node.get_type() == kinds.mark and node.mark_get_id().get_name().startswith("group"):
            return False
        if node.get_type() == kinds.band:
            return True
    return True


def tiles_of_steps(plan: Plan, mark: str) -> int:
    """How many tiles of steps a loop around a phase runs over at most; 0 if it is none."""
    loop = loop_of_tiles(plan, mark)
    if loop is None:
        return 0
    counts = [0]
    for prefix in next(p for p in places(plan.tree) if p.mark == mark).prefixes.values():
        values = prefix.range()
        last = values.dim(isl.dim_type.set) - 1
        if not values.is_empty():
            counts.append(values.dim_max_val(last).to_python() - values.dim_min_val(last).to_python() + 1)
    return max(counts)


def tiles_of_all_loops(plan: Plan, mark: str) -> int:
    """The same over all loops of a tile of results around a phase, as those over taps."""
    found = {p.mark: p.prefixes for p in places(plan.tree)}
    counts = [tiles_of_steps(plan, mark)]
    for name, prefix in found[mark].items():
        group = f"group{plan.groups.index(home_of(plan, name)[0])}"
        inside, values = found[group][name].dim(isl.dim_type.out), prefix.range()
        dimensions = range(inside, values.dim(isl.dim_type.set)) if not values.is_empty() else ()
        ends = [(values.dim_min_val(d).to_python(), values.dim_max_val(d).to_python()) for d in dimensions]
        counts.append(math.prod(high - low + 1 for low, high in ends))
    return max(counts)


def _reuse(plan: Plan, copy: Copy) -> float:
    """How often an element of a box is read."""
    prefix = next(p for p in places(plan.tree) if p.mark == copy.mark).prefixes[copy.statement]
    return math.prod(extents_of_a_run(prefix)) / max(1, math.prod(copy.shape))


def _is_of(one: Copy, other: Copy) -> bool:
    return (one.mark, one.statement, one.reads) == (other.mark, other.statement, other.reads)


def _in_groups(plan: Plan, mark: str) -> bool:
    """Whether warpgroups multiply at a phase."""
    operation = plan.operations.get(mark)
    return operation is not None and operation.atom in BY_NAME and BY_NAME[operation.atom].in_groups


def runs_on(plan: Plan, mark: str) -> bool:
    """Whether products of one tile may run while the next is awaited: nobody adds up their sums behind each."""
    return _in_groups(plan, mark) and not BY_NAME[plan.operations[mark].atom].leave


def _stages(gpu: Gpu, plan: Plan, copies: Sequence[Copy], options: MappingOptions) -> int:
    """As many stages as are usual, or wanted, and have room; 0 or 1 if there is none."""
    group, cluster = home_of(plan, copies[0].statement)
    marks = {c.mark for c in copies}
    others = shared_bytes(plan, group) - sum(c.bytes for c in plan.copies if c.mark in marks)
    most = shared_budget(gpu, options)
    itemsize = plan.scop.storages[plan.scop.by_name[copies[0].statement].target].dtype.itemsize
    operation = plan.operations.get(copies[0].mark)
    sums = BY_NAME[operation.atom].sums_kept if operation is not None and operation.atom else 1
    kept = plan.dealt[cluster].elements * max(1, itemsize // REGISTER_BYTES) * sums
    usual = SHARED.stages
    if _in_groups(plan, copies[0].mark):
        usual = SHARED.group_stages
        most = gpu.shared_per_block - SCRATCH_BYTES if options.max_shared_memory is None else most
    elif options.stages is None and not is_wide(kept):
        # Threads with few elements are many to a multiprocessor, if their blocks take little.
        most = min(
            most, max(STATIC_SHARED_BYTES, others + 2 * sum(c.bytes for c in copies) if group.turns or operation else 0)
        )
    room = (most - others) // sum(c.bytes for c in copies)
    return min(usual if options.stages is None else options.stages, room)
