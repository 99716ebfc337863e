"""How far the value of an expression in a kernel may be from the reference's: running error analysis on whole arrays.

Every operation adds its rounding error to what its operands bring along (N. J. Higham, "Accuracy and Stability of
Numerical Algorithms", 2nd ed., SIAM 2002, section 3.3).  Errors are absolute, elementwise and first order: a function's
operands are moved by their errors to see what that changes.

Next to errors goes a ``grid``: the largest power of two of which all values are multiples.  Sums, differences and
products of such values that stay below 2^p grid points are numbers of a format with p bits, so no rounding happens.
That is how integers come out exact, whatever the order of operations.

An infinite error means that nothing is known: a condition that rounding decides, an intermediate result that overflows
in the kernel's type but not in the reference's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Constant,
    Expr,
    Read,
    Select,
    Unary,
    depends_on_data,
    walk,
)
from tcomp.model.evaluation import Array, Frame, binary_values, call_values, convert, evaluate
from tcomp.values.accuracy import FORMATS, Arithmetic
from tcomp.values.operators import FLOAT64, DType, arithmetic_type

NONE: Array = np.zeros(())
"""The error of what is certain."""

ANY_GRID = 1 << 20
"""The grid of zeros, which are multiples of everything."""

_PIECE = 1 << 15
"""Elements that are looked at together: what is computed of them stays in a near cache."""

_BITS: Mapping[np.dtype[Any], tuple[Any, int, int]] = {
    np.dtype(np.float32): (np.uint32, 23, 127),
    np.dtype(np.float64): (np.uint64, 52, 1023),
}
"""For a type the integers of its size, the bits of its fraction, and the bias of its exponent."""

_REFERENCE_UNIT = FORMATS[FLOAT64].unit
_STEP = 2.0**-47
"""Relative step that shows the slope of a function in float64: 64 units, so that rounding hardly shows."""

_KEEPS_GRID = ("abs", "fabs", "relu", "fmax", "fmin", "copysign")
_WHOLE = ("ceil", "floor", "logb", "round", "sign", "trunc")


@dataclass(frozen=True, slots=True)
class Bounded:
    """Values of the reference and how far a kernel's may be from them; ``grid`` holds where the error is 0.

    ``grid`` is the exponent of the power of two; None where it is not known.
    """

    value: Array
    error: Array
    grid: int | None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where an expression is analysed.

    The frame has a tensor's errors under ``error_name``, unless there are none; ``grids`` has the grid of each tensor.
    """

    frame: Frame
    grids: Mapping[str, int | None]
    arithmetic: Arithmetic

    def where(self, condition: Array) -> Surroundings:
        """Restricted to the points where a condition holds."""
        return replace(self, frame=self.frame.where(condition))


def error_name(tensor: str) -> str:
    """Under which the errors of a tensor lie; no tensor of a program has such a name."""
    return f"{tensor}'"


def bound(expr: Expr, at: Surroundings) -> Bounded:
    """The value of an expression at every point of a frame, as ``evaluate`` gives it, with its error."""
    if not _may_err(expr, at):
        value = evaluate(expr, at.frame)
        return Bounded(value, NONE, grid_of(value) if expr.dtype.is_float else 0)
    match expr:
        case Read():
            return _read(expr, at)
        case Unary():
            inner = bound(expr.operand, at)
            negated = np.logical_not(inner.value) if expr.op == "!" else np.negative(inner.value)
            return replace(inner, value=negated)
        case Binary(op="&&" | "||"):
            return _logical(expr, at)
        case Binary():
            return _binary(expr, bound(expr.lhs, at), bound(expr.rhs, at), at.arithmetic)
        case Select():
            return _select(expr, at)
        case Call():
            return _call(expr, [bound(a, at) for a in expr.arguments], at.arithmetic)
        case Cast():
            return _cast(bound(expr.operand, at), expr.operand.dtype, expr.dtype)
        case _:
            return Bounded(evaluate(expr, at.frame), NONE, None)


