"""Typing of operations on the bits of integers, which are calls of built-in functions behind the checker."""

from __future__ import annotations

from tcomp.errors import Span
from tcomp.grammar.tree.conversions import Typed, convert
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Binary, Call, Constant, Expr, Select, Unary
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
