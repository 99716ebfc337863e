"""Ranges such as ``r in 0:min(i + 1, 3)``, which no sum of indices ends, as longer ones with a guard in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.tree.function import (
    Binary,
    Cast,
    Constant,
    Expr,
    Function,
    Index,
    Range,
    Select,
    Statement,
    walk,
    with_indices,
)
from tcomp.values.operators import BOOL, REDUCTIONS


def with_linear_bounds(function: Function) -> Function:
    """A def in which sums of indices and sizes bound each range of a reduction, as far as that can be written.

    The longer range ends where the bound does at most; where it is beyond the bound, the neutral value is combined.
    """
    statements = tuple(map(_with_linear_bounds, function.statements))
    return function if statements == function.statements else replace(function, statements=statements)


def _with_linear_bounds(statement: Statement) -> Statement:
    if statement.reduction not in ("+", "*", "max", "min"):
        return statement
    ranges = {r.index: r for r in statement.ranges}
    guards: list[Expr] = []
    for own in statement.ranges:
        if own.index not in statement.reduction_indices or (linear(own.lower) and linear(own.upper)):
            continue
        first, last = _extreme(own.lower, ranges, greatest=False), _extreme(own.upper, ranges, greatest=True)
        if first is None or last is None:
            return statement
        index = Index(own.index, own.upper.dtype, own.span)
        guards += [
            Binary(op, index, bound, BOOL, own.span)
            for op, bound, end in ((">=", own.lower, first), ("<", own.upper, last))
            if bound != end
        ]
        ranges[own.index] = replace(own, lower=first, upper=last)
    if not guards:
        return statement
    neutral = REDUCTIONS[statement.reduction].identity(statement.accumulator)
    value = statement.value
    for guard in reversed(guards):
        value = Select(guard, value, Constant(neutral, statement.accumulator, value.span), value.dtype, value.span)
    return replace(statement, value=value, ranges=tuple(ranges.values()))


def _extreme(bound: Expr, ranges: Mapping[str, Range], *, greatest: bool) -> Expr | None:
    """The least or greatest value of a bound, a sum of sizes; None where it is not plain to say."""
    match bound:
        case _ if linear(bound) is not None:
            pass
        case Cast(operand=operand) if operand.dtype.is_integer:
            return _extreme(operand, ranges, greatest=greatest)
        case Binary(op="min" | "max"):
            ends = [_extreme(e, ranges, greatest=greatest) for e in (bound.lhs, bound.rhs)]
            known = [e for e in ends if e is not None]
            if (bound.op == "min") is greatest:
                return next(iter(sorted(known, key=lambda e: not isinstance(e, Constant))), None)
            return replace(bound, lhs=known[0], rhs=known[1]) if len(known) == 2 else None
        case _:
            return None
    form = linear(bound)
    assert form is not None
    places: dict[str, Expr] = {}
    for term, coefficient in form.terms:
        up = coefficient.is_nonnegative()
        if not isinstance(term, str) or term not in ranges or not (up or (-coefficient).is_nonnegative()):
            return None
        own = ranges[term]
        last = Binary("-", own.upper, Constant(1, own.upper.dtype, own.span), own.upper.dtype, own.span)
        place = last if up is greatest else own.lower
        if _indices((place,)):
            return None
        places[term] = place
    return with_indices(bound, places)


def _indices(exprs: Iterable[Expr]) -> set[str]:
    return {e.name for expr in exprs for e in walk(expr) if isinstance(e, Index)}
