"""Where blocks begin: what is kept of each step counts from there, so that it has no place for what lies elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tcomp.grammar.ranges.linear import Linear, linear
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.tree.function import Binary, Expr, Statement


def begins(statement: Statement, outer: Collection[str]) -> dict[str, Expr]:
    """Of steps, and of ``outer`` indices, those that go through a part in each step around: where that part begins.

    Both ``k in b*B:min((b+1)*B, N)`` and ``j in k+1:min((b+1)*B, N)`` lie in the ``B`` values from ``b*B`` on.
    """
    found: dict[str, Expr] = {}
    lowest: dict[str, Linear] = {}
    ranges = [(s.index, s.lower, s.upper) for s in statement.steps]
    ranges += [(r.index, r.lower, r.upper) for r in statement.ranges if r.index in outer]
    for index, lower, upper in ranges:
        low = None if lower is None else linear(lower)
        if low is None or lower is None or upper is None:
            continue
        for begin in dict.fromkeys([lower, *found.values()]):
            start = linear(begin)
            if start is not None and start.indices() and _bounded(upper, start) and _no_less(low, start, lowest):
                found[index] = begin
                break
        lowest[index] = low
    return found


def _bounded(end: Expr, start: Linear) -> bool:
    """Whether there is a length, the same in all steps, behind which a range has ended."""
    lengths = (_difference(form, start) for form in map(linear, _alternatives(end)) if form is not None)
    return any(not length.terms for length in lengths)


def _alternatives(end: Expr) -> Iterator[Expr]:
    """What a range ends at, or before."""
    if isinstance(end, Binary) and end.op == "min":
        yield from _alternatives(end.lhs)
        yield from _alternatives(end.rhs)
    else:
        yield end


def _no_less(form: Linear, start: Linear, lowest: Mapping[str, Linear]) -> bool:
    """Whether a form is at least ``start``, for all indices that are no less than their ``lowest``."""
    left = _difference(form, start)
    for _ in lowest:
        for term, factor in left.terms:
            if isinstance(term, str) and term in lowest and factor.is_nonnegative():
                without = tuple((t, f) for t, f in left.terms if t != term)
                left = Linear(without, left.constant) + lowest[term].scaled(factor)
                break
    return not left.terms and left.constant.is_nonnegative()


def _difference(form: Linear, other: Linear) -> Linear:
    return form + other.scaled(Polynomial.of(-1))
