"""What a program computes as values of torch, in float64, so that ``torch.autograd`` can differentiate it.

Statement by statement over all points of its domain, like the interpreter, whose indices, conditions and subscripts it
takes.  What floats depend on is computed by operations of torch, whose derivatives owe nothing to those of tcomp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tcomp.derivatives.expressions import reads_floats
from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.function import Binary, Call, Cast, Expr, Function, Read, Select, Unary
from tcomp.model.evaluation import Array, Frame, Stored, brought_inside, evaluate, subscript_values
from tcomp.model.reference import StatementRun, prepare
from tcomp.model.steps import in_order
from tcomp.values.operators import REDUCTIONS, DType

Value = torch.Tensor

_NARROW = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}

FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "digamma",
            "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "lgamma", "log",
            "log10", "log1p", "log2", "pow", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
            "abs", "relu", "sign",
        )
    },
    "exp10": lambda x: torch.pow(10.0, x),
    "fabs": torch.abs,
    "fdim": lambda x, y: torch.relu(x - y),
    "fdivide": torch.div,
    "fma": lambda x, y, z: x * y + z,
    "normcdf": torch.special.ndtr,
    "trigamma": lambda x: torch.polygamma(1, x),
    "tetragamma": lambda x: torch.polygamma(2, x),
}  # fmt: skip
"""Functions of the language for which torch has a derivative."""

_OPERATIONS: Mapping[str, Callable[[Value, Value], Value]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "%": torch.remainder,
}


class NoEquivalentError(Exception):
    """A program with something that torch does not compute, or does not differentiate as the language says."""


@dataclass(frozen=True, slots=True)
class _Points:
    """Points at which an expression is evaluated, one after another, and what tensors hold there."""

    frame: Frame
    values: Mapping[str, Value]

    @property
    def count(self) -> int:
        return len(next(iter(self.frame.indices.values())))

    def only(self, chosen: Array) -> _Points:
        """The points at some positions."""
        indices = {name: array[chosen] for name, array in self.frame.indices.items()}
        return replace(self, frame=replace(self.frame, indices=indices))

    def of_numpy(self, expr: Expr) -> Array:
        return np.broadcast_to(evaluate(expr, self.frame), (self.count,))


def outputs(function: Function, arguments: Mapping[str, Any], leaves: Mapping[str, Value]) -> list[Value]:
    """The outputs of floats, in order, as functions of some inputs, the ``leaves``.

    Raises NoEquivalentError.
    """
    tensors, runs = prepare(function, arguments)
    values = {
        name: leaves[name].reshape(-1)
        if name in leaves
        else torch.from_numpy(np.array(stored.values, np.float64).reshape(-1))
        for name, stored in tensors.items()
        if function.tensors[name].dtype.is_float
    }
    for run in in_order(runs):
        target = tensors[run.statement.target]
        if target.name in values:
            values[target.name] = _executed(run, function.tensors[target.name].dtype, values)
        # Conditions compare what the interpreter computes: asinh of torch may differ in its last bit.
        tensors[target.name] = Stored(target.name, run.execute().astype(target.values.dtype), target.origin)
    return [values[t.name].reshape(tensors[t.name].values.shape) for t in function.outputs if t.dtype.is_float]


def _executed(run: StatementRun, dtype: DType, values: Mapping[str, Value]) -> Value:
    """The target's new content, flat."""
    statement, target = run.statement, run.tensors[run.statement.target]
    content = values[statement.target]
    if statement.reduction is not None and statement.reduction not in ("+", "*", "max", "min"):
        raise NoEquivalentError(statement.reduction)
    if statement.initialise and statement.reduction is not None:
        begun = np.full(target.values.shape, np.nan)
        neutral = REDUCTIONS[statement.reduction].identity(statement.accumulator)
        run.initialise(begun, neutral)
        flat = torch.from_numpy(begun.reshape(-1))
        content = torch.where(torch.isnan(flat), content, flat)
    points = _points_of(run, values)
    if not points.count:
        return content
    elements = torch.from_numpy(_elements(run, points, target))
    found = _rounded(_value(inside_ranges(statement.value), points), dtype, only_stored=statement.reduction is None)
    match statement.reduction:
        case None:
            content = content.index_put((elements,), found)
        case "+":
            content = content.index_add(0, elements, found)
        case "*":
            content = content.scatter_reduce(0, elements, found, "prod")
        case other:
            content = content.scatter_reduce(0, elements, found, f"a{other}")
    return _rounded(content, dtype)


def _rounded(value: Value, dtype: DType, *, only_stored: bool = True) -> Value:
    narrow = _NARROW.get(dtype.name)
    return value if narrow is None or not only_stored else value.to(narrow).to(torch.float64)


