"""Whether every order of evaluation gives the same results, decided by how large values can get.

Whole numbers below ``2**24`` (``2**53`` in float64) are exact in floating point, and integers wrap; so are multiples of
``2**-n`` that are so many units or fewer.  A program in which no float leaves that range and nothing is divided has one
result, whatever the order of its sums: a compiler that gives another is wrong.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from tcomp.fuzzing.programs.programs import largest_element
from tcomp.grammar.ranges.ranges import Ranges
from tcomp.grammar.tree.function import Binary, Call, Cast, Constant, Expr, Function, Index, Read, Select, Size, Unary
from tcomp.values.operators import FLOAT64, INTRINSICS, DType, arithmetic_type

WHOLE_FUNCTIONS = frozenset(
    {"abs", "relu", "sign", "fabs", "floor", "ceil", "round", "trunc", "fmin", "fmax", "copysign"}
)
"""Built-in functions that keep whole numbers whole and get no larger than their operands."""


_ROUNDED = frozenset({"sign", "floor", "ceil", "round", "trunc"})
"""Those of them whose results are whole."""


MOST_STEPS = 2000
"""More are not followed one by one."""


class InexactError(Exception):
    """A value may round."""


@dataclass(frozen=True, slots=True)
class Amount:
    """What is known of values: they are multiples of ``2**-bits`` and at most ``bound`` in magnitude."""

    bound: float
    bits: int = 0


def exact_limit(dtype: DType) -> float:
    """Up to here every integer is exact in the arithmetic of a type; integers wrap, which is exact, too."""
    if not dtype.is_float:
        return math.inf
    return 2.0**53 if arithmetic_type(dtype) == FLOAT64 else 2.0**24


def is_exact(
    function: Function, ranges: Ranges, sizes: Mapping[str, int], bits: int = 0, factors: float = math.inf
) -> bool:
    """Whether a program has the same results in any order of evaluation, on the arrays of ``Program.data`` whose floats
    are multiples of ``2**-bits``.

    What sums of products of floats multiply must be at most so many such units: ``factors``.
    """
    return bounds_of(function, ranges, sizes, bits, factors) is not None


def bounds_of(
    function: Function, ranges: Ranges, sizes: Mapping[str, int], bits: int = 0, factors: float = math.inf
) -> dict[str, float] | None:
    """A bound on the finite elements of each tensor; None if a value may round, or a factor has too many digits."""
    given = (*function.inputs, *(t for t in function.outputs if t.name in function.needs_content))
    known = {
        t.name: Amount(float(largest_element(t.dtype)), bits if t.dtype.is_float else 0)
        for t in given
        if t.role != "const"
    }
    try:
        for number in _in_order(function, ranges):
            statement = function.statements[number]
            hull = ranges.domains[number].hull
            amounts = _Amounts(known, sizes, hull)
            value = amounts.of(statement.value)
            if statement.reduction == "+" and amounts.largest_factor(statement.value) > factors:
                raise InexactError
            before = known.get(statement.target, Amount(0.0))
            count = _reduced_points(function, number, hull)
            start = Amount(0.0) if statement.initialise else before
            match statement.reduction:
                case "+":
                    result = Amount(value.bound * count + start.bound, max(value.bits, start.bits))
                case "*":
                    power = _power(value.bound, count) * max(1.0, start.bound)
                    result = Amount(power, value.bits * count + start.bits)
                case _:
                    result = _either(value, start)
            domain = ranges.domains[number]
            if statement.reduction and statement.initialise and (domain.is_empty or not domain.rectangular):
                result = _either(result, _neutral(statement.reduction, statement.accumulator))
            result = _checked(result, statement.accumulator)
            stored = _stored(result, function.tensors[statement.target].dtype)
            known[statement.target] = Amount(max(before.bound, stored.bound), max(before.bits, stored.bits))
    except InexactError:
        return None
    return {name: amount.bound for name, amount in known.items()}


def _in_order(function: Function, ranges: Ranges) -> Iterator[int]:
    """The numbers of the statements, those of a block as often as it has steps.  Raises InexactError for many."""
    numbers = range(len(function.statements))

    def block(number: int) -> tuple[int, int]:
        steps = function.statements[number].steps
        return (steps[0].number, 0) if steps else (-1, number)

    for _, group in groupby(numbers, block):
        members = list(group)
        times = 1
        for number in members:
            hull = ranges.domains[number].hull
            extents = [hull[step.index][1] - hull[step.index][0] + 1 for step in function.statements[number].steps]
            times = max(times, math.prod(extents))
        if times * len(members) > MOST_STEPS:
            raise InexactError
        for _ in range(times):
            yield from members


def _reduced_points(function: Function, number: int, hull: Mapping[str, tuple[int, int]]) -> int:
    """At most so many points reach one element."""
    statement = function.statements[number]
    plain = all(isinstance(s, Index) for s in statement.subscripts)
    counted = statement.reduction_indices if plain else statement.indices
    return math.prod(max(0, hull[i][1] - hull[i][0] + 1) for i in counted)


@dataclass(frozen=True, slots=True)
class _Amounts:
    tensors: Mapping[str, Amount]
    sizes: Mapping[str, int]
    hull: Mapping[str, tuple[int, int]]

    def of(self, expr: Expr) -> Amount:
        """What is known of the finite values of an expression.  Raises InexactError."""
        return _checked(self._value(expr), expr.dtype)

    def largest_factor(self, expr: Expr) -> float:
        """The largest factor of a product of floats, in units; 0 for anything else."""
        if not (isinstance(expr, Binary) and expr.op == "*" and expr.dtype.is_float):
            return 0.0
        return max(amount.bound * 2.0**amount.bits for amount in map(self.of, (expr.lhs, expr.rhs)))

    def _value(self, expr: Expr) -> Amount:
        match expr:
            case Constant():
                if math.isfinite(expr.value) and expr.value != int(expr.value):
                    raise InexactError
                return Amount(abs(float(expr.value)) if math.isfinite(expr.value) else 0.0)
            case Index():
                low, high = self.hull[expr.name]
                return Amount(float(max(abs(low), abs(high))))
            case Size():
                return Amount(float(abs(self.sizes[expr.name])))
            case Read():
                for subscript in expr.subscripts:
                    self.of(subscript)
                value = expr.boundary.value if expr.boundary else None
                element = self.tensors[expr.tensor]
                return element if value is None else _either(element, self.of(value))
            case Unary() | Cast():
                operand = self.of(expr.operand)
                return operand if expr.dtype.is_float else Amount(operand.bound)
            case Binary():
                return self._binary(expr)
            case Select():
                self.of(expr.condition)
                return _either(self.of(expr.then), self.of(expr.otherwise))
            case Call():
                return self._call(expr)

    def _call(self, expr: Call) -> Amount:
        if INTRINSICS[expr.intrinsic].only_integers:
            return self._of_bits(expr)
        if expr.intrinsic not in WHOLE_FUNCTIONS:
            raise InexactError
        value = functools.reduce(_either, map(self.of, expr.arguments))
        return Amount(math.ceil(value.bound)) if expr.intrinsic in _ROUNDED else value

    def _of_bits(self, expr: Call) -> Amount:
        """What is known of an operation on bits, whose result may be any integer that has as many as the operands."""
        amounts = [self.of(argument).bound for argument in expr.arguments]
        match expr.intrinsic:
            case "popcount" | "clz":
                return Amount(float(expr.dtype.bits))
            case "shift_left":
                return Amount(2.0**expr.dtype.bits)
            case "shift_right":
                return Amount(max(1.0, amounts[0]))
            case _:
                return Amount(2.0 ** math.frexp(max(amounts))[1])

    def _binary(self, expr: Binary) -> Amount:
        lhs, rhs = self.of(expr.lhs), self.of(expr.rhs)
        bits = max(lhs.bits, rhs.bits)
        match expr.op:
            case "+" | "-":
                return Amount(lhs.bound + rhs.bound, bits)
            case "*":
                return Amount(lhs.bound * rhs.bound, lhs.bits + rhs.bits)
            case "/" | "%":
                if (expr.op == "/" and expr.dtype.is_float) or not _is_constant(expr.rhs) or not rhs.bound:
                    raise InexactError
                return Amount((lhs if expr.op == "/" else rhs).bound, bits)
            case "min":
                return Amount(self._clamped(expr, lhs.bound, rhs.bound), bits)
            case "max":
                return Amount(max(lhs.bound, rhs.bound), bits)
            case _:
                return Amount(1.0)

    def _clamped(self, expr: Binary, lhs: float, rhs: float) -> float:
        """``min(max(x, a), b)`` with constants is how ``clamp`` reaches the compiler."""
        inner = expr.lhs
        if isinstance(inner, Binary) and inner.op == "max" and _is_constant(inner.rhs) and _is_constant(expr.rhs):
            return max(self.of(inner.rhs).bound, rhs)
        return max(lhs, rhs)


def _either(one: Amount, other: Amount) -> Amount:
    return Amount(max(one.bound, other.bound), max(one.bits, other.bits))


def _is_constant(expr: Expr) -> bool:
    match expr:
        case Constant():
            return True
        case Unary() | Cast():
            return _is_constant(expr.operand)
        case _:
            return False


def _checked(amount: Amount, dtype: DType) -> Amount:
    """The amount, or for integers the largest magnitude of the type if they may wrap.  Raises InexactError."""
    bound = amount.bound
    if dtype.is_float:
        if bound and math.log2(bound) + amount.bits > math.log2(exact_limit(dtype)):
            raise InexactError
        return amount
    if dtype.kind == "uint":
        return Amount(float(dtype.highest))
    return Amount(min(bound, float(-dtype.lowest)) if dtype.kind == "int" and bound > dtype.highest else bound)


def _stored(amount: Amount, dtype: DType) -> Amount:
    """How large an element can be that was at most so much before it was rounded to its type."""
    if dtype.is_short_float:
        return Amount(amount.bound * (1.25 if dtype.is_float8 else 1.01), amount.bits)
    return _checked(amount, dtype)


def _neutral(operator: str, dtype: DType) -> Amount:
    """What an element without points holds, if that is finite."""
    extreme = operator in ("min", "max") and not dtype.is_float
    return Amount(max(float(dtype.highest), -float(dtype.lowest)) if extreme else 1.0)


def _power(base: float, exponent: int) -> float:
    """A bound on the product of so many values."""
    if base <= 1 or exponent == 0:
        return 1.0
    return math.inf if exponent * math.log2(base) > 100 else base**exponent
