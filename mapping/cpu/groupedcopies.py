"""Packed copies for a contraction that takes several steps at a time (``contraction/dotproducts.py``).

Both operands are copied, with groups of steps together: the panel for every strip of columns, as all panels are, the
other operand once for all strips of a tile.
"""

from __future__ import annotations

import math
from dataclasses import replace

import islpy as isl

from tcomp.mapping.contraction.columns import Columns
from tcomp.mapping.contraction.dotproducts import DotProduct, PackedOperand, step_dimension
from tcomp.mapping.machines.cpu import LINE_BYTES
from tcomp.mapping.machines.fitted.cpupanels import GROUPED_PANELS
from tcomp.mapping.memory.places import Place
from tcomp.mapping.memory.references import unfolded_access
from tcomp.mapping.plan.layouts import StepGroups
from tcomp.mapping.plan.operations import indices_in
from tcomp.mapping.plan.values import Copy, Plan
from tcomp.mapping.tiles.footprint import BoxHull, box_hull
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import ScopStatement


def grouped_copies(
    plan: Plan, statement: ScopStatement, dot: DotProduct, columns: Columns, panel: Place, tile: Place
) -> tuple[Copy, ...]:
    """The copies of the panel at one place, of the other operand at one around it; none if they would be too large."""
    index = statement.indices[columns.position]
    along = next(d for d, s in enumerate(dot.panel.read.subscripts) if coefficient(s, index, plan.scop.sizes))
    grouped = step_dimension(dot.other.read, statement.indices[dot.step])
    assert grouped is not None
    copies = (
        _copy(plan, statement, dot, dot.panel, panel, along, columns.step),
        _copy(plan, statement, dot, dot.other, tile, grouped if dot.depth else _fastest(plan, statement, dot)),
    )
    return copies if sum(c.bytes for c in copies) <= GROUPED_PANELS.most_copied else ()


def _fastest(plan: Plan, statement: ScopStatement, dot: DotProduct) -> int:
    """The dimension of the other operand that is innermost around groups: where its neighbours lie in the tensor."""
    read = dot.other.read
    grouped = step_dimension(read, statement.indices[dot.step])
    assert grouped is not None
    storage = plan.scop.storages[read.tensor]
    steps = set(statement.indices[statement.coordinates :])
    near = [d for d, s in enumerate(storage.strides) if s == 1 and storage.box.extent[d] > 1]
    return near[0] if near and not indices_in(read.subscripts[near[0]]) & steps else grouped


def _copy(
    plan: Plan,
    statement: ScopStatement,
    dot: DotProduct,
    operand: PackedOperand,
    place: Place,
    innermost: int,
    step: int = 1,
) -> Copy:
    read = operand.read
    grouped = step_dimension(read, statement.indices[dot.step])
    assert grouped is not None
    hull = footprint_at(plan, statement, operand, place)
    order = (*(d for d in range(len(hull.shape)) if d != innermost), innermost)
    steps = set(statement.indices[statement.coordinates :])
    kept = tuple(d for d in order if not indices_in(read.subscripts[d]) & steps)
    summed = kept if operand.summed else None
    groups = StepGroups(grouped, dot.size, dot.step, operand.flipped, summed, dot.depth)
    copy = Copy(read.tensor, operand.dtype, place.mark, statement.name, (read,), hull.shape, hull.lower, order,
                step=max(1, min(step, hull.shape[innermost])), groups=groups)  # fmt: skip
    return _staggered(copy)


def footprint_at(plan: Plan, statement: ScopStatement, operand: PackedOperand, place: Place) -> BoxHull:
    """The box of an operand that the instances below a place read."""
    reached = place.prefixes[statement.name].reverse()
    footprint = reached.apply_range(unfolded_access(plan.scop, statement, operand.read))
    return box_hull(footprint.reset_tuple_id(isl.dim_type.out))


def _staggered(copy: Copy) -> Copy:
    """The copy with rows of such a length that neighbouring ones do not fall on the same sets of a cache."""
    assert copy.groups is not None
    itemsize = copy.dtype.itemsize * (1 if copy.order[-1] == copy.groups.dimension else copy.groups.size)
    rows = math.prod(copy.room[:-1])
    return (
        copy
        if copy.room[-1] * itemsize % GROUPED_PANELS.period or rows == 1
        else replace(copy, padding=LINE_BYTES // itemsize)
    )
