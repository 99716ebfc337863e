"""Typing of operations on the bits of integers, which are calls of built-in functions behind the checker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tcomp.errors import Span
from tcomp.grammar.tree.conversions import Typed, convert
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Constant,
    Expr,
    Index,
    Select,
    Unary,
    depends_on_data,
    map_children,
    walk,
)
from tcomp.values.operators import BOOL, INT32, DType, promote

BITWISE: dict[str, str] = {
    "&": "bit_and", "|": "bit_or", "^": "bit_xor", "<<": "shift_left", ">>": "shift_right",
}  # fmt: skip
"""The operators of two operands, with the functions that they call."""

_SHIFTS = ("shift_left", "shift_right")
_ON_BOOLS = {"bit_and": "&&", "bit_or": "||", "bit_xor": "!="}
_FAR = 127
"""A shift by which nothing is left of any integer, and which any integer type holds."""


def bits(written: str, name: str, operands: tuple[Typed, ...], span: Span, report: Report) -> Typed:
    """The function ``name`` of operands that have types; ``written`` is what the program calls it.

    A shift has the type of what is shifted, and everything else the common type.  On truth values, and, or, exclusive
    or and not are those of logic.
    """
    nominal: DType = BOOL
    for operand in operands:
        assert operand.nominal is not None
        nominal = promote(nominal, operand.nominal)
    for operand in operands:
        found = operand.nominal
        if found is None or found.is_float or (found == BOOL and (nominal != BOOL or not _is_logical(name))):
            hint = "convert it first, as in `int32(...)`"
            report.error(f"`{written}` applies to the bits of integers but found {found}", operand.expr.span, hint)
            return Typed(Constant(0, INT32, span), None)
    exprs = tuple(operand.expr for operand in operands)
    if nominal == BOOL:
        if name == "bit_not":
            return Typed(Unary("!", exprs[0], BOOL, span), BOOL)
        return Typed(Binary(_ON_BOOLS[name], exprs[0], exprs[1], BOOL, span), BOOL)
    if name in _SHIFTS:
        nominal = exprs[0].dtype
        return Typed(Call(name, (exprs[0], _amount(exprs[1], nominal)), nominal, span), nominal)
    return Typed(Call(name, tuple(convert(expr, nominal) for expr in exprs), nominal, span), nominal)


def _is_logical(name: str) -> bool:
    return name in _ON_BOOLS or name == "bit_not"


def _amount(amount: Expr, dtype: DType) -> Expr:
    """By how many bits to shift, in the type of what is shifted; what that cannot hold is far."""
    if amount.dtype.bits <= dtype.bits:
        return convert(amount, dtype)
    span, kind = amount.span, amount.dtype
    if isinstance(amount, Constant):
        near = 0 <= amount.value <= _FAR
        return Constant(int(amount.value) if near else _FAR, dtype, span)
    outside = Binary(">", amount, Constant(_FAR, kind, span), BOOL, span)
    if kind.kind == "int":
        outside = Binary("||", Binary("<", amount, Constant(0, kind, span), BOOL, span), outside, BOOL, span)
    return convert(Select(outside, Constant(_FAR, kind, span), amount, kind, span), dtype)


def in_arithmetic(expr: Expr) -> Expr:
    """A subscript in which bits of indices are told by divisions, which ranges and proofs know: ``i ^ 1`` is
    ``i + 1 - 2 * (i % 2)``.  One operand is a number; what depends on data stays as it is.

    What several operands share, as inlined lets, is gone through once and stays shared.
    """
    told: dict[int, Expr] = {}

    def tell(node: Expr) -> Expr:
        if not isinstance(node, Call | Binary | Unary | Cast):
            return node
        if id(node) not in told:
            told[id(node)] = _of_bits(map_children(node, tell))
        return told[id(node)]

    return tell(expr)


def _of_bits(found: Expr) -> Expr:
    if not isinstance(found, Call) or found.dtype.kind != "int":
        return found
    made = _Integers(found.dtype, found.span)
    if found.intrinsic == "bit_not" and _is_of_indices(found.arguments[0], found.dtype):
        return made.of("-", made.number(-1), found.arguments[0])
    if found.intrinsic not in _ARITHMETIC:
        return found
    sides = [_number(side) for side in found.arguments]
    if found.intrinsic in _SHIFTS:
        operand, number = found.arguments[0], sides[1]
    else:
        operand, number = found.arguments[sides[0] is not None], sides[0] if sides[0] is not None else sides[1]
    if number is None or not _is_of_indices(operand, found.dtype):
        return found
    return _ARITHMETIC[found.intrinsic](made, operand, number) or found


@dataclass(frozen=True, slots=True)
class _Integers:
    """Arithmetic of one type at one place."""

    dtype: DType
    span: Span

    def number(self, value: int) -> Expr:
        return Constant(value, self.dtype, self.span)

    def of(self, op: str, lhs: Expr, rhs: Expr | int) -> Expr:
        other = self.number(rhs) if isinstance(rhs, int) else rhs
        return Binary(op, lhs, other, self.dtype, self.span)

    def both(self, x: Expr, number: int) -> Expr:
        """The bits that ``x`` and a number have: for each run of these, a remainder of a quotient."""
        if number < 0:
            return self.of("-", x, self.both(x, ~number))
        total: Expr | None = None
        for low, high in _runs(number):
            part = self.of("%", x if not low else self.of("/", x, 1 << low), 1 << (high - low))
            part = part if not low else self.of("*", part, 1 << low)
            total = part if total is None else self.of("+", total, part)
        return self.number(0) if total is None else total

    def either(self, x: Expr, number: int) -> Expr:
        """The bits that one of them has."""
        return self.of("-", self.of("+", x, number), self.both(x, number))

    def unlike(self, x: Expr, number: int) -> Expr:
        """The bits that one alone of them has."""
        return self.of("-", self.of("+", x, number), self.of("*", self.both(x, number), 2))

    def right(self, x: Expr, number: int) -> Expr | None:
        """Shifted to the right; where all bits leave, or the shift is none, it stays what it is."""
        return self.of("/", x, 1 << number) if 0 <= number < INT32.bits - 1 else None

    def left(self, x: Expr, number: int) -> Expr | None:
        """Shifted to the left, which is a product: subscripts have no largest number, also on the way to a place."""
        return self.of("*", x, 1 << number) if 0 <= number < INT32.bits - 1 else None


_ARITHMETIC = {
    "bit_and": _Integers.both, "bit_or": _Integers.either, "bit_xor": _Integers.unlike, "shift_left": _Integers.left,
    "shift_right": _Integers.right,
}  # fmt: skip


def _runs(number: int) -> Iterator[tuple[int, int]]:
    """The runs of bits that are 1, each from one to before another."""
    low = 0
    while number >> low:
        if number >> low & 1:
            high = low
            while number >> high & 1:
                high += 1
            yield low, high
            low = high
        else:
            low += 1


def _number(expr: Expr) -> int | None:
    """The value of a number, as its type holds it."""
    match expr:
        case Constant():
            return int(expr.value) if expr.dtype.is_integer else None
        case Cast() | Unary(op="-") if expr.dtype.is_integer:
            number = _number(expr.operand)
            if number is None:
                return None
            number = -number if isinstance(expr, Unary) else number
            return int(expr.dtype.lowest) + (number - int(expr.dtype.lowest)) % (1 << expr.dtype.bits)
    return None


def _is_of_indices(expr: Expr, dtype: DType) -> bool:
    """Whether an operand is made of indices, whose values the type always holds."""
    return dtype.bits >= INT32.bits and not depends_on_data(expr) and any(isinstance(e, Index) for e in walk(expr))
