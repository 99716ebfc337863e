"""Changing syntax trees: every expression, every name, or one place at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from tcomp.grammar.tree.syntax import (
    Apply,
    Binary,
    Boundary,
    Cast,
    Clause,
    Conditional,
    Definition,
    Exists,
    Expr,
    Let,
    Loop,
    Name,
    Order,
    Parameter,
    Range,
    Statement,
    Unary,
    children,
    expressions,
    statements,
)

Change = Callable[[Expr], Expr]


def with_children(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """The expression with other direct operands, as many as ``children`` gives."""
    match expr:
        case Apply():
            return replace(expr, arguments=parts)
        case Boundary():
            count = len(expr.arguments)
            return replace(expr, arguments=parts[:count], subscripts=parts[count:])
        case Cast() | Unary():
            return replace(expr, operand=parts[0])
        case Binary():
            return replace(expr, lhs=parts[0], rhs=parts[1])
        case Conditional():
            return replace(expr, condition=parts[0], then=parts[1], otherwise=parts[2])
        case _:
            return expr


def rebuilt(expr: Expr, change: Change) -> Expr:
    """The expression with ``change`` applied to every part, operands before what holds them."""
    return change(with_children(expr, tuple(rebuilt(part, change) for part in children(expr))))


Items = tuple[Statement | Loop, ...]


def body(definition: Definition) -> tuple[Statement, ...]:
    """The statements of a def, those in blocks of steps included."""
    return tuple(statements(definition.body))


def has_blocks(definition: Definition) -> bool:
    """Whether a def has blocks of steps."""
    return any(isinstance(item, Loop) for item in definition.body)


def map_items(
    items: Items, change: Callable[[Statement], Statement | None], block: Callable[[Loop], Loop] = lambda loop: loop
) -> Items:
    """The items of a body with each statement, and the head of each block, changed.

    None leaves a statement out, and a block in which nothing is left.
    """
    found: list[Statement | Loop] = []
    for item in items:
        if isinstance(item, Statement):
            changed = change(item)
            found += [] if changed is None else [changed]
        else:
            inner = map_items(item.body, change, block)
            found += [block(replace(item, body=inner))] if inner else []
    return tuple(found)


def with_statement(definition: Definition, position: int, other: Statement | None) -> Definition:
    """The def with another statement at a position, or without the one that is there."""
    numbers = count()
    return replace(definition, body=map_items(definition.body, lambda s: other if next(numbers) == position else s))


def targets(statement: Statement) -> tuple[str, ...]:
    """The names of the tensors that a statement writes."""
    return (statement.target.name, *(name.name for name in statement.others))


def map_statement(statement: Statement, change: Change) -> Statement:
    """The statement with ``change`` applied to each of its outermost expressions."""
    subscripts = None if statement.subscripts is None else tuple(change(s) for s in statement.subscripts)
    clauses = tuple(_map_clause(c, change) for c in statement.clauses)
    return replace(statement, subscripts=subscripts, value=change(statement.value), clauses=clauses)


def _map_clause(clause: Clause, change: Change) -> Clause:
    match clause:
        case Range():
            return replace(clause, lower=change(clause.lower), upper=change(clause.upper))
        case Let():
            return replace(clause, value=change(clause.value))
        case Exists():
            return replace(clause, read=change(clause.read))
        case Order():
            return clause


def map_expressions(definition: Definition, change: Change) -> Definition:
    """The def with ``change`` applied to every outermost expression of its statements."""

    def block(loop: Loop) -> Loop:
        lower, upper = (None if bound is None else change(bound) for bound in (loop.lower, loop.upper))
        return replace(loop, lower=lower, upper=upper)

    return replace(definition, body=map_items(definition.body, lambda s: map_statement(s, change), block))


def single_changes(expr: Expr, alternatives: Callable[[Expr], Iterator[Expr]]) -> Iterator[Expr]:
    """The expression with one part replaced by one of its ``alternatives``, in all ways, outermost parts first."""
    yield from alternatives(expr)
    parts = children(expr)
    for position, part in enumerate(parts):
        for other in single_changes(part, alternatives):
            yield with_children(expr, (*parts[:position], other, *parts[position + 1 :]))


def single_statement_changes(
    statement: Statement, alternatives: Callable[[Expr], Iterator[Expr]]
) -> Iterator[Statement]:
    """The statement with one part of one of its expressions replaced, in all ways."""
    for value in single_changes(statement.value, alternatives):
        yield replace(statement, value=value)
    subscripts = statement.subscripts or ()
    for position, subscript in enumerate(subscripts):
        for other in single_changes(subscript, alternatives):
            yield replace(statement, subscripts=(*subscripts[:position], other, *subscripts[position + 1 :]))
    for position, clause in enumerate(statement.clauses):
        for changed in _clause_changes(clause, alternatives):
            clauses = (*statement.clauses[:position], changed, *statement.clauses[position + 1 :])
            yield replace(statement, clauses=clauses)


def _clause_changes(clause: Clause, alternatives: Callable[[Expr], Iterator[Expr]]) -> Iterator[Clause]:
    match clause:
        case Range():
            yield from (replace(clause, lower=e) for e in single_changes(clause.lower, alternatives))
            yield from (replace(clause, upper=e) for e in single_changes(clause.upper, alternatives))
        case Let():
            yield from (replace(clause, value=e) for e in single_changes(clause.value, alternatives))
        case Exists():
            yield from (replace(clause, read=e) for e in single_changes(clause.read, alternatives))
        case Order():
            return


def names_in(expr: Expr) -> Iterator[str]:
    """Every name that an expression holds, those of tensors and functions included."""
    match expr:
        case Name():
            yield expr.name
        case Apply():
            yield expr.function.name
    for part in children(expr):
        yield from names_in(part)


def statement_names(statement: Statement) -> frozenset[str]:
    """Every name that a statement uses but for those of its targets."""
    found: set[str] = set()

    def note(expr: Expr) -> Expr:
        found.update(names_in(expr))
        return expr

    map_statement(statement, note)
    return frozenset(found)


def declared_names(definition: Definition) -> frozenset[str]:
    """The names that a def gives: its parameters, size symbols, targets, and the indices and lets of its statements.

    Built-in functions are not among them.
    """
    found = {p.name.name for p in (*definition.inputs, *definition.outputs)}
    for statement in body(definition):
        found.update(targets(statement))
        found.update(_bound_names(statement))
    found.update(_step_names(definition.body))
    for expr in expressions(definition):
        found.update(_plain_names(expr))
    return frozenset(found)


def _step_names(items: Items) -> Iterator[str]:
    for item in items:
        if isinstance(item, Loop):
            yield item.index.name
            yield from _step_names(item.body)


def _bound_names(statement: Statement) -> Iterator[str]:
    for clause in statement.clauses:
        match clause:
            case Range():
                yield clause.index.name
            case Let():
                yield clause.name.name


def _plain_names(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Name):
        yield expr.name
    for part in children(expr):
        yield from _plain_names(part)


def renamed(definition: Definition, names: dict[str, str]) -> Definition:
    """The def with other names for what it declares; ``names`` need not have them all."""

    def other(name: Name) -> Name:
        return replace(name, name=names.get(name.name, name.name))

    def change(expr: Expr) -> Expr:
        match expr:
            case Name():
                return other(expr)
            case Apply():
                return replace(expr, function=other(expr.function))
            case _:
                return expr

    def parameter(p: Parameter) -> Parameter:
        dims = None if p.dims is None else tuple(rebuilt(d, change) for d in p.dims)
        return replace(p, name=other(p.name), dims=dims)

    def clause(c: Clause) -> Clause:
        match c:
            case Range():
                return replace(c, index=other(c.index))
            case Let():
                return replace(c, name=other(c.name))
            case Order():
                return replace(c, index=other(c.index))
            case Exists():
                return c

    changed = map_expressions(definition, lambda e: rebuilt(e, change))

    def statement(s: Statement) -> Statement:
        own = tuple(clause(c) for c in s.clauses)
        return replace(s, target=other(s.target), others=tuple(map(other, s.others)), clauses=own)

    return replace(
        changed,
        inputs=tuple(parameter(p) for p in definition.inputs),
        outputs=tuple(parameter(p) for p in definition.outputs),
        body=map_items(changed.body, statement, lambda loop: replace(loop, index=other(loop.index))),
    )
