"""What there is to compare of one mapping: its loops, its text, what it takes, what it moves, how long it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import islpy as isl
import numpy as np

from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.cuda.tools.occupancy import occupancy
from tcomp.backends.hip.compiler import assemble, kernels_in
from tcomp.backends.simulator.cost import kernel_seconds
from tcomp.backends.simulator.simulation import Settings
from tcomp.commands.inputs.programs import Program
from tcomp.commands.simulate import arrays_of, points_of, simulated
from tcomp.commands.terminal.machinecode import architecture_of
from tcomp.driver import Compilation
from tcomp.errors import TargetError
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.memory.places import own_element, places
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.flops import flops_of
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.madeup import random_arguments
from tcomp.model.terms.unions import extents
from tcomp.runtime.kernel import Kernel
from tcomp.tuner.measuring.timing import sampled, stopwatch_of

_BLOCKS = 4
"""Blocks of each kernel that are simulated; counts are scaled."""


@dataclass(frozen=True, slots=True)
class Side:
    """One mapping: what it is called, its loops in one line and in full, its text, and ``facts``: what, value, unit."""

    name: str
    options: str
    nest: str
    loops: str
    text: str
    facts: tuple[tuple[str, float, str], ...]


def side_of(name: str, program: Program, sizes: Mapping[str, int], target: str, timed: bool) -> Side:
    """Compile a mapping and look at it; run it only if it is to be ``timed``.  Raises TcompError."""
    specialisation = program.specialised(sizes, target)
    compilation = specialisation.lower()
    architecture = architecture_of(target)
    steps = program.operation.function.recurs
    facts = [*(_of_pieces(compilation) if steps else _of_plan(compilation)), *_of_text(compilation)]
    if specialisation.target.startswith("hip:"):
        facts += _of_amd(compilation, specialisation.target.partition(":")[2])
    elif architecture is None:
        if not steps:
            facts += [("bytes that tiles touch", _touched(compilation.plan), "B")]
        if timed:
            facts += [("time of a call", _seconds(Kernel(specialisation), program, sizes), "s")]
    else:
        facts += _of_device(compilation, architecture)
        if timed:
            facts += _simulated(compilation, program, sizes, architecture)
    text = specialisation.options.to_text() or "all at their defaults"
    nest = "; ".join(f"{head} {nest}".strip() for head, _, nest in compilation.parts)
    return Side(name, text, nest, compilation.stages["loops"], compilation.source.text, tuple(facts))


def _of_plan(compilation: Compilation) -> Iterator[tuple[str, float, str]]:
    plan = compilation.plan
    yield "nests", len(plan.nests), ""
    yield "floating-point operations", sum(flops_of(plan).values()), ""
    kept = [b for b in plan.buffers.values() if b.space != "global"]
    yield "bytes of temporaries in memory", sum(b.bytes for b in plan.buffers.values() if b.space == "global"), "B"
    yield "bytes of temporaries in tiles", sum(b.bytes for b in kept if b.space not in ("register", "private")), "B"
    yield "bytes of copies", sum(c.bytes for c in plan.copies), "B"


def _of_pieces(compilation: Compilation) -> Iterator[tuple[str, float, str]]:
    """Of a program that runs step by step, whose pieces have plans of their own."""
    plans = [plan for _, plan, _ in compilation.parts]
    yield "pieces", len(plans), ""
    yield "nests", sum(len(plan.nests) for plan in plans), ""
    if compilation.source.turns is not None:
        yield "launches", len(compilation.source.turns), ""


def _of_text(compilation: Compilation) -> Iterator[tuple[str, float, str]]:
    source = compilation.source
    yield "scratch memory", source.scratch_bytes, "B"
    yield "lines of text", source.text.count("\n"), ""
    yield "time to compile the plan", sum(compilation.seconds.values()), "s"


def _of_device(compilation: Compilation, architecture: str) -> Iterator[tuple[str, float, str]]:
    """Blocks and threads, and, where there is NVRTC, registers, shared memory and occupancy of each kernel."""
    source, gpu = compilation.source, gpu_of(architecture)
    try:
        image = compile_image(source, architecture)
    except TargetError:
        image = None
    for launch in source.launches:
        threads = math.prod(launch.block)
        yield f"{launch.kernel}: blocks", math.prod(launch.grid), ""
        yield f"{launch.kernel}: threads of a block", threads, ""
        if image is not None:
            found = image.kernel(launch.kernel)
            shared = found.shared_bytes + launch.shared_bytes
            yield f"{launch.kernel}: registers", found.registers, ""
            yield f"{launch.kernel}: shared memory", shared, "B"
            yield f"{launch.kernel}: bytes spilled", found.spill_stores + found.spill_loads, "B"
            resident = occupancy(gpu, threads, found.registers, shared)
            yield f"{launch.kernel}: occupancy", 100 * resident.fraction, "%"


def _of_amd(compilation: Compilation, architecture: str) -> Iterator[tuple[str, float, str]]:
    """Blocks, threads and, where there is clang, registers and memory of each kernel; no device is here to time it."""
    source = compilation.source
    try:
        found = {kernel.name: kernel for kernel in kernels_in(assemble(source, architecture))}
    except TargetError:
        found = {}
    for launch in source.launches:
        yield f"{launch.kernel}: blocks", math.prod(launch.grid), ""
        yield f"{launch.kernel}: threads of a block", math.prod(launch.block), ""
        if launch.kernel in found:
            kernel = found[launch.kernel]
            yield f"{launch.kernel}: vector registers", kernel.vector_registers, ""
            yield f"{launch.kernel}: shared memory", kernel.shared_bytes + launch.shared_bytes, "B"
            yield f"{launch.kernel}: registers spilled", kernel.spilled, ""


def _simulated(
    compilation: Compilation, program: Program, sizes: Mapping[str, int], architecture: str
) -> Iterator[tuple[str, float, str]]:
    """Traffic and bank conflicts as the simulator counts them in some blocks, and the time that they would take."""
    function, gpu = program.operation.function, gpu_of(architecture)
    arguments = random_arguments(function, infer(function, sizes), 0)
    arrays = arrays_of(compilation.source, function, arguments)
    report = simulated(compilation.source, function, arrays, Settings("forward", 0, counting=True, blocks=_BLOCKS))
    points = points_of(compilation, report.kernels)
    for launch, counts, point in zip(compilation.source.launches, report.kernels, points, strict=True):
        yield f"{launch.kernel}: bytes moved", point.bytes, "B"
        conflicts = sum(a.conflicts for a in counts.accesses if a.space == "shared")
        yield f"{launch.kernel}: bank conflicts", conflicts, ""
        if not function.recurs:
            yield f"{launch.kernel}: estimated time", kernel_seconds(gpu, launch, counts, point.flops), "s"


def _touched(plan: Plan) -> int:
    """Bytes of tensors in memory that tiles touch, each tile by itself, as boxes."""
    total = 0
    for place in places(plan.tree):
        if not place.mark.startswith("group"):
            continue
        hulls: dict[str, tuple[int, int]] = {}
        for name, prefix in place.prefixes.items():
            statement = plan.scop.by_name[name]
            tiles = math.prod(extents(prefix.range())) if not prefix.is_empty() else 0
            for access in (statement.write, *statement.all_reads):
                storage = plan.scop.storages[access.get_tuple_name(isl.dim_type.out)]
                held = plan.buffers.get(storage.name)
                if held is not None and held.space != "global":
                    continue
                relation = own_element(prefix.reverse().apply_range(access), len(storage.box.extent))
                if not relation.is_empty():
                    size = tiles * math.prod(box_hull(relation).shape) * storage.dtype.itemsize
                    hulls[storage.name] = max(hulls.get(storage.name, (0, 0)), (size, tiles))
        total += sum(size for size, _ in hulls.values())
    return total


def _seconds(kernel: Kernel, program: Program, sizes: Mapping[str, int]) -> float:
    """The median time of a call on made-up arrays."""
    function = program.operation.function
    arguments = random_arguments(function, infer(function, sizes), 0)
    out = arguments.fresh_contents() or None
    return float(np.median(sampled(stopwatch_of(lambda: kernel(*arguments.values, out=out)))))
