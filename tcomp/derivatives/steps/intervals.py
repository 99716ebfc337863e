"""Subscripts and ranges that are no sums: first and last values, as of ``k in b*B:min((b+1)*B, N)``."""

from __future__ import annotations

from collections.abc import Mapping

from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.polynomials import Polynomial, greatest, least
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree.function import Binary, Cast, Constant, Expr, Index, Size, Statement, Unary, is_indirect


def spans_of(statement: Statement, known: Mapping[str, Span]) -> dict[str, Span]:
    """The indices of a statement, as far as their intervals can be said; ``known`` has some."""
    found, left = dict(known), [r for r in statement.ranges if r.index not in known]
    while left:
        for given in left:
            first, end = interval(given.lower, found), interval(given.upper, found)
            if first is not None and end is not None:
                found[given.index] = first[0], end[1] - 1
        if all(given.index not in found for given in left):
            break
        left = [given for given in left if given.index not in found]
    return found


def interval(expr: Expr, spans: Mapping[str, Span]) -> Span | None:
    """Least and greatest value of an integer expression; None where that is not plain to say."""
    match expr:
        case Constant() if isinstance(expr.value, int):
            return Polynomial.of(int(expr.value)), Polynomial.of(int(expr.value))
        case Size():
            return Polynomial.of(expr.name), Polynomial.of(expr.name)
        case Index():
            return spans.get(expr.name)
        case Cast() if expr.dtype.kind == "int":
            return interval(expr.operand, spans)
        case Unary(op="-"):
            inner = interval(expr.operand, spans)
            return None if inner is None else (-inner[1], -inner[0])
        case Binary():
            one, other = interval(expr.lhs, spans), interval(expr.rhs, spans)
            return None if one is None or other is None else _combined(expr.op, one, other)
        case _:
            return None


def may_stand_left(subscript: Expr) -> bool:
    """Whether a subscript of a read can be one on the left: a sum, the lesser or greater of sums, or what data say."""
    match subscript:
        case Cast():
            return may_stand_left(subscript.operand)
        case Binary(op="min" | "max"):
            return may_stand_left(subscript.lhs) and may_stand_left(subscript.rhs)
        case _:
            return linear(subscript) is not None or is_indirect(subscript)


def lies_in(reached: Span | None, whole: Span) -> bool:
    """Whether an interval is part of another, for all sizes."""
    if reached is None:
        return False
    return (reached[0] - whole[0]).is_nonnegative() and (whole[1] - reached[1]).is_nonnegative()


def _combined(op: str, one: Span, other: Span) -> Span | None:
    match op:
        case "+":
            return one[0] + other[0], one[1] + other[1]
        case "-":
            return one[0] - other[1], one[1] - other[0]
        case "*" if one[0].is_nonnegative() and other[0].is_nonnegative():
            return one[0] * other[0], one[1] * other[1]
        case "/" if other[0] == other[1] and other[0].is_nonnegative() and other[0].terms:
            return one[0] // other[0], one[1] // other[0]
        case "min":
            return least([one[0], other[0]]), least([one[1], other[1]])
        case "max":
            return greatest([one[0], other[0]]), greatest([one[1], other[1]])
        case _:
            return None
