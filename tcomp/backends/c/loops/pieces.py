"""Cut innermost loops where a condition on their iterator changes, so that each piece runs without it.

``C(i) = i < 32 ? f(i) : g(i)`` becomes a loop over ``f`` and one over ``g``: index-set splitting (Griebl, Feautrier and
Lengauer, LCPC 2000) for vectors, which would otherwise compute both and blend them.  Conditions stay in the text, where
the C compiler decides them, so that a cut is never wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Binary, Boundary, Expr, Read, Select, walk
from tcomp.loops.ir import Execute, For, Let, LoopExpr, Number, Operation, Variable
from tcomp.loops.ir import walk as nodes_below
from tcomp.mapping.machines.fitted.cputext import LOOPS
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True, slots=True)
class _Line:
    """``slope * iterator + start``."""

    slope: int
    start: int

    def __add__(self, other: _Line) -> _Line:
        return _Line(self.slope + other.slope, self.start + other.start)

    def times(self, factor: int) -> _Line:
        return _Line(self.slope * factor, self.start * factor)

    def crossings(self, level: int) -> Iterator[int]:
        """The first iterations at, and beyond, a level."""
        if self.slope:
            before = (level - self.start) // self.slope
            yield from (before, before + 1)


def pieces(loop: For, plan: Plan) -> tuple[For, ...]:
    """The loop in order, cut where conditions of its statements change; the loop itself where none does.

    Only innermost loops of step 1 between numbers are cut.  Of more than ``LOOPS.most_pieces`` the longest is set apart
    from what comes before and behind it.
    """
    match loop:
        case For(lower=Number(low), upper=Number(high), step=1) if low < high and _innermost(loop):
            ends = sorted({low, high, *(cut for cut in _cuts(loop, plan) if low < cut < high)})
            if len(ends) > LOOPS.most_pieces + 1:
                begin, end = max(pairwise(ends), key=lambda piece: piece[1] - piece[0])
                ends = sorted({low, begin, end, high})
            return tuple(replace(loop, lower=Number(a), upper=Number(b)) for a, b in pairwise(ends))
    return (loop,)


def _innermost(loop: For) -> bool:
    return not any(isinstance(node, For | Let) for node in nodes_below(loop.body))


def _cuts(loop: For, plan: Plan) -> Iterator[int]:
    for call in nodes_below(loop.body):
        if isinstance(call, Execute):
            statement = plan.scop.by_name[call.statement]
            yield from _Conditions(loop, call, statement, plan).cuts()


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The conditions of one statement of a loop."""

    loop: For
    call: Execute
    statement: ScopStatement
    plan: Plan

    def cuts(self) -> Iterator[int]:
        """Iterations from which on a condition has another value than before, and some at which it has not."""
        copied = {r for c in self.plan.copies if c.statement == self.statement.name for r in c.reads}
        arguments = dict(zip(self.statement.indices, self.call.arguments, strict=True))
        for expr in walk(self.statement.value):
            match expr:
                case Select():
                    yield from self._changes(expr.condition, arguments)
                case Read(boundary=Boundary()) if expr not in copied:
                    yield from self._borders(expr, arguments)

    def _changes(self, condition: Expr, arguments: Mapping[str, LoopExpr]) -> Iterator[int]:
        for expr in walk(condition):
            match expr:
                case Binary(op=op, lhs=lhs, rhs=rhs) if op in _COMPARISONS:
                    a, b = self._line(lhs, arguments), self._line(rhs, arguments)
                    if a is not None and b is not None:
                        difference = a + b.times(-1)
                        yield from (c for c in difference.crossings(0) if _differs(op, difference, c))

    def _borders(self, read: Read, arguments: Mapping[str, LoopExpr]) -> Iterator[int]:
        storage = self.plan.scop.storages[read.tensor]
        for d, (subscript, extent) in enumerate(zip(read.subscripts, storage.box.extent, strict=True)):
            line = self._line(subscript, arguments)
            if line is not None:
                for level in (0,) if storage.is_open(d) else (0, extent):
                    yield from (c for c in line.crossings(level) if _differs("<", line + _Line(0, -level), c))

    def _line(self, expr: Expr, arguments: Mapping[str, LoopExpr]) -> _Line | None:
        """An integer expression as a function of the iterator; None if it depends on anything else."""
        form = None if expr.dtype.is_float else to_form(expr, self.plan.scop.sizes)
        if form is None:
            return None
        total = _Line(0, form.constant)
        for index, coefficient in form.terms:
            line = self._of_iterator(arguments[index]) if isinstance(index, str) and index in arguments else None
            if line is None:
                return None
            total += line.times(coefficient)
        return total

    def _of_iterator(self, value: LoopExpr) -> _Line | None:
        match value:
            case Number():
                return _Line(0, value.value)
            case Variable():
                return _Line(1, 0) if value.name == self.loop.iterator else None
            case Operation(operator="+" | "-" | "*" as op, operands=(a, b)):
                return _combined(op, self._of_iterator(a), self._of_iterator(b))
        return None


def _combined(op: str, a: _Line | None, b: _Line | None) -> _Line | None:
    if a is None or b is None:
        return None
    match op:
        case "+":
            return a + b
        case "-":
            return a + b.times(-1)
        case "*" if not a.slope:
            return b.times(a.start)
        case "*" if not b.slope:
            return a.times(b.start)
    return None


def _differs(op: str, difference: _Line, iteration: int) -> bool:
    """Whether the comparison of a difference with 0 changes from the iteration before to this one."""
    return _holds(op, difference, iteration - 1) != _holds(op, difference, iteration)


def _holds(op: str, difference: _Line, iteration: int) -> bool:
    value = difference.slope * iteration + difference.start
    match op:
        case "<":
            return value < 0
        case "<=":
            return value <= 0
        case ">":
            return value > 0
        case ">=":
            return value >= 0
        case "==":
            return value == 0
        case _:
            return value != 0
