"""Blocks in blocks as text, and the same blocks with their steps from the last to the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tcomp.derivatives.derivation import names_of
from tcomp.derivatives.steps.blocks import indices_of
from tcomp.derivatives.text import (
    Expr,
    name,
    names_in,
    on_the_left,
    polynomial_of,
    shortest,
    substitute,
    with_children,
    with_short_subscripts,
)
from tcomp.grammar.tree import syntax
from tcomp.values.operators import INTRINSICS

Item = syntax.Statement | syntax.Loop


def reversed_loop(loop: syntax.Loop) -> syntax.Loop:
    """A block with a range that runs what stands in it, which is in its order already, for the last step first.

    ``N - t`` is the step for ``t in 1:N``.  Where a bound is no sum, ``-t`` is, for ``t in -last:1 - first``: then no
    subscript has the bounds in it, which are not affine in the steps around as ``min((b+1)*B, N)`` is not.
    """
    lower, upper = loop.lower, loop.upper
    assert lower is not None and upper is not None
    index = loop.index
    if polynomial_of(lower) is None or polynomial_of(upper) is None:
        places: dict[str, Expr] = {index.name: syntax.Unary("-", index)}
        lower, upper = (shortest(syntax.Binary("-", syntax.Number("1"), bound)) for bound in (upper, lower))
    else:
        last = _plus(shortest(_plus(lower, upper)), -1)
        places = {index.name: shortest(syntax.Binary("-", last, index))}
    return replace(loop, lower=lower, upper=upper, body=tuple(_moved(item, places) for item in loop.body))


def _plus(one: Expr, other: Expr | int) -> Expr:
    """A sum, without a 0 in front."""
    if isinstance(other, int):
        return shortest(syntax.Binary("-" if other < 0 else "+", one, syntax.Number(str(abs(other)))))
    return other if one == syntax.Number("0") else syntax.Binary("+", one, other)


def _moved(item: Item, places: Mapping[str, Expr]) -> Item:
    """What stands in a block, with another value of its step."""
    move: Callable[[Expr], Expr] = lambda e: _less_last(_short(substitute(e, places)))  # noqa: E731
    value: Callable[[Expr], Expr] = lambda e: _with_short_places(substitute(e, places))  # noqa: E731
    if isinstance(item, syntax.Loop):
        lower, upper = (None if e is None else move(e) for e in (item.lower, item.upper))
        return replace(item, lower=lower, upper=upper, body=tuple(_moved(own, places) for own in item.body))
    clauses: list[syntax.Clause] = []
    for clause in item.clauses:
        match clause:
            case syntax.Range():
                clauses.append(replace(clause, lower=move(clause.lower), upper=move(clause.upper)))
            case syntax.Let():
                clauses.append(replace(clause, value=value(clause.value)))
            case _:
                clauses.append(clause)
    subscripts, indices = item.subscripts, indices_of(item)
    if subscripts is not None:
        subscripts = tuple(on_the_left(move(s), indices) for s in subscripts)
    return replace(item, subscripts=subscripts, value=value(item.value), clauses=tuple(clauses))


def _with_short_places(expr: Expr) -> Expr:
    expr = with_children(expr, [_with_short_places(child) for child in syntax.children(expr)])
    match expr:
        case syntax.Apply() if expr.function.name not in INTRINSICS:
            return replace(expr, arguments=tuple(map(_short, expr.arguments)))
        case syntax.Boundary():
            return replace(expr, subscripts=tuple(map(_short, expr.subscripts)))
        case _:
            return with_short_subscripts(expr)


def _short(expr: Expr) -> Expr:
    """A place without what cancels, whatever it adds up."""
    atoms: dict[str, Expr] = {}

    def opened(part: Expr) -> Expr:
        part = with_children(part, [opened(child) for child in syntax.children(part)])
        if polynomial_of(part) is not None:
            return part
        own = next((n for n, atom in atoms.items() if atom == part), f"${len(atoms)}")
        atoms[own] = _closed(part, atoms)
        return name(own)

    return _closed(shortest(opened(expr)), atoms)


def _less_last(expr: Expr) -> Expr:
    """``1 - k`` for ``-k + 1``."""
    expr = with_children(expr, [_less_last(child) for child in syntax.children(expr)])
    match expr:
        case syntax.Binary(op="+", lhs=syntax.Unary(op="-") as less, rhs=more):
            return syntax.Binary("-", more, less.operand)
        case _:
            return expr


def _closed(expr: Expr, atoms: Mapping[str, Expr]) -> Expr:
    return substitute(expr, atoms) if atoms else expr


def statements_in(items: Iterable[Item]) -> Iterator[syntax.Statement]:
    for item in items:
        if isinstance(item, syntax.Loop):
            yield from statements_in(item.body)
        else:
            yield item


def mentioned(statement: syntax.Statement) -> set[str]:
    """Every name in a statement but that of what it writes."""
    lets = [names_in(c.value) for c in statement.clauses if isinstance(c, syntax.Let)]
    return names_of(statement).union(*lets)
