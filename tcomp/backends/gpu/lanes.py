"""Which threads of a block take part in a phase, and which iterator each of their coordinates is."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.backends.gpu.words.dialect import DeviceDialect
from tcomp.backends.gpu.words.guards import readable
from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.backends.gpu.writer import Body, KernelWriter
from tcomp.grammar.tree.syntax import Statement, statements
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import (
    Execute,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Scope,
    Variable,
    substitute_all,
    walk,
)
from tcomp.mapping.fusion.keeping import copy_of
from tcomp.mapping.plan.deals import Phase
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import storage_of

LONGEST_COMMENT = 100
"""Characters of a statement in a comment."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The way from a phase to its point loops.

    ``identifiers`` are (iterator, C text, extent) of thread coordinates; ``fixed_guards`` are C text, ``guards`` loop
    expressions: together they say which threads go on with ``body``.
    """

    identifiers: tuple[tuple[str, str, int], ...]
    fixed_guards: tuple[str, ...]
    guards: tuple[LoopExpr, ...]
    body: LoopNode
    uses_thread: bool


def lanes_of(dialect: DeviceDialect, node: LoopNode, phase: Phase, block: tuple[int, ...]) -> Lanes:
    """The lanes of a phase in a block of threads of shape ``block``."""
    path, scope = _path(node, phase.lanes)
    members = scope.around[len(scope.around) - len(phase.dimensions) :] if phase.dimensions else ()
    texts, uses_thread = _coordinates(dialect, phase.shape, block)
    fixed: list[str] = []
    if math.prod(phase.shape) < math.prod(block):
        uses_thread = True
        fixed.append(f"thread < {math.prod(phase.shape)}")
    fixed += [
        f"{_operand(texts[d])} == 0"
        for d in range(len(phase.shape))
        if d not in phase.dimensions and phase.shape[d] > 1 and not phase.everywhere
    ]
    known: dict[str, LoopExpr] = {}
    loops = {n.iterator for n in path if isinstance(n, For)}
    lets = [n for n in path if isinstance(n, Let)]
    for let in lets:
        known[let.iterator] = substitute_all(let.value, known)
    identifiers: list[tuple[str, str, int]] = []
    bound: set[str] = set()
    guards: list[LoopExpr] = []
    for dimension, member in zip(phase.dimensions, members, strict=True):
        value = substitute_all(member, known)
        if isinstance(value, Variable) and value.name in loops and value.name not in bound:
            bound.add(value.name)
            identifiers.append((value.name, texts[dimension], phase.shape[dimension]))
        elif phase.shape[dimension] > 1:
            guards.append(Operation("==", (Variable(_operand(texts[dimension])), value)))
    for n in path:
        if isinstance(n, For):
            assert n.iterator in bound, f"{n.iterator} is no thread of {phase.mark}"
            guards += [substitute_all(g, known) for g in _bounds(n)]
        elif isinstance(n, If):
            guards.append(substitute_all(n.condition, known))
    body: LoopNode = scope.body
    for let in reversed(lets):
        body = Let(let.iterator, let.value, body)
    return Lanes(tuple(identifiers), tuple(fixed), tuple(guards), body, uses_thread)


def _bounds(loop: For) -> list[LoopExpr]:
    """What must hold for a thread whose coordinate the iterator of a loop is."""
    i = Variable(loop.iterator)
    found: list[LoopExpr] = [Operation(">=", (i, loop.lower)), Operation("<", (i, loop.upper))]
    if loop.step != 1:
        distance = Operation("mod", (Operation("-", (i, loop.lower)), Number(loop.step)))
        found.append(Operation("==", (distance, Number(0))))
    return found


def deal_out(writer: KernelWriter, node: LoopNode, phase: Phase, depth: int, ranges: Ranges, body: Body) -> None:
    """The threads that have work go on with ``body``."""
    lanes = lanes_of(writer.dialect, node, phase, writer.shape)
    writer.uses_thread = writer.uses_thread or lanes.uses_thread
    index = writer.program.dialect.index
    opened = 0
    for name, text, extent in lanes.identifiers:
        if writer.thread_ids.setdefault(name, text) != text:
            if opened == 0:
                writer.put(depth, "{")
                opened, depth = 1, depth + 1
            writer.put(depth, f"const {index} {name} = {text};")
        ranges = ranges.knowing(name, 0, extent - 1)
    guards = list(lanes.fixed_guards)
    for condition in lanes.guards:
        if ranges.decide(condition) is not True:
            guards.append(expression_text(readable(condition, lanes.body, ranges, writer.statements), ranges, 2))
    if guards:
        writer.put(depth, f"if ({' && '.join(guards)}) {{")
        opened, depth = opened + 1, depth + 1
    if not opened and not isinstance(lanes.body, For):
        writer.put(depth, "{")
        opened, depth = 1, depth + 1
    writer.scoped(lambda: body(lanes.body, depth, ranges))
    for _ in range(opened):
        depth -= 1
        writer.put(depth, "}")


def described(writer: KernelWriter, node: LoopNode, phase: Phase, more: str = "") -> str:
    """What a phase does and on how many threads, for readers: the statements of the program."""
    names = dict.fromkeys(n.statement for n in walk(node) if isinstance(n, Execute))
    texts = dict.fromkeys(_in_words(writer, writer.statements[name]) for name in names)
    threads = "1 thread" if math.prod(phase.shape) == 1 else f"{' x '.join(map(str, phase.shape))} threads"
    return f"{'; '.join(texts)} ({threads}{more})"


def _in_words(writer: KernelWriter, statement: ScopStatement) -> str:
    """The statement of the program that a statement of the model is a part of."""
    if statement.name in {copy_of(reader) for _, readers in writer.plan.kept for reader in readers}:
        (read,) = statement.reads
        return f"rows of {writer.program.dialect.name(storage_of(read))} are kept"
    written = _written(writer, statement)
    match statement.kind:
        case "init":
            return f"{writer.program.function.statements[statement.origin].target} starts"
        case "finish":
            return f"{writer.program.function.statements[statement.origin].target} is stored"
        case _:
            return textwrap.shorten(str(written), LONGEST_COMMENT, placeholder=" ...")


def _written(writer: KernelWriter, statement: ScopStatement) -> Statement:
    """The statement in the text of the program; blocks that were written anew have others of their numbers."""
    texts = list(statements(writer.program.function.definition.body))
    number, span = writer.program.numbers[statement.origin], writer.program.function.statements[statement.origin].span
    own = texts[min(number, len(texts) - 1)]
    return own if own.span == span else next((text for text in texts if text.span == span), own)


def _path(node: LoopNode, mark: str) -> tuple[Sequence[LoopNode], Scope]:
    found: list[LoopNode] = []
    while not (isinstance(node, Scope) and node.name == mark):
        found.append(node)
        match node:
            case For() | Let():
                node = node.body
            case If(otherwise=None):
                node = node.then
            case _:
                raise AssertionError(f"the threads of {mark} branch")
    return found, node


def _coordinates(dialect: DeviceDialect, shape: tuple[int, ...], block: tuple[int, ...]) -> tuple[list[str], bool]:
    """C text for each coordinate of a thread, outermost first, and whether it uses the thread's number."""
    if shape == block:
        return [dialect.thread(len(shape) - 1 - d) for d in range(len(shape))], False
    texts = []
    step = math.prod(shape)
    for d, extent in enumerate(shape):
        step //= extent
        text = "thread" if step == 1 else f"thread / {step}"
        texts.append(text if d == 0 else f"{text} % {extent}")
    return texts, True


def _operand(text: str) -> str:
    return f"({text})" if " " in text else text
