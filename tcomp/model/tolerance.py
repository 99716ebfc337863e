"""How far a kernel's results may be from the reference's: the one place that says so.

``error_bounds`` follows a program statement by statement, on the very arrays of a call, and gives every element of the
outputs a bound.  It knows how long reductions are, in which type they accumulate, how large the summed values are,
how precise the built-in functions are, and what errors earlier statements left in what later ones read.  Where all
operations are exact, as on small integers, the bound is 0.

Sums are bounded for any order of summation.  Three models say how much of that comes true:

- ``WORST_CASE``: |error| <= (n-1)u / (1-(n-1)u) sum |x|.  Always holds.  N. J. Higham, "Accuracy and Stability of
  Numerical Algorithms", 2nd ed., SIAM 2002, sections 3.1 and 4.2.
- ``PROBABLE``: |error| <= lambda sqrt(n-1) u sum |x|.  Holds with probability 1 - 2 exp(-lambda^2/2) if rounding errors
  are of mean zero whatever the ones before were.  N. J. Higham, T. Mary, "A New Approach to Probabilistic Rounding
  Error Analysis", SIAM J. Sci. Comput. 41 (2019) A2815-A2835, theorem 2.4.
- ``RANDOM_ORDER``: |error| <= lambda u sqrt(sum of s_k^2) with the partial sums s_k that a random order of the terms
  has on average.  For terms of mean zero it is smaller than the one above by a factor that grows with sqrt(n).  The
  assumption is fair where data are made up.  After N. J. Higham, T. Mary, "Sharper Probabilistic Backward Error
  Analysis for Basic Linear Algebra Kernels with Random Data", SIAM J. Sci. Comput. 42 (2020) A3427-A3446.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tcomp.grammar.tree.function import Binary, Function, Read, walk
from tcomp.grammar.tree.terms import products_of
from tcomp.model.errorbounds import (
    ANY_GRID,
    Bounded,
    Surroundings,
    bound,
    error_name,
    exact,
    grid_of,
    stored,
)
from tcomp.model.evaluation import Array, Frame, Stored, convert, working_dtype
from tcomp.model.reference import StatementRun, prepare, sum_of_products
from tcomp.model.steps import in_order
from tcomp.values.accuracy import FORMATS, Arithmetic
from tcomp.values.operators import FLOAT64, REDUCTIONS, DType

LAMBDA = 6.0
"""Of the probabilistic models: an element exceeds its bound with a probability below 4e-8."""


class Model(enum.Enum):
    """What is assumed of rounding errors; see the module."""

    WORST_CASE = "worst case"
    PROBABLE = "probable"
    RANDOM_ORDER = "random order"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An output of the reference, and by how much each element of a kernel's may differ from it."""

    reference: Array
    bound: Array

    def differences(self, found: Array) -> Array:
        """How far each element is from the reference, in float64; NaN agrees with NaN, an infinity with itself."""
        if self.reference.dtype.kind in "biu":
            wide: type = object if self.reference.dtype.itemsize == 8 else np.int64
            return np.asarray(np.abs(found.astype(wide) - self.reference.astype(wide)), np.float64)
        a, b = found.astype(np.float64), self.reference.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))

    def shares(self, found: Array) -> Array:
        """The part of its bound that each element's difference takes: above 1 it is wrong; infinite where it is 0."""
        differences = self.differences(found)
        with np.errstate(all="ignore"):
            share = differences / self.bound
        return np.where((differences == 0) | np.isinf(self.bound), 0.0, np.where(np.isnan(share), np.inf, share))


