"""Comparisons that ask for one of several computed values, and what compilers are told so that it is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from tcomp.grammar.tree.function import Binary, Expr, Function, Read, walk

UNFUSED = "-ffp-contract=off"
"""Products are rounded before they are added to something."""


def rounding_flags(function: Function) -> tuple[str, ...]:
    """``UNFUSED`` where a statement asks whether a sum of products is equal to something, itself or as what it reads.

    A compiler makes a fused multiply-add of a product and a sum where both stand in one basic block, and none of a
    product that a loop leaves in front of it or a condition behind it.  So one expression may be rounded in two ways in
    two loops, and of the values that a maximum was taken of none may be equal to it.
    """
    values: dict[str, list[Expr]] = {}
    for statement in function.statements:
        if statement.reduction in (None, "min", "max"):
            values.setdefault(statement.target, []).append(statement.value)
    asked = (expr for statement in function.statements for expr in walk(statement.value) if _asks(expr))
    return (UNFUSED,) if any(_is_fusible(expr, values) for expr in asked) else ()


def _asks(expr: Expr) -> TypeGuard[Binary]:
    return isinstance(expr, Binary) and expr.op in ("==", "!=") and expr.lhs.dtype.is_float


def _is_fusible(expr: Binary, values: Mapping[str, Sequence[Expr]]) -> bool:
    """Whether a product and a sum of floats are in a side of it, or in what the side reads.

    Of a sum over elements, which is stored as it is rounded, it reads the result alone.
    """
    return any("*" in ops and not ops.isdisjoint("+-") for ops in (_operators(s, values) for s in (expr.lhs, expr.rhs)))


def _operators(expr: Expr, values: Mapping[str, Sequence[Expr]]) -> set[str]:
    """The operators of floats in an expression, and in those that ``values`` has for what it reads."""
    found: set[str] = set()
    seen: set[str] = set()
    rest = [expr]
    while rest:
        for part in walk(rest.pop()):
            if isinstance(part, Binary) and part.dtype.is_float:
                found.add(part.op)
            elif isinstance(part, Read) and part.tensor not in seen:
                seen.add(part.tensor)
                rest.extend(values.get(part.tensor, ()))
    return found