def _points_of(run: StatementRun, values: Mapping[str, Value]) -> _Points:
    names = run.statement.indices
    axes = [np.arange(low, high + 1, dtype=np.int64) for low, high in (run.hull[n] for n in names)]
    grids = [g.reshape(-1) for g in np.meshgrid(*axes, indexing="ij")] if names else []
    indices = dict(zip(names, grids, strict=True)) or {"": np.zeros(1, np.int64)}
    points = _Points(Frame(indices, run.sizes, run.tensors, run.function.source), values)
    mask = run.mask(points.frame)
    if mask is not None:
        points = points.only(np.flatnonzero(mask))
    for within in ranges_of(run.statement.value):
        points = points.only(np.flatnonzero(points.of_numpy(within)))
    return points


def _elements(run: StatementRun, points: _Points, target: Stored) -> Array:
    found = np.zeros(points.count, np.int64)
    places = zip(run.statement.subscripts, target.origin, target.values.shape, strict=True)
    for subscript, start, extent in places:
        found = found * extent + subscript_values(subscript, points.frame) - start
    return found


def _value(expr: Expr, points: _Points) -> Value:
    """A value of floats at each point."""
    match expr:
        case Read():
            return _read(expr, points)
        case Unary():
            return -_value(expr.operand, points)
        case Binary(op="min" | "max"):
            return _extremum(expr, points)
        case Binary():
            return _OPERATIONS[expr.op](_value(expr.lhs, points), _value(expr.rhs, points))
        case Select():
            return _chosen(points.of_numpy(expr.condition), expr.then, expr.otherwise, points)
        case Call():
            arguments = [_value(a, points) for a in expr.arguments]
            if not any(a.requires_grad for a in arguments):
                return torch.from_numpy(np.array(points.of_numpy(expr)))
            if expr.intrinsic not in FUNCTIONS:
                raise NoEquivalentError(expr.intrinsic)
            return FUNCTIONS[expr.intrinsic](*arguments)
        case Cast() if expr.operand.dtype.is_float:
            value = _value(expr.operand, points)
            return _rounded(value, expr.dtype) if expr.dtype.bits < expr.operand.dtype.bits else value
        case _:
            return torch.from_numpy(np.array(points.of_numpy(expr), np.float64))


def _extremum(expr: Binary, points: _Points) -> Value:
    """Of two values that depend on data both have a share at a tie; beside a number the data has all of it."""
    lhs, rhs = _value(expr.lhs, points), _value(expr.rhs, points)
    if reads_floats(expr.lhs) and reads_floats(expr.rhs):
        return torch.maximum(lhs, rhs) if expr.op == "max" else torch.minimum(lhs, rhs)
    moves, still = (lhs, rhs) if reads_floats(expr.lhs) else (rhs, lhs)
    keeps = moves >= still if expr.op == "max" else moves <= still
    return torch.where(keeps | torch.isnan(moves), moves, still)


def _chosen(condition: Array, then: Expr, otherwise: Expr, points: _Points) -> Value:
    """What is not chosen is not computed, at no point."""
    result = torch.zeros(points.count, dtype=torch.float64)
    for chosen, branch in ((condition, then), (~condition, otherwise)):
        where = np.flatnonzero(chosen)
        if len(where):
            result = result.index_put((torch.from_numpy(where),), _value(branch, points.only(where)))
    return result


def _read(read: Read, points: _Points) -> Value:
    stored, content = points.frame.tensors[read.tensor], points.values[read.tensor]
    inside, elements = np.ones(points.count, bool), np.zeros(points.count, np.int64)
    for subscript, start, extent in zip(read.subscripts, stored.origin, stored.values.shape, strict=True):
        position = subscript_values(subscript, points.frame) - start
        if read.boundary is None or read.boundary.kind == "constant_exterior":
            inside = inside & (position >= 0) & (position < extent)
        else:
            position = brought_inside(position, extent, read.boundary.kind)
        elements = elements * extent + position
    where = np.flatnonzero(inside)
    found = content[torch.from_numpy(np.broadcast_to(elements, inside.shape)[where].copy())]
    if len(where) == points.count:
        return found
    assert read.boundary is not None and read.boundary.value is not None
    result = torch.zeros(points.count, dtype=torch.float64).index_put((torch.from_numpy(where),), found)
    others = np.flatnonzero(~inside)
    return result.index_put((torch.from_numpy(others),), _value(read.boundary.value, points.only(others)))


def gradients(
    function: Function, arguments: Mapping[str, Any], wrt: Sequence[str], cotangents: Sequence[Array]
) -> list[Array]:
    """The gradients of the outputs, times cotangents, by torch.  Raises NoEquivalentError."""
    leaves = {n: torch.from_numpy(np.array(arguments[n], np.float64)).requires_grad_() for n in wrt}
    found = outputs(function, arguments, leaves)
    total = torch.zeros((), dtype=torch.float64)
    for output, cotangent in zip(found, cotangents, strict=True):
        total = total + (output * torch.from_numpy(np.array(cotangent, np.float64))).sum()
    if not total.requires_grad:
        return [np.zeros(np.shape(arguments[n])) for n in wrt]
    taken = torch.autograd.grad(total, [leaves[n] for n in wrt], allow_unused=True, materialize_grads=True)
    return [g.numpy() for g in taken]
