"""Pass: weights of convolutions are copied once into the order in which warps fetch them.

``K(f,c,kh,kw)`` has the taps of a filter together.  Of 16 bits each, threads would have to fetch them one by one, in
every block, and could not ask for them ahead.  A copy with filters or channels together comes in vectors.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tcomp.grammar.tree.function import Binary, Index, Read
from tcomp.mapping.fusion.outlining import can_outline, outlined, place_of
from tcomp.mapping.gpu.atoms import atom_of, operands_of
from tcomp.mapping.machines.fitted.gpu import SHARED
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import indices_in, recognise_contraction
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.strides import access_stride
from tcomp.model.scop import Scop, ScopStatement

Turned = tuple[str, int, tuple[str, ...]]
"""A statement, the place of an operand in its value, and the indices of the copy in order."""


def turn_weights(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Copy the operands of products of halves in which neither steps nor a side lie together, where many blocks share
    them."""
    scop, done = plan.scop, list[Turned]()
    for name in plan.scop.by_name:
        turned = _turned(gpu, scop, scop.by_name[name], options)
        if turned is not None:
            scop, done = outlined(scop, *turned), [*done, turned]
    return replace(scheduled_anew(plan, scop), unfolded=(*plan.unfolded, *done)) if done else plan


def _turned(gpu: Gpu, scop: Scop, statement: ScopStatement, options: MappingOptions) -> Turned | None:
    """The operand of a product that is worth a copy."""
    atom = atom_of(gpu, scop, statement, options)
    if atom is None or atom.itemsize != 2 or not statement.plain:
        return None
    bundles = recognise_contraction(statement)
    assert bundles is not None and isinstance(statement.value, Binary)
    extents = dict(zip(statement.indices, statement.extents, strict=True))
    for read in operands_of(statement):
        if scop.storages[read.tensor].role != "input" or read.boundary is not None:
            continue
        names = [s.name for s in read.subscripts if isinstance(s, Index)]
        if len({*names}) != len(read.subscripts):
            continue
        strides = {i: access_stride(scop, read.tensor, read.subscripts, i, scop.sizes) or 0 for i in names}
        taps = [i for i in bundles.k if i in names and _slides(statement, i, read)]
        together = [i for i in names if strides[i] == 1]
        shared = math.prod(e for i, e in extents.items() if i not in names)
        if not taps or not {*together} <= {*taps} or shared < SHARED.turned_reuse:
            continue
        rest = [i for i in names if i not in taps]
        order = (*taps, *sorted(rest, key=lambda i: (i in bundles.k, -strides[i])))
        place = place_of(statement, read)
        if can_outline(scop, statement.name, place, order):
            return statement.name, place, order
    return None


def _slides(statement: ScopStatement, index: str, weights: Read) -> bool:
    """Whether an index of the reduction stands beside another one in a subscript of the other operand."""
    other = next(r for r in operands_of(statement) if r != weights)
    return any(index in indices_in(s) and len(indices_in(s)) > 1 for s in other.subscripts)