def error_bounds(
    function: Function,
    inputs: Mapping[str, npt.ArrayLike],
    outputs: Mapping[str, npt.ArrayLike] | None = None,
    model: Model = Model.PROBABLE,
    fast_math: bool = False,
    matrix_units: bool = False,
    math: str = "exact",
) -> dict[str, Tolerance]:
    """What the reference gives for a call, by output, and how far a kernel's results may be from it.

    Takes and raises what ``interpret`` does, and takes two to four times as long.  With ``fast_math`` a compiler may
    also rearrange expressions; the bounds then have its less precise functions and divisions, but do not hold where an
    expression depends on the order of its operations.  With ``matrix_units`` sums of products of 16-bit floats may be
    cut off towards zero, once for every 16 terms, as GPUs do, and exponentials that are rounded to 16 bits are right to
    some 20 bits only; those of products of 8-bit floats keep 14 bits within a tile.  ``math`` is the option of that
    name, for products of floats.
    """
    short = any(t.dtype.is_float and t.dtype.bits == 16 for t in function.inputs)
    arithmetic = Arithmetic(fast_math, rounded_weights=matrix_units and short)
    tensors, runs = prepare(function, inputs, outputs)
    grids: dict[str, int | None] = {
        name: grid_of(t.values) if function.tensors[name].dtype.is_float else 0 for name, t in tensors.items()
    }
    for run in in_order(runs):
        target = run.statement.target
        before, dtype = tensors[target], function.tensors[target].dtype
        errors = _Analysis(run, grids, model, arithmetic, matrix_units, math).errors(dtype)
        values = run.execute()
        tensors[target] = Stored(target, values, before.origin)
        if errors.any():
            tensors[error_name(target)] = Stored(error_name(target), errors, before.origin)
        else:
            tensors.pop(error_name(target), None)
        grids[target] = grid_of(values, errors == 0) if dtype.is_float else 0
    return {t.name: Tolerance(tensors[t.name].values, _errors_of(t.name, tensors)) for t in function.outputs}


def _errors_of(name: str, tensors: Mapping[str, Stored]) -> Array:
    found = tensors.get(error_name(name))
    return np.zeros(tensors[name].values.shape) if found is None else found.values


def summation_error(model: Model, unit: float, count: Array, magnitude: Array, squares: Array, total: Array) -> Array:
    """What the additions of a sum may err by, in any order of summation.

    Elementwise: ``count`` is the number of terms n, ``magnitude`` the sum of their absolute values, ``squares`` the sum
    of their squares and ``total`` the sum; ``unit`` is the unit roundoff u of the accumulator.
    """
    additions = np.maximum(count - 1, 0)
    with np.errstate(all="ignore"):
        share = additions * unit
        worst: Array = np.asarray(np.where(share < 1, share / (1 - share), np.inf) * magnitude)
        match model:
            case Model.WORST_CASE:
                return worst
            case Model.PROBABLE:
                usual = LAMBDA * np.sqrt(additions) * unit * magnitude
            case Model.RANDOM_ORDER:
                # The sum over k of the mean of s_k^2, s_k being the sum of k of the n terms, any k alike.
                n = np.maximum(count, 1)
                spread = np.maximum(squares - total * total / n, 0)
                partial = total * total * (n + 1) * (2 * n + 1) / (6 * n) + (n + 1) / 6 * spread
                usual = LAMBDA * unit * np.sqrt(partial)
        return np.asarray(np.minimum(worst, usual))


TERMS_CUT_OFF = 8
"""Terms that an instruction for matrices adds at least at a time; what the accumulator does not hold is cut off."""

ROUNDING = {"tf32": 2.0**-10 + 2.0**-21, "tf32x3": 24 * 2.0**-24}
"""What operands rounded to 11 bits make of each product, and what is left of that with the rest of each as a second
operand: three dropped products of 2^-22, and six sums of a tile that are cut off."""

SHORT_SUMS = 14
"""Bits of sums in instructions for floats of 8 bits (J. Zhang and others, SageAttention2, arXiv 2411.10958, and what
DeepGEMM does about it on Hopper)."""

CUT_SHORT = 4 * 2.0 ** (1 - SHORT_SUMS)
"""What that cuts off the products of a tile: as often as instructions run one after another on what is at most 128
steps, before sums leave them."""


