"""Reductions that the threads of a block share: by shuffles in a warp, between warps through shared memory.

Where a language promises no warps, all of it goes through shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tcomp.backends.dialect import C_VALUE_TYPES, bare, combine, constant_text, load, store
from tcomp.backends.gpu.dataranges import range_loop
from tcomp.backends.gpu.lanes import deal_out, described
from tcomp.backends.gpu.loads import gather, gathering
from tcomp.backends.gpu.memory import share
from tcomp.backends.gpu.points import from_zero, guarded, indexes_registers
from tcomp.backends.gpu.statements import assign, assignment, speller
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import Block, Execute, For, If, Let, LoopNode, Scope, Variable, walk
from tcomp.mapping.machines.fitted.gpuloops import UNROLLING
from tcomp.mapping.machines.gpu import WARP
from tcomp.mapping.plan.deals import Phase
from tcomp.values.operators import REDUCTIONS, DType, arithmetic_type


def share_reduction(writer: KernelWriter, node: LoopNode, phase: Phase, depth: int, ranges: Ranges) -> None:
    """Every thread reduces its own steps; then partial results are combined, in the warp and across warps."""
    operation = writer.plan.operations[phase.mark]
    statement = writer.statements[operation.statement]
    dealt = writer.plan.dealt[phase.cluster]
    dtype = writer.plan.scop.storages[statement.target].dtype
    reduction = statement.reduction
    assert reduction is not None
    element = C_VALUE_TYPES[dtype.name]
    identity = constant_text(REDUCTIONS[reduction].identity(dtype), dtype, writer.dialect)
    part = writer.fresh(f"{writer.program.dialect.name(statement.target)}_part")
    writer.put(depth, f"// {described(writer, node, phase, f', {dealt.group} to an element')}")
    writer.put(depth, f"{element} {part} = {bare(identity)};")

    def accumulate(body: LoopNode, depth: int, ranges: Ranges) -> None:
        _accumulate(writer, body, part, depth, ranges)

    deal_out(writer, node, phase, depth, ranges, accumulate)
    shared = _Shared(writer, statement.name, reduction, dtype, part, dealt.group)
    warps = shared.by_shuffles(depth, phase) if writer.dialect.lanes else shared.in_memory(depth)
    if warps and phase.everywhere:
        shared.in_all_warps(warps, depth)
        warps = ""

    def finish(body: LoopNode, depth: int, ranges: Ranges) -> None:
        if warps:
            shared.across_warps(warps, depth)
        start = next(n for n in walk(body) if isinstance(n, Execute))
        own = speller(writer, start, ranges)
        target = own.target(statement.target, writer.statements[start.statement].subscripts)
        value = combine(reduction, load(target, dtype, writer.dialect), part, dtype)
        assign(writer, depth, own, target, store(bare(value), dtype, writer.dialect), statement.name)

    # The result goes to every element that was started: guards on steps would leave some out, or none at all.
    started, starting = writer.starts[statement.target]
    deal_out(writer, started, starting, depth, ranges, finish)


@dataclass(frozen=True, slots=True)
class _Shared:
    """How ``group`` neighbouring threads combine what each of them has in ``part``, which ends in all of them."""

    writer: KernelWriter
    statement: str
    reduction: str
    dtype: DType
    part: str
    group: int

    def by_shuffles(self, depth: int, phase: Phase) -> str:
        """In a warp; the name of an array in shared memory with the results of warps, where there are several."""
        writer, lanes = self.writer, self.writer.dialect.lanes
        width, working = min(self.group, lanes), math.prod(phase.shape)
        if width > 1:
            writer.uses_thread = writer.uses_thread or writer.dialect.names_thread(width, writer.threads)
            other = writer.dialect.shuffled(self.part, self.dtype, width, writer.threads)
            idle = working < writer.threads and writer.threads % lanes
            writer.uses_thread = writer.uses_thread or bool(idle)
            guard = f"if (thread < {working}) " if idle else ""
            loop = f"for (int lane = {width // 2}; lane > 0; lane /= 2)"
            writer.put(depth, f"{guard}{loop} {self._taken(other)}")
        if self.group <= lanes:
            if self.group > WARP:
                # The plan takes this for more than a warp, and so for a barrier.
                writer.put(depth, writer.barrier("block"))
            return ""
        warps = self._array(f"{self._target}_of_warp", -(-writer.threads // lanes))
        writer.put(depth, f"if (thread % {lanes} == 0) {warps}[thread / {lanes}] = {self.part};")
        writer.at(self.statement)
        writer.put(depth, writer.barrier("block"))
        return warps

    def across_warps(self, warps: str, depth: int) -> None:
        """The results of the warps of a group, whose first thread has that of its own."""
        lanes = self.writer.dialect.lanes
        number = "warp" if self.group == self.writer.threads else f"thread / {lanes} + warp"
        loop = f"for (int warp = 1; warp < {self.group // lanes}; ++warp)"
        self.writer.put(depth, f"{loop} {self._taken(f'{warps}[{number}]')}")
        self.writer.at(self.statement)

    def in_all_warps(self, warps: str, depth: int) -> None:
        """The results of the warps of a group, combined by each of them for itself, in one order."""
        lanes, writer = self.writer.dialect.lanes, self.writer
        count = self.group // lanes
        first = "" if self.group == writer.threads else f"thread / {self.group} * {count} + "
        writer.put(depth, f"{self.part} = {warps}[{first}thread % {count}];")
        writer.at(self.statement)
        if count > 1:
            other = writer.dialect.shuffled(self.part, self.dtype, count, writer.threads)
            writer.put(depth, f"for (int lane = {count // 2}; lane > 0; lane /= 2) {self._taken(other)}")

    def in_memory(self, depth: int) -> str:
        """In shared memory alone, half as many threads in each round: for languages that promise no warps.

        All reductions of a type use one array: in front of each the threads wait until the one before was read.
        """
        if self.group == 1:
            return ""
        writer, element = self.writer, C_VALUE_TYPES[self.dtype.name]
        if element not in writer.exchanged:
            writer.exchanged[element] = self._array(f"{element.replace(' ', '_')}_parts", writer.threads)
        parts = writer.exchanged[element]
        barrier = writer.barrier("block")
        writer.put(depth, barrier)
        writer.put(depth, f"{parts}[thread] = {self.part};")
        writer.at(self.statement)
        writer.put(depth, barrier)
        writer.put(depth, f"for (int apart = {self.group // 2}; apart > 0; apart /= 2) {{")
        own = "thread" if self.group == writer.threads else f"thread % {self.group}"
        writer.put(depth + 1, f"if ({own} < apart) {parts}[thread] = {self.part} = "
                   f"{bare(combine(self.reduction, self.part, f'{parts}[thread + apart]', self.dtype))};")  # fmt: skip
        writer.at(self.statement)
        writer.put(depth + 1, barrier)
        writer.put(depth, "}")
        first = "0" if self.group == writer.threads else f"thread / {self.group} * {self.group}"
        writer.put(depth, f"{self.part} = {parts}[{first}];")
        return ""

    @property
    def _target(self) -> str:
        return self.writer.dialect.name(self.writer.statements[self.statement].target)

    def _array(self, name: str, extent: int) -> str:
        writer = self.writer
        own = writer.fresh(name)
        share(writer, C_VALUE_TYPES[self.dtype.name], own, (extent,), arithmetic_type(self.dtype).itemsize)
        writer.uses_thread = True
        return own

    def _taken(self, other: str) -> str:
        return assignment(self.part, bare(combine(self.reduction, self.part, other, self.dtype)))


def _accumulate(writer: KernelWriter, node: LoopNode, part: str, depth: int, ranges: Ranges) -> None:
    match node:
        case Block():
            for child in node.children:
                _accumulate(writer, child, part, depth, ranges)
        case For():
            with gathering(writer):
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

    def below(node: LoopNode, depth: int, ranges: Ranges) -> None:
        _accumulate(writer, node, part, depth, ranges)

    if isinstance(node.lower, Variable) and node.lower.name in writer.ranges:
        range_loop(writer, node, writer.ranges[node.lower.name], depth, ranges, below)
        return
    node = from_zero(writer, node, ranges)
    low, high = ranges.bounds(node.lower), ranges.bounds(node.upper)
    gather(writer, node, depth, ranges)
    trips = None if low is None or high is None or node.step != 1 else high[1] - low[0]
    most = UNROLLING.longest if indexes_registers(writer, node) else UNROLLING.few_trips
    if low is not None and high is not None and trips is not None and trips <= most:
        writer.put(depth, "#pragma unroll")
        node = guarded(node, low[0], high[1], ranges)
    elif any(
        writer.statements[n.statement].reduction in ("min", "max") for n in walk(node.body) if isinstance(n, Execute)
    ):
        writer.put(depth, f"#pragma unroll {UNROLLING.extrema_together}")
    writer.loop(node, depth, ranges, below)
