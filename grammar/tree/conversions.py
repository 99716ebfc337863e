"""Types of expressions: literals, implied conversions, wider computation of narrow sums."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from tcomp.errors import Span
from tcomp.grammar.tree.function import Binary, Call, Cast, Constant, Expr, Select, Unary
from tcomp.values.operators import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT64,
    DType,
)

EIGHT_BITS = (INT8, UINT8)

_EXACT_INTEGERS = {FLOAT32: 1 << 24, FLOAT64: 1 << 53}
"""Up to where every integer has an exact floating-point value."""

_FLOATS = {
    FLOAT8_E4M3: (4, -5, 448.0),
    FLOAT8_E5M2: (3, -13, 57344.0),
    FLOAT16: (11, -13, 65504.0),
    BFLOAT16: (8, -125, 2.0**128 - 2.0**120),
    FLOAT32: (24, -125, 2.0**128 - 2.0**104),
}
"""Bits of a number, its least exponent, as a fraction below 1 times 2 to that, and the largest number."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A typed expression and its nominal type.

    The two differ for short floats: those of 16 bits, say, are computed in float32 but remain float16 in name.
    ``nominal`` is None where an error below has been reported, so that it is not reported again.  What is ``flexible``
    is float32 for want of anything else: all its floats are literals, and it takes the type of a double beside it.
    """

    expr: Expr
    nominal: DType | None
    flexible: bool = False

    def converted(self, dtype: DType) -> Expr:
        """The expression as ``dtype``: in double precision throughout where it is flexible, else as ``convert``."""
        return _in_doubles(self.expr) if self.flexible and dtype == FLOAT64 else convert(self.expr, dtype)


def flexible(parts: Iterable[Typed]) -> bool:
    """Whether what is computed of some operands is flexible: one of them is, and the others are integers."""
    floats = [p for p in parts if p.nominal is None or p.nominal.is_float]
    return bool(floats) and all(p.flexible for p in floats)


def _in_doubles(expr: Expr) -> Expr:
    """A flexible expression in double precision: literals as they were written, integers converted."""
    match expr:
        case Constant() if expr.dtype == FLOAT32:
            return Constant(expr.value if expr.exact is None else expr.exact, FLOAT64, expr.span)
        case Cast() if expr.dtype == FLOAT32:
            return convert(expr.operand, FLOAT64)
        case Binary():
            return replace(expr, lhs=_in_doubles(expr.lhs), rhs=_in_doubles(expr.rhs), dtype=FLOAT64)
        case Unary():
            return replace(expr, operand=_in_doubles(expr.operand), dtype=FLOAT64)
        case Select():
            return replace(expr, then=_in_doubles(expr.then), otherwise=_in_doubles(expr.otherwise), dtype=FLOAT64)
        case Call():
            return replace(expr, arguments=tuple(map(_in_doubles, expr.arguments)), dtype=FLOAT64)
        case _:
            return convert(expr, FLOAT64)


def literal(text: str, span: Span, *, unsigned: bool = False) -> Constant | None:
    """The value of a number: float32 if its text has a ``.`` or an exponent, else int32, or int64 where it must, or
    where that may be ``unsigned`` uint64.

    A float32 has the ``exact`` number for where it stands beside a double.  None for an integer that fits in no type.
    A decimal float is rounded to float32, to infinity if it is too large.
    """
    lowered = text.lower()
    if lowered.startswith("0x"):
        if "." in lowered or "p" in lowered:
            return _float32(_hexadecimal_float(lowered), span)
        digits, base = lowered[2:].lstrip("0"), 16
    elif "." in lowered or "e" in lowered:
        return _float32(float(lowered), span)
    else:
        digits, base = lowered.lstrip("0"), 10
    value = int(digits or "0", base) if len(digits) <= 20 else UINT64.highest + 1
    for dtype in (INT32, INT64, UINT64)[: 3 if unsigned else 2]:
        if value <= dtype.highest:
            return Constant(value, dtype, span)
    return None


def _float32(value: float, span: Span) -> Constant:
    return Constant(rounded(value, FLOAT32), FLOAT32, span, exact=value)


def _hexadecimal_float(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def rounded(value: float, dtype: DType) -> float:
    """The element of a float type nearest to a number, ties to even; out of its range the largest that it has."""
    if dtype == FLOAT64 or not math.isfinite(value):
        return math.copysign(dtype.largest, value) if math.isinf(value) else float(value)
    digits, least, most = _FLOATS[dtype]
    unit = Fraction(2) ** (max(math.frexp(value)[1], least) - digits)
    nearest = round(Fraction(value) / unit) * unit
    return math.copysign(float(nearest) if abs(nearest) <= most else dtype.largest, value)


def convert(expr: Expr, dtype: DType) -> Expr:
    """The expression as ``dtype``: itself, a literal of that type where that is exact, or a Cast."""
    if expr.dtype == dtype:
        return expr
    if dtype == BOOL:
        return Binary("!=", expr, convert(Constant(0, INT32, expr.span), expr.dtype), BOOL, expr.span)
    if isinstance(expr, Constant) and expr.dtype.is_integer:
        if abs(expr.value) <= _EXACT_INTEGERS.get(dtype, 0):
            return Constant(float(expr.value), dtype, expr.span)
        if dtype.is_integer and dtype.lowest <= expr.value <= dtype.highest:
            return Constant(expr.value, dtype, expr.span)
    return Cast(expr, dtype, expr.span)


def widen(expr: Expr, dtype: DType) -> Expr:
    """An 8-bit computation done in a wider integer type, its leaves converted first."""
    if expr.dtype not in EIGHT_BITS:
        return convert(expr, dtype)
    match expr:
        case Binary():
            return replace(expr, lhs=widen(expr.lhs, dtype), rhs=widen(expr.rhs, dtype), dtype=dtype)
        case Unary():
            return replace(expr, operand=widen(expr.operand, dtype), dtype=dtype)
        case Select():
            return replace(expr, then=widen(expr.then, dtype), otherwise=widen(expr.otherwise, dtype), dtype=dtype)
        case Call():
            return replace(expr, arguments=tuple(widen(a, dtype) for a in expr.arguments), dtype=dtype)
        case _:
            return convert(expr, dtype)
