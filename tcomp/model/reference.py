"""The reference interpreter: what a program computes, straight from its checked text, in NumPy.

Statements run in textual order, and once for each step of the blocks they stand in.  Each evaluates its right-hand
side on the values from before it, over its whole iteration domain, and then assigns or accumulates, so
``O(i) = O(N-1-i)`` reverses.  Reductions accumulate in float64, integers in their accumulator type, which wraps; a
result is rounded once, when it is stored.  ``op!`` first writes the neutral element wherever the left-hand indices go,
so an empty reduction leaves it there.

Only range inference is shared with the compiler: sizes, boxes and index hulls come from ``grammar.ranges``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.ranges.ranges import Box, bind_sizes, infer
from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.function import (
    Binary,
    Cast,
    Expr,
    Function,
    Index,
    Statement,
    Tensor,
    boxed,
    is_indirect,
    walk,
)
from tcomp.model.evaluation import (
    Array,
    Frame,
    Stored,
    convert,
    evaluate,
    numpy_dtype,
    round_to,
    subscript_values,
    working_dtype,
)
from tcomp.model.steps import in_order
from tcomp.values.operators import INT32, REDUCTIONS

_CHUNK = 1 << 22
"""Most elements that a temporary array may have: 32 MiB of float64."""


def interpret(
    function: Function,
    inputs: Mapping[str, npt.ArrayLike],
    outputs: Mapping[str, npt.ArrayLike] | None = None,
) -> dict[str, Array]:
    """The outputs of a function, by name, as new C-ordered arrays of the inferred extents and declared types.

    ``inputs`` maps every parameter to an array of its type and rank (to an integer for a ``const`` parameter);
    ``outputs`` maps those in ``function.needs_content`` to their previous content.  Nothing passed in is changed.
    Raises ShapeError where arguments are missing or do not fit, or where a subscript leaves its tensor.
    """
    tensors, runs = prepare(function, inputs, outputs)
    for run in in_order(runs):
        target = tensors[run.statement.target]
        tensors[target.name] = Stored(target.name, run.execute(), target.origin)
    return {t.name: tensors[t.name].values for t in function.outputs}


def prepare(
    function: Function,
    inputs: Mapping[str, npt.ArrayLike],
    outputs: Mapping[str, npt.ArrayLike] | None = None,
) -> tuple[dict[str, Stored], tuple[StatementRun, ...]]:
    """What there is before the first statement, by name, and the runs of the statements, which read it as it changes.

    Arguments are those of ``interpret``, of which this is the first half; so are the errors.
    """
    arrays = {t.name: _argument(function, t, inputs) for t in function.inputs}
    constants = {t.name: int(arrays[t.name]) for t in function.inputs if t.role == "const"}
    shapes = {t.name: arrays[t.name].shape for t in function.inputs if t.role != "const"}
    sizes = bind_sizes(function, shapes, constants)
    ranges = infer(function, sizes)
    tensors: dict[str, Stored] = {}
    for tensor in function.tensors.values():
        if tensor.role == "const":
            continue
        box = ranges.boxes[tensor.name]
        values = arrays.get(tensor.name)
        if values is None:
            values = _initial_content(function, tensor, box, outputs or {})
        tensors[tensor.name] = Stored(tensor.name, values, box.origin)
    return tensors, tuple(
        StatementRun(
            function, replace(statement, value=boxed(statement.value, domain.hull)), sizes, tensors, domain.hull
        )
        for statement, domain in zip(function.statements, ranges.domains, strict=True)
    )


def _argument(function: Function, tensor: Tensor, given: Mapping[str, npt.ArrayLike]) -> Array:
    if tensor.name not in given and tensor.default is not None:
        return np.asarray(tensor.default)
    if tensor.name not in given:
        what = "the previous content of output" if tensor.role == "output" else "argument"
        raise ShapeError(Diagnostic(f"{what} {tensor.name!r} is missing", function.source, tensor.span))
    array = np.asarray(given[tensor.name])
    expected = numpy_dtype(tensor.dtype)
    if tensor.role == "const":
        if array.dtype.kind not in "iu" or array.ndim:
            message = f"{tensor.name!r} is a compile-time constant: expected an integer, found {array.dtype}"
            raise ShapeError(Diagnostic(message, function.source, tensor.span))
    elif array.dtype != expected:
        message = f"{tensor.name!r}: expected type {tensor.dtype} but found {array.dtype}"
        raise ShapeError(Diagnostic(message, function.source, tensor.span))
    return array


def _initial_content(function: Function, tensor: Tensor, box: Box, given: Mapping[str, npt.ArrayLike]) -> Array:
    if tensor.name not in function.needs_content:
        return np.zeros(box.extent, numpy_dtype(tensor.dtype))
    array = _argument(function, tensor, given)
    if array.shape != box.extent:
        message = f"{tensor.name!r}: expected shape {box.extent} but found {array.shape}"
        raise ShapeError(Diagnostic(message, function.source, tensor.span))
    return array


@dataclass(frozen=True, slots=True)
class StatementRun:
    """One statement at fixed sizes, among ``tensors`` that have what the statements before it gave."""

    function: Function
    statement: Statement
    sizes: Mapping[str, int]
    tensors: Mapping[str, Stored]
    hull: Mapping[str, tuple[int, int]]

    def within(self, hull: Mapping[str, tuple[int, int]]) -> StatementRun:
        """The same with other values of some indices."""
        return replace(self, hull={**self.hull, **hull}) if hull else self

    def execute(self) -> Array:
        """The target's new content."""
        statement, target = self.statement, self.tensors[self.statement.target]
        dtype = self.function.tensors[statement.target].dtype
        wide = target.values.astype(working_dtype(dtype))
        content = np.array(convert(wide, dtype, statement.accumulator), order="C")
        if statement.initialise:
            assert statement.reduction is not None
            self.initialise(content, REDUCTIONS[statement.reduction].identity(statement.accumulator))
        for ranges in self.chunks():
            self._accumulate(content, ranges)
        return np.asarray(round_to(convert(content, statement.accumulator, dtype), dtype), order="C")

    @property
    def target_indices(self) -> tuple[str, ...]:
        return tuple(i for i in self.statement.indices if i not in self.statement.reduction_indices)

    @property
    def stored_indices(self) -> tuple[str, ...]:
        """The indices that say where a value goes; where data choose the element, all of them may."""
        return self.statement.indices if self.statement.scatters else self.target_indices

    def initialise(self, content: Array, value: float | int) -> None:
        """Put a value wherever the left-hand indices go; data may choose every element."""
        if self.statement.scatters:
            self._everywhere().initialise(content, value)
            return
        names = self.target_indices
        ranges = {name: self._whole(name) for name in names}
        points = self.mask(self.frame(ranges, names))
        self.store(content, ranges, np.asarray(value, content.dtype), points, None)

    def _everywhere(self) -> StatementRun:
        """The statement with an index of its own for each subscript that data choose, over the whole dimension."""
        statement, target = self.statement, self.tensors[self.statement.target]
        fresh = {d: f"{d}'" for d, subscript in enumerate(statement.subscripts) if is_indirect(subscript)}
        ends = zip(target.origin, target.values.shape, strict=True)
        hull = {fresh[d]: (low, low + extent - 1) for d, (low, extent) in enumerate(ends) if d in fresh}
        subscripts = tuple(
            Index(fresh[d], INT32, statement.span) if d in fresh else s for d, s in enumerate(statement.subscripts)
        )
        indices = (*self.target_indices, *fresh.values())
        if all(isinstance(s, Index) for s in subscripts) and len(indices) == len(subscripts):
            indices = tuple(s.name for s in subscripts if isinstance(s, Index))
        whole = replace(statement, subscripts=subscripts, indices=indices, reduction_indices=())
        return replace(self, statement=whole, hull={**self.hull, **hull})

    def _whole(self, name: str) -> range:
        low, high = self.hull[name]
        return range(low, max(low, high + 1))

    def frame(self, ranges: Mapping[str, range], names: tuple[str, ...]) -> Frame:
        """A frame over a box of the named indices, one array axis each; ``points`` is left to ``mask``."""
        axes = {}
        for axis, name in enumerate(names):
            shape = [1] * len(names)
            shape[axis] = len(ranges[name])
            axes[name] = np.arange(ranges[name].start, ranges[name].stop, dtype=np.int64).reshape(shape)
        return Frame(axes, self.sizes, self.tensors, self.function.source)

    def mask(self, frame: Frame) -> Array | None:
        """Where the index ranges that depend on other indices hold; None if there are none over these indices."""
        mask = None
        for clause in self.statement.ranges:
            used = _indices_of(clause.lower) | _indices_of(clause.upper)
            if used and used | {clause.index} <= frame.indices.keys():
                index = frame.indices[clause.index]
                holds = (evaluate(clause.lower, frame) <= index) & (index < evaluate(clause.upper, frame))
                mask = holds if mask is None else mask & holds
        return mask

    def store(
        self, content: Array, ranges: Mapping[str, range], values: Array, points: Array | None, combine: np.ufunc | None
    ) -> None:
        """Assign values, or combine them, to the elements that the left-hand side addresses over a box of its indices.

        ``values`` and ``points`` (None: all) broadcast to one axis per index of ``stored_indices``.
        """
        names = self.stored_indices
        if tuple(s.name if isinstance(s, Index) else None for s in self.statement.subscripts) == names:
            origin = self.tensors[self.statement.target].origin
            bounds = ((ranges[n].start - o, ranges[n].stop - o) for n, o in zip(names, origin, strict=True))
            where: tuple[Any, ...] = (*(slice(low, high) for low, high in bounds), ...)
            window: Array = content[where]
            result = values if combine is None else combine(window, values)
            np.copyto(window, result, where=True if points is None else points)
            return
        shape = tuple(len(ranges[name]) for name in names)
        points = np.broadcast_to(True if points is None else points, shape)
        elements = self._elements(self.frame(ranges, names), points, content.shape)
        selected = np.broadcast_to(values, shape)[points]
        if combine is None:
            content.reshape(-1)[elements] = selected
        else:
            combine.at(content.reshape(-1), elements, selected)

    def _elements(self, frame: Frame, points: Array, extent: tuple[int, ...]) -> Array:
        """The flat positions that the left-hand side addresses at the points; ShapeError where one is outside."""
        statement = self.statement
        elements = np.zeros(np.count_nonzero(points), np.int64)
        frame = frame if points.all() else frame.where(points)
        for dimension, subscript in enumerate(statement.subscripts):
            low = self.tensors[statement.target].origin[dimension]
            position = np.broadcast_to(subscript_values(subscript, frame), points.shape)[points] - low
            outside = (position < 0) | (position >= extent[dimension])
            if outside.any():
                message = (
                    f"subscript {position[outside][0] + low} of dimension {dimension} of {statement.target!r}"
                    f" is outside {low}:{low + extent[dimension]}"
                )
                raise ShapeError(Diagnostic(message, self.function.source, statement.span))
            elements = elements * extent[dimension] + position
        return elements

    def chunks(self) -> Iterator[dict[str, range]]:
        """Boxes that cover the iteration domain, small enough for every temporary to stay below ``_CHUNK``."""
        names = self.statement.indices
        factors = self.factors()
        footprints = [_indices_of(f) for f in factors] if factors else [frozenset(names)]
        yield from _pieces({n: self._whole(n) for n in names}, [*footprints, frozenset(self.stored_indices)])

    def factors(self) -> list[Expr]:
        """The factors of the value if the statement sums products over a box, else nothing."""
        statement = self.statement
        masked = any(_indices_of(clause.lower) | _indices_of(clause.upper) for clause in statement.ranges)
        if statement.reduction != "+" or masked or statement.scatters or ranges_of(statement.value):
            return []
        return _factors_of(statement.value)

    def _accumulate(self, content: Array, ranges: Mapping[str, range]) -> None:
        """Evaluate the value over a box of the iteration domain and put it into the target.

        The factors of a product are summed before they are multiplied where that saves work, which nobody sees as long
        as all are finite: of infinities, some may meet a zero.
        """
        statement = self.statement
        frame = self.frame(ranges, statement.indices)
        shape = tuple(len(ranges[name]) for name in statement.indices)
        with np.errstate(all="ignore"):
            factors = [evaluate(f, frame) for f in self.factors()]
            if not factors:
                self._combine(content, ranges)
            elif all(np.isfinite(factor).all() for factor in factors):
                reduced = sum_of_products(factors, shape, len(self.target_indices))
                self.store(content, ranges, reduced, None, np.add)
            else:
                for piece in _pieces(ranges, [frozenset(statement.indices)]):
                    self._combine(content, piece)

    def _combine(self, content: Array, ranges: Mapping[str, range]) -> None:
        """The same, point by point."""
        statement = self.statement
        frame = self.frame(ranges, statement.indices)
        with np.errstate(all="ignore"):
            mask = self.mask(frame)
            for within in ranges_of(statement.value):
                inside = evaluate(within, frame if mask is None else frame.where(mask))
                mask = inside if mask is None else mask & inside
            value = evaluate(inside_ranges(statement.value), frame if mask is None else frame.where(mask))
            if statement.reduction is None:
                self.store(content, ranges, value, mask, None)
                return
            reduction = REDUCTIONS[statement.reduction]
            neutral = value.dtype.type(reduction.identity(statement.accumulator))
            self.fold(content, ranges, value, mask, getattr(np, reduction.ufunc), neutral)

    def fold(
        self,
        content: Array,
        ranges: Mapping[str, range],
        values: Array,
        mask: Array | None,
        combine: np.ufunc,
        neutral: Any,
    ) -> None:
        """Combine values over a box of the iteration domain, where ``mask`` is True or None, into the target.

        ``values`` broadcast to one axis per index; ``neutral`` stands where the mask is False.
        """
        shape, rank = tuple(len(ranges[name]) for name in self.statement.indices), len(self.stored_indices)
        if mask is not None:
            values = np.where(mask, values, neutral)
        axes = tuple(range(rank, len(shape)))
        reduced = combine.reduce(np.broadcast_to(values, shape), axis=axes, dtype=values.dtype)
        points = None if mask is None else np.asarray(np.broadcast_to(mask, shape).any(axis=axes))
        self.store(content, ranges, reduced, points, combine)


