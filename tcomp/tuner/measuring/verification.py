"""What a candidate has to compute: for every element of every output, the lowest and the highest right value."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tcomp.grammar.tree.function import Tensor
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.madeup import Array
from tcomp.model.tolerance import Tolerance
from tcomp.values.accuracy import FORMATS
from tcomp.values.operators import FLOAT32, FLOAT64, DType

_CHUNK = 1 << 16
"""Elements compared at a time, so that what is in between stays in the processor's caches."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One output: right is what lies between ``low`` and ``high``, and NaN where these are NaN.

    Where they are infinities of either sign nothing is wrong.  Their type holds every value of the output's.
    """

    tensor: Tensor
    low: Array
    high: Array

    @classmethod
    def room(cls, tensor: Tensor, shape: tuple[int, ...]) -> Expected:
        """Room for limits, in memory in which forked children write for their parent.  Raises MemoryError."""
        dtype = numpy_dtype(_comparable(tensor.dtype))
        return cls(tensor, _shared(shape, dtype), _shared(shape, dtype))

    def allow(self, tolerance: Tolerance) -> None:
        """Let right be what a tolerance allows."""
        arrays = (self.low, self.high, tolerance.reference, tolerance.bound)
        for low, high, reference, bound in zip(*map(_chunks, arrays), strict=True):
            low[...] = high[...] = reference.astype(low.dtype)
            some = bound > 0
            if some.any():
                low[some], high[some] = _limits(reference[some], bound[some], self.tensor.dtype)

    def mistake(self, found: Array) -> str:
        """What is wrong with an output; empty if nothing is."""
        count, first, start = 0, 0, 0
        for values, low, high in zip(*map(_chunks, (found, self.low, self.high)), strict=True):
            wrong = ~_right(values.astype(low.dtype, copy=False), low, high)
            if wrong.any():
                first = first if count else start + int(np.argmax(wrong))
                count += int(np.count_nonzero(wrong))
            start += values.size
        if not count:
            return ""
        place = np.unravel_index(first, self.low.shape)
        at = f"{self.tensor.name}({', '.join(str(int(n)) for n in place)})"
        lowest, highest = self.low[place], self.high[place]
        right = f"between {lowest} and {highest}" if lowest < highest else f"{lowest}"
        return f"{at} is {found[place]} and should be {right}; {count} of {found.size} elements are wrong"


def believed(output: Array, dtype: DType) -> Tolerance:
    """What stands for a bound where none was computed: half of the digits of the largest value, or no difference.

    ``output`` is the result of a kernel that is believed.
    """
    bound = np.zeros(output.shape)
    if dtype.is_float:
        finite = output.astype(np.float64)[np.isfinite(output.astype(np.float64))]
        bound[...] = math.sqrt(FORMATS[dtype].unit) * float(np.abs(finite).max(initial=0.0))
    return Tolerance(output, bound)


def _comparable(dtype: DType) -> DType:
    """A type that holds all values of another, and with which NumPy is quick."""
    return FLOAT32 if dtype.is_float and dtype != FLOAT64 else dtype


def _shared(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    count = math.prod(shape)
    try:
        memory = mmap.mmap(-1, max(1, count * dtype.itemsize))
    except (OSError, OverflowError) as error:
        raise MemoryError(f"there is no room for the expected results: {error}") from None
    return np.frombuffer(memory, dtype, count).reshape(shape)


def _chunks(array: Array) -> Iterator[Array]:
    """The elements in C order, some at a time; views of an array that is laid out so."""
    flat = array.reshape(-1)
    return (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))


def _limits(reference: Array, bound: Array, stored: DType) -> tuple[Array, Array]:
    """The lowest and the highest value within ``bound`` of the reference, rounded outwards."""
    if not stored.is_float:
        return _whole_limits(reference, bound, stored)
    dtype = numpy_dtype(_comparable(stored))
    unknown = np.isinf(bound)
    with np.errstate(invalid="ignore", over="ignore"):
        low = np.nextafter((reference.astype(np.float64) - bound).astype(dtype), -np.inf, dtype=dtype)
        high = np.nextafter((reference.astype(np.float64) + bound).astype(dtype), np.inf, dtype=dtype)
    low[unknown], high[unknown] = -np.inf, np.inf
    return low, high


def _whole_limits(reference: Array, bound: Array, dtype: DType) -> tuple[Array, Array]:
    lowest, highest = int(dtype.lowest), int(dtype.highest)
    low, high = reference.copy(), reference.copy()
    for place, (value, width) in enumerate(zip(reference.tolist(), bound.tolist(), strict=True)):
        reach = highest - lowest if math.isinf(width) else math.floor(width)
        low[place], high[place] = max(lowest, value - reach), min(highest, value + reach)
    return low, high


def _right(values: Array, low: Array, high: Array) -> Array:
    right = (values >= low) & (values <= high)
    if low.dtype.kind == "f" and not right.all():
        right |= (np.isnan(values) & np.isnan(low)) | (np.isinf(low) & (low < high) & np.isinf(high))
    return np.asarray(right)
