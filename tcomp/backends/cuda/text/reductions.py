"""Reductions that the threads of a block share, by shuffles in a warp and through shared memory between warps."""

from __future__ import annotations

import math

from tcomp.backends.cuda.text.lanes import deal_out, described
from tcomp.backends.cuda.text.memory import share
from tcomp.backends.cuda.text.points import from_zero, guarded, indexes_registers
from tcomp.backends.cuda.text.spelling import CUDA_C
from tcomp.backends.cuda.text.statements import assign, assignment, speller
from tcomp.backends.cuda.text.writer import KernelWriter
from tcomp.backends.dialect import C_VALUE_TYPES, bare, combine, constant_text, load, store
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import Block, Execute, For, If, Let, LoopNode, Scope, walk
from tcomp.mapping.machines.fitted.gpu import UNROLLING
from tcomp.mapping.machines.gpu import WARP
from tcomp.mapping.plan.values import Phase
from tcomp.values.operators import REDUCTIONS, DType, arithmetic_type

FULL_MASK = "0xffffffffu"


def share_reduction(writer: KernelWriter, node: LoopNode, phase: Phase, depth: int, ranges: Ranges) -> None:
    """Every thread reduces its own steps; then partial results are combined, in the warp and across warps."""
    operation = writer.plan.operations[phase.mark]
    statement = writer.statements[operation.statement]
    dealt = writer.plan.dealt[phase.cluster]
    dtype = writer.plan.scop.storages[statement.target].dtype
    reduction = statement.reduction
    assert reduction is not None
    element = C_VALUE_TYPES[dtype.name]
    identity = constant_text(REDUCTIONS[reduction].identity(dtype), dtype, CUDA_C)
    part = writer.fresh(f"{writer.program.dialect.name(statement.target)}_part")
    writer.put(depth, f"// {described(writer, node, phase, f', {dealt.group} to an element')}")
    writer.put(depth, f"{element} {part} = {bare(identity)};")

    def accumulate(body: LoopNode, depth: int, ranges: Ranges) -> None:
        _accumulate(writer, body, part, depth, ranges)

    deal_out(writer, node, phase, depth, ranges, accumulate)
    group = dealt.group
    width = min(group, WARP)
    if width > 1:
        other = _shuffled(part, dtype, _mask(writer, width))
        value = combine(reduction, part, other, dtype)
        idle = math.prod(phase.shape) < writer.threads and writer.threads % WARP
        writer.uses_thread = writer.uses_thread or bool(idle)
        guard = f"if (thread < {math.prod(phase.shape)}) " if idle else ""
        loop = f"for (int lane = {width // 2}; lane > 0; lane /= 2)"
        writer.put(depth, f"{guard}{loop} {assignment(part, bare(value))}")
    warps = ""
    if group > WARP:
        warps = writer.fresh(f"{writer.program.dialect.name(statement.target)}_of_warp")
        share(writer, element, warps, (-(-writer.threads // WARP),), arithmetic_type(dtype).itemsize)
        writer.uses_thread = True
        writer.put(depth, f"if (thread % {WARP} == 0) {warps}[thread / {WARP}] = {part};")
        writer.at(statement.name)
        writer.put(depth, "__syncthreads();")

    def finish(body: LoopNode, depth: int, ranges: Ranges) -> None:
        if warps:
            value = combine(
                reduction, part, f"{warps}[{'warp' if group == writer.threads else f'thread / {WARP} + warp'}]", dtype
            )
            writer.put(depth, f"for (int warp = 1; warp < {group // WARP}; ++warp) {assignment(part, bare(value))}")
            writer.at(statement.name)
        start = next(n for n in walk(body) if isinstance(n, Execute))
        own = speller(writer, start, ranges)
        target = own.target(statement.target, writer.statements[start.statement].subscripts)
        value = combine(reduction, load(target, dtype, CUDA_C), part, dtype)
        assign(writer, depth, own, target, store(bare(value), dtype, CUDA_C), statement.name)

    # The result goes to every element that was started: guards on steps would leave some out, or none at all.
    started, starting = writer.starts[statement.target]
    deal_out(writer, started, starting, depth, ranges, finish)


def _mask(writer: KernelWriter, width: int) -> str:
    if writer.threads % WARP == 0 or width == WARP:
        return FULL_MASK
    writer.uses_thread = True
    return f"0x{(1 << width) - 1:x}u << (thread % {WARP} / {width} * {width})"


def _accumulate(writer: KernelWriter, node: LoopNode, part: str, depth: int, ranges: Ranges) -> None:
    match node:
        case Block():
            for child in node.children:
                _accumulate(writer, child, part, depth, ranges)
        case For():
            _step_loop(writer, node, part, depth, ranges)
        case Let():
            writer.let(node, depth, ranges, lambda n, d, r: _accumulate(writer, n, part, d, r))
        case If():
            writer.branch(node, depth, ranges, lambda n, d, r: _accumulate(writer, n, part, d, r))
        case Scope():
            _accumulate(writer, node.body, part, depth, ranges)
        case Execute():
            statement = writer.statements[node.statement]
            dtype = writer.plan.scop.storages[statement.target].dtype
            own = speller(writer, node, ranges)
            assert statement.reduction is not None
            value = combine(statement.reduction, part, own.value(statement.value), dtype)
            assign(writer, depth, own, part, bare(value), statement.name)


def _step_loop(writer: KernelWriter, node: For, part: str, depth: int, ranges: Ranges) -> None:
    """A loop over the steps of one thread; a short one is unrolled, so that its loads go out together."""
    node = from_zero(writer, node, ranges)
    low, high = ranges.bounds(node.lower), ranges.bounds(node.upper)
    trips = None if low is None or high is None or node.step != 1 else high[1] - low[0]
    most = UNROLLING.longest if indexes_registers(writer, node) else UNROLLING.few_trips
    if low is not None and high is not None and trips is not None and trips <= most:
        writer.put(depth, "#pragma unroll")
        node = guarded(node, low[0], high[1], ranges)
    elif any(
        writer.statements[n.statement].reduction in ("min", "max") for n in walk(node.body) if isinstance(n, Execute)
    ):
        writer.put(depth, f"#pragma unroll {UNROLLING.extrema_together}")
    writer.loop(node, depth, ranges, lambda n, d, r: _accumulate(writer, n, part, d, r))


def _shuffled(part: str, dtype: DType, mask: str) -> str:
    if dtype.is_float or dtype.bits >= 32:
        return f"__shfl_xor_sync({mask}, {part}, lane)"
    return f"(({C_VALUE_TYPES[dtype.name]})__shfl_xor_sync({mask}, (int){part}, lane))"
