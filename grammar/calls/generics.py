"""Defs with element types as parameters: which types a call chooses, and the def for these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

from tcomp.errors import Diagnostic, SourceText
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.syntax import Expr
from tcomp.values.operators import DTYPES, TYPE_KEYWORDS, DType

MOST_TYPES = 4
"""A def has no more parameters that stand for element types."""

TRIED = ("float", "int", "bool")
"""What parameters stand for while a def is checked that nobody has called, in this order."""

Value = TypeVar("Value")


def keyword(dtype: DType) -> str:
    """How program text spells a type."""
    return {"float32": "float", "float64": "double", "int32": "int"}.get(dtype.name, dtype.name)


def wrong_types(definition: syntax.Definition, source: SourceText) -> Iterator[Diagnostic]:
    """What is wrong with the parameters of a def that stand for types."""
    names = [name.name for name in definition.types]
    chosen = {p.type for p in definition.inputs if not p.const}
    if len(names) > MOST_TYPES:
        message = f"{definition.name} has {len(names)} element types as parameters, more than {MOST_TYPES}"
        yield Diagnostic(message, source, definition.types[MOST_TYPES].span)
    for position, name in enumerate(definition.types):
        if name.name in names[:position]:
            yield Diagnostic(f"{name} already defined", source, name.span)
        elif name.name not in chosen:
            hint = f"give an input this type, as in `{name}(N) X`"
            yield Diagnostic(
                f"no input has elements of {name}, so that no call says what it is", source, name.span, hint
            )


def combinations(definition: syntax.Definition) -> Iterator[tuple[str, ...]]:
    """Types with which to try whether a def is right, floats first."""
    return product(TRIED, repeat=len(definition.types))


def chosen(
    definition: syntax.Definition, given: Sequence[tuple[str, DType, Value]]
) -> tuple[dict[str, DType], list[tuple[str, tuple[DType, Value], tuple[DType, Value]]]]:
    """What the types of arguments, ``(parameter, type, from where)``, make of the parameters that stand for types.

    Returns the types by name, and each contradiction: the name, and two types with where they come from.
    """
    declared = {p.name.name: p.type for p in definition.inputs}
    names = {name.name for name in definition.types}
    found: dict[str, tuple[DType, Value]] = {}
    contradictions = []
    for parameter, dtype, where in given:
        name = declared.get(parameter)
        if name is None or name not in names:
            continue
        first = found.setdefault(name, (dtype, where))
        if first[0] != dtype:
            contradictions.append((name, first, (dtype, where)))
    return {name: dtype for name, (dtype, _) in found.items()}, contradictions


def named_type(text: str) -> DType | None:
    """The type of a name, as program text spells it or NumPy does."""
    return TYPE_KEYWORDS.get(text) or DTYPES.get(text)


def instance(definition: syntax.Definition, types: Mapping[str, str]) -> syntax.Definition:
    """The def in which parameters that stand for types are the types given, by keyword."""
    if not definition.types:
        return definition

    def expression(expr: Expr) -> Expr:
        return _with_types(expr, types)

    def expressions(exprs: tuple[Expr, ...] | None) -> tuple[Expr, ...] | None:
        return None if exprs is None else tuple(map(expression, exprs))

    def parameter(old: syntax.Parameter) -> syntax.Parameter:
        return replace(old, type=None if old.type is None else types.get(old.type, old.type))

    def clause(old: syntax.Clause) -> syntax.Clause:
        match old:
            case syntax.Range():
                return replace(old, lower=expression(old.lower), upper=expression(old.upper))
            case syntax.Let():
                return replace(old, value=expression(old.value))
            case syntax.Exists():
                return replace(old, read=expression(old.read))
            case syntax.Order():
                return old

    def item(old: syntax.Statement | syntax.Loop) -> syntax.Statement | syntax.Loop:
        if isinstance(old, syntax.Loop):
            return replace(old, body=tuple(map(item, old.body)))
        declared = old.declared
        if declared is not None:
            declared = replace(declared, type=types.get(declared.type, declared.type))
        return replace(
            old,
            subscripts=expressions(old.subscripts),
            value=expression(old.value),
            clauses=tuple(map(clause, old.clauses)),
            declared=declared,
        )

    return replace(
        definition,
        inputs=tuple(map(parameter, definition.inputs)),
        outputs=tuple(map(parameter, definition.outputs)),
        body=tuple(map(item, definition.body)),
        types=(),
    )


def _with_types(expr: Expr, types: Mapping[str, str]) -> Expr:
    def inner(child: Expr) -> Expr:
        return _with_types(child, types)

    match expr:
        case syntax.Cast():
            return replace(expr, type=types.get(expr.type, expr.type), operand=inner(expr.operand))
        case syntax.Apply():
            return replace(expr, arguments=tuple(map(inner, expr.arguments)))
        case syntax.Boundary():
            arguments, subscripts = tuple(map(inner, expr.arguments)), tuple(map(inner, expr.subscripts))
            return replace(expr, arguments=arguments, subscripts=subscripts)
        case syntax.Unary():
            return replace(expr, operand=inner(expr.operand))
        case syntax.Binary():
            return replace(expr, lhs=inner(expr.lhs), rhs=inner(expr.rhs))
        case syntax.Conditional():
            condition, then, otherwise = inner(expr.condition), inner(expr.then), inner(expr.otherwise)
            return replace(expr, condition=condition, then=then, otherwise=otherwise)
        case syntax.Named():
            return replace(expr, value=inner(expr.value))
        case _:
            return expr
