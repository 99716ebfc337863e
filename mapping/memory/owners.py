"""Who owns an element on a GPU: the group, the cluster and the thread that alone access it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.tree.function import Expr, Index, Read, walk
from tcomp.mapping.plan.deals import Deal
from tcomp.mapping.plan.values import Group, Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.scop import ScopStatement

BLOCK_LEVEL = ("group", "turn", "round")
"""Marks that all threads of a block reach together."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which thread of a tile owns an element, per dimension: the deal and the lower corner, None where it is alone."""

    shape: tuple[int, ...]
    dimensions: tuple[tuple[Deal, str] | None, ...]


def ownership(
    plan: Plan, statement: ScopStatement, subscripts: tuple[Expr, ...], folded: Container[int] = ()
) -> Ownership | None:
    """The owner of an element that a statement accesses; None unless it is the thread that runs the instance.

    All elements along ``folded`` dimensions have one owner.
    """
    group, number = home_of(plan, statement.name)
    cluster, dealt = plan.clusters[number], plan.dealt[number]
    lower = box_hull(group.footprints[number].tiles).lower
    found: list[tuple[Deal, str] | None] = []
    named: set[int] = set()
    for place, subscript in enumerate(subscripts):
        if place in folded:
            found.append(None)
            continue
        d = coordinate_of(statement, cluster.coordinates[statement.name], subscript)
        if d is None:
            return None
        named.add(d)
        found.append((dealt.deals[d], _corner(group, lower.get_at(d))))
    spread = {d for d, own in enumerate(dealt.deals) if own.dimension is not None}
    return Ownership(dealt.shape, tuple(found)) if spread <= named else None


def shared_ownership(
    plan: Plan, statement: ScopStatement, subscripts: tuple[Expr, ...], folded: Container[int] = ()
) -> Ownership | None:
    """The owner of an element that a reduction reads which threads share; None unless each reads those of its steps.

    Steps are counted from 0, so a corner must be there.
    """
    group, number = home_of(plan, statement.name)
    cluster, dealt = plan.clusters[number], plan.dealt[number]
    lower = box_hull(group.footprints[number].tiles).lower
    shares = {share.position: share for share in dealt.shares}
    found: list[tuple[Deal, str] | None] = []
    named: set[int | None] = set()
    for place, subscript in enumerate(subscripts):
        if place in folded:
            found.append(None)
            continue
        if not isinstance(subscript, Index) or subscript.name not in statement.indices:
            return None
        position = statement.indices.index(subscript.name)
        d = coordinate_of(statement, cluster.coordinates[statement.name], subscript)
        if position in shares:
            share = shares[position]
            deal = Deal(statement.extents[position], share.threads, share.vector, share.dimension)
            zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(lower.get_space().domain()))
            found.append((deal, _corner(group, zero)))
        elif d is not None:
            deal = dealt.deals[d]
            found.append((deal, _corner(group, lower.get_at(d))))
        else:
            return None
        named.add(deal.dimension)
    spread = {deal.dimension for deal in dealt.deals} | {share.dimension for share in dealt.shares}
    return Ownership(dealt.shape, tuple(found)) if spread - {None} <= named else None


def coordinate_of(statement: ScopStatement, coordinates: tuple[int, ...], subscript: Expr) -> int | None:
    """The coordinate of a tile that a subscript is; None if it is none."""
    if not isinstance(subscript, Index) or subscript.name not in statement.indices:
        return None
    position = statement.indices.index(subscript.name)
    return coordinates.index(position) if position in coordinates else None


def home_of(plan: Plan, statement: str) -> tuple[Group, int]:
    """The group and the cluster of a statement."""
    for group in plan.groups:
        for number in group.clusters:
            if statement in plan.clusters[number].statements:
                return group, number
    raise KeyError(statement)


def is_shared(plan: Plan, statement: ScopStatement) -> bool:
    """Whether threads share the steps of a reduction."""
    return statement.kind == "update" and bool(plan.dealt[home_of(plan, statement.name)[1]].shares)


def owned_alike(plan: Plan, storage: str, statements: list[ScopStatement]) -> Ownership | None:
    """The common ownership of a storage if every access of these statements is by the thread that owns the element."""
    seen: set[Ownership | None] = set()
    fold = folded_dimension(plan, storage)
    folded = {d for d, extent in enumerate(plan.scop.storages[storage].box.extent) if extent == 1 or d == fold}
    for statement in statements:
        if statement.target == storage:
            seen.add(ownership(plan, statement, statement.subscripts, folded))
        for e in (e for expr in (statement.value, *statement.subscripts) for e in walk(expr)):
            if isinstance(e, Read) and e.tensor == storage:
                if e.boundary is not None:
                    seen.add(None)
                elif is_shared(plan, statement):
                    seen.add(shared_ownership(plan, statement, e.subscripts, folded))
                else:
                    seen.add(ownership(plan, statement, e.subscripts, folded))
    return seen.pop() if len(seen) == 1 else None


def folded_dimension(plan: Plan, storage: str) -> int | None:
    """The dimension of a storage along which parts that run in turn go on with what is there; None for others."""
    return next((dict(r.carried)[storage] for r in plan.rescaled if storage in dict(r.carried)), None)


def _corner(group: Group, corner: isl.Aff) -> str:
    """A corner as text, the same for those that depend on the turn but not in fact, and for those that do not."""
    rank = len(group.members)
    kinds = isl.dim_type
    if group.turns and corner.dim(kinds.in_) > rank and not corner.involves_dims(kinds.in_, rank, 1):
        corner = corner.drop_dims(kinds.in_, rank, 1)
    return str(corner)
