"""How operands lie in shared memory where a warpgroup's instruction reads them by itself.

An instruction reads 64 rows of 32 bytes of steps, given by where the first lies and how far groups of eight rows are
apart (PTX ISA, "Asynchronous warpgroup level matrix instructions").  Elements of one byte must be neighbours along the
steps.  Warp w of a group leaves in a lane row ``16 w + g`` and that eight further.  Rows of a tile are dealt in turn to
warps, eight to each, so what one lane has is as far apart as all warps reach together.  Those groups of eight are
brought together where rows are stored.
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.mapping.machines.atoms import GROUP_COLUMNS, GROUP_WARPS, ROWS
from tcomp.mapping.plan.layouts import CORE_ROWS, SWIZZLED_ROW, Swizzle
from tcomp.mapping.plan.values import Copy, Plan


def with_swizzle(plan: Plan, copy: Copy, swizzle: Swizzle) -> Copy:
    """The copy of an operand for a warpgroup, as rows or columns lie in the tensor; it has no warps for columns."""
    strides = plan.scop.storages[copy.storage].strides
    order = tuple(sorted(range(len(copy.shape)), key=lambda d: (copy.shape[d] > 1, -abs(strides[d]), d)))
    return replace(copy, order=order, padding=0, swizzle=swizzle)


def lies_for_groups(copy: Copy, swizzle: Swizzle) -> bool:
    """Whether a copy lies as a warpgroup's instruction reads it; the swizzle has no warps for columns."""
    return copy.swizzle == swizzle and has_panels(copy)


def steps_of_a_row(copy: Copy) -> int:
    """Elements of a row of a swizzled copy."""
    return SWIZZLED_ROW // copy.dtype.itemsize


def has_panels(copy: Copy) -> bool:
    """Whether the elements of a swizzled copy fill whole panels, and whole groups of rows of all warps."""
    swizzle, rank = copy.swizzle, len(copy.shape)
    if swizzle is None or swizzle.side == swizzle.step or not {swizzle.side, swizzle.step} <= set(range(rank)):
        return False
    if sorted(copy.order) != list(range(rank)) or copy.order[-1] not in (swizzle.side, swizzle.step):
        return False
    if copy.padding or copy.step != 1 or copy.groups is not None or copy.dtype.itemsize > 2:
        return False
    if copy.dtype.itemsize == 1 and copy.order[-1] != swizzle.step:
        return False
    rows = ROWS * swizzle.warps if swizzle.warps else GROUP_COLUMNS
    own = (*swizzle.around, swizzle.side, swizzle.step)
    if len(set(own)) != len(own) or not set(own) <= set(range(rank)):
        return False
    if swizzle.around and (copy.order[-1] != swizzle.step or copy.shape[swizzle.side] % CORE_ROWS):
        return False
    alone = all(e == 1 for d, e in enumerate(copy.shape) if d not in own)
    whole = swizzle.rows(copy.shape) % rows == 0 and copy.shape[swizzle.step] % steps_of_a_row(copy) == 0
    return alone and whole and swizzle.warps % GROUP_WARPS == 0
