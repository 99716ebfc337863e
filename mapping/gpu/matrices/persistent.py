"""Blocks that take the tiles of a contraction in turn, as many as the device holds at a time.

A block for each tile begins with copies that nobody waits for yet, and ends with results that leave while nothing is
multiplied.  Where a warp of its own fetches, it runs on into the next tile meanwhile: the ring of stages is one over
all tiles of a block (CUTLASS calls that a persistent kernel).
"""

from __future__ import annotations

import math
from dataclasses import replace

from tcomp.mapping.gpu.matrices.feeding import FETCHING_THREADS
from tcomp.mapping.gpu.memories import shared_bytes
from tcomp.mapping.machines.gpu import RESERVED_SHARED_BYTES, Gpu
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import BARRIERS, Group, Plan
from tcomp.mapping.tiles.footprint import coordinate_set
from tcomp.model.terms.unions import extents


def take_tiles_in_turn(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Let blocks of groups that a warp of their own feeds take tiles until none is left, where there are more tiles."""
    if options.blocks is not None or options.persistent == 0:
        return plan
    found: dict[int, int] = {}
    for mark in fed_phases(plan):
        group, cluster = home_of(plan, plan.operations[mark].statement)
        blocks = options.persistent or _at_a_time(gpu, plan, group, cluster)
        if 0 < blocks < tiles_of(plan, group):
            found[plan.groups.index(group)] = blocks
    return replace(plan, persistent=found) if found else plan


def fed_phases(plan: Plan) -> list[str]:
    """The phases of products whose operands a warp of its own fetches."""
    return sorted(mark for mark, pipeline in plan.pipelines.items() if pipeline.kind == BARRIERS)


def tiles_of(plan: Plan, group: Group) -> int:
    """How many tiles a group has at most: those of a box around its coordinates."""
    whole = extents(coordinate_set(plan.scop, plan.clusters[group.root]))
    return math.prod(-(-whole[m] // size) for m, size in zip(group.members, group.sizes, strict=True))


def _at_a_time(gpu: Gpu, plan: Plan, group: Group, cluster: int) -> int:
    """Blocks that the device holds, if each takes a multiprocessor for itself; 0 where others run beside it.

    Those do what a block in turn does: some fetch while another one stores.
    """
    groups = plan.dealt[cluster].threads // FETCHING_THREADS
    alone = 2 * (shared_bytes(plan, group) + RESERVED_SHARED_BYTES) > gpu.shared_per_multiprocessor
    return gpu.multiprocessors if alone or groups > 1 else 0
