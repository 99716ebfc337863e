"""Neighbours that a thread reads in one loop, loaded 4, 8 or 16 bytes at a time in front of it.

The counterpart of ``stores``: where a thread's last loop runs over neighbours in memory, all of which it reads,
they are loaded into registers together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tcomp.backends.gpu.statements import speller
from tcomp.backends.gpu.stores import executes_of, in_memory, pieces_of
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES
from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.grammar.tree.function import Binary, Call, Cast, Expr, Read, Unary, depends_on_data
from tcomp.loops.indexing import Ranges, step_of
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, substitute, variables
from tcomp.mapping.machines.gpu import MOST_REGISTERS


@dataclass(frozen=True, slots=True)
class Gathered:
    """Elements of a storage that an instance of a statement reads in a loop, and where the first of them lies."""

    statement: str
    read: Read
    elements: int
    address: LoopExpr


def read_together(writer: KernelWriter, node: For, ranges: Ranges) -> list[Gathered]:
    """What every iteration of a loop reads side by side and aligned of memory that nothing in it writes."""
    executes = executes_of(node.body)
    bounds = ranges.bounds(node.lower), ranges.bounds(node.upper)
    if executes is None or node.step != 1 or bounds[0] != (0, 0) or bounds[1] is None or bounds[1][0] != bounds[1][1]:
        return []
    elements = bounds[1][0]
    inner = ranges.knowing(node.iterator, 0, max(0, elements - 1))
    written = {writer.statements[e.statement].target for e in executes}
    found: dict[tuple[str, Read], Gathered] = {}
    for execute in executes if elements > 1 else ():
        for read in _unconditional(writer.statements[execute.statement].value):
            if read.tensor in written or not _lies_in_memory(writer, execute, read):
                continue
            bytes_there = elements * writer.plan.scop.storages[read.tensor].dtype.itemsize
            # Half of the registers of a thread.
            if bytes_there > 2 * MOST_REGISTERS or not pieces_of(bytes_there):
                continue
            address = _address(writer, execute, read, inner)
            if not all(name.isidentifier() for name in variables(address)):
                continue  # a text, say of a condition, that may have the iterator in it
            first = ranges.sum_of(substitute(address, node.iterator, Number(0)))
            if step_of(address, node.iterator) == 1 and not any(
                n % elements for n in (first.constant, *first.terms.values())
            ):
                found[execute.statement, read] = Gathered(execute.statement, read, elements, first.expression())
    return list(found.values())


@contextmanager
def gathering(writer: KernelWriter) -> Iterator[None]:
    """Behind this, what ``gather`` has loaded is forgotten."""
    before = writer.loaded
    yield
    writer.loaded = before


def gather(writer: KernelWriter, node: For, depth: int, ranges: Ranges) -> None:
    """Load what a loop reads side by side, in front of it."""
    named: dict[tuple[str, str], str] = {}
    own_loads: dict[tuple[str, Read], str] = {}
    for own in read_together(writer, node, ranges):
        place = f"{writer.program.dialect.name(own.read.tensor)}[{expression_text(own.address, ranges)}]"
        if (own.read.tensor, place) not in named:
            named[own.read.tensor, place] = _load(writer, own, place, depth)
        own_loads[own.statement, own.read] = f"{named[own.read.tensor, place]}[{node.iterator}]"
    writer.loaded = {**writer.loaded, **own_loads}


def _load(writer: KernelWriter, own: Gathered, place: str, depth: int) -> str:
    name = writer.fresh(f"{writer.program.dialect.name(own.read.tensor)}_side_by_side")
    storage = writer.plan.scop.storages[own.read.tensor]
    element = DEVICE_TYPES[storage.dtype.name]
    writer.used[own.read.tensor] = None
    writer.vectors[own.read.tensor] = None
    pieces = pieces_of(own.elements * storage.dtype.itemsize)
    writer.put(depth, writer.dialect.aligned(element, name, own.elements, pieces[0]))
    for number, width in enumerate(pieces):
        behind = f" + {number * width // storage.dtype.itemsize}" if number else ""
        get = writer.dialect.typed(f"tc_get{width}", element)
        writer.put(depth, f"{get}({name}{behind}, &{place}{behind});")
        writer.at(own.statement)
    return name


def _unconditional(expr: Expr) -> Iterator[Read]:
    """The reads that are made whatever the data are."""
    match expr:
        case Read():
            yield expr
        case Binary() if expr.op in ("&&", "||"):
            yield from _unconditional(expr.lhs)
        case Binary():
            yield from _unconditional(expr.lhs)
            yield from _unconditional(expr.rhs)
        case Call():
            for argument in expr.arguments:
                yield from _unconditional(argument)
        case Cast() | Unary():
            yield from _unconditional(expr.operand)


def _lies_in_memory(writer: KernelWriter, execute: Execute, read: Read) -> bool:
    if read.boundary is not None or any(depends_on_data(s) for s in read.subscripts):
        return False
    copied = any(f.copy.statement == execute.statement and read in f.copy.reads for f in writer.fetched)
    return not copied and in_memory(writer, read.tensor)


def _address(writer: KernelWriter, execute: Execute, read: Read, ranges: Ranges) -> LoopExpr:
    """How many elements behind the first of its storage an instance reads."""
    storage, own = writer.plan.scop.storages[read.tensor], speller(writer, execute, ranges)
    address: LoopExpr = Number(0)
    for subscript, origin, stride in zip(read.subscripts, storage.box.origin, storage.strides, strict=True):
        place = Operation("-", (own.loop_expression(subscript), Number(origin)))
        address = Operation("+", (address, Operation("*", (place, Number(stride)))))
    return ranges.simplify(address)
