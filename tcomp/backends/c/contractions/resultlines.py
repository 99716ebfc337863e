"""Lines of memory that are fetched while a register tile runs: those that it writes, and that what follows it needs,
before its first step; those that the next tile reads, in each step.

A store to a line that is not near waits for the line, and stores leave the processor in order: where a tile writes
short pieces of rows that lie far apart, which nothing fetches ahead, they wait one after another.  The steps of the
reduction are time enough to fetch them.  Where functions of elements follow, they are what reads and writes memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tcomp.backends.c.loops.nests import Nest, extents_of
from tcomp.backends.dialect import C_STORAGE_TYPES, mangle
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.function import Expr, Read, depends_on_data, walk
from tcomp.loops.indexing import constant_extent, step_of
from tcomp.loops.ir import Execute, For, LoopExpr, LoopNode, substitute
from tcomp.loops.ir import walk as nodes_below
from tcomp.mapping.machines.cpu import LINE_BYTES, Machine
from tcomp.mapping.machines.fitted.cpupanels import PANEL_COPIES
from tcomp.mapping.machines.fitted.cputext import NEXT_BOXES, RESULT_LINES
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import ScopStatement


@dataclass(frozen=True, slots=True)
class NextTile:
    """What the rows of the next register tile read of an operand, as it lies in memory: each step fetches its part.

    Where steps are far apart, as channels of an image, the processor fetches nothing ahead.  ``around`` are the loops
    around a tile of a ``statement``, outermost first.
    """

    statement: ScopStatement
    nest: Nest
    plan: Plan
    machine: Machine
    around: Sequence[For]

    def distances(self, read: Read, row: int) -> tuple[int, ...]:
        """The elements to fetch, counted from what the first row reads, where rows are ``row`` elements apart.

        They are those of the first loop around that moves by a line.  Where one within it reads the same rows again,
        which are then near, they are those of the next tile that begins with another line, if there is room for them.
        Nothing where tiles in turn read the same, or steps are near or of several loops.
        """
        storage = self.plan.scop.storages[read.tensor]
        size, rows = storage.dtype.itemsize, 1 if self.nest.row is None else max(extents_of(self.nest.row), default=1)
        steps = [loop for loop in self.nest.steps if isinstance(loop, For)]
        around = [*self.around, *(loop for loop in self.nest.outer if isinstance(loop, For))]
        if len(steps) != 1 or not around or rows == 1 or row * size >= LINE_BYTES:
            return ()
        if storage.bytes <= NEXT_BOXES.near_share * self.machine.middle_cache:
            return ()
        apart, *moved = (self._moved(read, loop) for loop in (*steps, *reversed(around)))
        if apart is None or abs(apart) * size < PANEL_COPIES.far_row or not moved[0]:
            return ()
        far = next((m for m in moved if not m or abs(m) * size >= LINE_BYTES), None)
        span = (rows - 1) * row * size
        if far == 0 and moved[0] and self._stay_near(steps[0], span, size):
            far = moved[0] * -(-LINE_BYTES // (abs(moved[0]) * size))
        if not far:
            return ()
        return tuple(far + element for element in range(0, (rows - 1) * row + 1, LINE_BYTES // size))

    def _stay_near(self, steps: For, span: int, size: int) -> bool:
        """Whether the nearest cache holds what a tile reads in all steps, and what it fetches.

        In a step its rows span so many bytes, its columns are neighbours.
        """
        column = max(extents_of(self.nest.column), default=1) * size
        lines = -(-span // LINE_BYTES) + 1 + span // LINE_BYTES + 1 + -(-column // LINE_BYTES)
        count = max(extents_of(steps), default=1)
        return lines * LINE_BYTES * count <= NEXT_BOXES.share_of_a_tile * self.machine.nearest_cache

    def _moved(self, read: Read, loop: For) -> int | None:
        """Elements between what the first row reads in neighbouring iterations of a loop; None if not constant."""
        buffer, sizes, moved = self.plan.buffers.get(read.tensor), self.plan.scop.sizes, 0
        strides = self.plan.scop.storages[read.tensor].known_strides if buffer is None else buffer.strides
        corner = self.nest.corner().items()
        arguments = [functools.reduce(_at_corner, corner, argument) for argument in self.nest.call.arguments]
        steps = [step_of(argument, loop.iterator) for argument in arguments]
        for subscript, stride in zip(read.subscripts, strides, strict=True):
            each = [coefficient(subscript, index, sizes) for index in self.statement.indices]
            if stride is None or None in each or None in steps:
                return None
            moved += stride * loop.step * sum((c or 0) * (s or 0) for c, s in zip(each, steps, strict=True))
        return moved


def _at_corner(expr: LoopExpr, first: tuple[str, LoopExpr]) -> LoopExpr:
    return substitute(expr, *first)


Access = tuple[str, tuple[Expr, ...], bool]
"""A tensor, the subscripts of an element, and whether that is written."""


def are_far(plan: Plan, machine: Machine, storage: str) -> bool:
    """Whether results lie in memory, and in more of it than the nearest cache holds."""
    there = plan.scop.storages[storage]
    if there.role == "temporary" and plan.buffers[storage].space != "global":
        return False
    return there.bytes > RESULT_LINES.near_share * machine.nearest_cache


def lines_behind(
    nodes: Sequence[LoopNode], plan: Plan, machine: Machine, speller: Callable[..., Speller]
) -> Iterator[str]:
    """The C statements that fetch what loops over the rows and columns of a register tile read and write behind it.

    Only what is far, and of which columns are neighbours; ``speller`` spells the instances of a statement.
    """
    found: dict[Access, None] = {}
    for node in nodes:
        loops, body = _loops_of(node)
        for call in nodes_below(body) if loops else ():
            if not isinstance(call, Execute):
                continue
            statement = plan.scop.by_name[call.statement]
            for access in _accesses(statement):
                runs = _runs(plan, call, statement, access, loops)
                if access in found or not runs or not _are_beyond(plan, machine, access[0]):
                    continue
                found[access] = None
                at = [functools.reduce(_begun, loops, argument) for argument in call.arguments]
                spelled = speller(statement.name, dict(zip(statement.indices, map(loop_text, at), strict=True)))
                element = spelled.element(access[0], tuple(map(spelled.subscript, access[1])))
                dtype, name = plan.scop.storages[access[0]].dtype, f"tc_behind{len(found)}_{mangle(access[0])}"
                yield f"const {C_STORAGE_TYPES[dtype.name]} *const {name} = &{element};"
                yield from fetched_lines(name, runs, dtype.itemsize, written=access[2])


def _loops_of(node: LoopNode) -> tuple[list[For], LoopNode]:
    """The loops of rows and columns, whose extents are known, and what they run; no loops if it is something else."""
    loops: list[For] = []
    while isinstance(node, For) and len(loops) < 2 and constant_extent(node.lower, node.upper) is not None:
        loops.append(node)
        node = node.body
    return ([] if any(isinstance(n, For) for n in nodes_below(node)) else loops), node


def _begun(expr: LoopExpr, loop: For) -> LoopExpr:
    return substitute(expr, loop.iterator, loop.lower)


def _accesses(statement: ScopStatement) -> Iterator[Access]:
    """What a statement reads as it lies, and what it writes, where no data choose it: what it does both once."""
    own = statement.target, statement.subscripts
    reads = (e for e in walk(statement.value) if isinstance(e, Read) and e.boundary is None)
    places = [*((r.tensor, r.subscripts, False) for r in reads if (r.tensor, r.subscripts) != own), (*own, True)]
    return (place for place in places if not any(map(depends_on_data, place[1])))


def _runs(
    plan: Plan, call: Execute, statement: ScopStatement, access: Access, loops: Sequence[For]
) -> list[tuple[int, int]]:
    """The runs of elements that loops touch, from the first element on; none where columns are no neighbours."""
    strides, sizes = plan.scop.storages[access[0]].known_strides, plan.scop.sizes
    apart: list[int] = []
    for loop in loops:
        steps = [step_of(argument, loop.iterator) for argument in call.arguments]
        moved = 0
        for subscript, stride in zip(access[1], strides, strict=True):
            each = [coefficient(subscript, index, sizes) for index in statement.indices]
            if stride is None or None in each or None in steps:
                return []
            moved += stride * sum((c or 0) * (s or 0) for c, s in zip(each, steps, strict=True))
        apart.append(moved)
    if apart[-1] != 1:
        return []
    counts = [constant_extent(loop.lower, loop.upper) or 0 for loop in loops]
    return [(row * apart[0], counts[-1]) for row in range(counts[0])] if len(loops) == 2 else [(0, counts[0])]


def _are_beyond(plan: Plan, machine: Machine, storage: str) -> bool:
    """Whether a tensor lies in memory, and in more of it than stays in the second cache."""
    far = are_far(plan, machine, storage)
    return far and plan.scop.storages[storage].bytes > RESULT_LINES.behind_share * machine.middle_cache


def fetched_lines(
    pointer: str, runs: Iterable[tuple[int, int]], itemsize: int, *, written: bool = True
) -> Iterator[str]:
    """The C statements that fetch ``runs`` to write there: the first elements behind a pointer, and how many."""
    line = LINE_BYTES // itemsize
    for first, end in _together(runs, line):
        yield from (_fetched(pointer, element, written) for element in range(first, end - 1, line))
        yield _fetched(pointer, end - 1, written)


def _together(runs: Iterable[tuple[int, int]], line: int) -> Iterator[tuple[int, int]]:
    """The first elements of runs and their ends, those that are no line apart as one."""
    first, end = None, 0
    for start, count in sorted(runs):
        if first is not None and start >= end + line:
            yield first, end
            first = None
        first = start if first is None else first
        end = max(end, start + count)
    if first is not None:
        yield first, end


def _fetched(pointer: str, element: int, written: bool) -> str:
    return f"__builtin_prefetch({pointer} + {element}, {int(written)});"
