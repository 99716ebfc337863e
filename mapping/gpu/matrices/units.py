"""Pass: let warps multiply matrices by one instruction."""

from __future__ import annotations

from dataclasses import replace

from tcomp.mapping.gpu.atoms import atom_of, operands_of
from tcomp.mapping.gpu.matrices.products import Operand, product_at
from tcomp.mapping.gpu.memories import kept_by_warps, shared_budget, shared_bytes
from tcomp.mapping.gpu.turns.fetching import copies_at
from tcomp.mapping.machines.atoms import FETCHED_BYTES
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import TileOperation, recognise_contraction
from tcomp.mapping.plan.values import Buffer, Copy, Plan
from tcomp.model.scop import ScopStatement


def use_matrix_units(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Let warps multiply matrices where a tile was dealt to them so, with operands as the instruction fetches them."""
    if not options.matrix_units:
        return plan
    for phase in plan.phases.values():
        own = copies_at(plan, phase.mark)
        statement = next((plan.scop.by_name[c.statement] for c in own), None)
        atom = None if statement is None else atom_of(gpu, plan.scop, statement, options)
        if statement is None or atom is None:
            continue
        laid_out = [_with_whole_rows(plan, c) for c in own]
        kept = replace(plan, buffers={**plan.buffers, **_kept(plan, statement)})
        product = product_at(kept, phase, laid_out, atom)
        if product is not None:
            contraction = recognise_contraction(statement)
            operation = TileOperation(phase.mark, "contract", statement.name, contraction, atom.name)
            fetched = [o for o in (product.row, product.column) if isinstance(o, Operand)]
            apart = {o.copy.reads: _apart(o) for o in fetched}
            copies = tuple(apart[c.reads] if c in own else c for c in plan.copies)
            changed = replace(kept, copies=copies, operations={**plan.operations, phase.mark: operation})
            group, _ = home_of(plan, statement.name)
            if shared_bytes(changed, group) <= max(shared_bytes(plan, group), shared_budget(gpu, options)):
                plan = changed
    return plan


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
