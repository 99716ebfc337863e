"""Bounds of integer expressions that are not affine, such as ``A(i * j)``, by interval arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from tcomp.grammar.tree.forms import Interval, interval, to_form
from tcomp.grammar.tree.function import Binary, Call, Cast, Expr, Select, Unary


def bounds_of(expr: Expr, sizes: Mapping[str, int], hull: Mapping[str, Interval]) -> Interval | None:
    """Inclusive bounds of an expression over non-empty index intervals, not always tight.

    None where it reads a tensor, calls what has no bounds here or may divide by zero.
    """
    form = to_form(expr, sizes)
    if form is not None:
        return interval(form, hull)
    match expr:
        case Unary(op="-"):
            inner = bounds_of(expr.operand, sizes, hull)
            return None if inner is None else (-inner[1], -inner[0])
        case Binary():
            lhs, rhs = bounds_of(expr.lhs, sizes, hull), bounds_of(expr.rhs, sizes, hull)
            return None if lhs is None or rhs is None else _binary_bounds(expr.op, lhs, rhs)
        case Select():
            then, otherwise = bounds_of(expr.then, sizes, hull), bounds_of(expr.otherwise, sizes, hull)
            if then is None or otherwise is None:
                return None
            return min(then[0], otherwise[0]), max(then[1], otherwise[1])
        case Call(intrinsic="bit_and" | "bit_or" | "bit_xor" | "bit_not"):
            arguments = [bounds_of(a, sizes, hull) for a in expr.arguments]
            known = [a for a in arguments if a is not None]
            return _bits_bounds(expr.intrinsic, known) if len(known) == len(arguments) else None
        case Call(intrinsic="shift_left" | "shift_right", arguments=(shifted, by)) if expr.dtype.kind == "int":
            value, amount = bounds_of(shifted, sizes, hull), bounds_of(by, sizes, hull)
            return None if value is None or amount is None else _shift_bounds(expr, value, amount)
        case Cast() if expr.dtype.kind == "int" and expr.dtype.bits >= 32:
            return bounds_of(expr.operand, sizes, hull)
        case _:
            return None


def _binary_bounds(op: str, lhs: Interval, rhs: Interval) -> Interval | None:
    match op:
        case "+":
            return lhs[0] + rhs[0], lhs[1] + rhs[1]
        case "-":
            return lhs[0] - rhs[1], lhs[1] - rhs[0]
        case "*":
            corners = [a * b for a in lhs for b in rhs]
            return min(corners), max(corners)
        case "/" if rhs[0] > 0:
            corners = [a // b for a in lhs for b in rhs]
            return min(corners), max(corners)
        case "%" if rhs[0] > 0:
            return lhs if lhs[0] >= 0 and lhs[1] < rhs[0] else (0, rhs[1] - 1)
        case "min":
            return min(lhs[0], rhs[0]), min(lhs[1], rhs[1])
        case "max":
            return max(lhs[0], rhs[0]), max(lhs[1], rhs[1])
        case _:
            return None


def _shift_bounds(expr: Call, value: Interval, amount: Interval) -> Interval:
    """Shifts by less than 0 or by all bits leave nothing but the sign; what leaves the type on the left wraps."""
    whole = (int(expr.dtype.lowest), int(expr.dtype.highest))
    near = amount[0] >= 0 and amount[1] < expr.dtype.bits
    if expr.intrinsic == "shift_right":
        if not near:
            return min(value[0], 0), max(value[1], 0)
        corners = [v >> a for v in value for a in amount]
        return min(corners), max(corners)
    corners = [v << a for v in value for a in amount] if near else []
    inside = near and whole[0] <= min(corners) and max(corners) <= whole[1]
    return (min(corners), max(corners)) if inside else whole


def _bits_bounds(intrinsic: str, arguments: list[Interval]) -> Interval:
    if intrinsic == "bit_not":
        ((low, high),) = arguments
        return -1 - high, -1 - low
    positive = [high for low, high in arguments if low >= 0]
    if intrinsic == "bit_and" and positive:
        return 0, min(positive)
    lows, highs = zip(*arguments, strict=True)
    all_ones = (1 << max(abs(bound).bit_length() for bound in (*lows, *highs))) - 1
    return (0 if len(positive) == len(arguments) else -1 - all_ones), all_ones
