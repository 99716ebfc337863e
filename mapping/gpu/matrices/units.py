"""Pass: let warps, or warpgroups, multiply matrices by one instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcomp.mapping.gpu.atoms import (
    atoms_of,
    box_of,
    dimensions_of,
    may_be_turned,
    operands_of,
    places_of,
    room_of,
)
from tcomp.mapping.gpu.matrices.operands import with_swizzle
from tcomp.mapping.gpu.matrices.products import DealtSides, Operand, product_at, sides_of_phase, swizzle_of
from tcomp.mapping.gpu.memories import kept_by_warps, shared_budget, shared_bytes
from tcomp.mapping.gpu.promotion import vector_of
from tcomp.mapping.gpu.turns.fetching import copies_at
from tcomp.mapping.machines.atoms import FETCHED_BYTES, Atom
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import Place, places
from tcomp.mapping.memory.references import unfolded_access
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Phase
from tcomp.mapping.plan.operations import TileOperation, recognise_contraction
from tcomp.mapping.plan.values import Buffer, Copy, Plan
from tcomp.mapping.tiles.footprint import BoxHull, box_hull
from tcomp.model.scop import ScopStatement


def use_matrix_units(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Let warps multiply matrices where a tile was dealt to them so, with operands as the instruction fetches them."""
    if not options.matrix_units:
        return plan
    for phase in plan.phases.values():
        own = copies_at(plan, phase.mark)
        statement = next((plan.scop.by_name[c.statement] for c in own), None)
        atoms = () if statement is None else atoms_of(gpu, plan.scop, statement, options)
        plan = next((p for p in (_with_atom(gpu, plan, phase, own, a, options) for a in atoms) if p is not None), plan)
    return plan


def _with_atom(
    gpu: Gpu, plan: Plan, phase: Phase, own: Sequence[Copy], atom: Atom, options: MappingOptions
) -> Plan | None:
    """The plan with an instruction at a phase that the copies ``own`` feed; None where it cannot be."""
    statement = plan.scop.by_name[own[0].statement]
    place = next(p for p in places(plan.tree) if p.mark == phase.mark)
    found = sides_of_phase(plan, phase, place, atom)
    if found is None:
        return None
    laid_out: list[Copy] = []
    for copy in own:
        if len(copy.reads) != 1:
            return None
        dimensions = dimensions_of(plan.scop, statement, copy.reads[0], found.sides)
        moving = places_of(plan.scop, statement, copy.reads[0], found.sides)
        if dimensions is None or moving is None:
            return None
        name, side, step = dimensions
        bordered = _with_border(plan, place, statement, copy, found)
        if bordered.shape[step] % atom.granule and bordered.shape[step] < statement.extents[found.sides.step]:
            return None  # behind these steps are those of the next tile, which was made for another instruction
        whole = _with_whole_steps(plan, bordered, step, atom)
        if not _begins_where_it_reads(plan, statement, whole):
            return None
        if atom.in_groups:
            laid_out.append(with_swizzle(plan, whole, swizzle_of(found, moving, name, side, step)))
        else:
            turned = atom.itemsize > 2 or (atom.itemsize == 2 and may_be_turned(moving, side))
            laid_out.append(_with_whole_rows(plan, whole, side, step, turned))
    kept = replace(plan, buffers={**plan.buffers, **_kept(plan, statement)})
    product = product_at(kept, phase, laid_out, atom)
    if product is None:
        return None
    operation = TileOperation(phase.mark, "contract", statement.name, recognise_contraction(statement), atom.name)
    fetched = [o for o in (product.row, product.column) if isinstance(o, Operand)]
    apart = {o.copy.reads: o.copy if atom.in_groups else _apart(o) for o in fetched}
    copies = tuple(apart[c.reads] if c in own else c for c in plan.copies)
    changed = replace(kept, copies=copies, operations={**plan.operations, phase.mark: operation})
    group, _ = home_of(plan, statement.name)
    fits = shared_bytes(changed, group) <= max(shared_bytes(plan, group), shared_budget(gpu, options))
    return changed if fits else None


