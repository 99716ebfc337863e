"""Operands that a warp of their own fetches for warpgroups by tensor copies (sm_90a): where that can be, which boxes.

A tensor copy brings a whole box into rows of 128 bytes with their swizzle, zeros outside of the tensor included, and
one thread asks for it (PTX ISA, "cp.async.bulk.tensor").  Of each stage two barriers tell that it is full, and that it
is empty.  So threads that multiply meet nobody else in their loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.mapping.gpu.barriers import COPIED, synchronise
from tcomp.mapping.gpu.matrices.operands import has_panels, steps_of_a_row
from tcomp.mapping.gpu.pipelines import AHEAD, loop_of_tiles, tiles_of_all_loops
from tcomp.mapping.machines.atoms import BY_NAME, GROUP_WARPS
from tcomp.mapping.machines.fitted.gpu import SHARED
from tcomp.mapping.machines.gpu import WARP, Gpu
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.layouts import CORE_ROWS
from tcomp.mapping.plan.values import BARRIERS, TENSOR, Copy, Group, Plan
from tcomp.model.terms.storages import Storage

FETCHING_THREADS = GROUP_WARPS * WARP
"""Threads of a block beside those that multiply: registers are given away by whole warpgroups."""

_MOST_THREADS, _MOST_RANK, _MOST_BOX, _STRIDE_BYTES = 1024, 5, 256, 16
_MOST_STRIDE, _MOST_EXTENT, _MOST_STAGES = 2**40, 2**32, 32


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of a copy: ``dimensions`` of the tensor as its map has them, innermost first, with a box's extents.

    A box has 128 bytes of the first one by ``rows`` of the second, at most one of each other.
    """

    dimensions: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of 128 bytes."""
        return self.box[1]

    def corners(self, copy: Copy) -> Iterator[tuple[int, int, int]]:
        """For each box: its panel, its first row in the tile, and the first of its elements in shared memory."""
        inner, row = self.dimensions[:2]
        swizzle = copy.swizzle
        assert swizzle is not None
        length = steps_of_a_row(copy)
        for panel in range(copy.shape[inner] // length):
            for first in range(0, copy.shape[row], self.rows):
                at = swizzle.stands_for(first)
                yield panel, first, (panel * copy.shape[row] + at) * length


def boxes_of(storage: Storage, copy: Copy) -> Boxes | None:
    """The boxes in which a device can bring a copy by itself; None if it cannot.

    Rows that lie in groups of eight for the warps of a block come by eight; neighbours along such a side cannot lie
    together.
    """
    swizzle = copy.swizzle
    if swizzle is None or not has_panels(copy) or copy.dtype != storage.dtype:
        return None
    inner = copy.order[-1]
    row = swizzle.side if inner == swizzle.step else swizzle.step
    if swizzle.warps and inner == swizzle.side:
        return None
    others = [d for d, e in enumerate(storage.box.extent) if d not in (inner, row) and e > 1]
    dimensions = (inner, row, *others)
    strides = [storage.strides[d] * copy.dtype.itemsize for d in dimensions[1:]]
    apart = all(0 < s < _MOST_STRIDE and s % _STRIDE_BYTES == 0 for s in strides)
    counted = all(0 < storage.box.extent[d] < _MOST_EXTENT for d in dimensions)
    if storage.strides[inner] != 1 or not apart or not counted or len(dimensions) > _MOST_RANK:
        return None
    rows = CORE_ROWS if swizzle.warps else copy.shape[row]
    if rows > _MOST_BOX:
        return None
    return Boxes(dimensions, (steps_of_a_row(copy), rows, *(1 for _ in others)))


def can_be_fed(plan: Plan, mark: str) -> bool:
    """Whether a warp of its own can fetch what warpgroups multiply at a phase, and meets nobody outside of its loop."""
    operation, pipeline = plan.operations.get(mark), plan.pipelines.get(mark)
    atom = None if operation is None else BY_NAME.get(operation.atom)
    if atom is None or not atom.in_groups or pipeline is None or not 2 <= pipeline.stages <= _MOST_STAGES:
        return False
    assert operation is not None
    group, cluster = home_of(plan, operation.statement)
    marks = {p.mark for p in plan.phases.values() if p.cluster in group.clusters}
    copies = [c for c in plan.copies if home_of(plan, c.statement)[0] is group]
    if group.turns or any(c.mark != mark for c in copies) or plan.scop.around is not None:
        return False
    if {m for m in plan.pipelines if m in marks} != {mark} or not _is_all_of_its_loop(plan, mark):
        return False
    if any(o.mark in marks and o.mark != mark for o in plan.operations.values()):
        return False
    if any(
        b.space in ("shared", "block") and b.mark for b in plan.buffers.values() if b.storage in _written(plan, group)
    ):
        return False
    threads = plan.dealt[cluster].threads + FETCHING_THREADS
    inside = math.prod(plan.dealt[cluster].shape[1:])
    whole = threads <= _MOST_THREADS and FETCHING_THREADS % inside == 0
    return whole and all(boxes_of(plan.scop.storages[c.storage], c) is not None for c in copies)


def meets_nobody(plan: Plan, mark: str) -> bool:
    """Whether no other threads of a block wait for each other than in the loop around a phase."""
    operation = plan.operations[mark]
    group, _ = home_of(plan, operation.statement)
    marks = {p.mark for p in plan.phases.values() if p.cluster in group.clusters}
    number = f"group{plan.groups.index(group)}"
    places = {place for m in (*marks, number) for place in (m, m + COPIED, m + AHEAD)}
    return places & set(plan.barriers) <= {mark + COPIED, mark + AHEAD}


def feed_by_tensor_copies(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Put barriers between phases; where it pays, or is asked for, let a warp of its own fetch for warpgroups."""
    plan = synchronise(plan, options)
    if options.route not in (None, TENSOR) or not gpu.warpgroups:
        return plan
    for mark, pipeline in plan.pipelines.items():
        pays = options.route == TENSOR or tiles_of_all_loops(plan, mark) >= SHARED.fed_tiles
        if pays and can_be_fed(plan, mark) and meets_nobody(plan, mark):
            copies = tuple(replace(c, route=TENSOR) if c.mark == mark else c for c in plan.copies)
            pipelines = {**plan.pipelines, mark: replace(pipeline, kind=BARRIERS)}
            barriers = {p: b for p, b in plan.barriers.items() if p not in (mark + COPIED, mark + AHEAD)}
            plan = replace(plan, copies=copies, pipelines=pipelines, barriers=barriers)
    return plan


def fed_by_threads(plan: Plan, options: MappingOptions) -> Plan:
    """The same with asynchronous copies of all threads, for devices and arrays that no tensor copy serves."""
    if all(p.kind != BARRIERS for p in plan.pipelines.values()):
        return plan
    copies = tuple(replace(c, route="") for c in plan.copies)
    pipelines = {m: replace(p, kind="") for m, p in plan.pipelines.items()}
    return synchronise(replace(plan, copies=copies, pipelines=pipelines, persistent={}), options)


def _written(plan: Plan, group: Group) -> set[str]:
    return {plan.scop.by_name[s].target for c in group.clusters for s in plan.clusters[c].statements}


def _is_all_of_its_loop(plan: Plan, mark: str) -> bool:
    loop, kinds = loop_of_tiles(plan, mark), isl.schedule_node_type
    child = None if loop is None else loop.child(0)
    return child is not None and child.get_type() == kinds.mark and child.mark_get_id().get_name() == mark
