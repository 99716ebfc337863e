"""Pass: let warps, or warpgroups, multiply matrices by one instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcomp.mapping.gpu.atoms import atoms_of, dimensions_of, operands_of
from tcomp.mapping.gpu.matrices.operands import with_swizzle
from tcomp.mapping.gpu.matrices.products import Operand, dealt_sides, product_at, threaded
from tcomp.mapping.gpu.memories import kept_by_warps, shared_budget, shared_bytes
from tcomp.mapping.gpu.turns.fetching import copies_at
from tcomp.mapping.machines.atoms import FETCHED_BYTES, LANES_OF_ROWS, Atom
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import TileOperation, recognise_contraction
from tcomp.mapping.plan.values import Buffer, Copy, Phase, Plan
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
    if atom.in_groups:
        laid_out = _swizzled(plan, phase, statement, own, atom)
    else:
        laid_out = [_with_whole_rows(plan, c) for c in own]
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


def _swizzled(plan: Plan, phase: Phase, statement: ScopStatement, own: Sequence[Copy], atom: Atom) -> list[Copy]:
    """The copies of a product as a warpgroup reads them; none where its sides are not dealt so."""
    dealt = plan.dealt[phase.cluster]
    sides = dealt_sides(plan, statement, plan.clusters[phase.cluster], dealt, atom)
    found: list[Copy] = []
    for copy in () if sides is None else own:
        assert sides is not None
        dimensions = dimensions_of(plan.scop, statement, copy.reads[0], sides)
        if dimensions is not None:
            name, side, step = dimensions
            warps = threaded(dealt)[0].threads // LANES_OF_ROWS if name == "row" else 0
            found.append(with_swizzle(plan, copy, side, step, warps))
    return found


def _kept(plan: Plan, statement: ScopStatement) -> dict[str, Buffer]:
    """Buffers of operands that threads keep in registers, as only the instruction takes them from other lanes."""
    names = {read.tensor for read in operands_of(statement) if plan.scop.storages[read.tensor].role == "temporary"}
    found = {name: kept_by_warps(plan, name, statement.name) for name in names}
    return {name: buffer for name, buffer in found.items() if buffer is not None}


def _with_whole_rows(plan: Plan, copy: Copy) -> Copy:
    """The copy as it lies in the tensor, with rows that lanes read without meeting in a bank."""
    strides = plan.scop.storages[copy.storage].strides
    order = tuple(sorted(range(len(copy.shape)), key=lambda d: (copy.shape[d] > 1, -abs(strides[d]), d)))
    length, each = copy.shape[order[-1]], FETCHED_BYTES // copy.dtype.itemsize
    if copy.dtype.itemsize == 8:
        # Lanes read single elements: four rows of four, as far apart as a row of 4 in 16.
        return replace(copy, order=order, padding=(4 - length) % 16)
    rest = -length % each
    padding = rest if (length + rest) // each % 2 else rest + each
    return replace(copy, order=order, padding=padding)


def _apart(operand: Operand) -> Copy:
    """The copy with rows as far apart as lanes want them that read single floats, eight of each of four rows."""
    copy = operand.copy
    if copy.dtype.itemsize != 4 or not operand.turned:
        return copy
    return replace(copy, padding=(8 - copy.shape[copy.order[-1]]) % 32)
