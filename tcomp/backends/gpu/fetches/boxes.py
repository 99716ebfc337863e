"""Copies that the threads of a block make together: boxes of tensors in shared memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcomp.backends.gpu.memory import share
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES
from tcomp.backends.gpu.words.names import unlike
from tcomp.backends.gpu.words.spelling import Fetched, expression_text
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.grammar.tree.function import Index
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import LoopExpr, Number, Operation, Variable
from tcomp.mapping.gpu.banks import LANES_ALIKE, fetch_order, stores_whole_vectors, takes_turns
from tcomp.mapping.machines.fitted.gpu import SHARED
from tcomp.mapping.machines.gpu import VECTOR_BYTES
from tcomp.mapping.plan.layouts import CORE_ROWS, PAIRED, SWIZZLED_ROW
from tcomp.mapping.plan.values import Copy
from tcomp.model.terms.storages import contiguous_strides


@dataclass(frozen=True, slots=True)
class Fetching:
    """How the threads of a block copy a box: in rounds, neighbouring threads neighbouring elements of the tensor.

    ``element`` is the name of the number of the element, in the box, at which a thread is, ``at`` what to write for it
    where it has no name.  With ``nested`` each place is had from the quotient of the one inside it, not from that
    number.
    """

    writer: KernelWriter
    copy: Copy
    tile: str
    element: str
    at: LoopExpr | None = None
    nested: bool = False

    @property
    def count(self) -> int:
        """Elements of the box."""
        return math.prod(self.copy.shape)

    @property
    def first(self) -> str:
        """The number of a thread's first element."""
        return "thread" if self.copy.vector == 1 else f"{self.copy.vector} * thread"

    @property
    def stride(self) -> int:
        """How far the elements of a thread lie apart from round to round."""
        return self.copy.vector * self.writer.threads

    @property
    def words(self) -> str:
        """For readers: what is copied."""
        source = self.writer.program.dialect.name(self.copy.storage)
        by = f" by {self.copy.vector}" if self.copy.vector > 1 else ""
        return f"{' x '.join(map(str, self.copy.shape))} of {source}{by}"

    def offsets(self) -> list[LoopExpr]:
        """Where in the box the element lies."""
        storage = self.writer.plan.scop.storages[self.copy.storage]
        order = fetch_order(self.copy.shape, storage.strides)
        return _unravelled(self.at or Variable(self.element), self.copy.shape, order, self.nested)

    def source(
        self, corner: tuple[LoopExpr, ...], depth: int, ranges: Ranges, tested_only: bool = False
    ) -> tuple[str, str]:
        """C text for the element in the tensor, and for a test whether it is inside, which may be empty.

        ``corner`` is that of the box in the tensor.  Declares the coordinates that both name; with ``tested_only``
        those that the test does.
        """
        writer, copy = self.writer, self.copy
        storage = writer.plan.scop.storages[copy.storage]
        inner = ranges.knowing(self.element, 0, max(0, self.count - 1))
        guards: list[LoopExpr] = []
        address: LoopExpr = Number(0)
        for d, offset in enumerate(self.offsets()):
            place = inner.simplify(Operation("+", (corner[d], offset)))
            low, extent = storage.box.origin[d], storage.box.extent[d]
            tests = [Operation(">=", (place, Number(low))), Operation("<", (place, Number(low + extent)))]
            guarded = any(inner.decide(t) is not True for t in tests)
            if isinstance(place, Operation) and (guarded or (extent > 1 and not tested_only)):
                bounds = inner.bounds(place)
                name = _coordinate_name(writer, copy, d, inner)
                writer.put(depth, f"const {writer.program.dialect.index} {name} = {expression_text(place, inner)};")
                place = Variable(name)
                inner = inner if bounds is None else inner.knowing(name, *bounds)
            guards += [Operation(">=", (place, Number(low))), Operation("<", (place, Number(low + extent)))]
            if extent > 1:
                step = Operation("*", (Operation("-", (place, Number(low))), Number(storage.strides[d])))
                address = Operation("+", (address, step))
        kept = [inner.condition(g) for g in guards if inner.decide(g) is not True]
        test = " && ".join(expression_text(g, inner, 2) for g in kept)
        return f"{writer.program.dialect.name(copy.storage)}[{expression_text(inner.simplify(address), inner)}]", test

    def stored(self, value: str, ranges: Ranges) -> str:
        """C text that puts a value where the element belongs in shared memory."""
        copy = self.copy
        inner, offsets = ranges.knowing(self.element, 0, max(0, self.count - 1)), self.offsets()
        places = self._places(ranges)
        if copy.vector == 1:
            return f"{self.tile}{places} = {value};"
        fastest = fetch_order(copy.shape, self.writer.plan.scop.storages[copy.storage].strides)[-1]
        if stores_whole_vectors(copy, fastest):
            return f"{self._typed('tc_store16')}(&{self.tile}{places}, {value});"
        apart = dict(zip(copy.order, contiguous_strides(copy.room), strict=True))[fastest]
        if not takes_turns(copy, self.writer.plan.scop.storages[copy.storage].strides):
            return f"{self._typed('tc_store_column')}(&{self.tile}{places}, {apart}, {value});"
        lane: LoopExpr = Operation("floordiv", (offsets[fastest], Number(copy.vector * LANES_ALIKE)))
        turn = expression_text(inner.simplify(Operation("mod", (lane, Number(2)))), inner)
        return f"{self._typed('tc_store_turned')}(&{self.tile}{places}, {apart}, {turn}, {value});"

    def _places(self, ranges: Ranges) -> str:
        """C text for the subscripts of the element in shared memory."""
        copy = self.copy
        inner = ranges.knowing(self.element, 0, max(0, self.count - 1))
        offsets = self.offsets()
        if copy.swizzle is not None:
            own = [offsets[d] for d in (*copy.swizzle.around, copy.swizzle.side, copy.swizzle.step)]
            place = straight_place(copy, own[-2], own[-1], own[:-2])
            function = "tc_swizzled" if copy.dtype.itemsize == 2 else "tc_swizzled_bytes"
            return f"[{function}({expression_text(inner.simplify(place), inner)})]"
        room = dict(zip(copy.order, copy.room, strict=True))
        return "".join(f"[{expression_text(inner.simplify(offsets[d]), inner)}]" for d in copy.order if room[d] > 1)

    def address(self, corner: tuple[LoopExpr, ...]) -> LoopExpr:
        """How far the element lies from where the tensor begins."""
        storage = self.writer.plan.scop.storages[self.copy.storage]
        address: LoopExpr = Number(0)
        for d, offset in enumerate(self.offsets()):
            place = Operation("-", (Operation("+", (corner[d], offset)), Number(storage.box.origin[d])))
            address = Operation("+", (address, Operation("*", (place, Number(storage.strides[d])))))
        return address

    def asked(self, tile: str, pointer: str, test: str, ranges: Ranges) -> str:
        """C text that asks the device to copy an element of the tensor, or zeros unless a test holds, to a tile."""
        count = self.copy.vector * self.copy.dtype.itemsize
        size = f", {test} ? {count} : 0" if test else ""
        return f"tc_ask{count}(&{tile}{self._places(ranges)}, {pointer}{size});"

    def _typed(self, function: str) -> str:
        return self.writer.dialect.typed(function, DEVICE_TYPES[self.copy.dtype.name])

    @property
    def zero(self) -> str:
        """C text for zeros in place of what is read."""
        return "0" if self.copy.vector == 1 else self.writer.dialect.zeros

    def loaded(self, source: str) -> str:
        """C text for what is read at an element of the tensor."""
        return source if self.copy.vector == 1 else f"{self._typed('tc_load16')}(&{source})"


