"""Versions of tensors: where their elements are, how they lie in memory, and who knows them."""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.ranges import Box
from tcomp.values.operators import DType


@dataclass(frozen=True, slots=True, eq=False)
class OpenBox:
    """The elements of an array whose shape follows from open sizes, which are the parameters of ``elements``.

    ``extents`` has the formulas of those that change from call to call, and None for the others.
    """

    extents: tuple[Polynomial | None, ...]
    elements: isl.Set


@dataclass(frozen=True, slots=True)
class Storage:
    """One version of a tensor.  ``role`` is "input", "output", "inout" or "temporary"; ``strides`` are in elements.

    ``called`` is the storage as the caller has it, where its dimensions are others here.  A ``bound`` input is known
    before the kernel is called, and is the same in every call.  Where ``opened`` is given, ``box`` and ``strides`` are
    those of the largest array; temporaries lie as if they were that, with fewer elements in use.
    """

    name: str
    dtype: DType
    box: Box
    role: str
    strides: tuple[int, ...]
    called: Storage | None = None
    bound: bool = False
    opened: OpenBox | None = None

    @property
    def known_strides(self) -> tuple[int | None, ...]:
        """The strides that are the same in every call, and None for the others."""
        far = 0
        if self.opened is not None and self.role != "temporary":
            far = max(d for d, e in enumerate(self.opened.extents) if e is not None)
        return (*[None] * far, *self.strides[far:])

    def is_open(self, dimension: int) -> bool:
        """Whether the extent of a dimension changes from call to call."""
        return self.opened is not None and self.opened.extents[dimension] is not None

    @property
    def argument(self) -> Storage:
        """The storage with the dimensions that the caller's array has."""
        return self.called or self

    @property
    def bytes(self) -> int:
        """Size of the box in bytes."""
        count = self.dtype.itemsize
        for extent in self.box.extent:
            count *= extent
        return count


def contiguous_strides(extent: tuple[int, ...], outermost: tuple[int, ...] = ()) -> tuple[int, ...]:
    """C-order element strides of an array of that shape, some of whose dimensions are to be the outermost ones."""
    order = sorted(range(len(extent)), key=lambda d: d not in outermost)
    strides = [0] * len(extent)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= max(1, extent[d])
    return tuple(strides)
