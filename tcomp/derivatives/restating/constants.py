"""A def with numbers in place of some of its ``const`` parameters, where they are strides and dilations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcomp.derivatives.text import Expr, integer, substitute, with_children
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function
from tcomp.values.operators import INTRINSICS


def with_numbers(function: Function, constants: Mapping[str, int]) -> str:
    """The text of a def with numbers for constants in subscripts, ranges and extents; it takes all of them still.

    The def has no blocks of steps.
    """
    numbers: dict[str, Expr] = {name: integer(value) for name, value in constants.items()}
    definition = function.definition
    inputs, outputs = (
        tuple(p if p.dims is None else replace(p, dims=_all(p.dims, numbers)) for p in parameters)
        for parameters in (definition.inputs, definition.outputs)
    )
    body = tuple(_statement(statement, numbers) for statement in syntax.statements(definition.body))
    return f"{replace(definition, inputs=inputs, outputs=outputs, body=body)}\n"


def _statement(item: syntax.Statement, numbers: Mapping[str, Expr]) -> syntax.Statement:
    declared = item.declared
    if declared is not None and declared.dims is not None:
        declared = replace(declared, dims=_all(declared.dims, numbers))
    clauses: list[syntax.Clause] = []
    for clause in item.clauses:
        match clause:
            case syntax.Range():
                lower, upper = _all((clause.lower, clause.upper), numbers)
                clauses.append(replace(clause, lower=lower, upper=upper))
            case syntax.Let():
                clauses.append(replace(clause, value=substitute(clause.value, numbers)))
            case syntax.Exists():
                clauses.append(replace(clause, read=_in_subscripts(clause.read, numbers)))
            case syntax.Order():
                clauses.append(clause)
    subscripts = None if item.subscripts is None else _all(item.subscripts, numbers)
    value = _in_subscripts(item.value, numbers)
    return replace(item, subscripts=subscripts, value=value, clauses=tuple(clauses), declared=declared)


def _in_subscripts(expr: Expr, numbers: Mapping[str, Expr]) -> Expr:
    match expr:
        case syntax.Apply() if expr.function.name not in INTRINSICS:
            return replace(expr, arguments=_all(expr.arguments, numbers))
        case syntax.Boundary():
            return replace(expr, subscripts=_all(expr.subscripts, numbers))
    return with_children(expr, [_in_subscripts(child, numbers) for child in syntax.children(expr)])


def _all(expressions: tuple[Expr, ...], numbers: Mapping[str, Expr]) -> tuple[Expr, ...]:
    return tuple(substitute(expression, numbers) for expression in expressions)
