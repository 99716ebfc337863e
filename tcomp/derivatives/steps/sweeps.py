"""Blocks of single elements backwards, in which each adjoint is a sum over what reads its element.

``for i { for j { D(i,j) = f(D(i-1,j), D(i,j-1)) } }`` would add to two other elements in each step backwards.  What a
step gives to each element that it reads is kept instead, ``given_d_D(i,j)``, and the adjoint of an element is the sum
of what it was given.  So a step backwards writes elements of its own alone, reads as the block does, and runs along
wavefronts where that does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcomp.derivatives.steps.intervals import interval
from tcomp.derivatives.text import Expr, name, total, with_children
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.polynomials import Polynomial, greatest, least
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Expr as FunctionExpr
from tcomp.grammar.tree.function import Function, Index, Read, Statement, Step, walk

Shift = tuple[int, int]
"""How far from its own element a step reads, by the outer and the inner step."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the statement at ``reader`` gives to an element that it reads: an element of ``array`` at the step."""

    array: str
    shift: Shift
    reader: int


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Two blocks in one another over a rectangle; ``writers`` has the statement that writes each tensor that moves."""

    positions: tuple[int, ...]
    steps: tuple[Step, Step]
    spans: tuple[Span, Span]
    writers: Mapping[str, int]
    around: int
    """How many blocks are around both."""

    @property
    def indices(self) -> tuple[str, str]:
        return self.steps[0].index, self.steps[1].index

    def at(self, shift: Shift = (0, 0)) -> tuple[Expr, ...]:
        """The subscripts of an array of the sweep at a step that reads an element so far away."""
        return tuple(_minus(name(index), own) for index, own in zip(self.indices, shift, strict=True))

    def gathered(self, given: Sequence[Given]) -> Expr | None:
        """What was given to the element of a step; None for nothing."""
        found: Expr | None = None
        for part in given:
            own = syntax.Apply(name(part.array), self.at(part.shift))
            found = own if found is None else total(found, own)
        return found

    def is_later(self, given: Given, writer: int) -> bool:
        """Whether what was read had been written in the same sweep."""
        return given.shift < (0, 0) or (given.shift == (0, 0) and given.reader > writer)

    def reach(self, given: Sequence[Given]) -> tuple[tuple[int, int], tuple[int, int]]:
        """How far elements are read in front of a step, and behind it, by both steps."""
        return tuple(  # type: ignore[return-value]
            (max(0, *(-g.shift[d] for g in given)), max(0, *(g.shift[d] for g in given))) for d in (0, 1)
        )

    def everywhere(self, given: Sequence[Given]) -> tuple[Span, Span]:
        """Where arrays are read, in sums for elements that steps read: beyond the steps they are 0."""
        found = []
        for (first, last), (before, behind) in zip(self.spans, self.reach(given), strict=True):
            found.append((first - (before + behind), last + (before + behind)))
        return found[0], found[1]

    def borders(self, given: Sequence[Given], box: tuple[Span, Span]) -> Iterator[tuple[Span, Span]]:
        """Rectangles of elements that steps read and none writes; ``box`` has the elements, by both steps."""
        reach = self.reach(given)
        wide = []
        for (first, last), (before, behind), (low, high) in zip(self.spans, reach, box, strict=True):
            wide.append((greatest([first - before, low]), least([last + behind, high])))
        for d, others in ((0, wide[1]), (1, self.spans[0])):
            (first, last), (before, behind), (low, high) = self.spans[d], reach[d], box[d]
            front = greatest([first - before, low]), least([first - 1, high])
            back = greatest([last + 1, low]), least([last + behind, high])
            for reaches, part in ((before, front), (behind, back)):
                size = (part[1] - part[0] + 1).constant
                if reaches and (size is None or size > 0):
                    yield (part, others) if d == 0 else (others, part)


def sweeps_of(function: Function, moving: Collection[str]) -> list[Sweep]:
    """The innermost pairs of blocks whose statements write single elements, and read others at fixed distances."""
    found: list[Sweep] = []
    seen: set[int] = set()
    for statement in function.statements:
        if len(statement.steps) < 2 or statement.steps[-2].number in seen:
            continue
        outer = statement.steps[-2].number
        seen.add(outer)
        own = [n for n, s in enumerate(function.statements) if any(step.number == outer for step in s.steps)]
        if all(function.statements[n].steps == statement.steps for n in own):
            sweep = _sweep(function, own, moving)
            found += [sweep] if sweep is not None else []
    return found


def _sweep(function: Function, positions: Sequence[int], moving: Collection[str]) -> Sweep | None:
    first = function.statements[positions[0]]
    steps = first.steps[-2], first.steps[-1]
    spans = [_span(step) for step in steps]
    if None in spans:
        return None
    writers: dict[str, int] = {}
    for p in positions:
        statement = function.statements[p]
        if statement.target not in moving:
            continue
        named = [s.name if isinstance(s, Index) else None for s in statement.subscripts]
        plain = sorted(map(str, named)) == sorted(step.index for step in steps)
        if not plain or statement.reduction is not None or statement.target in writers:
            return None
        writers[statement.target] = p
    known = [span for span in spans if span is not None]
    found = Sweep(tuple(positions), steps, (known[0], known[1]), writers, len(first.steps) - 2)
    for p in positions:
        statement = function.statements[p]
        if set(statement.indices) != {step.index for step in statement.steps}:
            return None
        reads = (e for e in walk(statement.value) if isinstance(e, Read) and e.tensor in writers)
        if any(shift_of(read, function.statements[writers[read.tensor]], found) is None for read in reads):
            return None
    return found if writers else None


def _span(step: Step) -> Span | None:
    """From where to where a step runs, where that depends on sizes alone."""
    if step.lower is None or step.upper is None:
        return None
    low, end = interval(step.lower, {}), interval(step.upper, {})
    return None if low is None or end is None else (low[0], greatest([end[1], low[0]]) - 1)


def shift_of(read: Read, written: Statement, sweep: Sweep) -> Shift | None:
    """How far from a step's own element it reads one of a tensor that ``written`` writes; None if that varies."""
    if read.boundary is not None:
        return None
    places = {s.name: d for d, s in enumerate(written.subscripts) if isinstance(s, Index)}
    shifts = [_shift(read.subscripts[places[index]], index) for index in sweep.indices]
    return None if None in shifts else (shifts[0] or 0, shifts[1] or 0)


def _shift(subscript: FunctionExpr, step: str) -> int | None:
    form = linear(subscript)
    if form is None or form.terms != ((step, Polynomial.of(1)),):
        return None
    return form.constant.constant


def _minus(expr: Expr, number: int) -> Expr:
    if not number:
        return expr
    return syntax.Binary("-" if number > 0 else "+", expr, syntax.Number(str(abs(number))))


def with_part(expr: Expr, old: Expr, new: Expr) -> Expr:
    """An expression with another in place of a part of it."""
    return new if expr == old else with_children(expr, [with_part(e, old, new) for e in syntax.children(expr)])


def count_of(expr: Expr, part: Expr) -> int:
    """How often a part occurs in an expression."""
    return 1 if expr == part else sum(count_of(e, part) for e in syntax.children(expr))