def cutting_error(model: Model, unit: float, count: Array, magnitude: Array, squares: Array, total: Array) -> Array:
    """What cutting off partial sums adds to ``summation_error``, whose arguments these are: always to one side."""
    times = np.ceil(count / TERMS_CUT_OFF)
    with np.errstate(all="ignore"):
        size = magnitude
        if model is Model.RANDOM_ORDER:
            n = np.maximum(count, 1)
            spread = np.maximum(squares - total * total / n, 0)
            mean = total * total * (n + 1) * (2 * n + 1) / (6 * n * n) + (n + 1) / (6 * n) * spread
            size = np.minimum(magnitude, np.sqrt(mean))
        return np.asarray(2 * unit * times * size)


@dataclass(slots=True)
class _Sums:
    """What a sum's bound is made of, per element of the target."""

    total: Array
    magnitude: Array
    squares: Array
    inherited: Array
    count: Array
    grid: int | None


@dataclass(frozen=True, slots=True)
class _Analysis:
    """The errors that one statement leaves in its target."""

    run: StatementRun
    grids: Mapping[str, int | None]
    model: Model
    arithmetic: Arithmetic
    matrix_units: bool
    math: str

    def errors(self, dtype: DType) -> Array:
        """Of every element of the target, once it is stored as ``dtype``."""
        statement, target = self.run.statement, self.run.tensors[self.run.statement.target]
        before = _errors_of(target.name, self.run.tensors).copy()
        content = convert(target.values.astype(working_dtype(dtype)), dtype, statement.accumulator)
        content = np.array(content, np.float64 if statement.accumulator.is_float else content.dtype, order="C")
        match statement.reduction:
            case None:
                self._assign(before, dtype)
                return before
            case "+" if statement.accumulator.is_float:
                value, error = self._sum(content, before)
            case "*" if statement.accumulator.is_float:
                value, error = self._product(content, before)
            case "min" | "max" if statement.accumulator.is_float:
                value, error = self._extremum(content, before)
            case _:
                return self._certain(before)
        return stored(value, error, dtype) if statement.accumulator != dtype else error

    def _around(self, frame: Frame) -> Surroundings:
        return Surroundings(frame, self.grids, self.arithmetic)

    def _assign(self, errors: Array, dtype: DType) -> None:
        for ranges in self.run.chunks():
            frame = self.run.frame(ranges, self.run.statement.indices)
            mask = self.run.mask(frame)
            found = bound(self.run.statement.value, self._around(frame if mask is None else frame.where(mask)))
            self.run.store(errors, ranges, stored(found.value, found.error, dtype), mask, None)

    def _certain(self, errors: Array) -> Array:
        """Integer reductions wrap, hence are exact; where what they combine is not certain, nothing is."""
        for ranges in self.run.chunks():
            frame = self.run.frame(ranges, self.run.statement.indices)
            mask = self.run.mask(frame)
            found = bound(self.run.statement.value, self._around(frame if mask is None else frame.where(mask)))
            unknown = np.where(found.error > 0, np.inf, 0.0)
            if unknown.any():
                self.run.fold(errors, ranges, unknown, mask, np.maximum, 0.0)
        return errors

    def _sum(self, content: Array, before: Array) -> tuple[Array, Array]:
        statement = self.run.statement
        for array in (content, before):
            if statement.initialise:
                self.run.initialise(array, 0)
        with np.errstate(all="ignore"):
            size, square, present = np.asarray(np.abs(content)), np.asarray(content * content), np.not_equal(content, 0)
            count = np.asarray(present, np.float64)
            sums = _Sums(content, size, square, before, count, grid_of(content, before == 0))
            for ranges in self.run.chunks():
                self._add(sums, ranges)
        return sums.total, self._error_of_sum(sums)

    def _add(self, sums: _Sums, ranges: Mapping[str, range]) -> None:
        run, statement = self.run, self.run.statement
        frame = run.frame(ranges, statement.indices)
        factors = run.factors()
        if len(factors) > 1:
            self._add_products(sums, ranges, [bound(f, self._around(frame)) for f in factors])
            return
        mask = run.mask(frame)
        where = self._around(frame if mask is None else frame.where(mask))
        ones = np.ones((1,) * len(statement.indices))
        # Products whose sum is a term may be added up one after another.
        for sign, product in products_of(statement.value) or ((1, statement.value),):
            term = bound(product, where)
            sums.grid = _least(sums.grid, term.grid)
            value = sign * term.value
            for content, values in (
                (sums.total, value), (sums.magnitude, np.abs(value)), (sums.squares, value * value),
                (sums.inherited, term.error), (sums.count, ones),
            ):  # fmt: skip
                run.fold(content, ranges, values, mask, np.add, 0.0)

    def _add_products(self, sums: _Sums, ranges: Mapping[str, range], factors: list[Bounded]) -> None:
        """The same for terms that are products, which are not computed one by one."""
        run, statement = self.run, self.run.statement
        form = FORMATS[statement.accumulator]
        shape, rank = tuple(len(ranges[name]) for name in statement.indices), len(run.target_indices)
        values = [f.value for f in factors]
        sizes = [np.abs(v) for v in values]

        def summed(parts: list[Array]) -> Array:
            return sum_of_products(parts, shape, rank)

        magnitude = summed(sizes)
        count = float(np.prod(shape[rank:]))
        inherited = np.zeros(())
        if any(f.error.any() for f in factors):
            grown = summed([np.broadcast_to(s + f.error, s.shape) for s, f in zip(sizes, factors, strict=True)])
            inherited = np.maximum(grown - magnitude, 0) + 4 * FORMATS[FLOAT64].unit * magnitude
        grid: int | None = 0
        for factor in factors:
            grid = None if grid is None or factor.grid is None else min(grid + factor.grid, ANY_GRID)
        kept = exact(magnitude, form.precision, form.lowest_exponent, grid) & (inherited == 0)
        roundings = len(factors) - 1
        inherited = inherited + np.where(kept, 0.0, roundings * (2 * form.unit * magnitude + count * form.least))
        sums.grid = _least(sums.grid, grid)
        for content, reduced in (
            (sums.total, summed(values)), (sums.magnitude, magnitude), (sums.squares, summed([s * s for s in sizes])),
            (sums.inherited, inherited), (sums.count, np.asarray(count)),
        ):  # fmt: skip
            run.store(content, ranges, reduced, None, np.add)

    def _error_of_sum(self, sums: _Sums) -> Array:
        form = FORMATS[self.run.statement.accumulator]
        unit = form.unit + FORMATS[FLOAT64].unit
        added = summation_error(self.model, unit, sums.count, sums.magnitude, sums.squares, sums.total)
        rounded = self.math != "exact" and self._multiplies(32)
        if rounded:
            added = added + ROUNDING[self.math] * sums.magnitude
        short = self.matrix_units and self._multiplies(8)
        if short:
            added = added + CUT_SHORT * sums.magnitude
        if (self.matrix_units and self._multiplies(16)) or (rounded and self.math == "tf32"):
            added = added + cutting_error(self.model, unit, sums.count, sums.magnitude, sums.squares, sums.total)
        with np.errstate(all="ignore"):
            error = sums.inherited + added
        kept = (
            (sums.inherited == 0)
            & (not rounded)
            & exact(sums.magnitude, SHORT_SUMS if short else form.precision, form.lowest_exponent, sums.grid)
        )
        unbounded = ~np.isfinite(sums.magnitude) & (sums.inherited == 0)
        beyond = (sums.magnitude + error > form.largest) | np.isnan(error)
        return np.where(kept | unbounded, 0.0, np.where(beyond, np.inf, error))

    def _multiplies(self, bits: int) -> bool:
        """Whether the terms are products of two floats of so many bits."""
        value = self.run.statement.value
        reads = [e for e in walk(value) if isinstance(e, Read)]
        alike = all(r.dtype.is_float and r.dtype.bits == bits for r in reads)
        return isinstance(value, Binary) and value.op == "*" and len(reads) == 2 and alike

    def _product(self, content: Array, before: Array) -> tuple[Array, Array]:
        """Relative errors add up; the logarithms of factors above and below 1 tell whether any order may overflow."""
        run, statement = self.run, self.run.statement
        if statement.initialise:
            run.initialise(content, 1)
            run.initialise(before, 0)
        form, neutral = FORMATS[statement.accumulator], REDUCTIONS["*"].identity(statement.accumulator)
        first = Bounded(content.copy(), before, grid_of(content, before == 0))
        relative, above, below = _relative(first), *_logarithms(first.value)
        count, grid = np.ones(content.shape), first.grid
        for ranges in run.chunks():
            frame = run.frame(ranges, statement.indices)
            mask = run.mask(frame)
            term = bound(statement.value, self._around(frame if mask is None else frame.where(mask)))
            grid = 0 if grid is not None and grid >= 0 and term.grid is not None and term.grid >= 0 else None
            up, down = _logarithms(term.value)
            run.fold(content, ranges, term.value, mask, np.multiply, neutral)
            for array, values in ((relative, _relative(term)), (above, up), (below, down)):
                run.fold(array, ranges, values, mask, np.add, 0.0)
            run.fold(count, ranges, np.ones((1,) * len(statement.indices)), mask, np.add, 0.0)
        unit = form.unit + FORMATS[FLOAT64].unit
        share = np.maximum(count - 1, 0) * unit
        steps = LAMBDA * np.sqrt(np.maximum(count - 1, 0)) * unit
        with np.errstate(all="ignore"):
            worst = np.where(share < 1, share / (1 - share), np.inf)
            grown = relative + (worst if self.model is Model.WORST_CASE else np.minimum(worst, steps))
            error = np.abs(content) * np.where(relative > 0.01, np.expm1(relative) + grown, grown)
        kept = (relative == 0) & (grid == 0) & (above <= form.precision)
        error = np.where(kept | (content == 0) & (relative == 0), 0.0, np.where(np.isnan(error), np.inf, error))
        lowest = form.lowest_exponent + form.precision
        orders = (above > np.log2(form.largest) - 1) | (below < lowest)
        return content, np.where(orders & ~kept, np.inf, error)

    def _extremum(self, content: Array, before: Array) -> tuple[Array, Array]:
        run, statement = self.run, self.run.statement
        assert statement.reduction is not None
        reduction = REDUCTIONS[statement.reduction]
        neutral, ufunc = float(reduction.identity(statement.accumulator)), getattr(np, reduction.ufunc)
        low, high = np.asarray(content - before), np.asarray(content + before)
        if statement.initialise:
            for array in (content, low, high):
                run.initialise(array, neutral)
        for ranges in run.chunks():
            frame = run.frame(ranges, statement.indices)
            mask = run.mask(frame)
            term = bound(statement.value, self._around(frame if mask is None else frame.where(mask)))
            for array, values in (
                (content, term.value),
                (low, term.value - term.error),
                (high, term.value + term.error),
            ):
                run.fold(array, ranges, values, mask, ufunc, neutral)
        with np.errstate(all="ignore"):
            error = np.where(low == high, 0.0, np.maximum(high - content, content - low))
        return content, np.where(np.isnan(error), np.where(np.isnan(content), 0.0, np.inf), error)


def _least(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _relative(found: Bounded) -> Array:
    with np.errstate(all="ignore"):
        relative = found.error / np.abs(found.value)
    return np.broadcast_to(np.where(found.error == 0, 0.0, relative), found.value.shape).copy()


def _logarithms(values: Array) -> tuple[Array, Array]:
    """The binary logarithm of each magnitude, apart where it is positive and where it is negative; 0 has none."""
    with np.errstate(all="ignore"):
        logarithm = np.where((values == 0) | ~np.isfinite(values), 0.0, np.log2(np.abs(values)))
    return np.asarray(np.maximum(logarithm, 0)), np.asarray(np.minimum(logarithm, 0))
