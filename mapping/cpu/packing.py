"""Pass: pack the operands of contractions, and the panels of other updates with strides and boundaries.

Where neighbouring columns of a register tile do not read neighbouring elements, or the elements of a column lie so far
apart that each costs a page or a cache line of its own, the panel is copied into a box whose innermost dimension is the
columns.  The other operand is broadcast from where it lies, unless some of it lies outside its tensor, or its elements
throw each other out of the cache.  It is the copy that a GPU makes into shared memory (``gpu/promotion.py``), at the
mark around the tiles that use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from tcomp.grammar.tree.function import Read, depends_on_data
from tcomp.mapping.contraction.blocking import is_read_afar, rows_of, steps_apart, steps_collide, steps_in_order
from tcomp.mapping.contraction.columns import Columns, columns_of, has_box
from tcomp.mapping.contraction.dotproducts import dot_product
from tcomp.mapping.contraction.turning import turned_reads
from tcomp.mapping.cpu.groupedcopies import grouped_copies
from tcomp.mapping.machines.cpu import LINE_BYTES, Machine
from tcomp.mapping.machines.fitted.cpupanels import BLOCKS, PACKING
from tcomp.mapping.memory.corners import corners_of
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import Place, places
from tcomp.mapping.memory.references import extents_of_a_run, is_written_beside, unfolded_access
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Cluster, Copy, Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop, ScopStatement
from tcomp.values.operators import BFLOAT16


def pack_panels(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Give updates the copies of their operands."""
    marks = {p.mark: p for p in places(plan.tree)}
    numbers = [number for group in plan.groups for number in group.clusters]
    copies = (copy for number in numbers for copy in _copies(plan, number, marks, machine))
    return replace(plan, copies=tuple(_ahead(plan, copy, marks[copy.mark]) for copy in copies))


def _ahead(plan: Plan, copy: Copy, place: Place) -> Copy:
    """The copy, made before the kernel is called where the array is bound, and all boxes of it take no large room.

    What is told of the elements of a copy is found while it is made.
    """
    storage = plan.scop.storages[copy.storage]
    if not storage.bound or (copy.groups is not None and copy.dtype == BFLOAT16):
        return copy
    corners = corners_of(place, copy)
    room = PACKING.most_ahead * storage.bytes + PACKING.most_panel
    return replace(copy, ahead=corners is not None and corners.number * copy.bytes <= room)


def packed_from_memory(machine: Machine, scop: Scop, cluster: Cluster) -> frozenset[str]:
    """What panels of a cluster are made of, and must therefore lie in memory, as far as one can tell before."""
    columns, turned = columns_of(scop, cluster, machine.vector_bytes), turned_reads(scop, cluster)
    found = set() if turned is None else {r.tensor for r in turned.reads}
    if columns is None or columns.panel is None:
        return frozenset(found)
    main = main_statement(scop, cluster)
    steps, rows = steps_in_order(scop, cluster, columns), rows_of(main, columns)
    if columns.packed or is_read_afar(scop, cluster, columns, machine):
        found.add(columns.panel.tensor)
    if rows is not None and (rows.boundary is not None or steps_collide(scop, main, rows, steps)):
        found.add(rows.tensor)
    dot = dot_product(scop, cluster, columns, machine)
    return frozenset(found if dot is None else found | {dot.panel.read.tensor, dot.other.read.tensor})