def _kept(plan: Plan, statement: ScopStatement) -> dict[str, Buffer]:
    """Buffers of operands that threads keep in registers, as only the instruction takes them from other lanes."""
    names = {read.tensor for read in operands_of(statement) if plan.scop.storages[read.tensor].role == "temporary"}
    found = {name: kept_by_warps(plan, name, statement.name) for name in names}
    return {name: buffer for name, buffer in found.items() if buffer is not None}


def _with_border(plan: Plan, place: Place, statement: ScopStatement, copy: Copy, found: DealtSides) -> Copy:
    """The copy of an operand with what it reads outside of its tensor, which is zeros, also beyond a torn tile."""
    (read,) = copy.reads
    if read.boundary is None:
        return copy
    storage = plan.scop.storages[copy.storage]
    access = unfolded_access(plan.scop, statement, read).reset_tuple_id(isl.dim_type.out)
    hull = box_hull(place.prefixes[statement.name].reverse().apply_range(access), rounded=True)
    dimensions = dimensions_of(plan.scop, statement, read, found.sides)
    assert dimensions is not None
    room = room_of(statement, found.sides, found.rows, found.columns, hull.shape[dimensions[2]])
    box = box_of(plan.scop, statement, read, found.sides, room) or hull.shape
    whole = BoxHull(hull.lower, tuple(max(own, wanted) for own, wanted in zip(hull.shape, box, strict=True)))
    return replace(copy, shape=whole.shape, lower=whole.lower, vector=vector_of(storage, whole))


def _with_whole_steps(plan: Plan, copy: Copy, step: int, atom: Atom) -> Copy:
    """The copy with what its steps lack of whole instructions: behind the tensor, so zeros (``wholesteps.py``)."""
    rest = -copy.shape[step] % atom.granule
    if not rest:
        return copy
    shape = tuple(extent + rest * (d == step) for d, extent in enumerate(copy.shape))
    whole = BoxHull(copy.lower, shape)
    return replace(copy, shape=shape, vector=vector_of(plan.scop.storages[copy.storage], whole))


def _begins_where_it_reads(plan: Plan, statement: ScopStatement, copy: Copy) -> bool:
    """Whether the corner of a copy is the least element that is read, and not one before it.

    Where reads leave gaps, as those of a stride beyond the window do, the smallest box with one corner for all tiles
    may begin earlier.
    """
    (read,) = copy.reads
    place = next(p for p in places(plan.tree) if p.mark == copy.mark)
    access = unfolded_access(plan.scop, statement, read).reset_tuple_id(isl.dim_type.out)
    relation = place.prefixes[statement.name].reverse().apply_range(access)
    count = relation.dim(isl.dim_type.out)
    for d in range(count):
        single = relation.project_out(isl.dim_type.out, d + 1, count - d - 1).project_out(isl.dim_type.out, 0, d)
        corner = isl.Map.from_aff(copy.lower.get_at(d))
        if not single.lexmin().is_subset(corner):
            return False
    return True


def _with_whole_rows(plan: Plan, copy: Copy, side: int, step: int, turned: bool) -> Copy:
    """The copy with rows that lanes read without meeting in a bank, as they lie in the tensor if that can be.

    Neighbours along the steps lie together, or those along the side where they may be ``turned``.
    """
    strides = plan.scop.storages[copy.storage].strides
    order = sorted(range(len(copy.shape)), key=lambda d: (copy.shape[d] > 1, -abs(strides[d]), d))
    last = order[-1] if order[-1] == side and turned else step
    other = step if last == side else side
    ordered = (*(d for d in order if d not in (side, step)), other, last)
    length, each = copy.shape[last], FETCHED_BYTES // copy.dtype.itemsize
    if copy.dtype.itemsize == 8:
        # Lanes read single elements: four rows of four, as far apart as a row of 4 in 16.
        return replace(copy, order=ordered, padding=(4 - length) % 16)
    rest = -length % each
    padding = rest if (length + rest) // each % 2 else rest + each
    return replace(copy, order=ordered, padding=padding)


def _apart(operand: Operand) -> Copy:
    """The copy with rows as far apart as lanes want them that read single floats, eight of each of four rows."""
    copy = operand.copy
    if copy.dtype.itemsize != 4 or not operand.turned:
        return copy
    return replace(copy, padding=(8 - copy.shape[copy.order[-1]]) % 32)
