"""Results that a thread has side by side, stored 4, 8 or 16 bytes at a time.

Where the elements of a thread are dealt in vectors, its last loop runs over neighbours in memory.  They are gathered in
registers and leave together, as what is fetched comes: an image of the kernel is for arrays that begin at multiples of
16 bytes, another one for all others (``Source.aligned``).
"""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from tcomp.backends.gpu.statements import speller
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES
from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.backends.gpu.writer import Body, KernelWriter
from tcomp.grammar.tree.function import depends_on_data
from tcomp.loops.indexing import Ranges, step_of
from tcomp.loops.ir import Block, Execute, For, LoopExpr, LoopNode, Number, Operation, Scope, substitute

WIDEST, WIDTHS = 16, (4, 8, 16)
"""Bytes that a thread stores or loads at a time."""

PAIR_OF_BYTES = 2
"""Bytes that a thread has side by side where it stores none of them alone."""


def pieces_of(width: int) -> tuple[int, ...]:
    """The accesses that so many bytes side by side take; none where they cannot be had in whole ones."""
    if width in WIDTHS:
        return (width,)
    return () if width == 0 or width % WIDEST else (WIDEST,) * (width // WIDEST)


@dataclass(frozen=True, slots=True)
class Together:
    """A statement whose results in a loop's iterations lie side by side, and where the first of them does."""

    execute: Execute
    storage: str
    elements: int
    width: int
    address: LoopExpr


def stored_together(writer: KernelWriter, node: For, ranges: Ranges, pairs: bool = False) -> Together | None:
    """What the iterations of a loop store side by side and aligned, all of it; None where that is not sure.

    With ``pairs`` this may be two bytes, which a loop around gathers.
    """
    executes = executes_of(node.body)
    bounds = ranges.bounds(node.lower), ranges.bounds(node.upper)
    if executes is None or node.step != 1 or bounds[0] != (0, 0):
        return None
    found = [e for e in executes if in_memory(writer, writer.statements[e.statement].target)]
    if len(found) != 1:
        return None
    statement, storage = writer.statements[found[0].statement], writer.statements[found[0].statement].target
    elements = 0 if bounds[1] is None or bounds[1][0] != bounds[1][1] else bounds[1][0]
    width = elements * writer.plan.scop.storages[storage].dtype.itemsize
    read = {r.get_tuple_name(isl.dim_type.out) for e in executes for r in writer.statements[e.statement].reads}
    gathered = width == PAIR_OF_BYTES and (pairs or statement.name in writer.gathered)
    if elements < 2 or not (pieces_of(width) or gathered) or statement.kind == "update" or storage in read:
        return None
    if any(depends_on_data(s) for s in statement.subscripts):
        return None
    address = _address(writer, found[0], ranges.knowing(node.iterator, 0, elements - 1))
    first = ranges.sum_of(substitute(address, node.iterator, Number(0)))
    if step_of(address, node.iterator) != 1 or any(n % elements for n in (first.constant, *first.terms.values())):
        return None
    return Together(found[0], storage, elements, width, first.expression())


def executes_of(node: LoopNode) -> list[Execute] | None:
    """The instances below a node, one after another; None where anything decides which of them run."""
    match node:
        case Execute():
            return [node]
        case Scope():
            return executes_of(node.body)
        case Block():
            parts = [executes_of(child) for child in node.children]
            return None if any(p is None for p in parts) else [e for p in parts for e in p or ()]
        case _:
            return None


def in_memory(writer: KernelWriter, storage: str) -> bool:
    """Whether a storage is where all blocks see it."""
    buffer = writer.plan.buffers.get(storage)
    return buffer is None or buffer.space == "global"


def _address(writer: KernelWriter, execute: Execute, ranges: Ranges) -> LoopExpr:
    """How many elements behind the first of its storage an instance writes."""
    statement = writer.statements[execute.statement]
    storage, own = writer.plan.scop.storages[statement.target], speller(writer, execute, ranges)
    address: LoopExpr = Number(0)
    for subscript, origin, stride in zip(statement.subscripts, storage.box.origin, storage.strides, strict=True):
        place = Operation("-", (own.loop_expression(subscript), Number(origin)))
        address = Operation("+", (address, Operation("*", (place, Number(stride)))))
    return ranges.simplify(address)


def store_together(writer: KernelWriter, node: For, own: Together, depth: int, ranges: Ranges, body: Body) -> None:
    """The loop, with its results in registers, and then their store."""
    if own.execute.statement in writer.gathered:
        _gather(writer, node, own.execute.statement, depth, ranges, body)
        return
    name = writer.fresh(f"{writer.program.dialect.name(own.storage)}_side_by_side")
    element = DEVICE_TYPES[writer.plan.scop.storages[own.storage].dtype.name]
    writer.used[own.storage] = None
    writer.vectors[own.storage] = None
    pieces = pieces_of(own.width)
    writer.put(depth, writer.dialect.aligned(element, name, own.elements, pieces[0]))
    writer.put(depth, "#pragma unroll")
    before = writer.redirected
    writer.redirected = {**before, own.execute.statement: f"{name}[{node.iterator}]"}
    writer.loop(node, depth, ranges, body)
    writer.redirected = before
    place = f"{writer.program.dialect.name(own.storage)}[{expression_text(own.address, ranges)}]"
    for number, width in enumerate(pieces):
        behind = f" + {number * width // (own.width // own.elements)}" if number else ""
        put = writer.dialect.typed(f"tc_put{width}", element)
        writer.put(depth, f"{put}(&{place}{behind}, {name}{behind});")
        writer.at(own.execute.statement)


def _gather(writer: KernelWriter, node: For, statement: str, depth: int, ranges: Ranges, body: Body) -> None:
    """The loop, with its results where a loop around gathers them."""
    before = writer.redirected
    writer.redirected = {**before, statement: f"{writer.gathered[statement]}{node.iterator}]"}
    writer.put(depth, "#pragma unroll")
    writer.loop(node, depth, ranges, body)
    writer.redirected = before
