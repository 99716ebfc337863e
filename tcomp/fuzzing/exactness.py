"""Whether every order of evaluation gives the same results, decided by how large values can get.

Whole numbers below ``2**24`` (``2**53`` in float64) are exact in floating point, and integers wrap.  A program in which
no float leaves that range and nothing is divided has one result, whatever the order of its sums: a compiler that gives
another is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.fuzzing.programs import largest_element
from tcomp.grammar.function import Binary, Call, Cast, Constant, Expr, Function, Index, Read, Select, Size, Unary
from tcomp.grammar.ranges import Ranges
from tcomp.operators import FLOAT64, DType, arithmetic_type

WHOLE_FUNCTIONS = frozenset(
    {"abs", "relu", "sign", "fabs", "floor", "ceil", "round", "trunc", "fmin", "fmax", "copysign"}
)
"""Built-in functions that keep whole numbers whole and get no larger than their operands."""


class InexactError(Exception):
    """A value may round."""


def exact_limit(dtype: DType) -> float:
    """Up to here every integer is exact in the arithmetic of a type; integers wrap, which is exact, too."""
    if not dtype.is_float:
        return math.inf
    return 2.0**53 if arithmetic_type(dtype) == FLOAT64 else 2.0**24


def is_exact(function: Function, ranges: Ranges, sizes: Mapping[str, int]) -> bool:
    """Whether a program on the arrays of ``Program.data`` has the same results in any order of evaluation."""
    return bounds_of(function, ranges, sizes) is not None


def bounds_of(function: Function, ranges: Ranges, sizes: Mapping[str, int]) -> dict[str, float] | None:
    """A bound on the finite elements of each tensor; None if a value may round."""
    given = (*function.inputs, *(t for t in function.outputs if t.name in function.needs_content))
    bounds = {t.name: float(largest_element(t.dtype)) for t in given if t.role != "const"}
    try:
        for number, statement in enumerate(function.statements):
            hull = ranges.domains[number].hull
            value = _Bound(bounds, sizes, hull).of(statement.value)
            before = bounds.get(statement.target, 0.0)
            count = _reduced_points(function, number, hull)
            start = 0.0 if statement.initialise else before
            match statement.reduction:
                case "+":
                    result = value * count + start
                case "*":
                    result = _power(value, count) * max(1.0, start)
                case _:
                    result = max(value, start)
            result = _checked(result, statement.accumulator)
            dtype = function.tensors[statement.target].dtype
            bounds[statement.target] = max(before, _stored(result, dtype))
    except InexactError:
        return None
    return bounds


def _reduced_points(function: Function, number: int, hull: Mapping[str, tuple[int, int]]) -> int:
    """At most so many points reach one element."""
    statement = function.statements[number]
    plain = all(isinstance(s, Index) for s in statement.subscripts)
    counted = statement.reduction_indices if plain else statement.indices
    return math.prod(max(0, hull[i][1] - hull[i][0] + 1) for i in counted)


@dataclass(frozen=True, slots=True)
class _Bound:
    tensors: Mapping[str, float]
    sizes: Mapping[str, int]
    hull: Mapping[str, tuple[int, int]]

    def of(self, expr: Expr) -> float:
        """A bound on the finite values of an expression.  Raises InexactError."""
        return _checked(self._value(expr), expr.dtype)

    def _value(self, expr: Expr) -> float:
        match expr:
            case Constant():
                if math.isfinite(expr.value) and expr.value != int(expr.value):
                    raise InexactError
                return abs(float(expr.value)) if math.isfinite(expr.value) else 0.0
            case Index():
                low, high = self.hull[expr.name]
                return float(max(abs(low), abs(high)))
            case Size():
                return float(abs(self.sizes[expr.name]))
            case Read():
                for subscript in expr.subscripts:
                    self.of(subscript)
                value = expr.boundary.value if expr.boundary else None
                return max(self.tensors[expr.tensor], 0.0 if value is None else self.of(value))
            case Unary() | Cast():
                return self.of(expr.operand)
            case Binary():
                return self._binary(expr)
            case Select():
                self.of(expr.condition)
                return max(self.of(expr.then), self.of(expr.otherwise))
            case Call():
                if expr.intrinsic not in WHOLE_FUNCTIONS:
                    raise InexactError
                return max(self.of(argument) for argument in expr.arguments)

    def _binary(self, expr: Binary) -> float:
        lhs, rhs = self.of(expr.lhs), self.of(expr.rhs)
        match expr.op:
            case "+" | "-":
                return lhs + rhs
            case "*":
                return lhs * rhs
            case "/" | "%":
                if (expr.op == "/" and expr.dtype.is_float) or not _is_constant(expr.rhs) or not rhs:
                    raise InexactError
                return lhs if expr.op == "/" else rhs
            case "min":
                return self._clamped(expr, lhs, rhs)
            case "max":
                return max(lhs, rhs)
            case _:
                return 1.0

    def _clamped(self, expr: Binary, lhs: float, rhs: float) -> float:
        """``min(max(x, a), b)`` with constants is how ``clamp`` reaches the compiler."""
        inner = expr.lhs
        if isinstance(inner, Binary) and inner.op == "max" and _is_constant(inner.rhs) and _is_constant(expr.rhs):
            return max(self.of(inner.rhs), rhs)
        return max(lhs, rhs)


def _is_constant(expr: Expr) -> bool:
    match expr:
        case Constant():
            return True
        case Unary() | Cast():
            return _is_constant(expr.operand)
        case _:
            return False


def _checked(bound: float, dtype: DType) -> float:
    """The bound, or for integers the largest magnitude of the type if they may wrap.  Raises InexactError."""
    if dtype.is_float:
        if bound > exact_limit(dtype):
            raise InexactError
        return bound
    if dtype.kind == "uint":
        return float(dtype.highest)
    return min(bound, float(-dtype.lowest)) if dtype.kind == "int" and bound > dtype.highest else bound


def _stored(bound: float, dtype: DType) -> float:
    """How large an element can be that was at most ``bound`` before it was rounded to its type."""
    return bound * 1.01 if dtype.is_float and dtype.bits == 16 else _checked(bound, dtype)


def _power(base: float, exponent: int) -> float:
    """A bound on the product of so many values."""
    if base <= 1 or exponent == 0:
        return 1.0
    return math.inf if exponent * math.log2(base) > 100 else base**exponent
