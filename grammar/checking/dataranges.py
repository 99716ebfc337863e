"""Ranges whose ends data give, ``e in row(i):row(i+1)``: what a statement does where an index is outside of them.

The index keeps the range that its accesses leave it, for which everything is proved; what an instance computes is
guarded by ``Within``.  Outside of the range a reduction combines the neutral element, and ``=`` leaves what was there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcomp.grammar.checking.expressions import ExpressionChecker
from tcomp.grammar.checking.names import TensorEntry
from tcomp.grammar.tree.conversions import Typed
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Constant, Expr, Index, Range, Read, Select, Within, walk
from tcomp.values.operators import BOOL, INT32, REDUCTIONS


def check_outside(
    entry: TensorEntry | None, reduction: str | None, ranges: Mapping[str, Range], report: Report
) -> None:
    """Report `=` where data give a range, and the elements outside of it hold nothing."""
    if reduction is not None or entry is None or entry.written or not ranges:
        return
    given = next(iter(ranges.values()))
    message = f"`=` writes elements of {entry.name} in a range that data give, and nothing has written the others"
    report.error(message, given.span, "write all of it first, or use a reduction such as `+=!`")


def outside_of(entry: TensorEntry, element: Read, reduction: str | None) -> Expr:
    """What an instance outside of a range combines with an ``element``: nothing, or what is there already."""
    if reduction is not None:
        return Constant(REDUCTIONS[reduction].identity(element.dtype), element.dtype, element.span)
    entry.read = True
    return element


def guarded(value: Expr, outside: Expr, ranges: Mapping[str, Range], expressions: ExpressionChecker) -> Expr:
    """A value inside of some ranges, and another one elsewhere.

    A range that another one depends on is asked about first.
    """
    for given in reversed(_in_order(list(ranges.values()))):
        value = Select(_within(given, expressions), value, outside, value.dtype, given.span)
    return value


def _in_order(ranges: Sequence[Range]) -> list[Range]:
    """The ranges, each behind those of the indices that it mentions."""
    left, found = list(ranges), list[Range]()
    while left:
        names = {given.index for given in left}
        ready = [g for g in left if not names & _mentioned(g)] or left
        found += ready
        left = [given for given in left if given not in ready]
    return found


def _mentioned(given: Range) -> set[str]:
    return {e.name for bound in (given.lower, given.upper) for e in walk(bound) if isinstance(e, Index)}


def _within(given: Range, expressions: ExpressionChecker) -> Within:
    index = Typed(Index(given.index, INT32, given.span), INT32)
    lower, upper = (Typed(bound, bound.dtype) for bound in (given.lower, given.upper))
    begun = expressions.compared("<=", lower, index, given.lower.span)
    not_ended = expressions.compared("<", index, upper, given.upper.span)
    return Within("&&", begun, not_ended, BOOL, given.span)