def _may_err(expr: Expr, at: Surroundings) -> bool:
    """Whether the kernel may have another value: what has no floats and reads no tensor with errors is certain."""
    for node in walk(expr):
        if isinstance(node, Read) and error_name(node.tensor) in at.frame.tensors:
            return True
        if node.dtype.is_float and not isinstance(node, Constant):
            return True
    return False


def grid_of(values: Array, certain: Array | None = None) -> int:
    """The largest exponent of a power of two of which all finite values are multiples, where ``certain`` holds."""
    flat = np.asarray(values).reshape(-1)
    chosen = None if certain is None else np.broadcast_to(certain, np.shape(values)).reshape(-1)
    pieces = [slice(start, start + _PIECE) for start in range(0, flat.size, _PIECE)]
    return min((_grid_of(flat[p], None if chosen is None else chosen[p]) for p in pieces), default=ANY_GRID)


def _grid_of(values: Array, certain: Array | None) -> int:
    """The same for values of one dimension, from their bits: a mantissa times a power of two."""
    if values.dtype not in _BITS:
        values = values.astype(np.float64)
    unsigned, fraction, bias = _BITS[values.dtype]
    bits = values.view(unsigned) & unsigned((1 << (values.dtype.itemsize * 8 - 1)) - 1)
    exponent = bits >> unsigned(fraction)
    whole = exponent != 0
    mantissa = bits & unsigned((1 << fraction) - 1) | whole.astype(unsigned) << unsigned(fraction)
    lowest = mantissa & (~mantissa + unsigned(1))
    position = lowest.astype(values.dtype).view(unsigned) >> unsigned(fraction)
    counts = (bits != 0) & (exponent != unsigned(2 * bias + 1))
    chosen = (np.where(whole, exponent, unsigned(1)) + position)[counts if certain is None else counts & certain]
    return int(chosen.min()) - 2 * bias - fraction if chosen.size else ANY_GRID


def rounded(value: Array, error: Array, dtype: DType, grid: int | None, ulps: float) -> Array:
    """The error once a value with an error has been computed within ``ulps`` in a type; 0.5 is rounding to nearest.

    The reference computes in float64 and errs as well, which matters where the kernel does no worse.
    """
    form = FORMATS[arithmetic_type(dtype)]
    with np.errstate(all="ignore"):
        size = np.abs(value) + error
        grown = error + 2 * ulps * ((form.unit + _REFERENCE_UNIT) * size + form.least)
        beyond = size > form.largest
    kept = (error == 0) & exact(np.abs(value), form.precision, form.lowest_exponent, grid)
    grown = np.where(beyond | np.isnan(grown), np.inf, grown)
    # What errs by a finite amount and gives an infinity had one among its operands.
    return np.where(np.isinf(value) & np.isfinite(error), 0.0, np.where(kept | np.isnan(value), error, grown))


def exact(size: Array, precision: int, lowest_exponent: int, grid: int | None) -> Array:
    """Whether multiples of 2^grid up to ``size`` are numbers of a format."""
    if grid is None or grid < lowest_exponent:
        return np.asarray(size == 0)
    return np.asarray(size <= 2.0 ** min(precision + grid, 1023))


def stored(value: Array, error: Array, dtype: DType) -> Array:
    """The error between a kernel's value and the reference's once both have been rounded to a type."""
    if not dtype.is_float:
        return error
    form = FORMATS[dtype]
    with np.errstate(all="ignore"):
        size = np.abs(value) + error
        grown = error + 2 * form.unit * size + form.least
    return np.where(error == 0, error, np.where((size > form.largest) | np.isnan(grown), np.inf, grown))


def scaled(size: Array, error: Array) -> Array:
    """``size`` times ``error``; nothing where there is no error, even if the size is infinite."""
    with np.errstate(all="ignore"):
        return np.where(error == 0, 0.0, np.abs(size) * error)


def _least_grid(*grids: int | None) -> int | None:
    return None if None in grids else min(g for g in grids if g is not None)


