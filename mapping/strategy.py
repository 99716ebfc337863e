"""THE PASS LISTS: what each kind of target does to a plan, in order.

For every target the plan that comes in has clusters, each scheduled by isl in the sunk form
(``mapping/plan/schedule.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tcomp.errors import PlanError
from tcomp.mapping.cpu.buffers import place_buffers
from tcomp.mapping.cpu.fusion import cpu_tiling
from tcomp.mapping.cpu.hiding import hide_steps
from tcomp.mapping.cpu.nests import nest_clusters
from tcomp.mapping.cpu.packing import pack_panels
from tcomp.mapping.cpu.rescaling import rescale_weights
from tcomp.mapping.cpu.seeking import seek_in_parts
from tcomp.mapping.cpu.sharing import share_reductions
from tcomp.mapping.fusion.distributing import distribute_terms
from tcomp.mapping.fusion.groups import fuse
from tcomp.mapping.fusion.inlining import inline_producers
from tcomp.mapping.fusion.merging import merge_indices
from tcomp.mapping.fusion.mirroring import mirror_products
from tcomp.mapping.fusion.outlining import outline_invariants
from tcomp.mapping.gpu.apart import accumulate_apart
from tcomp.mapping.gpu.matrices.feeding import feed_by_tensor_copies
from tcomp.mapping.gpu.matrices.persistent import take_tiles_in_turn
from tcomp.mapping.gpu.matrices.turning import turn_weights
from tcomp.mapping.gpu.matrices.units import use_matrix_units
from tcomp.mapping.gpu.memories import place_in_memories
from tcomp.mapping.gpu.parts import split_reductions
from tcomp.mapping.gpu.phases import deal_to_threads
from tcomp.mapping.gpu.pipelines import pipeline_fetches
from tcomp.mapping.gpu.promotion import promote_to_shared
from tcomp.mapping.gpu.rows.keeping import keep_rows
from tcomp.mapping.gpu.rows.results import keep_results
from tcomp.mapping.gpu.tiles import gpu_tiling, order_blocks
from tcomp.mapping.gpu.turns.groups import run_in_turns
from tcomp.mapping.gpu.turns.keys import formed_groups, share_keys
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputext import THREADS
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.memory.overhang import overhang_diagonals
from tcomp.mapping.memory.runningagain import shift_last_tiles
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.atomics import meet_in_elements
from tcomp.mapping.tiles.sweeps import sweep_on_gpu, sweep_on_processor


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of a strategy: its name in dumps, and the function that makes the next plan.

    ``plants`` says that it makes the tree anew, from clusters and groups alone.
    """

    name: str
    run: Callable[[Plan, MappingOptions], Plan]
    plants: bool = False


def cpu_passes(machine: Machine) -> tuple[Pass, ...]:
    """The passes of the CPU target."""
    return (
        Pass("atomics", functools.partial(meet_in_elements, machine.atomic_words, THREADS.atomic), plants=True),
        Pass("sweep", functools.partial(sweep_on_processor, machine), plants=True),
        Pass("distribute", distribute_terms, plants=True),
        Pass("hide", functools.partial(hide_steps, machine), plants=True),
        Pass("merge", functools.partial(merge_indices, machine), plants=True),
        Pass("mirror", mirror_products, plants=True),
        Pass("outline", functools.partial(outline_invariants, machine), plants=True),
        Pass("inline", functools.partial(inline_producers, machine), plants=True),
        Pass("rescale", functools.partial(rescale_weights, machine), plants=True),
        Pass("seek", seek_in_parts, plants=True),
        Pass("share", functools.partial(share_reductions, machine), plants=True),
        Pass("fuse", functools.partial(fuse, cpu_tiling(machine)), plants=True),
        Pass("nest", functools.partial(nest_clusters, machine), plants=True),
        Pass("place", functools.partial(place_buffers, machine)),
        Pass("pack", functools.partial(pack_panels, machine)),
        Pass("overhang", whole_tiles),
    )


def whole_tiles(plan: Plan, options: MappingOptions) -> Plan:
    """Let register tiles be whole on diagonals and at the end of a column, where they may."""
    return shift_last_tiles(overhang_diagonals(plan, options), options)


@dataclass(frozen=True, slots=True)
class Resumption:
    """What is left to do for a plan that was changed by hand; ``buffered`` says that it must have its buffers."""

    rest: tuple[Pass, ...]
    buffered: bool


def resume(stage: str, passes: tuple[Pass, ...]) -> Resumption:
    """How to go on from a plan that stood after the pass ``stage``.

    Raises PlanError unless that is a pass behind which the tree stays as it is.  The first of those behind it gives
    temporaries their buffers.
    """
    names = [p.name for p in passes]
    last = max(0, len(planting(passes)) - 1)
    if stage not in names[last:]:
        raise PlanError(f"a plan for this target is read after the pass {' or '.join(names[last:])}, not {stage!r}")
    return Resumption(passes[names.index(stage) + 1 :], stage != names[last])


def planting(passes: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """The passes up to the last one that makes the tree anew."""
    return passes[: max((n for n, p in enumerate(passes, 1) if p.plants), default=0)]


def gpu_passes(gpu: Gpu) -> tuple[Pass, ...]:
    """The passes of the GPU targets; the numbers are those of Tensor Comprehensions' strategy.

    Let long rows of weights pass by, or share those of few queries between blocks, copy weights of convolutions into
    another order, split reductions between blocks, tile (3), accumulate apart what leaves a kernel, keep rows that are
    read again, deal loops to threads (4, 6), keep temporaries in registers and shared memory (9), and results in all
    threads of a row, fetch operands into shared memory (8), multiply matrices by warps, fetch ahead, order blocks,
    synchronise.
    Tiles are mapped to blocks (7) when kernels are cut from the tree.
    """
    return (
        Pass("atomics", functools.partial(meet_in_elements, gpu.atomic_words, gpu.all_threads), plants=True),
        Pass("sweep", functools.partial(sweep_on_gpu, gpu), plants=True),
        Pass("turns", functools.partial(run_in_turns, gpu), plants=True),
        Pass("keys", functools.partial(share_keys, gpu), plants=True),
        Pass("weights", functools.partial(turn_weights, gpu), plants=True),
        Pass("split", functools.partial(split_reductions, gpu), plants=True),
        Pass("tile", functools.partial(fuse, gpu_tiling(gpu), formed=formed_groups), plants=True),
        Pass("apart", accumulate_apart, plants=True),
        Pass("rows", functools.partial(keep_rows, gpu), plants=True),
        Pass("threads", functools.partial(deal_to_threads, gpu), plants=True),
        Pass("memories", functools.partial(place_in_memories, gpu)),
        Pass("results", keep_results),
        Pass("promotion", functools.partial(promote_to_shared, gpu)),
        Pass("atoms", functools.partial(use_matrix_units, gpu)),
        Pass("pipelines", functools.partial(pipeline_fetches, gpu)),
        Pass("order", functools.partial(order_blocks, gpu)),
        Pass("barriers", functools.partial(_synchronise, gpu)),
    )


def _synchronise(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Put barriers between phases, or let a warp of its own fetch for blocks that take tiles in turn."""
    return take_tiles_in_turn(gpu, feed_by_tensor_copies(gpu, plan, options), options)
