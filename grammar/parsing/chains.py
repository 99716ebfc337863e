"""Long chains of one operator, such as sums of a thousand terms, as trees that are not deep.

``a + b + c + d`` is ``((a + b) + c) + d``, as deep as it is long.  Where that is nearly as deep as expressions may be,
the chain is cut in halves, and these again: ``(a + b) + (c + d)``.  What is short enough stays as it is written.
"""

from __future__ import annotations

from tcomp.grammar.tree.limits import MAX_DEPTH, measure
from tcomp.grammar.tree.syntax import Binary, Expr, children

_CHAINS = {"+": "+", "-": "+", "*": "*", "&&": "&&", "||": "||"}
"""The operator of a chain in which another may stand: a difference is a sum."""

DEEPEST = MAX_DEPTH * 4 // 5
"""A chain that is deeper is cut: calls and conditions around it have levels left."""

_FEWEST = 16
"""Terms of a chain that is worth cutting."""


def is_link(lhs: Expr, op: str) -> bool:
    """Whether ``lhs op ...`` goes on with the chain that ``lhs`` is."""
    return isinstance(lhs, Binary) and lhs.op in _CHAINS and _CHAINS[lhs.op] == _CHAINS.get(op)


def shallow(expr: Expr) -> Expr:
    """An expression that is whole, with the chain that it is cut in halves if it is too deep."""
    if not isinstance(expr, Binary) or expr.op not in _CHAINS:
        return expr
    terms: list[tuple[str, Expr]] = []
    whole: Expr = expr
    first = whole
    while isinstance(first, Binary) and is_link(first, expr.op):
        terms.append((first.op, first.rhs))
        first = first.lhs
    terms.append((_CHAINS[expr.op], first))
    if len(terms) < _FEWEST or measure(whole, children)[1] <= DEEPEST:
        return expr
    return _halved(terms[::-1])


def _halved(terms: list[tuple[str, Expr]]) -> Expr:
    """The terms combined, as they are where the first one is added: after a minus, what was added is subtracted."""
    if len(terms) == 1:
        return terms[0][1]
    middle = len(terms) // 2
    lhs, rhs = _halved(terms[:middle]), _halved(terms[middle:])
    first, second = terms[0][0], terms[middle][0]
    op = second if second not in "+-" else "+" if first == second else "-"
    return Binary(op, lhs, rhs, lhs.span.to(rhs.span))