def _read(expr: Read, at: Surroundings) -> Bounded:
    value, error, grid = evaluate(expr, at.frame), NONE, at.grids[expr.tensor]
    boundary = expr.boundary
    if error_name(expr.tensor) in at.frame.tensors:
        if boundary is not None and boundary.value is not None:
            boundary = replace(boundary, value=Constant(0.0, FLOAT64, expr.span))
        read = replace(expr, tensor=error_name(expr.tensor), dtype=FLOAT64, boundary=boundary)
        error = evaluate(read, at.frame)
    if expr.boundary is not None and expr.boundary.value is not None:
        outside = bound(expr.boundary.value, at)
        error, grid = np.maximum(error, outside.error), _least_grid(grid, outside.grid)
    for subscript in expr.subscripts:
        if depends_on_data(subscript) and _may_err(subscript, at):
            error = np.where(bound(subscript, at).error > 0, np.inf, error)
    return Bounded(value, error, grid)


def _logical(expr: Binary, at: Surroundings) -> Bounded:
    lhs = bound(expr.lhs, at)
    decided = ~lhs.value if expr.op == "&&" else lhs.value
    rhs = bound(expr.rhs, at.where(~decided))
    value = lhs.value & rhs.value if expr.op == "&&" else lhs.value | rhs.value
    return Bounded(value, np.where(decided & (lhs.error == 0), 0.0, np.maximum(lhs.error, rhs.error)), 0)


def _select(expr: Select, at: Surroundings) -> Bounded:
    condition = bound(expr.condition, at)
    then, otherwise = bound(expr.then, at.where(condition.value)), bound(expr.otherwise, at.where(~condition.value))
    value = np.where(condition.value, then.value, otherwise.value)
    error = np.where(condition.value, then.error, otherwise.error)
    if condition.error.any():
        with np.errstate(all="ignore"):
            apart = np.abs(np.subtract(then.value, otherwise.value, dtype=np.float64))
        either = np.where(then.value == otherwise.value, 0.0, apart) + np.maximum(then.error, otherwise.error)
        error = np.where(condition.error > 0, np.where(np.isnan(either), np.inf, either), error)
    return Bounded(value, error, _least_grid(then.grid, otherwise.grid))


def _binary(expr: Binary, lhs: Bounded, rhs: Bounded, arithmetic: Arithmetic) -> Bounded:
    value = binary_values(expr, lhs.value, rhs.value)
    if expr.dtype.kind == "bool":
        return Bounded(value, _undecided(lhs, rhs), 0)
    inherited = _inherited(expr.op, lhs, rhs, value)
    grid = _grid_of_result(expr.op, lhs, rhs)
    if not expr.dtype.is_float or expr.op in ("min", "max"):
        return Bounded(value, inherited, grid)
    return Bounded(value, rounded(value, inherited, expr.dtype, grid, arithmetic.operation(expr.op)), grid)


def _undecided(lhs: Bounded, rhs: Bounded) -> Array:
    """1 where errors may change the outcome of a comparison."""
    error = lhs.error + rhs.error
    with np.errstate(all="ignore"):
        near = ~(np.abs(np.subtract(lhs.value, rhs.value, dtype=np.float64)) > error)
    return np.where((error > 0) & near, 1.0, 0.0)


def _inherited(op: str, lhs: Bounded, rhs: Bounded, value: Array) -> Array:
    """What the errors of the operands come to in the result."""
    both = lhs.error + rhs.error
    match op:
        case "+" | "-":
            return both
        case "min" | "max":
            return np.maximum(lhs.error, rhs.error)
        case "*":
            return scaled(lhs.value, rhs.error) + scaled(rhs.value, lhs.error) + scaled(lhs.error, rhs.error)
        case "/" if value.dtype.kind == "f":
            with np.errstate(all="ignore"):
                quotient = (lhs.error + scaled(value, rhs.error)) / (np.abs(rhs.value) - rhs.error)
            return np.where(both == 0, 0.0, np.where(np.abs(rhs.value) > rhs.error, quotient, np.inf))
        case "%" if value.dtype.kind == "f":
            with np.errstate(all="ignore"):
                moved = lhs.error + scaled(np.floor(lhs.value / rhs.value), rhs.error)
                jumps = np.minimum(np.abs(value), np.abs(rhs.value - value)) <= moved
            return np.where(both == 0, 0.0, np.where(jumps, np.abs(rhs.value), moved))
        case _:
            return np.where(both == 0, 0.0, np.inf)


