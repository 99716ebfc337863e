"""Views: what is made of a tensor by looking at its memory in another way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tcomp.networks.texts.elements import factors

Array = np.ndarray[Any, np.dtype[Any]]


def spread(shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> Array:
    """An array, in C order unless told, of which only the layout counts: its memory is not there to be read."""
    steps = contiguous(shape, np.dtype(dtype).itemsize) if strides is None else strides
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), tuple(shape), tuple(steps))


def contiguous(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides of an array in C order."""
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


def applied(
    view: tuple[str | int, ...], array: Array, numbers: Mapping[str, Any], shape: Sequence[int]
) -> Array | None:
    """The view of an array, in its memory; None if that cannot be."""
    kind = view[0]
    made: Array
    if kind == "permute":
        return array.transpose([int(k) for k in view[1:]])
    axis = int(view[1]) if len(view) > 1 else 0
    before: tuple[Any, ...] = (slice(None),) * axis
    if kind == "take":
        first, count, step = (int(numbers[name]) for name in ("FROM", "COUNT", "STEP"))
        last = first + count * step
        made = array[(*before, slice(first, last if last >= 0 else None, step))]
        return made
    if kind == "select":
        made = array[(*before, int(numbers["AT"]), ...)]  # one number, too, as an array
        return made
    steps = _reshaped(array, shape)
    return None if steps is None else np.lib.stride_tricks.as_strided(array, tuple(shape), steps)


def _reshaped(array: Array, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of an array's elements in their order under other extents; None if there are none."""
    strides = [0] * len(shape)
    for old, new in factors(array.shape, shape):
        wide = [k for k in old if array.shape[k] > 1]
        if any(array.strides[k] != array.strides[j] * array.shape[j] for k, j in pairwise(wide)):
            return None
        step = array.strides[wide[-1]] if wide else array.itemsize
        for k in reversed(new):
            strides[k] = step
            step *= shape[k]
    return tuple(strides)
