"""Integers that do not fit: index arithmetic that leaves 64 bits is refused, and values of sizes that wrap are told.

Index arithmetic is proved in unbounded integers and done in 64 bits.  Values are computed in their type, which is
``int32`` for sizes and indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tcomp.errors import Diagnostic, Span
from tcomp.grammar.ranges.domains import StatementDomain
from tcomp.grammar.ranges.products import bounds_of
from tcomp.grammar.ranges.sizes import LARGEST
from tcomp.grammar.ranges.wording import text_of
from tcomp.grammar.tree.forms import Interval
from tcomp.grammar.tree.function import (
    Binary,
    Cast,
    Constant,
    Expr,
    Function,
    Index,
    Read,
    Size,
    Statement,
    children,
    walk,
)

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def overflows(
    function: Function, sizes: Mapping[str, int], domains: tuple[StatementDomain, ...]
) -> Iterator[Diagnostic]:
    """Indices that reach ``LARGEST``, and parts of subscripts and conditions that leave 64 bits."""
    for statement, domain in zip(function.statements, domains, strict=True):
        if domain.is_empty:
            continue
        for name, (low, high) in domain.hull.items():
            if min(low, high) <= -LARGEST or max(low, high) >= LARGEST:
                message = f"index {name} goes from {low} to {high}, which is too far for 64-bit indices"
                yield Diagnostic(message, function.source, statement.span)
        for expr in _index_arithmetic(statement):
            reach = _reach(expr, sizes, domain)
            if reach is not None and (reach[0] < _LOWEST or reach[1] > _HIGHEST):
                text = text_of(function, expr.span)
                message = f"{text} goes from {reach[0]} to {reach[1]}, but indices are computed in 64 bits"
                yield Diagnostic(message, function.source, expr.span)
                break


def _index_arithmetic(statement: Statement) -> Iterator[Expr]:
    """Subscripts, operands of integer comparisons, and all parts of these."""
    roots = list(statement.subscripts)
    for expr in statement.expressions():
        for node in walk(expr):
            if isinstance(node, Read):
                roots += node.subscripts
            elif isinstance(node, Binary) and node.dtype.kind == "bool" and node.lhs.dtype.is_integer:
                roots += (node.lhs, node.rhs)
    for root in roots:
        yield from walk(root)


def _reach(expr: Expr, sizes: Mapping[str, int], domain: StatementDomain) -> Interval | None:
    if isinstance(expr, (Index, Constant)) or not expr.dtype.is_integer:
        return None
    return bounds_of(expr, sizes, domain.hull)


def wrapped(
    function: Function, sizes: Mapping[str, int], domains: tuple[StatementDomain, ...]
) -> Iterator[Diagnostic]:  # fmt: skip
    """Warnings of sums, differences and products of sizes and indices, as values, that leave their type."""
    told: set[Span] = set()
    for statement, domain in zip(function.statements, domains, strict=True):
        if domain.is_empty:
            continue
        for expr in _sized_values(statement.value):
            reach = bounds_of(expr, sizes, domain.hull)
            if reach is None or any(expr.span.start <= t.start and t.end <= expr.span.end for t in told):
                continue
            if reach[0] < expr.dtype.lowest or reach[1] > expr.dtype.highest:
                told.add(expr.span)
                text, far = text_of(function, expr.span), reach[1] if reach[1] > expr.dtype.highest else reach[0]
                message = f"{text} reaches {far}, which {expr.dtype} cannot hold, so that it wraps"
                first = text_of(function, expr.lhs.span)
                hint = f"convert an operand, as in `int64({first.strip('`')})` or `float(...)`"
                yield Diagnostic(message, function.source, expr.span, hint, "warning")


def _sized_values(value: Expr) -> Iterator[Binary]:
    """Sums and products of sizes of an integer type, innermost first, outside of subscripts and conditions."""
    match value:
        case Read():
            return
        case Binary(op="+" | "-" | "*") if value.dtype.kind == "int" and _is_sized(value):
            yield from _sized_values(value.lhs)
            yield from _sized_values(value.rhs)
            yield value
        case Binary() if value.dtype.kind == "bool":
            return
        case _:
            for child in children(value):
                yield from _sized_values(child)


def _is_sized(expr: Expr) -> bool:
    """Whether an expression is made of sizes, indices and numbers, some of them no numbers."""
    parts = list(walk(expr))
    return all(isinstance(e, (Binary, Cast, Constant, Index, Size)) for e in parts) and any(
        isinstance(e, (Index, Size)) for e in parts
    )