def prepare_fetch(writer: KernelWriter, copy: Copy, ranges: Ranges, stages: int = 1) -> Fetching:
    """Declare the room of a copy in shared memory, ``stages`` times."""
    writer.used[copy.storage] = None
    if copy.vector > 1:
        writer.vectors[copy.storage] = None
    tile = writer.fresh(f"{writer.program.dialect.name(copy.storage)}_tile")
    shape = (stages, *copy.room)
    by_warps = any(o.statement == copy.statement for o in writer.plan.operations.values())
    wide = copy.vector > 1 or stages > 1 or by_warps
    share(writer, DEVICE_TYPES[copy.dtype.name], tile, shape, copy.dtype.itemsize, wide, copy.swizzle is not None)
    writer.uses_thread = True
    return Fetching(writer, copy, tile, writer.unlike("e", ranges))


def fetch(
    writer: KernelWriter, copy: Copy, around: tuple[LoopExpr, ...], depth: int, ranges: Ranges, filled: bool
) -> Fetched:
    """The threads of the block copy a box, neighbouring threads neighbouring elements of the tensor.

    If it is to be ``filled`` there are zeros for what is outside.
    """
    # Only the device copies vectors of fewer bytes by itself.
    narrow = 1 < copy.vector < VECTOR_BYTES // copy.dtype.itemsize
    own = prepare_fetch(writer, replace(copy, vector=1) if narrow else copy, ranges)
    corner = affine_expressions(copy.lower, around)
    if own.count <= SHARED.few_rounds * own.stride:
        writer.put(depth, "#pragma unroll")
    e = own.element
    loop = f"for ({writer.program.dialect.index} {e} = {own.first}; {e} < {own.count}; {e} += {own.stride}) {{"
    writer.put(depth, f"{loop}  // fetch {own.words}")
    there, test = own.source(corner, depth + 1, ranges)
    line = own.stored(own.loaded(there), ranges)
    writer.put(depth + 1, f"if ({test}) {line}" if test else line)
    writer.at(f"fetch {copy.storage}")
    if test and filled:
        writer.put(depth + 1, f"else {own.stored(own.zero, ranges)}")
        writer.at(f"fetch {copy.storage}")
    writer.put(depth, "}")
    return Fetched(copy, own.tile, corner)


