"""Expressions of a checked program evaluated on whole NumPy arrays: the meaning that every target must reproduce.

Floats are evaluated in float64 whatever their type, so that the reference is the more exact side of a comparison;
a constant and a conversion to a narrower float are rounded to their type (nearest even).  Integers are evaluated in
their own type and wrap.  What C leaves open is fixed:

- integer ``/`` and ``%`` are floor division and its remainder; by zero both give 0; the lowest value / -1 wraps;
- ``%`` of floats has the sign of the divisor: ``x - floor(x / y) * y``;
- floats convert to integers by truncation and saturate outside the type's range; NaN gives 0;
- ``min`` and ``max`` give NaN if an operand is NaN;
- a subscript, a comparison of integers or a conversion to 64 bits is computed in 64 bits if it depends on no data;
- a read under ``?:``, or to the right of ``&&`` or ``||``, happens only where its condition lets it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.errors import Diagnostic, MissingPackageError, ShapeError, SourceText
from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Constant,
    Expr,
    Index,
    Read,
    Select,
    Size,
    Unary,
    Within,
    depends_on_data,
    map_children,
    walk,
)
from tcomp.model.dataranges import describe_range, range_ends, range_part
from tcomp.values.operators import BFLOAT16, INT64, INTRINSICS, UINT64, DType

Array = np.ndarray[Any, np.dtype[Any]]


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy element type.  bfloat16 and floats of 8 bits are those of the ``ml_dtypes`` package.

    Raises MissingPackageError where it is missing.
    """
    if not is_of_ml_dtypes(dtype):
        return np.dtype(dtype.name)
    try:
        found: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), dtype.name))
    except ImportError as error:
        raise MissingPackageError(f"{dtype} in NumPy arrays needs ml_dtypes: pip install ml_dtypes") from error
    return found


def is_of_ml_dtypes(dtype: DType) -> bool:
    """Whether NumPy knows an element type only by the ``ml_dtypes`` package."""
    return dtype == BFLOAT16 or dtype.is_float8