def _grid_of_result(op: str, lhs: Bounded, rhs: Bounded) -> int | None:
    match op:
        case "+" | "-" | "min" | "max":
            return _least_grid(lhs.grid, rhs.grid)
        case "*":
            return None if lhs.grid is None or rhs.grid is None else min(lhs.grid + rhs.grid, ANY_GRID)
        case "/" if (
            rhs.value.size == 1 and rhs.value.dtype.kind == "f" and not rhs.error.any() and lhs.grid is not None
        ):
            mantissa, exponent = np.frexp(rhs.value.reshape(()))
            return lhs.grid - int(exponent) + 1 if abs(mantissa) == 0.5 else None
        case _:
            return None


def _call(expr: Call, arguments: list[Bounded], arithmetic: Arithmetic) -> Bounded:
    value = call_values(expr, [a.value for a in arguments])
    inherited = NONE
    for number, argument in enumerate(arguments):
        if argument.error.any():
            inherited = inherited + _moved(expr, arguments, number, value)
    if not expr.dtype.is_float:
        return Bounded(value, inherited, 0)
    accuracy = arithmetic.function(expr.intrinsic)
    grid = None
    if expr.intrinsic in _KEEPS_GRID:
        grid = _least_grid(*(a.grid for a in arguments))
    elif expr.intrinsic in _WHOLE:
        grid = 0
    ulps, absolute = accuracy.ulps(expr.dtype), accuracy.absolute(expr.dtype)
    if ulps == 0 and absolute == 0:
        return Bounded(value, inherited, grid)
    error = rounded(value, inherited, expr.dtype, grid, ulps)
    return Bounded(value, np.where(np.isfinite(value), error + absolute, error), grid)


def _moved(expr: Call, arguments: list[Bounded], number: int, value: Array) -> Array:
    """What the error of one argument changes: the larger change to either side, by the slope if the error is tiny."""
    argument = arguments[number]
    with np.errstate(all="ignore"):
        step = np.maximum(argument.error, _STEP * np.abs(argument.value))
        change = NONE
        for side in (step, -step):
            values = [a.value for a in arguments]
            values[number] = argument.value + side
            moved = call_values(expr, values)
            change = np.maximum(change, np.where(np.isnan(moved) & np.isnan(value), 0.0, np.abs(moved - value)))
        change = change * np.where(argument.error == step, 1.0, argument.error / step)
    return np.where(argument.error == 0, 0.0, np.where(np.isnan(change), np.inf, change))


def _cast(inner: Bounded, source: DType, target: DType) -> Bounded:
    value = convert(inner.value, source, target)
    if target.kind == "bool":
        flips = (inner.error > 0) & (np.abs(inner.value) <= inner.error)
        return Bounded(value, np.where(flips, 1.0, 0.0), 0)
    if target.is_float:
        widens = source.is_float and source.bits < target.bits
        certain = inner.error == 0
        grid = inner.grid if widens or inner.grid is None else grid_of(value, np.broadcast_to(certain, value.shape))
        return Bounded(value, inner.error if widens else stored(inner.value, inner.error, target), grid)
    if not source.is_float:
        return Bounded(value, inner.error, 0)
    with np.errstate(all="ignore"):
        ends = [convert(inner.value + side, source, target).astype(np.float64) for side in (inner.error, -inner.error)]
    change = np.maximum(*(np.abs(end - value) for end in ends))
    return Bounded(value, np.where(inner.error == 0, 0.0, change), 0)
