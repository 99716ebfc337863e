"""Where a kernel keeps tiles: declarations of buffers, and copies that the threads of a block make together."""

from __future__ import annotations

import math

from tcomp.backends.devicespelling import Fetched, Local, expression_text
from tcomp.backends.devicewriter import DEVICE_TYPES, KernelWriter, SharedArray
from tcomp.codegen import affine_expressions
from tcomp.grammar.function import Index
from tcomp.indexing import Ranges
from tcomp.loops import LoopExpr, Number, Operation, Variable
from tcomp.mapping.banks import fetch_order
from tcomp.mapping.plan import Buffer, Copy
from tcomp.scop import contiguous_strides

FEW_ROUNDS = 8
"""Fetches of so few rounds are unrolled, so that all of their loads go out together."""


def declare(writer: KernelWriter, buffer: Buffer, around: tuple[LoopExpr, ...], depth: int) -> None:
    """Declare a buffer at its mark, or what points to it there."""
    corner = () if buffer.lower is None else affine_expressions(buffer.lower, around)
    element = DEVICE_TYPES[buffer.dtype.name]
    if buffer.space == "block":
        name = writer.fresh(f"{writer.program.dialect.name(buffer.storage)}_tile")
        writer.used[buffer.storage] = None
        count = math.prod(buffer.shape)
        block = "(blockIdx.x + gridDim.x * (blockIdx.y + (long long)gridDim.y * blockIdx.z))"
        start = f"{writer.program.dialect.name(buffer.storage)} + {block} * {count}"
        writer.put(depth, f"{element} *const {name} = {start};")
    elif buffer.space == "shared":
        name = writer.fresh(f"{writer.program.dialect.name(buffer.storage)}_tile")
        share(writer, element, name, buffer.shape, buffer.dtype.itemsize)
    else:
        name = writer.program.dialect.name(buffer.storage)
        extents = "".join(f"[{e}]" for e in buffer.shape if e > 1)
        writer.put(depth, f"{element} {name}{extents};")
    writer.locals[buffer.storage] = Local(buffer, name, corner)


def share(
    writer: KernelWriter, element: str, name: str, shape: tuple[int, ...], itemsize: int, wide: bool = False
) -> None:
    """Declare an array in shared memory, at the head of the kernel."""
    writer.shared.append(SharedArray(element, name, tuple(e for e in shape if e > 1), itemsize, wide))


def fetch(writer: KernelWriter, copy: Copy, around: tuple[LoopExpr, ...], depth: int, ranges: Ranges) -> Fetched:
    """The threads of the block copy a box, neighbouring threads neighbouring elements of the tensor."""
    program, storage = writer.program, writer.plan.scop.storages[copy.storage]
    writer.used[copy.storage] = None
    source = program.dialect.name(copy.storage)
    name_of_tile = writer.fresh(f"{source}_tile")
    share(writer, DEVICE_TYPES[copy.dtype.name], name_of_tile, copy.room, copy.dtype.itemsize, copy.vector > 1)
    corner = affine_expressions(copy.lower, around)
    index = program.dialect.index
    count = math.prod(copy.shape)
    element = "e" if "e" not in {*writer.taken, *program.indices.values(), *ranges.known} else "element"
    inner = ranges.knowing(element, 0, max(0, count - 1))
    writer.uses_thread = True
    vector = copy.vector
    start, stride = ("thread", writer.threads) if vector == 1 else (f"{vector} * thread", vector * writer.threads)
    what = f"fetch {' x '.join(map(str, copy.shape))} of {source}{f' by {vector}' if vector > 1 else ''}"
    if count <= FEW_ROUNDS * stride:
        writer.put(depth, "#pragma unroll")
    loop = f"for ({index} {element} = {start}; {element} < {count}; {element} += {stride}) {{"
    writer.put(depth, f"{loop}  // {what}")
    order = fetch_order(copy.shape, storage.strides)
    offsets = _unravelled(Variable(element), copy.shape, order)
    guards: list[LoopExpr] = []
    address: LoopExpr = Number(0)
    for d, offset in enumerate(offsets):
        place = inner.simplify(Operation("+", (corner[d], offset)))
        low, extent = storage.box.origin[d], storage.box.extent[d]
        tests = [Operation(">=", (place, Number(low))), Operation("<", (place, Number(low + extent)))]
        guarded = any(inner.decide(t) is not True for t in tests)
        if isinstance(place, Operation) and (guarded or extent > 1):
            bounds = inner.bounds(place)
            name = _coordinate_name(writer, copy, d, inner)
            writer.put(depth + 1, f"const {index} {name} = {expression_text(place, inner)};")
            place = Variable(name)
            inner = inner if bounds is None else inner.knowing(name, *bounds)
        guards += [Operation(">=", (place, Number(low))), Operation("<", (place, Number(low + extent)))]
        if extent > 1:
            step = Operation("*", (Operation("-", (place, Number(low))), Number(storage.strides[d])))
            address = Operation("+", (address, step))
    room = dict(zip(copy.order, copy.room, strict=True))
    places = "".join(f"[{expression_text(inner.simplify(offsets[d]), inner)}]" for d in copy.order if room[d] > 1)
    there = f"{source}[{expression_text(inner.simplify(address), inner)}]"
    line = f"{name_of_tile}{places} = {there};"
    if vector > 1:
        apart = dict(zip(copy.order, contiguous_strides(copy.room), strict=True))[order[-1]]
        line = f"tc_fetch16(&{name_of_tile}{places}, {apart}, &{there});"
    kept = [inner.condition(g) for g in guards if inner.decide(g) is not True]
    if kept:
        line = f"if ({' && '.join(expression_text(g, inner, 2) for g in kept)}) {line}"
    writer.put(depth + 1, line)
    writer.at(f"fetch {copy.storage}")
    writer.put(depth, "}")
    return Fetched(copy, name_of_tile, corner)


def _coordinate_name(writer: KernelWriter, copy: Copy, d: int, ranges: Ranges) -> str:
    """The index with which the program subscripts a dimension, or a name like it that means nothing here yet."""
    subscript = copy.reads[0].subscripts[d]
    base = writer.program.indices[subscript.name] if isinstance(subscript, Index) else f"i{d}"
    name, number = base, 0
    while name in ranges.known or name in writer.taken:
        number += 1
        name = f"{base}_{number}"
    return name


def _unravelled(element: LoopExpr, shape: tuple[int, ...], order: list[int]) -> list[LoopExpr]:
    """The offsets of the element with that number in a box, whose last dimension in ``order`` runs fastest."""
    offsets: list[LoopExpr] = [Number(0)] * len(shape)
    step = 1
    for d in reversed(order):
        quotient: LoopExpr = element if step == 1 else Operation("floordiv", (element, Number(step)))
        outermost = d == order[0]
        offsets[d] = quotient if outermost else Operation("mod", (quotient, Number(shape[d])))
        step *= shape[d]
    return offsets