def _copies(plan: Plan, number: int, marks: dict[str, Place], machine: Machine) -> Iterator[Copy]:
    """The panel of an update, and what the rows of a contraction read in a block of the reduction."""
    statement = main_statement(plan.scop, plan.clusters[number])
    columns = columns_of(plan.scop, plan.clusters[number], machine.vector_bytes)
    place = marks.get(f"panel{number}")
    turned = turned_reads(plan.scop, plan.clusters[number])
    if turned is not None:
        # One part of a tensor that becomes another, turned: tiles of 64 x 402 doubles are as fast without a panel.
        reads = [read for read in turned.reads if read.tensor != statement.target]
        tiles = (_boxed(plan, statement, place, read, PACKING.least_reuse_apart) for read in reads)
        yield from (_with_innermost(plan, tile, statement.indices[turned.lanes]) for tile in tiles if tile is not None)
    if columns is None or columns.panel is None:
        return
    grouped = _grouped(plan, statement, marks, columns, machine)
    if grouped:
        yield from grouped
        return
    read = columns.panel
    steps = steps_in_order(plan.scop, plan.clusters[number], columns)
    reuse = PACKING.least_reuse_apart if columns.packed else PACKING.least_reuse
    panel = _boxed(plan, statement, place, read, reuse)
    afar = is_read_afar(plan.scop, plan.clusters[number], columns, machine)
    least = _least_panel(plan.scop, statement, read, steps, machine)
    if panel is not None and (columns.packed or (afar and panel.bytes >= least)):
        panel = _with_innermost(plan, panel, statement.indices[columns.position])
        *outer, innermost = panel.order
        outer.sort(key=lambda d: _last_mover(plan, statement, read, steps, d))
        step = max(1, min(columns.step, panel.shape[innermost]))
        panel = replace(panel, order=(*outer, innermost), step=step)
        line = LINE_BYTES // panel.dtype.itemsize
        yield replace(panel, padding=-panel.run % line if step == 1 and panel.run > line else 0)
    rows = rows_of(statement, columns)
    if rows is not None and rows.boundary is not None:
        yield from filter(None, [_bordered(plan, statement, marks, rows, machine)])
    elif rows is not None and steps_collide(plan.scop, statement, rows, steps):
        block = _boxed(plan, statement, marks.get(f"block{number}"), rows, PACKING.least_reuse)
        if block is not None:
            # Rows that lie a multiple of a page apart would fall into few sets of the cache again.
            yield replace(block, padding=LINE_BYTES // block.dtype.itemsize)


def _least_panel(scop: Scop, statement: ScopStatement, read: Read, steps: list[int], machine: Machine) -> int:
    """Bytes from which on a panel that is packed for distance alone pays, by how far apart its steps lie."""
    if steps_collide(scop, statement, read, steps):
        return PACKING.least_colliding
    return (
        PACKING.least_apart if steps_apart(scop, statement, read, steps) >= machine.far_stride else PACKING.least_panel
    )


def _bordered(
    plan: Plan, statement: ScopStatement, marks: dict[str, Place], read: Read, machine: Machine
) -> Copy | None:
    """A copy of what rows read with a boundary: for a whole tile, which others may share, if that stays in a cache.

    So, too, if blocks of the reduction, which read nearly the same of a window, would copy many times as much.
    """
    place = _around(marks, statement)
    inner = _boxed(plan, statement, place, read, 0)
    group = [p for p in marks.values() if p.mark.startswith("group") and statement.name in p.prefixes]
    whole = _boxed(plan, statement, group[-1], read, 0) if group and inner is not None else None
    if whole is None or inner is None:
        return inner
    again = inner.bytes * _turns(statement, group[-1], place) / whole.bytes
    near = whole.bytes <= BLOCKS.middle_share * machine.middle_cache
    return whole if near or again >= PACKING.copied_again else inner


def _turns(statement: ScopStatement, outer: Place, inner: Place) -> int:
    """How often a place is reached from one around it, where the loops between them are as long as they can be."""
    points, deep = inner.prefixes[statement.name].range(), outer.prefixes[statement.name].range().dim(isl.dim_type.set)
    between = range(deep, points.dim(isl.dim_type.set))
    return math.prod((points.dim_max_val(d) - points.dim_min_val(d) + 1).to_python() for d in between)


def _around(marks: dict[str, Place], statement: ScopStatement) -> Place:
    """The innermost place around all register tiles that read the same steps of a reduction."""
    return [p for p in marks.values() if p.mark.startswith(("group", "block")) and statement.name in p.prefixes][-1]


def _grouped(
    plan: Plan, statement: ScopStatement, marks: dict[str, Place], columns: Columns, machine: Machine
) -> tuple[Copy, ...]:
    """The copies of both operands with groups of steps; none where that is not possible."""
    number = home_of(plan, statement.name)[1]
    dot = dot_product(plan.scop, plan.clusters[number], columns, machine)
    panel = marks.get(f"panel{number}")
    if dot is None or panel is None or statement.name not in panel.prefixes:
        return ()
    if not all(_can_be_copied(plan, statement, o.read) for o in (dot.panel, dot.other)):
        return ()
    return grouped_copies(plan, statement, dot, columns, panel, _around(marks, statement))


def _can_be_copied(plan: Plan, statement: ScopStatement, read: Read) -> bool:
    """Whether what is read stays as it is while the tile of the statement runs, and is known and there before."""
    storage = plan.scop.storages[read.tensor]
    if storage.name in plan.scop.partly:
        return False
    if storage.role == "temporary" and plan.buffers[storage.name].space != "global":
        return False
    if is_written_beside(plan, statement, read) or any(map(depends_on_data, read.subscripts)):
        return False
    return has_box(plan.scop, read)


def _with_innermost(plan: Plan, copy: Copy, index: str) -> Copy:
    """The copy with that dimension innermost which moves with an index."""
    innermost = next(d for d, s in enumerate(copy.reads[0].subscripts) if coefficient(s, index, plan.scop.sizes))
    return replace(copy, order=(*(d for d in copy.order if d != innermost), innermost))


def _last_mover(plan: Plan, statement: ScopStatement, read: Read, steps: list[int], dimension: int) -> int:
    """How deep the innermost loop of a reduction lies that moves a dimension of what is read; -1 if none does."""
    moved = [coefficient(read.subscripts[dimension], statement.indices[p], plan.scop.sizes) for p in steps]
    return max((depth for depth, step in enumerate(moved) if step != 0), default=-1)


def _boxed(plan: Plan, statement: ScopStatement, place: Place | None, read: Read, reuse: int) -> Copy | None:
    """A copy of what is read below a place, in the order of the tensor; None if it cannot be made or does not pay.

    It pays from so much ``reuse`` of an element on.
    """
    if place is None or statement.name not in place.prefixes or not _can_be_copied(plan, statement, read):
        return None
    storage = plan.scop.storages[read.tensor]
    prefix = place.prefixes[statement.name]
    footprint = prefix.reverse().apply_range(unfolded_access(plan.scop, statement, read))
    hull = box_hull(footprint.reset_tuple_id(isl.dim_type.out))
    count = max(1, math.prod(hull.shape))
    most = PACKING.most_panel if reuse > PACKING.least_reuse_apart else PACKING.most_needed
    if math.prod(extents_of_a_run(prefix)) < reuse * count or count * storage.dtype.itemsize > most:
        return None
    order = tuple(sorted(range(len(hull.shape)), key=lambda d: -abs(storage.strides[d])))
    return Copy(storage.name, storage.dtype, place.mark, statement.name, (read,), hull.shape, hull.lower, order)
