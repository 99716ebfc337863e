"""Pass: pack the panels of contractions.

Where neighbouring columns of a register tile do not read neighbouring elements, or the elements of a column lie so far
apart that each costs a page or a cache line of its own, the panel is copied into a box whose innermost dimension is the
columns.  It is the copy that a GPU makes into shared memory (``promotion.py``), at the mark around the tiles that use
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from tcomp.grammar.function import Read, depends_on_data
from tcomp.mapping.buffers import Place, places
from tcomp.mapping.columns import columns_of, operands_of
from tcomp.mapping.footprint import box_hull
from tcomp.mapping.memories import home_of
from tcomp.mapping.options import MappingOptions
from tcomp.mapping.plan import Copy, Plan
from tcomp.mapping.promotion import extents_of_a_run, unfolded_access
from tcomp.mapping.strides import access_stride, coefficient
from tcomp.scop import ScopStatement

LEAST_REUSE = 8
"""Multiply-adds for each element of a panel from which on packing it pays."""

LEAST_REUSE_APART = 1
"""The same where elements that stand in between, or a boundary, would stop the vectors."""

LONG_STRIDE = 4096
"""Bytes between the steps of a column from which on a panel that is contiguous along its rows is packed, too."""

LEAST_PANEL, MOST_PANEL = 32 * 1024, 2 * 1024 * 1024
"""Bytes of a panel: a smaller one stays in the first-level cache however it lies, a larger one is not worth a copy."""


def pack_panels(plan: Plan, options: MappingOptions) -> Plan:
    """Give contractions the copies of their panels."""
    marks = {p.mark: p for p in places(plan.tree)}
    return replace(plan, copies=tuple(copy for o in plan.operations.values() if o.kind == "contract"
                                      for copy in _panel(plan, plan.scop.by_name[o.statement], marks)))  # fmt: skip


def _panel(plan: Plan, statement: ScopStatement, marks: dict[str, Place]) -> Iterator[Copy]:
    number = home_of(plan, statement.name)[1]
    place = marks.get(f"panel{number}")
    columns = columns_of(plan.scop, plan.clusters[number])
    if place is None or statement.name not in place.prefixes:
        return
    if columns is None or columns.panel is None or operands_of(statement) is None:
        return
    read = columns.panel
    storage = plan.scop.storages[read.tensor]
    if storage.role == "temporary" and plan.buffers[storage.name].space != "global":
        return
    if _is_written_around(plan, statement, storage.name) or any(map(depends_on_data, read.subscripts)):
        return
    prefix = place.prefixes[statement.name]
    footprint = prefix.reverse().apply_range(unfolded_access(plan.scop, statement, read))
    hull = box_hull(footprint.reset_tuple_id(isl.dim_type.out))
    count = max(1, math.prod(hull.shape))
    size = count * storage.dtype.itemsize
    reuse = LEAST_REUSE if columns.step == 1 and read.boundary is None else LEAST_REUSE_APART
    if math.prod(extents_of_a_run(prefix)) < reuse * count or size > MOST_PANEL:
        return
    if not columns.packed and (size < LEAST_PANEL or not _strides_far(plan, statement, read)):
        return
    index = statement.indices[columns.position]
    innermost = next(d for d, s in enumerate(read.subscripts) if coefficient(s, index, plan.scop.sizes))
    order = (*(d for d in range(len(hull.shape)) if d != innermost), innermost)
    step = max(1, min(columns.step, hull.shape[innermost]))
    yield Copy(
        storage.name, storage.dtype, place.mark, statement.name, (read,), hull.shape, hull.lower, order, step=step
    )


def _is_written_around(plan: Plan, statement: ScopStatement, storage: str) -> bool:
    """Whether the tile that a statement runs in also writes what it reads."""
    group, _ = home_of(plan, statement.name)
    return any(plan.scop.by_name[s].target == storage for c in group.clusters for s in plan.clusters[c].statements)


def _strides_far(plan: Plan, statement: ScopStatement, read: Read) -> bool:
    """Whether steps of the reduction move far in memory."""
    steps = statement.indices[statement.coordinates :]
    strides = [access_stride(plan.scop, read.tensor, read.subscripts, step, plan.scop.sizes) for step in steps]
    moving = [abs(s) for s in strides if s]
    return bool(moving) and min(moving) * plan.scop.storages[read.tensor].dtype.itemsize >= LONG_STRIDE
