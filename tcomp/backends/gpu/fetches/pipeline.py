"""Copies that the device makes while threads work on earlier tiles: a loop over tiles of steps in stages.

In front of the loop threads ask for as many tiles as are under way at a time.  In it they wait for the oldest, meet,
ask for the tile that takes the place of the one that they worked on last, and work.  What lies outside a tensor is
filled with zeros by the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tcomp.backends.gpu.fetches.boxes import Fetching, prepare_fetch
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES
from tcomp.backends.gpu.words.spelling import Fetched, expression_text
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.indexing import Ranges, Sum
from tcomp.loops.ir import Block, For, LoopExpr, LoopNode, Number, Operation, Scope, Variable, substitute, variables
from tcomp.mapping.gpu.banks import fetch_order
from tcomp.mapping.gpu.pipelines import AHEAD
from tcomp.mapping.plan.values import Pipeline


def pipelined_phases(writer: KernelWriter, node: For) -> list[Scope]:
    """The phases with pipelines that a loop runs in each iteration: the one that it consists of, or those of a turn."""
    body = node.body
    if node.step != 1 or not isinstance(body, Scope):
        return []
    if body.name in writer.plan.pipelines:
        return [body]
    return list(_in_every_turn(writer, body.body)) if body.name.startswith("turn") else []


def _in_every_turn(writer: KernelWriter, node: LoopNode) -> Iterator[Scope]:
    """The phases with pipelines below a node, in order, but for those in loops of their own."""
    match node:
        case Block():
            for child in node.children:
                yield from _in_every_turn(writer, child)
        case Scope() if node.name in writer.plan.pipelines:
            yield node


@dataclass(frozen=True, slots=True, eq=False)
class _Stream:
    """How a thread goes through a tensor: ``pointer`` is at its first element of a tile.

    The element of a round lies ``further`` on, which is C text or empty, those of the next tile ``per_tile`` further.
    """

    pointer: str
    further: str
    per_tile: int


@dataclass(frozen=True, slots=True, eq=False)
class _Asking:
    """A copy of the loop; ``stream`` is None where the elements of a thread lie in no regular order."""

    fetching: Fetching
    rounds: int
    round: str
    stream: _Stream | None


@dataclass(frozen=True, slots=True, eq=False)
class Pipelined:
    """The copies of a phase in a loop over tiles, in stages: one of as many ``phases`` in the loop that have some.

    ``stage`` and ``next_stage`` are the names of the stage in use and of the one to be filled, which all phases share;
    the ``last`` of them goes on to the next stages.  ``around`` are the iterators around the phase.
    """

    writer: KernelWriter
    node: For
    pipeline: Pipeline
    copies: Sequence[_Asking]
    stage: str
    next_stage: str
    around: tuple[LoopExpr, ...]
    phases: int
    last: bool

    @classmethod
    def begin(
        cls, writer: KernelWriter, node: For, phases: Sequence[Scope], depth: int, ranges: Ranges
    ) -> dict[str, Pipelined]:
        """In front of the loop: declare the stages, and ask for the first tiles."""
        if any(p.name in writer.begun or (p.name + AHEAD) in writer.plan.barriers for p in phases):
            writer.put(depth, writer.barrier("block"))
        writer.begun |= {p.name for p in phases}
        ranges = ranges.knowing("thread", 0, writer.threads - 1)
        copies: dict[str, list[_Asking]] = {p.name: [] for p in phases}
        for phase in phases:
            pipeline = writer.plan.pipelines[phase.name]
            for copy in (c for c in writer.plan.copies if c.mark == phase.name):
                fetching = prepare_fetch(writer, copy, ranges, pipeline.stages)
                asking = _asking(writer, node, fetching, phase.around, pipeline.distance, depth, ranges)
                copies[phase.name].append(asking)
        stage, next_stage = writer.fresh("stage"), writer.fresh("next_stage")
        made = {
            p.name: cls(
                writer, node, writer.plan.pipelines[p.name], copies[p.name], stage, next_stage, p.around, len(phases),
                p is phases[-1],
            )
            for p in phases
        }  # fmt: skip
        distance = writer.plan.pipelines[phases[0].name].distance
        ahead = writer.unlike("ahead", ranges)
        inner = ranges.knowing(ahead, 0, distance - 1)
        writer.put(depth, "#pragma unroll")
        writer.put(depth, f"for (int {ahead} = 0; {ahead} < {distance}; ++{ahead}) {{  // the first tiles")
        for own in made.values():
            own._ask(Operation("+", (node.lower, Variable(ahead))), ahead, depth + 1, inner, inner)
        writer.put(depth, "}")
        writer.put(depth, f"int {stage} = 0, {next_stage} = {distance};")
        return made

    def arrive(self, depth: int) -> tuple[Fetched, ...]:
        """At the head of a phase: wait for its tile, which threads may read behind the barrier that follows."""
        self.writer.put(depth, f"tc_copy_async_wait<{self.phases * self.pipeline.distance - 1}>();")
        own = [asking.fetching for asking in self.copies]
        return tuple(
            Fetched(f.copy, f"{f.tile}[{self.stage}]", affine_expressions(f.copy.lower, self.around)) for f in own
        )

    def ask_for_next(self, depth: int, ranges: Ranges) -> None:
        """Behind the barrier: ask for the tile that is ``distance`` further, if there is one."""
        distance = self.pipeline.distance
        ranges = ranges.knowing("thread", 0, self.writer.threads - 1)
        known, upper = ranges.known.get(self.node.iterator), ranges.bounds(self.node.upper)
        inner = ranges
        if known is not None and upper is not None:
            low, high = known
            inner = ranges.knowing(self.node.iterator, low, max(low, min(high, upper[1] - 1 - distance)))
        at = Operation("+", (Variable(self.node.iterator), Number(distance)))
        self._ask(at, self.next_stage, depth, ranges, inner)
        if self.last:
            self._advance(self.next_stage, depth)

    def leave(self, depth: int) -> None:
        """At the end of a phase: go on to the next stage if no other one is to come."""
        if self.last:
            self._advance(self.stage, depth)

    def finish(self, depth: int) -> None:
        """Behind the loop: wait for the products that are still under way."""
        phase = self.node.body
        if self.pipeline.flight and isinstance(phase, Scope):
            operation = self.writer.plan.operations[phase.name]
            sums = self.writer.locals[self.writer.statements[operation.statement].target].name
            self.writer.put(depth, f"tc_wgmma_wait<0>({sums});")

    def _advance(self, name: str, depth: int) -> None:
        self.writer.put(depth, f"{name} = {name} + 1 == {self.pipeline.stages} ? 0 : {name} + 1;")

    def _ask(self, tile: LoopExpr, stage: str, depth: int, ranges: Ranges, inner: Ranges) -> None:
        """Ask for a tile if it exists; ``inner`` are the ranges where it does.  A group of copies ends either way."""
        exists = Operation("<", (tile, self.node.upper))
        certain = ranges.decide(exists)
        if certain is not False:
            if certain is None:
                self.writer.put(depth, f"if ({expression_text(ranges.condition(exists), ranges)}) {{")
                depth += 1
            around = tuple(substitute(a, self.node.iterator, tile) for a in self.around)
            for asking in self.copies:
                self._rounds(asking, affine_expressions(asking.fetching.copy.lower, around), stage, depth, inner)
            if certain is None:
                depth -= 1
                self.writer.put(depth, "}")
        self.writer.put(depth, "tc_copy_async_commit();")

    def _rounds(self, own: _Asking, corner: tuple[LoopExpr, ...], stage: str, depth: int, ranges: Ranges) -> None:
        """Every round of a copy, from the tensor into a stage."""
        writer, fetching, stream = self.writer, own.fetching, own.stream
        index, what = writer.program.dialect.index, f"ask for {fetching.words}"
        if own.rounds > 1:
            writer.put(depth, "#pragma unroll")
            writer.put(depth, f"for ({index} {own.round} = 0; {own.round} < {own.rounds}; ++{own.round}) {{  // {what}")
        else:
            writer.put(depth, f"{{  // {what}")
        inner = ranges.knowing(own.round, 0, own.rounds - 1)
        there, test = fetching.source(corner, depth + 1, inner, tested_only=stream is not None)
        pointer = f"&{there}"
        if stream is not None:
            pointer = f"{stream.pointer}{stream.further}"
        line = fetching.asked(f"{fetching.tile}[{stage}]", pointer, test, inner)
        if fetching.count % fetching.stride:
            assert fetching.at is not None
            line = f"if ({expression_text(fetching.at, inner)} < {fetching.count}) {line}"
        writer.put(depth + 1, line)
        writer.at(f"fetch {fetching.copy.storage}")
        writer.put(depth, "}")
        if stream is not None and stream.per_tile:
            writer.put(depth, f"{stream.pointer} += {stream.per_tile};")


def _asking(
    writer: KernelWriter, node: For, fetching: Fetching, around: tuple[LoopExpr, ...], distance: int, depth: int,
    ranges: Ranges,
) -> _Asking:  # fmt: skip
    """How a copy is asked for; declares the pointer of its stream, at the first tile."""
    rounds, round_ = -(-fetching.count // fetching.stride), writer.unlike("r", ranges)
    first = Operation("*", (Number(fetching.copy.vector), Variable("thread")))
    together = _rounds_of_a_row(fetching)
    at = Operation("+", (first, Operation("*", (Number(fetching.stride), Variable(round_)))))
    if together:
        row, place = (Operation(of, (Variable(round_), Number(together))) for of in ("floordiv", "mod"))
        whole = Operation("*", (Number(together * fetching.stride), row))
        at = Operation("+", (Operation("+", (whole, Operation("*", (Number(fetching.stride), place)))), first))
    fetching = replace(fetching, at=at if rounds > 1 else first, nested=together > 0)
    low, high = ranges.bounds(node.lower), ranges.bounds(node.upper)
    if low is None or high is None:
        return _Asking(fetching, rounds, round_, None)
    tile = node.iterator
    inner = ranges.knowing(round_, 0, rounds - 1).knowing(tile, low[0], max(low[0], high[1] - 1 + distance))
    address = inner.sum_of(fetching.address(affine_expressions(fetching.copy.lower, around)))
    moving = {Variable(round_): 0, Variable(tile): 0}
    rest = dict(address.terms)
    for variable in moving:
        moving[variable] = rest.pop(variable, 0)
    of_round = {atom: c for atom, c in rest.items() if variables(atom) == {round_}}
    rest = {atom: c for atom, c in rest.items() if atom not in of_round}
    if moving[Variable(round_)]:
        of_round[Variable(round_)] = moving[Variable(round_)]
    reach = inner.bounds(address.expression())
    regular = not any({round_, tile} & variables(atom) for atom in rest)
    if not regular or reach is None or not -(2**31) <= reach[0] <= reach[1] < 2**31:
        return _Asking(fetching, rounds, round_, None)
    per_tile = moving[Variable(tile)]
    further = f" + {expression_text(Sum(of_round, 0).expression(), inner)}" if rounds > 1 and of_round else ""
    start = Operation("*", (Number(per_tile), node.lower))
    begin = inner.simplify(Operation("+", (Sum(rest, address.constant).expression(), start)))
    name = writer.program.dialect.name(fetching.copy.storage)
    pointer = writer.fresh(f"{name}_next")
    element = DEVICE_TYPES[fetching.copy.dtype.name]
    writer.put(depth, f"const {element} *{pointer} = {name} + {expression_text(begin, inner, 5)};")
    return _Asking(fetching, rounds, round_, _Stream(pointer, further, per_tile))


def _rounds_of_a_row(fetching: Fetching) -> int:
    """How many rounds fetch the least number of whole rows that all threads share; 0 where one does, or none.

    A round is then a place in these rows, which is the same in all of them, so what is fetched lies at distances that
    are known.
    """
    copy = fetching.copy
    storage = fetching.writer.plan.scop.storages[copy.storage]
    run, rounds = 1, -(-fetching.count // fetching.stride)
    for d in reversed(fetch_order(copy.shape, storage.strides)):
        run *= copy.shape[d]
        if run % fetching.stride == 0 and fetching.count % fetching.stride == 0:
            return run // fetching.stride if fetching.stride < run < fetching.count and rounds > 1 else 0
    return 0
