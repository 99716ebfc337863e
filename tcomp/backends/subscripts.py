"""What can be told of a subscript before it is spelled: its value, or that a compiler may take it for a truth value."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from tcomp.grammar.tree.function import (
    Binary,
    Cast,
    Constant,
    Expr,
    Index,
    Read,
    Select,
    Size,
    Unary,
    children,
    depends_on_data,
    walk,
)


def may_be_truth(expr: Expr) -> bool:
    """Whether a compiler may come to see an integer as that of a comparison; its reads are values of their own.

    A choice cannot be one if both of its branches move with every index on which it depends.
    """
    match expr:
        case Read():
            return False
        case Select() if not depends_on_data(expr.condition):
            indices = {part.name for part in walk(expr.condition) if isinstance(part, Index)}
            branches = (expr.then, expr.otherwise)
            return not all(indices <= _steps(branch) for branch in branches) or any(map(may_be_truth, branches))
        case Select():
            return True
    return expr.dtype.kind == "bool" or any(map(may_be_truth, children(expr)))


def _steps(expr: Expr) -> set[str]:
    """The indices with each step of which an expression changes, unless they cancel out."""
    match expr:
        case Index():
            return {expr.name}
        case Unary() | Cast():
            return _steps(expr.operand)
        case Binary(op="+" | "-" | "*"):
            return _steps(expr.lhs) | _steps(expr.rhs)
    return set()


def fixed_value(expr: Expr, sizes: Mapping[str, int]) -> int | None:
    """The value of a subscript without indices, None for any other: so every C operator has an operand of 64 bits."""
    match expr:
        case Constant():
            return int(expr.value)
        case Size():
            return sizes[expr.name]
        case Cast() if expr.dtype.bits >= 32:
            return fixed_value(expr.operand, sizes)
        case Unary(op="-"):
            operand = fixed_value(expr.operand, sizes)
            return None if operand is None else -operand
        case Binary(op="+" | "-" | "*" | "/" | "%" | "min" | "max"):
            a, b = fixed_value(expr.lhs, sizes), fixed_value(expr.rhs, sizes)
            return None if a is None or b is None else _FIXED[expr.op](a, b)
        case _:
            return None


_FIXED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}
