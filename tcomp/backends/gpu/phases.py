"""The phases of a kernel: control flow down to them, and the point loops of each thread in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcomp.backends.gpu.dataranges import range_loop
from tcomp.backends.gpu.fetches.boxes import fetch
from tcomp.backends.gpu.fetches.feeding import FedLoop, Feeding
from tcomp.backends.gpu.fetches.pipeline import Pipelined, pipelined_phases
from tcomp.backends.gpu.fetches.prefetch import Ahead, copies_ahead
from tcomp.backends.gpu.lanes import deal_out, described
from tcomp.backends.gpu.loads import gather, gathering
from tcomp.backends.gpu.matrices.quads import store_by_quads, stored_by_quads
from tcomp.backends.gpu.matrices.warps import GROUPS, MATRICES, in_groups, multiplies, multiply_matrices
from tcomp.backends.gpu.memory import declare
from tcomp.backends.gpu.overhang import WHOLE, overhung
from tcomp.backends.gpu.points import from_zero, guarded, indexes_registers
from tcomp.backends.gpu.reductions import share_reduction
from tcomp.backends.gpu.statements import execute
from tcomp.backends.gpu.stores import Together, store_together, stored_together
from tcomp.backends.gpu.turns import turns_of_tile
from tcomp.backends.gpu.writer import Body, KernelWriter
from tcomp.grammar.tree.function import Read, depends_on_data
from tcomp.grammar.tree.function import walk as walk_expression
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import (
    Block,
    Execute,
    For,
    If,
    Let,
    LoopNode,
    Operation,
    Scope,
    Variable,
    walk,
)
from tcomp.mapping.gpu.barriers import COPIED
from tcomp.mapping.machines.fitted.gpuloops import UNROLLING
from tcomp.mapping.plan.deals import Phase


class PhaseWriter:
    """Writes everything below the tile of a block."""

    def __init__(self, writer: KernelWriter, feeding: Feeding | None = None) -> None:
        self.writer = writer
        self.feeding = feeding
        self.ahead: dict[str, Ahead] = {}
        self.pipelined: dict[str, Pipelined | FedLoop] = {}
        self._whole: dict[str, Scope | None] = {}
        self._dealt: LoopNode | None = None

    def uniform(self, node: LoopNode, depth: int, ranges: Ranges) -> None:
        match node:
            case Block():
                for child in node.children:
                    self.uniform(child, depth, ranges)
            case For():
                node, ranges = turns_of_tile(self.writer, node, depth, ranges)
                pipelined = self._prefetched(node, depth, ranges)
                node = self._unrolled_rounds(node, depth, ranges)
                self.writer.loop(node, depth, ranges, self.uniform, _band_comment(node, self.writer.plan.phases))
                for own in pipelined:
                    own.finish(depth)
            case Let():
                self.writer.let(node, depth, ranges, self.uniform)
            case If():
                self.writer.branch(node, depth, ranges, self.uniform)
            case Scope() if node.name in self.writer.plan.phases:
                self._phase(node, self.writer.plan.phases[node.name], depth, ranges)
            case Scope():
                self._declaring(node, depth, ranges, self.uniform)
            case Execute():
                raise AssertionError(f"{node.statement} is outside every phase")

    def _unrolled_rounds(self, node: For, depth: int, ranges: Ranges) -> For:
        """A loop over rounds, to be unrolled where it runs over elements that threads keep in registers."""
        low, high = ranges.bounds(node.lower), ranges.bounds(node.upper)
        if low is None or high is None or node.step != 1 or high[1] - low[0] > UNROLLING.longest:
            return node
        if any(isinstance(n, Scope) and n.name in self.writer.plan.pipelines for n in walk(node.body)):
            return node
        if any(n.name.startswith("turn") for n in walk(node.body) if isinstance(n, Scope)):
            return node
        if not indexes_registers(self.writer, node):
            return node
        self.writer.put(depth, "#pragma unroll")
        return guarded(node, low[0], high[1], ranges)

    def _prefetched(self, node: For, depth: int, ranges: Ranges) -> Sequence[Pipelined | FedLoop]:
        """In front of a loop whose iterations fetch: ask for what the first one needs.  The pipelines of its phases."""
        fed = None if self.feeding is None else self.feeding.at(node, ranges)
        if fed is not None:
            self.pipelined[fed.feeding.mark] = fed
            return [fed]
        phases, phase = pipelined_phases(self.writer, node), node.body
        copies = [] if phases else copies_ahead(self.writer, node, ranges)
        if phases:
            found = Pipelined.begin(self.writer, node, phases, depth, ranges)
            self.pipelined |= found
            return list(found.values())
        if copies:
            assert isinstance(phase, Scope)
            filled = self._filled(phase, ranges)
            self.ahead[phase.name] = Ahead(self.writer, node, copies, phase.around, filled)
            self.ahead[phase.name].begin(depth, ranges)
        return []

    def _filled(self, node: Scope, ranges: Ranges) -> bool:
        """Whether what lies outside of a tensor must be zeros in copies at a phase."""
        matrices = multiplies(self.writer, self.writer.plan.phases[node.name])
        return matrices or self._in_whole_tiles(node, ranges) is not None

    def _in_whole_tiles(self, node: Scope, ranges: Ranges) -> Scope | None:
        """A phase whose threads compute whole tiles though some are torn; None if it cannot be, or if none is."""
        if node.name not in self._whole:
            self._whole[node.name] = overhung(self.writer, node, self.writer.plan.phases[node.name], ranges)
        return self._whole[node.name]

    def _declaring(self, node: Scope, depth: int, ranges: Ranges, body: Body) -> None:
        """What is below a mark, with the buffers that are declared there in force."""
        before, fetched = dict(self.writer.locals), self.writer.fetched
        for buffer in self.writer.plan.buffers.values():
            if buffer.mark == node.name:
                declare(self.writer, buffer, node.around, depth)
        for copy in self.writer.plan.copies:
            if copy.mark == node.name:
                made = fetch(self.writer, copy, node.around, depth, ranges, True)
                self.writer.fetched = (*self.writer.fetched, made)
        self._barrier(node.name + COPIED, depth)
        body(node.body, depth, ranges)
        self.writer.locals, self.writer.fetched = before, fetched

    def _phase(self, node: Scope, phase: Phase, depth: int, ranges: Ranges) -> None:
        self._barrier(phase.mark, depth)
        for instance in (n for n in walk(node.body) if isinstance(n, Execute)):
            if self.writer.statements[instance.statement].kind == "init":
                self.writer.starts[self.writer.statements[instance.statement].target] = (node.body, phase)
        before, ahead = self.writer.fetched, self.ahead.pop(phase.mark, None)
        whole = self._in_whole_tiles(node, ranges)
        pipelined = self.pipelined.pop(phase.mark, None)
        if pipelined is not None:
            self.writer.fetched = (*self.writer.fetched, *pipelined.arrive(depth))
        elif phase.mark in self.writer.plan.pipelines:
            # One tile alone, which is no loop.
            self.writer.put(depth, self.writer.barrier("block"))
        for copy in self.writer.plan.copies:
            if copy.mark == phase.mark and pipelined is None:
                if ahead is None:
                    fetched = fetch(self.writer, copy, node.around, depth, ranges, self._filled(node, ranges))
                else:
                    fetched = ahead.arrive(copy, depth, ranges)
                self.writer.fetched = (*self.writer.fetched, fetched)
        if in_groups(self.writer, phase) and not isinstance(pipelined, FedLoop):
            self.writer.put(depth, "tc_proxy_fence();")
        self._barrier(phase.mark + COPIED, depth)
        for prefetch in (ahead, pipelined):
            if prefetch is not None:
                prefetch.ask_for_next(depth, ranges)
        node = whole or node
        if multiplies(self.writer, phase):
            who = GROUPS if in_groups(self.writer, phase) else MATRICES
            self.writer.put(depth, f"// {described(self.writer, node, phase, who)}")
            flight = 0 if pipelined is None else pipelined.pipeline.flight
            multiply_matrices(self.writer, node.body, phase, depth, flight)
        elif phase.mark in self.writer.plan.operations:
            share_reduction(self.writer, node.body, phase, depth, ranges)
        else:
            self.writer.put(depth, f"// {described(self.writer, node, phase, WHOLE if whole else '')}")
            self._dealt = node.body if phase.shape == self.writer.shape else None
            deal_out(self.writer, node.body, phase, depth, ranges, self._serial)
        if pipelined is not None:
            pipelined.leave(depth)
        self.writer.fetched = before

    def _barrier(self, place: str, depth: int) -> None:
        level = self.writer.plan.barriers.get(place)
        if level is not None and self.writer.threads > 1:
            self.writer.put(depth, self.writer.barrier(level))

    def _serial(self, node: LoopNode, depth: int, ranges: Ranges) -> None:
        match node:
            case Block():
                for child in node.children:
                    self._serial(child, depth, ranges)
            case For():
                with gathering(self.writer):
                    self._point_loop(node, depth, ranges)
            case Let():
                self.writer.let(node, depth, ranges, self._serial)
            case If():
                self.writer.branch(node, depth, ranges, self._serial)
            case Scope():
                self._declaring(node, depth, ranges, self._serial)
            case Execute():
                execute(self.writer, node, depth, ranges)

    def _point_loop(self, node: For, depth: int, ranges: Ranges) -> None:
        """A loop in one thread; unrolled with its guard inside where it runs over elements that the thread keeps."""
        if isinstance(node.lower, Variable) and node.lower.name in self.writer.ranges:
            range_loop(self.writer, node, self.writer.ranges[node.lower.name], depth, ranges, self._serial)
            return
        node = from_zero(self.writer, node, ranges)
        low, high = ranges.bounds(node.lower), ranges.bounds(node.upper)
        if low is not None and high is not None and node.step == 1:
            constant = low[0] == low[1] and high[0] == high[1]
            trips = max(0, high[1] - low[0])
            gather(self.writer, node, depth, ranges)
            torn = node if constant else guarded(node, low[0], high[1], ranges)
            quads = stored_by_quads(self.writer, torn, trips, self._dealt, ranges, self._together_in)
            if quads is not None:
                store_by_quads(self.writer, quads, depth, ranges, self._serial)
                return
            together = stored_together(self.writer, node, ranges)
            if together is not None:
                store_together(self.writer, node, together, depth, ranges, self._serial)
                return
            kept = indexes_registers(self.writer, node) and trips <= UNROLLING.longest
            if kept or (trips <= UNROLLING.few_trips and self._is_simple(node)):
                self.writer.put(depth, "#pragma unroll")
                if not constant:
                    node = guarded(node, low[0], high[1], ranges)
            elif constant:
                inside = ranges.knowing(node.iterator, low[0], max(low[0], high[1] - 1))
                self._unroll(trips, self._most_copies() // self._copies(node.body, inside), depth)
        self.writer.loop(node, depth, ranges, self._serial, "")

    def _together_in(self, node: For, ranges: Ranges) -> Together | None:
        return stored_together(self.writer, from_zero(self.writer, node, ranges), ranges, True)

    def _most_copies(self) -> int:
        """Copies of a loop's body that unrolling may make."""
        given = self.writer.program.options.unroll
        return given or (UNROLLING.most_wide_copies if self.writer.wide else UNROLLING.most_copies)

    def _unroll(self, trips: int, most: int, depth: int) -> None:
        """Ask for as many copies of a loop's body as fit and divide its trips."""
        factor = max(f for f in range(1, max(1, min(trips, most)) + 1) if trips % f == 0)
        if factor > 1:
            self.writer.put(depth, "#pragma unroll" if factor == trips else f"#pragma unroll {factor}")

    def _is_simple(self, node: For) -> bool:
        """Whether a loop has no loop in it, and no run-time check, of which copies cost registers and save nothing."""
        if any(isinstance(n, For) for n in walk(node.body)):
            return False
        statements = {n.statement for n in walk(node.body) if isinstance(n, Execute)}
        values = [self.writer.statements[s].value for s in statements]
        reads = [e for v in values for e in walk_expression(v) if isinstance(e, Read)]
        return not (self.writer.program.checked and any(depends_on_data(s) for r in reads for s in r.subscripts))

    def _copies(self, node: LoopNode, ranges: Ranges) -> int:
        """Statement instances that unrolling everything below would write out, at most."""
        match node:
            case Block():
                return sum(self._copies(c, ranges) for c in node.children)
            case For():
                bounds = ranges.bounds(Operation("-", (node.upper, node.lower)))
                return (UNROLLING.longest if bounds is None else max(1, bounds[1])) * self._copies(node.body, ranges)
            case Let() | Scope():
                return self._copies(node.body, ranges)
            case If():
                other = 0 if node.otherwise is None else self._copies(node.otherwise, ranges)
                return self._copies(node.then, ranges) + other
            case Execute():
                return 1


def _band_comment(node: For, phases: Mapping[str, Phase]) -> str:
    """What a loop that all threads of a block share runs over."""
    kind = "tiles of steps" if node.iterator.endswith("_tile") else "rounds of elements"
    if isinstance(node.body, Scope) and node.body.name.startswith("turn"):
        kind = "turns"
    count = len({n.name for n in walk(node.body) if isinstance(n, Scope) and n.name in phases})
    return kind if count == 1 else f"{kind}, {count} phases in each"
