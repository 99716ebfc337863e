"""Register tiles at the border of a triangle: where rows or columns end depends on a step, or columns on a row.

Of ``C(i,j) +=! A(k,i) * B(k,j) where k in i:M`` the first steps of a tile reach some of its rows only, all others the
whole of it.  These run apart from those (index-set splitting), in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tcomp.loops.indexing import Ranges, constant_extent
from tcomp.loops.ir import (
    Block,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Scope,
    Variable,
    flattened,
    substitute,
    variables,
)


def at_worst(bound: LoopExpr, row: For | None, sign: int) -> LoopExpr:
    """A bound in that iteration of a row where it is greatest (``sign`` 1) or least (-1), if it is linear there.

    As it is without a row, or one of constant extent.
    """
    if row is None or row.iterator not in variables(bound) or constant_extent(row.lower, row.upper) is None:
        return bound
    slope = Ranges({}).sum_of(bound).terms.get(Variable(row.iterator))
    if slope is None:
        return bound
    last = Operation("-", (row.upper, Number(1)))
    return substitute(bound, row.iterator, last if (slope > 0) == (sign > 0) else row.lower)


def with_whole_steps(node: LoopNode, mark: str) -> LoopNode:
    """The loops with steps apart that reach whole tiles, below all marks that begin with ``mark``."""
    match node:
        case Scope() if node.name.startswith(mark):
            return _apart(node)
        case For() | Let() | Scope():
            return replace(node, body=with_whole_steps(node.body, mark))
        case Block():
            return Block(tuple(with_whole_steps(c, mark) for c in node.children))
        case If():
            otherwise = None if node.otherwise is None else with_whole_steps(node.otherwise, mark)
            return If(node.condition, with_whole_steps(node.then, mark), otherwise)
    return node


@dataclass(frozen=True, slots=True)
class _Limit:
    """Steps that reach a whole side of a tile: those from ``bound`` on, or those before it."""

    step: str
    bound: LoopExpr
    is_first: bool


def _apart(scope: Scope) -> LoopNode:
    chain: list[For] = []
    node = scope.body
    while isinstance(node, For):
        chain.append(node)
        node = node.body
    steps, sides = chain[:-2], chain[-2:]
    whole = [_whole_side(side, {loop.iterator for loop in steps}) for side in sides]
    limits = [limit for _, found in whole for limit in found]
    place = next((n for n, loop in enumerate(steps) if limits and loop.iterator == limits[0].step), None)
    if place is None or any(limit.step != limits[0].step for limit in limits):
        return scope
    inside = {loop.iterator for loop in chain[place:]}
    if any(variables(limit.bound) & inside for limit in limits) or steps[place].step != 1:
        return scope
    step = steps[place]
    low, high = step.lower, step.upper
    first, end = low, high
    for limit in limits:
        if limit.is_first:
            first = Operation("max", (first, limit.bound))
        else:
            end = Operation("min", (end, limit.bound))
    row, column = (side for side, _ in whole)
    tiled = {sides[0].iterator: row, sides[1].iterator: column}
    parts = [(first, end, tiled)]
    if first != low:
        parts.insert(0, (low, Operation("min", (high, first)), {}))
    if end != high:
        parts.append((Operation("max", (first, end)), high, {}))
    return Block(tuple(_part(scope, step.iterator, *part) for part in parts))


def _whole_side(side: For, steps: set[str]) -> tuple[For, list[_Limit]]:
    """A side that runs its full extent as far as steps tell, and which steps do."""
    lowers, uppers = flattened(side.lower, "max"), flattened(side.upper, "min")
    for lower in lowers:
        for upper in uppers:
            if constant_extent(lower, upper) is None or (variables(lower) | variables(upper)) & steps:
                continue
            limits = [*_limits(upper, uppers, steps, 1), *_limits(lower, lowers, steps, -1)]
            if limits:
                left = [other for other, limit in limits if limit is None]
                kept = replace(
                    side,
                    lower=_joined("max", lower, [o for o in lowers if o in left]),
                    upper=_joined("min", upper, [o for o in uppers if o in left]),
                )
                return kept, [limit for _, limit in limits if limit is not None]
    return side, []


def _limits(
    own: LoopExpr, bounds: tuple[LoopExpr, ...], steps: set[str], sign: int
) -> Iterator[tuple[LoopExpr, _Limit | None]]:
    """For each other bound of a side the steps in which it is beyond its own; None where no step decides that."""
    for other in bounds:
        if other == own:
            continue
        beyond = Ranges({}).sum_of(other).plus(Ranges({}).sum_of(own), -1)
        terms = {atom: sign * c for atom, c in beyond.terms.items()}
        named = [name for name in steps if any(name in variables(atom) for atom in terms)]
        slope = terms.get(Variable(named[0])) if len(named) == 1 else None
        if slope not in (1, -1):
            yield other, None
            continue
        # slope * step + rest >= 0
        rest = replace(beyond, terms={a: c for a, c in beyond.terms.items() if a != Variable(named[0])})
        if slope == 1:
            bound = replace(rest, terms={a: -sign * c for a, c in rest.terms.items()}, constant=-sign * rest.constant)
            yield other, _Limit(named[0], bound.expression(), is_first=True)
        else:
            bound = replace(rest, terms={a: sign * c for a, c in rest.terms.items()}, constant=sign * rest.constant + 1)
            yield other, _Limit(named[0], bound.expression(), is_first=False)


def _joined(operator: str, own: LoopExpr, others: list[LoopExpr]) -> LoopExpr:
    for other in others:
        own = Operation(operator, (own, other))
    return own


def _part(scope: Scope, step: str, low: LoopExpr, high: LoopExpr, sides: dict[str, For]) -> LoopNode:
    """The operation over some of its steps, its sides as they are given."""

    def rebuilt(node: LoopNode) -> LoopNode:
        if not isinstance(node, For):
            return node
        side = sides.get(node.iterator, node)
        lower, upper = (low, high) if node.iterator == step else (side.lower, side.upper)
        return replace(node, lower=lower, upper=upper, body=rebuilt(node.body))

    return replace(scope, body=rebuilt(scope.body))
