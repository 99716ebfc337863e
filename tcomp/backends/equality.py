"""Comparisons that ask for one of several computed values, and what compilers are told so that it is found."""

from __future__ import annotations

from tcomp.grammar.tree.function import Binary, Expr, Function, walk

UNFUSED = "-ffp-contract=off"
"""Products are rounded before they are added to something."""


def rounding_flags(function: Function) -> tuple[str, ...]:
    """``UNFUSED`` where a statement asks whether a sum of products is equal to something.

    A compiler makes a fused multiply-add of a product and a sum where both stand in one basic block, and none of a
    product that a loop leaves in front of it or a condition behind it.  So one expression may be rounded in two ways in
    two loops, and of the values that a maximum was taken of none may be equal to it.
    """
    found = any(_asks(expr) for statement in function.statements for expr in walk(statement.value))
    return (UNFUSED,) if found else ()


def _asks(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.op in ("==", "!=") and any(map(_is_fusible, (expr.lhs, expr.rhs)))


def _is_fusible(expr: Expr) -> bool:
    """Whether a product and a sum of floats are in it."""
    operators = {e.op for e in walk(expr) if isinstance(e, Binary) and e.dtype.is_float}
    return "*" in operators and not operators.isdisjoint("+-")