def straight_place(copy: Copy, side: LoopExpr, step: LoopExpr, around: Sequence[LoopExpr] = ()) -> LoopExpr:
    """Where an element at a place along the side and the steps lies in a swizzled copy, but for its swizzle.

    ``around`` are its places along the dimensions around the side.  As ``Swizzle.place`` has it in numbers.
    """
    swizzle = copy.swizzle
    assert swizzle is not None
    apart = copy.shape[swizzle.side]
    for d, place in zip(reversed(swizzle.around), reversed(around), strict=True):
        side = Operation("+", (Operation("*", (Number(apart), place)), side))
        apart *= copy.shape[d]

    def part(of: LoopExpr, by: int, extent: int | None, weight: int) -> LoopExpr:
        found: LoopExpr = of if by == 1 else Operation("floordiv", (of, Number(by)))
        found = found if extent is None else Operation("mod", (found, Number(extent)))
        return Operation("*", (found, Number(weight)))

    def total(*terms: LoopExpr) -> LoopExpr:
        return functools.reduce(lambda a, b: Operation("+", (a, b)), terms)

    warps, pair = swizzle.warps, CORE_ROWS * PAIRED
    if warps:
        side = total(
            part(side, pair * warps, None, pair * warps),
            part(side, CORE_ROWS, warps, pair),
            part(side, CORE_ROWS * warps, PAIRED, CORE_ROWS),
            part(side, 1, CORE_ROWS, 1),
        )
    along_side = copy.order[-1] == swizzle.side
    inner, row, rows = (side, step, copy.shape[swizzle.step]) if along_side else (step, side, swizzle.rows(copy.shape))
    length = SWIZZLED_ROW // copy.dtype.itemsize
    return total(part(inner, length, None, rows * length), part(row, 1, None, length), part(inner, 1, length, 1))


def _coordinate_name(writer: KernelWriter, copy: Copy, d: int, ranges: Ranges) -> str:
    """The index with which the program subscripts a dimension, or a name like it that means nothing here yet."""
    subscript = copy.reads[0].subscripts[d]
    base = writer.program.indices[subscript.name] if isinstance(subscript, Index) else f"i{d}"
    return unlike(base, {*ranges.known, *writer.taken})


def _unravelled(element: LoopExpr, shape: tuple[int, ...], order: list[int], nested: bool = False) -> list[LoopExpr]:
    """The offsets of the element with that number in a box, whose last dimension in ``order`` runs fastest."""
    offsets: list[LoopExpr] = [Number(0)] * len(shape)
    step = 1
    for d in reversed(order):
        quotient: LoopExpr = element if step == 1 else Operation("floordiv", (element, Number(step)))
        if nested:
            element, step = quotient, 1
        outermost = d == order[0]
        offsets[d] = quotient if outermost else Operation("mod", (quotient, Number(shape[d])))
        step *= shape[d]
    return offsets
