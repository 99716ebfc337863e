"""Operands on their way while others are worked on: software pipelining of fetches through registers.

Threads that fetch a tile of steps wait for memory before they compute.  Here each of them asks for its elements of the
next tile before it computes on this one, keeps them in registers meanwhile, and puts them into shared memory when all
threads are done with this one (CUTLASS calls this a prefetch of the mainloop).  What is fetched is what a plain fetch
would: only inputs of the kernel are, to which it writes nothing, so that earlier is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.backends.gpu.fetches.boxes import Fetching, prepare_fetch
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES
from tcomp.backends.gpu.words.spelling import Fetched, expression_text
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import For, LoopExpr, Number, Operation, Scope, Variable, substitute
from tcomp.mapping.machines.fitted.gpu import SHARED
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.plan.values import Copy


def copies_ahead(writer: KernelWriter, node: For, ranges: Ranges) -> list[Copy]:
    """The copies at the phase that a loop consists of, if the next iteration's can be asked for in this one."""
    phase = node.body
    if not writer.program.options.prefetch or node.step != 1 or not isinstance(phase, Scope):
        return []
    found = [c for c in writer.plan.copies if c.mark == phase.name and phase.name in writer.plan.phases]
    trips = ranges.bounds(Operation("-", (node.upper, node.lower)))
    if trips is not None and trips[1] < 2:
        return []
    if any(_is_written(writer, c) for c in found):
        return []
    return found if sum(_bytes(writer, c) for c in found) <= SHARED.prefetched_bytes else []


def _is_written(writer: KernelWriter, copy: Copy) -> bool:
    """Whether the kernel writes what it fetches, as plans by hand may have it: then earlier is not the same."""
    plan = writer.plan
    group, _ = home_of(plan, copy.statement)
    return any(writer.statements[s].target == copy.storage for c in group.clusters for s in plan.clusters[c].statements)


def _bytes(writer: KernelWriter, copy: Copy) -> int:
    size = copy.dtype.itemsize * copy.vector
    return max(4, size) * _rounds(Fetching(writer, copy, "", ""))


def _rounds(own: Fetching) -> int:
    return -(-own.count // own.stride)


@dataclass(frozen=True, slots=True, eq=False)
class _OnItsWay:
    fetching: Fetching
    registers: str


class Ahead:
    """The fetches of a loop over tiles of steps whose body is one phase; ``around`` are the iterators around that.

    If they are to be ``filled`` there are zeros for what is outside.
    """

    def __init__(
        self, writer: KernelWriter, node: For, copies: list[Copy], around: tuple[LoopExpr, ...], filled: bool
    ) -> None:
        self.writer = writer
        self.node = node
        self.around = around
        self.own: list[_OnItsWay] = []
        self.copies = copies
        self.filled = filled

    def begin(self, depth: int, ranges: Ranges) -> None:
        """In front of the loop: ask for the first tile."""
        for copy in self.copies:
            fetching = prepare_fetch(self.writer, copy, ranges)
            name = self.writer.fresh(f"{self.writer.program.dialect.name(copy.storage)}_next")
            element = "uint4" if copy.vector > 1 else DEVICE_TYPES[copy.dtype.name]
            number = _rounds(fetching)
            self.writer.put(depth, f"{element} {name}{f'[{number}]' if number > 1 else ''};")
            self.own.append(_OnItsWay(fetching, name))
        self._ask(self.node.lower, Operation("<", (self.node.lower, self.node.upper)), depth, ranges)

    def arrive(self, copy: Copy, depth: int, ranges: Ranges) -> Fetched:
        """In the loop, where all threads are done with what was there: put what was asked for into shared memory."""
        own = next(o for o in self.own if o.fetching.copy is copy)
        corner = affine_expressions(copy.lower, self.around)
        self._rounds(own, corner, depth, ranges, asks=False)
        return Fetched(copy, own.fetching.tile, corner)

    def ask_for_next(self, depth: int, ranges: Ranges) -> None:
        """In the loop, before it computes: ask for the tile of the next iteration, if there is one."""
        upper = ranges.bounds(self.node.upper)
        if upper is not None and self.node.iterator in ranges.known:
            low, high = ranges.known[self.node.iterator]
            ranges_of_next = ranges.knowing(self.node.iterator, low, max(low, min(high, upper[1] - 2)))
        else:
            ranges_of_next = ranges
        after = Operation("+", (Variable(self.node.iterator), Number(1)))
        self._ask(after, Operation("<", (after, self.node.upper)), depth, ranges, ranges_of_next)

    def _ask(self, at: LoopExpr, exists: LoopExpr, depth: int, ranges: Ranges, inner: Ranges | None = None) -> None:
        """Ask for the tile of an iteration if it ``exists``; ``inner`` are the ranges where it does."""
        certain = ranges.decide(exists)
        if certain is False:
            return
        if certain is None:
            self.writer.put(depth, f"if ({expression_text(ranges.condition(exists), ranges)}) {{")
            depth += 1
        for own in self.own:
            around = tuple(substitute(a, self.node.iterator, at) for a in self.around)
            corner = affine_expressions(own.fetching.copy.lower, around)
            self.writer.scoped(lambda: self._rounds(own, corner, depth, inner or ranges, asks=True))  # noqa: B023
        if certain is None:
            self.writer.put(depth - 1, "}")

    def _rounds(self, own: _OnItsWay, corner: tuple[LoopExpr, ...], depth: int, ranges: Ranges, asks: bool) -> None:
        """Every round of a copy, from the tensor into registers if it ``asks``, else from there into shared memory."""
        writer, fetching = self.writer, own.fetching
        index, number = writer.program.dialect.index, _rounds(fetching)
        round_ = writer.unlike("r", ranges)
        what = f"{'ask for' if asks else 'store'} {fetching.words}"
        if number > 1:
            writer.put(depth, "#pragma unroll")
            writer.put(depth, f"for ({index} {round_} = 0; {round_} < {number}; ++{round_}) {{  // {what}")
            ranges = ranges.knowing(round_, 0, number - 1)
        else:
            writer.put(depth, f"{{  // {what}")
        start = f"{fetching.first} + {fetching.stride} * {round_}" if number > 1 else fetching.first
        writer.put(depth + 1, f"const {index} {fetching.element} = {start};")
        kept = f"{own.registers}[{round_}]" if number > 1 else own.registers
        there, test = "", ""
        if asks or not self.filled:
            there, test = fetching.source(corner, depth + 1, ranges, tested_only=not asks)
        line = f"{kept} = {fetching.loaded(there)};" if asks else fetching.stored(kept, ranges)
        if asks and self.filled and test:
            writer.put(depth + 1, f"{kept} = {fetching.zero};")
        if fetching.count % fetching.stride:
            test = " && ".join(filter(None, (f"{fetching.element} < {fetching.count}", test)))
        writer.put(depth + 1, f"if ({test}) {line}" if test else line)
        writer.at(f"fetch {fetching.copy.storage}")
        writer.put(depth, "}")