def working_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type in which values of a type are evaluated."""
    return np.dtype(np.float64) if dtype.is_float else numpy_dtype(dtype)


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor's values: ``values[c - origin]`` is the element at logical coordinates ``c``."""

    name: str
    values: Array
    origin: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where an expression is evaluated.

    ``indices`` gives every index variable an array, all broadcastable against each other.  ``points`` is True at the
    points of the iteration domain (None: everywhere); nothing is read for the others.
    """

    indices: Mapping[str, Array]
    sizes: Mapping[str, int]
    tensors: Mapping[str, Stored]
    source: SourceText
    points: Array | None = None

    def where(self, condition: Array) -> Frame:
        """The frame restricted to the points where a condition holds."""
        points = condition if self.points is None else self.points & condition
        return Frame(self.indices, self.sizes, self.tensors, self.source, points)


def evaluate(expr: Expr, frame: Frame) -> Array:
    """The value of an expression at every point of a frame.

    The result broadcasts against the frame's indices and has extent 1 along those that it does not depend on; its type
    is ``working_dtype(expr.dtype)``.  Raises ShapeError for a read outside its tensor.
    """
    match expr:
        case Constant() | Size():
            value = expr.value if isinstance(expr, Constant) else frame.sizes[expr.name]
            return _constant(value, expr.dtype)
        case Index():
            return frame.indices[expr.name].astype(numpy_dtype(expr.dtype))
        case Read():
            return _read(expr, frame)
        case Unary():
            operand = evaluate(expr.operand, frame)
            return np.logical_not(operand) if expr.op == "!" else np.negative(operand)
        case Within():
            return _within(expr, frame)
        case Binary(op="&&" | "||"):
            return _logical(expr, frame)
        case Binary() if expr.dtype.kind == "bool" and expr.lhs.dtype.is_integer and not depends_on_data(expr):
            return _binary(replace(expr, lhs=_in_64_bits(expr.lhs), rhs=_in_64_bits(expr.rhs)), frame)
        case Binary():
            return _binary(expr, frame)
        case Select():
            condition = evaluate(expr.condition, frame)
            then = evaluate(expr.then, frame.where(condition))
            return np.where(condition, then, evaluate(expr.otherwise, frame.where(~condition)))
        case Call():
            return call_values(expr, [evaluate(a, frame) for a in expr.arguments])
        case Cast() if (
            expr.dtype in (INT64, UINT64) and expr.operand.dtype.is_integer and not depends_on_data(expr.operand)
        ):
            wide = expr.operand if _has_own_width(expr.operand) else _in_64_bits(expr.operand)
            return convert(evaluate(wide, frame), wide.dtype, expr.dtype)
        case Cast():
            return convert(evaluate(expr.operand, frame), expr.operand.dtype, expr.dtype)


def subscript_values(subscript: Expr, frame: Frame) -> Array:
    """The value of a subscript in int64.  What does not depend on data is also computed in 64 bits."""
    return evaluate(subscript if depends_on_data(subscript) else _in_64_bits(subscript), frame).astype(np.int64)


def _in_64_bits(expr: Expr) -> Expr:
    if not expr.dtype.is_integer:
        return expr
    if _has_own_width(expr):
        return Cast(expr, INT64, expr.span)
    if isinstance(expr, Cast) and expr.operand.dtype.is_integer:
        return _in_64_bits(expr.operand)
    return replace(map_children(expr, _in_64_bits), dtype=INT64)


def _has_own_width(expr: Expr) -> bool:
    """Whether a conversion cuts an integer off; what is made of the result is computed in 64 bits again."""
    return isinstance(expr, Cast) and expr.dtype.bits < 32


def convert(values: Array, source: DType, target: DType) -> Array:
    """Values of type ``source`` converted to ``target``, both in their working types."""
    if source == target:
        return values
    if target.kind == "bool":
        return np.not_equal(values, 0)
    if target.is_float:
        widens = source.is_float and source.bits < target.bits
        return values if widens else round_to(values, target).astype(np.float64)
    if not source.is_float:
        return values.astype(numpy_dtype(target))
    lowest, highest = target.lowest, target.highest
    above, below = values >= highest + 1, values <= lowest - 1
    inside = np.where(above | below | np.isnan(values), 0.0, values).astype(numpy_dtype(target))
    dtype = inside.dtype.type
    return np.where(above, dtype(highest), np.where(below, dtype(lowest), inside))


def round_to(values: Array, dtype: DType) -> Array:
    """Values in an element type's own NumPy type: rounded to nearest even if it is a float, else unchanged.

    What is beyond the numbers of a float without infinities becomes the largest of them.
    """
    with np.errstate(all="ignore"):
        if is_of_ml_dtypes(dtype) and values.dtype.itemsize > 2:
            values = _odd(values)
        if dtype.is_float and not np.isinf(dtype.largest):
            values = np.clip(values, -dtype.largest, dtype.largest)
        return values.astype(numpy_dtype(dtype))


def _odd(values: Array) -> Array:
    """Values in float32, odd where it does not hold them: ``ml_dtypes`` rounds to its types by way of it."""
    exact = values.astype(np.longdouble)
    near = exact.astype(np.float32)
    bits = near.view(np.uint32) - (np.abs(near) > np.abs(exact))
    return np.where((near < exact) | (near > exact), bits | 1, near.view(np.uint32)).astype(np.uint32).view(np.float32)


def _constant(value: float | int | bool, dtype: DType) -> Array:
    if dtype.is_integer:
        span = 1 << dtype.bits
        wrapped = (int(value) - int(dtype.lowest)) % span + int(dtype.lowest)
        return np.asarray(wrapped, numpy_dtype(dtype))
    rounded = round_to(np.asarray(float(value)), dtype)
    return rounded.astype(working_dtype(dtype))


def _floor_divide(x: Array, y: Array) -> Array:
    return np.where(y == 0, x.dtype.type(0), np.floor_divide(x, np.where(y == 0, y.dtype.type(1), y)))


def _floor_remainder(x: Array, y: Array) -> Array:
    return np.where(y == 0, x.dtype.type(0), np.remainder(x, np.where(y == 0, y.dtype.type(1), y)))


_FLOAT_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.remainder,
    "min": np.minimum,
    "max": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_INTEGER_OPERATIONS = _FLOAT_OPERATIONS | {"/": _floor_divide, "%": _floor_remainder}


def _binary(expr: Binary, frame: Frame) -> Array:
    return binary_values(expr, evaluate(expr.lhs, frame), evaluate(expr.rhs, frame))


def binary_values(expr: Binary, lhs: Array, rhs: Array) -> Array:
    """The value of an arithmetic operation or a comparison whose operands have these values."""
    operations = _FLOAT_OPERATIONS if expr.lhs.dtype.is_float else _INTEGER_OPERATIONS
    with np.errstate(all="ignore"):
        return np.asarray(operations[expr.op](lhs, rhs))


def _logical(expr: Binary, frame: Frame) -> Array:
    lhs = evaluate(expr.lhs, frame)
    if expr.op == "&&":
        return lhs & evaluate(expr.rhs, frame.where(lhs))
    return lhs | evaluate(expr.rhs, frame.where(~lhs))


def _within(expr: Within, frame: Frame) -> Array:
    """Whether an index is in a range that data give.  Raises ShapeError where the range is none, or leaves its box."""
    lower, upper = (evaluate(bound, frame).astype(np.int64) for bound in (expr.lower, expr.upper))
    low, high = expr.box or (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
    ends = range_ends(low, high)
    points = np.asarray(True) if frame.points is None else frame.points
    for kind, value in (("starts", lower), ("ends", upper), ("turns", upper - lower)):
        origin, extent = ends[kind]
        bad = ((value < origin) | (value >= origin + extent)) & points
        if bad.any():
            first = np.argmax(bad)
            used = {e.name for bound in (expr.lower, expr.upper) for e in walk(bound) if isinstance(e, Index)}
            place = {n: int(np.broadcast_to(a, bad.shape).flat[first]) for n, a in frame.indices.items() if n in used}
            found = int(np.broadcast_to(value, bad.shape).flat[first])
            text, span = range_part(expr, kind, frame.source)
            raise ShapeError(Diagnostic(describe_range(kind, text, found, (low, high), place), frame.source, span))
    index = evaluate(expr.index, frame)
    return np.asarray((lower <= index) & (index < upper))


def call_values(expr: Call, arguments: Sequence[Array]) -> Array:
    """The value of a built-in function whose arguments have these values."""
    intrinsic = INTRINSICS[expr.intrinsic]
    if intrinsic.typed:
        arguments = [round_to(a, expr.dtype) for a in arguments]
    with np.errstate(all="ignore"):
        return np.asarray(intrinsic.evaluate(*arguments)).astype(working_dtype(expr.dtype))


def _read(read: Read, frame: Frame) -> Array:
    stored = frame.tensors[read.tensor]
    positions = [
        subscript_values(subscript, frame) - start
        for subscript, start in zip(read.subscripts, stored.origin, strict=True)
    ]
    inside = np.asarray(True)
    for dimension, extent in enumerate(stored.values.shape):
        position = positions[dimension]
        if read.boundary is None or read.boundary.kind == "constant_exterior":
            inside = inside & (position >= 0) & (position < extent)
        else:
            positions[dimension] = brought_inside(position, extent, read.boundary.kind)
            inside = inside & (extent > 0)
    if read.boundary is not None and read.boundary.value is not None:
        return np.where(
            inside, _gather(stored, positions, working_dtype(read.dtype)), evaluate(read.boundary.value, frame)
        )
    if not (inside.all() or (inside if frame.points is None else inside | ~frame.points).all()):
        raise ShapeError(Diagnostic(_outside(read, positions, inside, frame), frame.source, read.span))
    return _gather(stored, positions, working_dtype(read.dtype))


def _gather(stored: Stored, positions: list[Array], dtype: np.dtype[Any]) -> Array:
    """Elements at positions, which are clipped into the tensor; zeros where it has no elements.

    Nothing depends on where a dimension of one element is subscripted; NumPy takes no more than 63 subscripts.
    """
    values = stored.values
    if values.size == 0:
        return np.zeros(np.broadcast_shapes(*(p.shape for p in positions)), dtype)
    clipped = tuple(np.clip(p, 0, extent - 1) for p, extent in zip(positions, values.shape, strict=True) if extent > 1)
    return np.asarray(values.squeeze()[clipped]).astype(dtype, copy=False)


def brought_inside(position: Array, extent: int, kind: str) -> Array:
    """A position along a dimension brought inside it as a boundary says."""
    extent = max(extent, 1)
    folded: Array
    match kind:
        case "repeat_edge":
            folded = np.clip(position, 0, extent - 1)
        case "repeat_image":
            folded = np.mod(position, extent)
        case "mirror_image":
            folded = np.mod(position, 2 * extent)
            folded = np.minimum(folded, 2 * extent - 1 - folded)
        case _:
            period = max(2 * extent - 2, 1)  # one element is its own mirror image
            folded = np.mod(position, period)
            folded = np.minimum(folded, period - folded)
    return folded


def _outside(read: Read, positions: list[Array], inside: Array, frame: Frame) -> str:
    stored = frame.tensors[read.tensor]
    points = np.asarray(True) if frame.points is None else frame.points
    shape = np.broadcast_shapes(inside.shape, points.shape, *(a.shape for a in frame.indices.values()))
    first = np.argmax(np.broadcast_to(~inside & points, shape))
    where = ", ".join(f"{name} = {np.broadcast_to(array, shape).flat[first]}" for name, array in frame.indices.items())
    for dimension, (position, extent) in enumerate(zip(positions, stored.values.shape, strict=True)):
        offset = int(np.broadcast_to(position, shape).flat[first])
        if not 0 <= offset < extent:
            low, subscript = stored.origin[dimension], read.subscripts[dimension]
            value = offset + low
            if subscript.dtype.kind == "uint" and depends_on_data(subscript):
                value %= 1 << 64
            return f"subscript {value} of dimension {dimension} of {stored.name!r} is outside {low}:{low + extent}" + (
                f" at {where}" if where else ""
            )
    return f"{stored.name!r} has no element to read"
