"""Results of 16 or 8 bits that an instruction leaves two by two in lanes, stored 16 bytes a lane.

Four lanes have two neighbours each of eight columns, then of the next eight.  Stored so, each store fills half, or a
quarter, of the sectors of 32 bytes that it touches.  After the lanes have exchanged what they have of 32 columns, or of
64 of bytes, each has 16 bytes side by side, and a store fills two whole sectors of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.backends.gpu.stores import WIDEST, Together, in_memory
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES
from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.backends.gpu.writer import Body, KernelWriter
from tcomp.loops.indexing import Ranges, step_of
from tcomp.loops.ir import (
    Execute,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Variable,
    substitute,
    substitute_below,
    variables,
    walk,
)
from tcomp.mapping.machines.atoms import COLUMNS, LANES_OF_COLUMNS

PAIR = COLUMNS // LANES_OF_COLUMNS
"""Neighbours that a lane has of eight columns."""


@dataclass(frozen=True, slots=True)
class Quads:
    """A loop over ``chunks`` of eight columns whose results four lanes may exchange.

    Each lane then has ``each`` whole chunks.  ``address`` is that of the first of the elements that a lane stores, by
    the number ``turn`` of as many chunks as four lanes have; it does where all ``tests`` hold, for a chunk may lie
    beyond the last column.  ``mask`` is C for the lanes that come here together.
    """

    loop: For
    execute: Execute
    storage: str
    chunks: int
    turn: str
    chunk: str
    address: LoopExpr
    tests: tuple[LoopExpr, ...]
    mask: str
    each: int

    @property
    def elements(self) -> int:
        """Elements that a lane stores."""
        return COLUMNS * self.each

    @property
    def at_a_time(self) -> int:
        """Chunks that four lanes exchange."""
        return LANES_OF_COLUMNS * self.each


def stored_by_quads(
    writer: KernelWriter, node: For, trips: int, phase: LoopNode | None, ranges: Ranges,
    together_in: Callable[[For, Ranges], Together | None],
) -> Quads | None:  # fmt: skip
    """How lanes exchange what a loop of so many ``trips`` stores in a ``phase``; None where they cannot, or need not.

    The loop begins with 0.  ``together_in`` tells what the loop over neighbours inside stores together.
    """
    if not writer.dialect.multiplies or writer.shape[-1] != LANES_OF_COLUMNS or trips % LANES_OF_COLUMNS or not trips:
        return None
    if phase is None or writer.ranges:
        return None
    below, tests = node.body, list[LoopExpr]()
    while isinstance(below, If) and below.otherwise is None:
        tests.append(below.condition)
        below = below.then
    stored = [e for e in walk(node.body) if isinstance(e, Execute) and _is_stored(writer, e)]
    loops = [n for n in walk(node.body) if isinstance(n, For)]
    if len(stored) != 1 or len(loops) != 1 or any(isinstance(n, If) for n in walk(below)):
        return None
    inner = ranges.knowing(node.iterator, 0, trips - 1)
    together = together_in(loops[0], inner)
    if together is None or together.execute.statement != stored[0].statement or together.elements != PAIR:
        return None
    each, rest = divmod(WIDEST, together.width * LANES_OF_COLUMNS)
    if rest or each not in (1, 2) or trips % (each * LANES_OF_COLUMNS) or _reads(writer, node, together.storage):
        return None
    lanes = [v for v in variables(together.address) if writer.thread_ids.get(v) == writer.dialect.thread(0)]
    address = together.address
    if len(lanes) != 1 or step_of(address, lanes[0]) != PAIR or step_of(address, node.iterator) != COLUMNS:
        return None
    mask = _mask(writer, phase, lanes[0])
    if mask is None or any(lanes[0] in variables(test) for test in tests):
        return None
    turn, chunk = (writer.unlike(f"{node.iterator}_{word}", ranges, phase) for word in ("turn", "chunk"))
    first, lane = Operation("*", (Number(each * LANES_OF_COLUMNS), Variable(turn))), Variable(lanes[0])
    place = Operation("+", (first, lane if each == 1 else Operation("*", (Number(each), lane))))
    address = substitute(substitute(address, lanes[0], Number(0)), node.iterator, place)
    places = [place if n == 0 else Operation("+", (place, Number(n))) for n in range(each)]
    tests = [substitute(test, node.iterator, at) for at in places for test in tests]
    own = ranges.knowing(turn, 0, trips // (each * LANES_OF_COLUMNS) - 1)
    terms = own.sum_of(address)
    if any(n % (COLUMNS * each) for n in (terms.constant, *terms.terms.values())):
        return None
    return Quads(
        node, together.execute, together.storage, trips, turn, chunk, own.simplify(address), tuple(tests), mask, each
    )  # fmt: skip


def store_by_quads(writer: KernelWriter, own: Quads, depth: int, ranges: Ranges, body: Body) -> None:
    """The loop over four chunks, or eight, at a time: what lanes have of them, the exchange, and the store."""
    name = writer.fresh(f"{writer.program.dialect.name(own.storage)}_side_by_side")
    element = DEVICE_TYPES[writer.plan.scop.storages[own.storage].dtype.name]
    writer.used[own.storage] = None
    writer.vectors[own.storage] = None
    writer.uses_thread = True
    number = Operation("+", (Operation("*", (Number(own.at_a_time), Variable(own.turn))), Variable(own.chunk)))
    chunk = replace(
        own.loop, iterator=own.chunk, upper=Number(own.at_a_time),
        body=substitute_below(own.loop.body, own.loop.iterator, number),
    )  # fmt: skip

    def exchanged(_: LoopNode, depth: int, ranges: Ranges) -> None:
        declared = writer.dialect.aligned(element, name, own.elements, WIDEST)
        writer.put(depth, declared.replace(";", " = {};") if own.tests else declared)
        writer.put(depth, "#pragma unroll")
        before = writer.gathered
        writer.gathered = {**before, own.execute.statement: f"{name}[{PAIR} * {own.chunk} + "}
        writer.loop(chunk, depth, ranges, body)
        writer.gathered = before
        turn = "tc_turn_quad" if own.each == 1 else "tc_turn_quad_of_bytes"
        writer.put(depth, f"{turn}({name}, thread, {own.mask});")
        place = f"{writer.program.dialect.name(own.storage)}[{expression_text(own.address, ranges)}]"
        tests = " && ".join(expression_text(ranges.condition(t), ranges, 2) for t in own.tests)
        put = f"{writer.dialect.typed(f'tc_put{WIDEST}', element)}(&{place}, {name});"
        writer.put(depth, f"if ({tests}) {put}" if tests else put)
        writer.at(own.execute.statement)

    writer.put(depth, "#pragma unroll")
    turns = replace(own.loop, iterator=own.turn, upper=Number(own.chunks // own.at_a_time))
    writer.loop(turns, depth, ranges, exchanged)


def _is_stored(writer: KernelWriter, execute: Execute) -> bool:
    return in_memory(writer, writer.statements[execute.statement].target)


def _reads(writer: KernelWriter, node: LoopNode, storage: str) -> bool:
    executes = (n for n in walk(node) if isinstance(n, Execute))
    reads = (r for e in executes for r in writer.statements[e.statement].all_reads)
    return any(r.get_tuple_name(isl.dim_type.out) == storage for r in reads)


def _mask(writer: KernelWriter, phase: LoopNode, lane: str) -> str | None:
    """The lanes of a warp that are together wherever one is, as C: all, or four neighbours; None if neither is sure."""
    varying, known = {lane}, set(writer.thread_ids)
    every = True
    for node in walk(phase):
        tests: list[LoopExpr] = []
        match node:
            case Let():
                if varying & variables(node.value):
                    varying.add(node.iterator)
                if known & variables(node.value):
                    known.add(node.iterator)
            case If():
                tests = [node.condition]
            case For() if node.iterator == lane:
                if node.lower != Number(0) or node.upper != Number(LANES_OF_COLUMNS) or node.step != 1:
                    return None
            case For():
                tests = [node.lower, node.upper]
                # Which threads of a dimension are in is asked of each.
                every = every and not (node.iterator in known and _is_cut(writer, node))
        if any(varying & variables(t) for t in tests):
            return None
        every = every and not any(known & variables(t) for t in tests)
    return "0xffffffffu" if every and writer.threads % 32 == 0 else "0xfu << thread % 32 / 4 * 4"


def _is_cut(writer: KernelWriter, node: For) -> bool:
    """Whether some threads of a dimension are left out."""
    text = writer.thread_ids[node.iterator]
    along = next(
        (n for n in range(len(writer.shape)) if writer.dialect.thread(len(writer.shape) - 1 - n) == text), None
    )
    return along is None or node.lower != Number(0) or node.upper != Number(writer.shape[along])
