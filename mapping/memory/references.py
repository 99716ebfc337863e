"""Which elements the references of a statement name, one by one, and how many instances run below a mark."""

from __future__ import annotations

import islpy as isl

from tcomp.grammar.tree.function import Read, depends_on_data, walk
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.accesses import Frame, element_map
from tcomp.model.scop import Scop, ScopStatement


def extents_of_a_run(prefix: isl.Map) -> tuple[int, ...]:
    """The box of the instances that run below a mark each time control reaches it."""
    return box_hull(prefix.reverse().reset_tuple_id(isl.dim_type.out)).shape


def references(statement: ScopStatement, storage: str) -> list[Read]:
    """The places of a statement's right-hand side that read a storage, in the order of the text."""
    return [e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == storage]


def access_of(statement: ScopStatement, storage: str, reads: tuple[Read, ...]) -> list[isl.Map]:
    """The access relations of some of the references of a statement to a storage."""
    exprs = references(statement, storage)
    maps = [m for m in statement.reads if m.get_tuple_name(isl.dim_type.out) == storage]
    if len(exprs) != len(maps):
        return maps
    return [m for e, m in zip(exprs, maps, strict=True) if e in reads]


def is_written_beside(plan: Plan, statement: ScopStatement, read: Read) -> bool:
    """Whether tiles of the group that a statement runs in write some of the elements that it reads there.

    Where data choose these, or a border stands for some, any element may be one of them.
    """
    group, _ = home_of(plan, statement.name)
    inside = (plan.scop.by_name[s] for c in group.clusters for s in plan.clusters[c].statements)
    written = [s.write.range() for s in inside if s.target == read.tensor]
    if not written or read.boundary is not None or any(map(depends_on_data, read.subscripts)):
        return bool(written)
    elements = unfolded_access(plan.scop, statement, read).range()
    if any(part.dim(isl.dim_type.set) != elements.dim(isl.dim_type.set) for part in written):
        return True  # tiles have copies of it, which isl takes for another space, and so for disjoint
    return not all(elements.is_disjoint(part) for part in written)


def unfolded_access(scop: Scop, statement: ScopStatement, read: Read) -> isl.Map:
    """Instance to what a read names, be it in the tensor or outside; subscripts must be affine."""
    domain = statement.domain
    for position, index in enumerate(statement.indices):
        domain = domain.set_dim_name(isl.dim_type.set, position, index)
    frame = Frame(domain, scop.sizes, {name: storage.box for name, storage in scop.storages.items()})
    return element_map(frame, read.tensor, read.subscripts)
