"""Index arithmetic is proved in unbounded integers and done in 64 bits: where these differ, a program is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tcomp.errors import Diagnostic
from tcomp.grammar.ranges.domains import StatementDomain
from tcomp.grammar.ranges.products import bounds_of
from tcomp.grammar.ranges.sizes import LARGEST
from tcomp.grammar.ranges.wording import text_of
from tcomp.grammar.tree.forms import Interval
from tcomp.grammar.tree.function import Binary, Constant, Expr, Function, Index, Read, Statement, walk

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
