"""Kernels in which one thread asks the device for boxes of operands, beside warpgroups that multiply.

Of each stage two barriers in shared memory tell that it is ``full``, once all bytes of its boxes are there, and that it
is ``empty``, once a lane of each warp that multiplies has said so.  The tile of number t, counted over all that a block
runs, has stage t mod S; who multiplies waits for the phase of ``full`` with parity t / S mod 2, who fetches for that of
``empty`` with the other one, which the first S tiles find over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tcomp.backends.gpu.fetches.boxes import straight_place
from tcomp.backends.gpu.memory import share
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES
from tcomp.backends.gpu.words.spelling import Fetched, expression_text
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.backends.source import TensorMap
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import Block, For, If, Let, LoopExpr, LoopNode, Number, Operation, Scope, Variable, walk
from tcomp.mapping.gpu.matrices.feeding import FETCHING_THREADS, Boxes, boxes_of
from tcomp.mapping.gpu.matrices.operands import steps_of_a_row
from tcomp.mapping.machines.fitted.gpuloops import UNROLLING
from tcomp.mapping.machines.gpu import WARP
from tcomp.mapping.plan.values import BARRIERS, Copy, Pipeline
from tcomp.model.terms.storages import Storage

_REGISTERS, _FETCHING = 512, (32, 24)
"""Registers that the threads of four lanes of a multiprocessor have together, and what one that fetches keeps."""

_GRANULE, _MOST = 8, 240


@dataclass(frozen=True, slots=True, eq=False)
class _Fed:
    """A copy: the names of its array in shared memory and of its map."""

    copy: Copy
    boxes: Boxes
    tile: str
    map: str


@dataclass(frozen=True, slots=True, eq=False)
class Feeding:
    """How the operands of the phase ``mark`` come; the other names are those in the text."""

    writer: KernelWriter
    mark: str
    pipeline: Pipeline
    copies: tuple[_Fed, ...]
    full: str
    empty: str
    stage: str
    parity: str

    @classmethod
    def of(cls, writer: KernelWriter, node: LoopNode) -> Feeding | None:
        """What feeds the kernel for the loops of a group; None if all its threads fetch."""
        inside = {n.name for n in walk(node) if isinstance(n, Scope)}
        mark = next((m for m, p in writer.plan.pipelines.items() if m in inside and p.kind == BARRIERS), None)
        if mark is None:
            return None
        pipeline, copies = writer.plan.pipelines[mark], []
        for copy in (c for c in writer.plan.copies if c.mark == mark):
            name, boxes = writer.program.dialect.name(copy.storage), boxes_of(_storage(writer, copy), copy)
            assert boxes is not None
            copies.append(_Fed(copy, boxes, writer.fresh(f"{name}_tile"), writer.fresh(f"{name}_map")))
            writer.vectors[copy.storage] = None
            shape = (pipeline.stages, *copy.room)
            share(writer, DEVICE_TYPES[copy.dtype.name], copies[-1].tile, shape, copy.dtype.itemsize, True, True)
        full, empty = (writer.fresh(name) for name in ("full", "empty"))
        for name in (full, empty):
            share(writer, "unsigned long long", name, (pipeline.stages,), 8, True)
        writer.uses_thread = True
        return cls(
            writer, mark, pipeline, tuple(copies), full, empty, writer.fresh("stage"), writer.fresh("parity")
        )  # fmt: skip

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """What a launch is given for the operands, in the order of the parameters."""
        return tuple(self._map(fed) for fed in self.copies)

    @property
    def parameters(self) -> list[str]:
        """The parameters of the kernel for them."""
        return [f"const __grid_constant__ tc_tensor_map {fed.map}" for fed in self.copies]

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers of a thread that fetches, and of one that multiplies; None if they are as many as can be."""
        groups = self.writer.threads // FETCHING_THREADS
        if groups < 2:
            return None
        kept = _FETCHING[groups > 2]
        return kept, min(_MOST, (_REGISTERS - kept) // groups // _GRANULE * _GRANULE)

    def begin(self, depth: int) -> None:
        """At the head of the kernel: the barriers."""
        put, stages = self.writer.put, self.pipeline.stages
        put(depth, "if (thread == 0) {")
        put(depth + 1, f"for (int {self.stage} = 0; {self.stage} < {stages}; ++{self.stage}) {{")
        put(depth + 2, f"tc_barrier_init(&{self.full}[{self.stage}], 1);")
        put(depth + 2, f"tc_barrier_init(&{self.empty}[{self.stage}], {self.writer.threads // WARP});")
        put(depth + 1, "}")
        put(depth + 1, "tc_barriers_visible();")
        put(depth, "}")
        put(depth, self.writer.barrier("block"))

    def fetch(self, node: LoopNode, depth: int, ranges: Ranges) -> None:
        """The loops of the thread that fetches: those that multiply have the same ones."""
        match node:
            case Block():
                for child in node.children:
                    if self._fetches(child):
                        self.fetch(child, depth, ranges)
            case For():
                self.writer.loop(node, depth, ranges, self.fetch, "tiles of steps" if self._is_of(node) else "")
            case Let():
                self.writer.let(node, depth, ranges, self.fetch)
            case If():
                self.writer.branch(node, depth, ranges, self.fetch)
            case Scope() if node.name == self.mark:
                self._ask(node.around, depth, ranges)
            case Scope():
                self.fetch(node.body, depth, ranges)

    def at(self, node: For, ranges: Ranges) -> FedLoop | None:
        """The loop over tiles of those that multiply; None for another loop."""
        return FedLoop(self, node, ranges) if self._is_of(node) else None

    def advance(self, depth: int) -> None:
        """Go on to the next stage."""
        self.writer.put(depth, f"{self.stage} = {self.stage} + 1 == {self.pipeline.stages} ? 0 : {self.stage} + 1;")
        self.writer.put(depth, f"{self.parity} ^= {self.stage} == 0;")

    def _is_of(self, node: For) -> bool:
        return isinstance(node.body, Scope) and node.body.name == self.mark

    def _fetches(self, node: LoopNode) -> bool:
        return any(isinstance(n, Scope) and n.name == self.mark for n in walk(node))

    def _ask(self, around: tuple[LoopExpr, ...], depth: int, ranges: Ranges) -> None:
        """Ask for all boxes of a tile as soon as its stage is empty."""
        writer, stage = self.writer, self.stage
        many = sum(math.prod(fed.copy.shape) * fed.copy.dtype.itemsize for fed in self.copies)
        writer.put(depth, f"tc_barrier_wait(&{self.empty}[{stage}], {self.parity});")
        writer.put(depth, f"tc_barrier_expect(&{self.full}[{stage}], {many});")
        for fed in self.copies:
            self._boxes(fed, affine_expressions(fed.copy.lower, around), depth, ranges)
        self.advance(depth)

    def _boxes(self, fed: _Fed, corner: tuple[LoopExpr, ...], depth: int, ranges: Ranges) -> None:
        """Ask for each box of a copy: panels of 128 bytes, and groups of its rows."""
        writer, copy, boxes = self.writer, fed.copy, fed.boxes
        inner, row = boxes.dimensions[:2]
        origin, counts = _storage(writer, copy).box.origin, []
        swizzle = copy.swizzle
        assert swizzle is not None
        several = [(d, 1, "line") for d in swizzle.around]
        for extent, each, word in ((inner, steps_of_a_row(copy), "panel"), *several, (row, boxes.rows, "box")):
            count = copy.shape[extent] // each
            name = writer.unlike(word, ranges)
            if count > 1:
                # Of many lines unrolled the coordinates of each would be kept from tile to tile, in memory.
                some = math.gcd(count, UNROLLING.image_lines) if word == "line" else count
                writer.put(depth, "#pragma unroll" if some == count else f"#pragma unroll {some}")
                writer.put(depth, f"for (int {name} = 0; {name} < {count}; ++{name}) {{")
                ranges, depth = ranges.knowing(name, 0, count - 1), depth + 1
            counts.append(Operation("*", (Number(each), Variable(name))) if count > 1 else Number(0))
        side, step = (counts[0], counts[-1]) if swizzle.side == inner else (counts[-1], counts[0])
        place = expression_text(ranges.simplify(straight_place(copy, side, step, counts[1:-1])), ranges)
        moved = dict(zip((inner, *swizzle.around, row), counts, strict=True))
        coordinates = [
            Operation("+", (Operation("-", (corner[d], Number(origin[d]))), moved.get(d, Number(0))))
            for d in boxes.dimensions
        ]
        at = ", ".join(expression_text(ranges.simplify(c), ranges) for c in coordinates)
        name = f"tc_tensor_copy{len(coordinates)}"
        writer.put(depth, f"{name}(&{fed.tile}[{self.stage}][{place}], {fed.map}, &{self.full}[{self.stage}], {at});")
        writer.at(f"fetch {copy.storage}")
        for n in range(sum(not isinstance(c, Number) for c in counts)):
            writer.put(depth - 1 - n, "}")

    def _map(self, fed: _Fed) -> TensorMap:
        storage, boxes = _storage(self.writer, fed.copy), fed.boxes
        extents = tuple(storage.box.extent[d] for d in boxes.dimensions)
        strides = tuple(storage.strides[d] for d in boxes.dimensions)
        return TensorMap(fed.copy.storage, storage.dtype, extents, strides, boxes.box)


@dataclass(frozen=True, slots=True, eq=False)
class FedLoop:
    """The loop over tiles in threads that multiply."""

    feeding: Feeding
    node: For
    ranges: Ranges

    @property
    def pipeline(self) -> Pipeline:
        """How many tiles there are at a time, and products under way."""
        return self.feeding.pipeline

    def arrive(self, depth: int) -> tuple[Fetched, ...]:
        """At the head of a tile: wait for it."""
        own = self.feeding
        own.writer.put(depth, f"tc_barrier_wait(&{own.full}[{own.stage}], {own.parity});")
        scope = self.node.body
        assert isinstance(scope, Scope)
        return tuple(
            Fetched(f.copy, f"{f.tile}[{own.stage}]", affine_expressions(f.copy.lower, scope.around))
            for f in own.copies
        )  # fmt: skip

    def ask_for_next(self, depth: int, ranges: Ranges) -> None:
        """Nothing: another thread asks."""

    def leave(self, depth: int) -> None:
        """Behind a tile: give back the stage whose products are made."""
        own = self.feeding
        if own.pipeline.flight:
            later = Operation(">", (Variable(self.node.iterator), self.node.lower))
            self._give_back(f"{expression_text(later, self.ranges, 2)} && ", self._before(), depth)
        else:
            self._give_back("", own.stage, depth)
        own.advance(depth)

    def finish(self, depth: int) -> None:
        """Behind the loop: wait for the last products, and give back their stage."""
        own = self.feeding
        if not own.pipeline.flight:
            return
        operation = own.writer.plan.operations[own.mark]
        sums = own.writer.locals[own.writer.statements[operation.statement].target].name
        own.writer.put(depth, f"tc_wgmma_wait<0>({sums});")
        some = Operation("<", (self.node.lower, self.node.upper))
        decided = self.ranges.decide(some)
        test = "" if decided else f"{expression_text(some, self.ranges, 2)} && "
        self._give_back(test, self._before(), depth)

    def _before(self) -> str:
        stage = self.feeding.stage
        return f"{stage} == 0 ? {self.pipeline.stages - 1} : {stage} - 1"

    def _give_back(self, test: str, stage: str, depth: int) -> None:
        own = self.feeding
        own.writer.put(depth, f"if ({test}thread % {WARP} == 0) tc_barrier_arrive(&{own.empty}[{stage}]);")


def _storage(writer: KernelWriter, copy: Copy) -> Storage:
    return writer.plan.scop.storages[copy.storage]