def _pieces(whole: Mapping[str, range], footprints: list[frozenset[str]]) -> Iterator[dict[str, range]]:
    """Boxes that cover a box, in each of which no ``footprints`` have more than ``_CHUNK`` points."""
    steps = {name: max(1, len(own)) for name, own in whole.items()}
    for footprint in footprints:
        for name in whole:
            volume = math.prod(steps[n] for n in footprint)
            if volume > _CHUNK and name in footprint:
                steps[name] = max(1, steps[name] * _CHUNK // volume)
    pieces = [[own[k : k + steps[n]] for k in range(0, len(own), steps[n])] for n, own in whole.items()]
    for piece in product(*pieces):
        yield dict(zip(whole, piece, strict=True))


def _indices_of(expr: Expr) -> frozenset[str]:
    return frozenset(e.name for e in walk(expr) if isinstance(e, Index))


def _factors_of(value: Expr) -> list[Expr]:
    """The operands of a product; conversions between floats that widen are seen through, being exact."""
    factors: list[Expr] = []
    stack = [value]
    while stack:
        match stack.pop():
            case Binary(op="*") as node:
                stack += [node.rhs, node.lhs]
            case Cast() as node if _widens(node):
                stack.append(node.operand)
            case node:
                factors.append(node)
    return factors


def _widens(node: Cast) -> bool:
    source = node.operand.dtype
    return node.dtype.is_float and source.is_float and source.bits < node.dtype.bits


def sum_of_products(factors: list[Array], shape: tuple[int, ...], rank: int) -> Array:
    """The product of arrays that broadcast to ``shape``, summed over all axes from ``rank`` on.

    Axes of one element are left out: NumPy has names for 52.
    """
    names = {axis: name for name, axis in enumerate(axis for axis, extent in enumerate(shape) if extent != 1)}
    operands: list[Any] = []
    covered: set[int] = set()
    for factor in factors:
        padded = factor.reshape((1,) * (len(shape) - factor.ndim) + factor.shape)
        axes = [axis for axis, extent in enumerate(padded.shape) if extent != 1]
        covered.update(axes)
        operands += [padded.reshape([padded.shape[axis] for axis in axes]), [names[axis] for axis in axes]]
    for axis in sorted(names.keys() - covered):
        operands += [np.ones(shape[axis], factors[0].dtype), [names[axis]]]
    kept = [names[axis] for axis in range(rank) if axis in names]
    return np.asarray(np.einsum(*operands, kept, optimize="greedy")).reshape(shape[:rank])
