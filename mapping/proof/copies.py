"""Proof that a packed copy with groups of steps holds what instructions that take several steps at a time make of it.

A group is some consecutive values of one reduction index, so the dimension that it runs along must move with that index
and with nothing else.  Where sums of a copy make up for flipped bits, what is summed must be what the reduction reads:
every element of the box once, whatever element of the result it goes to.
"""

from __future__ import annotations

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.mapping.contraction.dotproducts import holds
from tcomp.mapping.memory.references import unfolded_access
from tcomp.mapping.plan.layouts import MOST_DEPTH, SUM_BYTES, StepGroups
from tcomp.mapping.plan.values import Copy, Plan
from tcomp.model.accesses import elements_of
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import BFLOAT16


def prove_partners(plan: Plan, step: str) -> None:
    """Raise LegalityError, naming the pass, unless two copies with groups fit each other wherever there is one.

    Both hold as many values of the same index in a lane of a sum; integers of 8 bits are signed in one of them only,
    those of 16 bits in both, or both are of bfloat16; and where bits of one are flipped there are sums of the other.
    Instructions for matrices take bytes of any signs, and bfloat16.
    """
    grouped = [c for c in plan.copies if c.groups is not None]
    for statement in {c.statement for c in grouped}:
        own = [c for c in grouped if c.statement == statement]
        if len(own) != 2 or not _fit(*own):
            raise LegalityError(f"pass '{step}' gives {statement} copies with groups that do not fit each other")


def _fit(first: Copy, second: Copy) -> bool:
    a, b = first.groups, second.groups
    assert a is not None and b is not None
    if (a.size, a.step, a.depth, first.dtype.bits) != (b.size, b.step, b.depth, second.dtype.bits):
        return False
    if a.size * first.dtype.itemsize != SUM_BYTES or (a.flipped, b.flipped) != (
        b.summed is not None,
        a.summed is not None,
    ):
        return False
    if not 0 <= a.depth <= MOST_DEPTH or (a.depth and a.flipped | b.flipped):
        return False
    if BFLOAT16 in (first.dtype, second.dtype):
        return first.dtype == second.dtype and not (a.flipped or b.flipped)
    if a.depth:
        return first.dtype.bits == 8
    signed = [(c.dtype.kind == "int") != g.flipped for c, g in ((first, a), (second, b))]
    return sum(signed) == 1 if first.dtype.bits == 8 else all(signed) and not (a.flipped or b.flipped)


def prove_conversion(plan: Plan, copy: Copy, step: str) -> None:
    """Raise LegalityError, naming the pass, if elements of a copy are not what the tensor holds."""
    converted = copy.dtype != plan.scop.storages[copy.storage].dtype
    if plan.phases and (copy.groups is not None or converted):
        raise LegalityError(f"pass '{step}' fetches {copy.storage} at {copy.mark} in a form that no GPU takes")
    if copy.ahead and (plan.phases or not plan.scop.storages[copy.storage].bound):
        raise LegalityError(f"pass '{step}' copies {copy.storage} ahead at {copy.mark}, but it is not bound")
    if converted and copy.groups is None:
        raise LegalityError(f"pass '{step}' converts {copy.storage} at {copy.mark}, but its steps lie in no groups")
    if not holds(plan.scop.storages[copy.storage].dtype, copy.dtype):
        raise LegalityError(f"pass '{step}' keeps {copy.storage} as {copy.dtype} at {copy.mark}, which changes values")


def prove_groups(plan: Plan, copy: Copy, prefix: isl.Map, step: str) -> None:
    """Raise LegalityError, naming the pass, if groups or sums of a copy are none of the reduction of its statement.

    ``prefix`` maps instances of the statement to the place of the copy.
    """
    groups = copy.groups
    if groups is None:
        return
    statement = plan.scop.by_name[copy.statement]
    if not 0 <= groups.dimension < len(copy.shape):
        raise LegalityError(f"pass '{step}' groups {copy.storage} at {copy.mark} along no dimension of it")
    if not statement.coordinates <= groups.step < len(statement.indices):
        raise LegalityError(f"pass '{step}' groups {copy.storage} at {copy.mark} by what is not reduced over")
    if not copy.dtype.is_integer and copy.dtype != BFLOAT16:
        raise LegalityError(f"pass '{step}' groups values of {copy.storage} at {copy.mark} that no instruction takes")
    for read in copy.reads:
        offset = _offsets(prefix, unfolded_access(plan.scop, statement, read), copy)
        if not _follows_steps(offset, prefix, groups):
            raise LegalityError(f"pass '{step}' groups values of {copy.storage} at {copy.mark} that no index runs over")
        if groups.summed is not None and not _sums_are_whole(plan, copy, statement, prefix, offset):
            raise LegalityError(f"pass '{step}' sums other elements of {copy.storage} than {copy.statement} reads")


def _offsets(prefix: isl.Map, access: isl.Map, copy: Copy) -> isl.Map:
    """Instance to the place in the box of what it reads."""
    corner = prefix.apply_range(isl.Map.from_multi_aff(copy.lower))
    return access.reset_tuple_id(isl.dim_type.out).sum(corner.neg())


def _follows_steps(offset: isl.Map, prefix: isl.Map, groups: StepGroups) -> bool:
    """Whether each time control reaches the place the grouped dimension is the index, counted from its first value."""
    rank = offset.dim(isl.dim_type.out)
    own = offset.project_out(isl.dim_type.out, groups.dimension + 1, rank - groups.dimension - 1)
    own = own.project_out(isl.dim_type.out, 0, groups.dimension)
    count = offset.dim(isl.dim_type.in_)
    names = ", ".join(f"i{d}" for d in range(count))
    name = offset.get_tuple_name(isl.dim_type.in_)
    index = isl.Map(f"{{ {name}[{names}] -> [i{groups.step}] }}").intersect_domain(offset.domain())
    shift = prefix.reverse().apply_range(index.sum(own.neg()))
    first = prefix.reverse().apply_range(own)
    starts = isl.Set("{ [0] }")
    return bool(shift.is_single_valued() and first.intersect_range(starts).domain().is_equal(first.domain()))


def _sums_are_whole(plan: Plan, copy: Copy, statement: ScopStatement, prefix: isl.Map, offset: isl.Map) -> bool:
    """Whether the steps of every element of the result read each element of a part of the box once.

    The part is all of the box that lies in the tensor, where the dimensions that are not summed over are fixed.
    """
    assert copy.groups is not None and copy.groups.summed is not None
    rank, kept = len(copy.shape), copy.groups.summed
    if any(not 0 <= d < rank for d in kept) or len(set(kept)) != len(kept) or any(r.boundary for r in copy.reads):
        return False
    over = [d for d in range(rank) if d not in kept]
    names = [f"o{d}" for d in range(rank)]
    to_kept = isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(names[d] for d in kept)}] }}")
    to_over = isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(names[d] for d in over)}] }}")
    indices = [f"i{d}" for d in range(len(statement.indices))]
    coordinates = isl.Map(
        f"{{ {statement.name}[{', '.join(indices)}] -> [{', '.join(indices[: statement.coordinates])}] }}"
    ).intersect_domain(statement.domain)
    element = prefix.flat_range_product(coordinates)
    read = element.reverse().apply_range(offset.apply_range(to_over))
    once = element.flat_range_product(offset.apply_range(to_over)).is_injective()
    alike = element.reverse().apply_range(offset.apply_range(to_kept)).is_single_valued()
    whole = element.reverse().apply_range(prefix).apply_range(_box_in_tensor(plan, copy).apply_range(to_over))
    return bool(once and alike and read.is_equal(whole))


def _box_in_tensor(plan: Plan, copy: Copy) -> isl.Map:
    """Place of a copy to those places of its box that hold elements of the tensor."""
    room = isl.Set.universe(isl.Space.set_alloc(copy.lower.get_ctx(), 0, len(copy.shape)))
    for d, extent in enumerate(copy.shape):
        room = _between(room, d, 0, extent)
    tensor = elements_of(plan.scop.storages[copy.storage]).reset_tuple_id()
    corner = isl.Map.from_multi_aff(copy.lower)
    elements = corner.sum(isl.Map.from_domain_and_range(corner.domain(), room)).intersect_range(tensor)
    return elements.sum(corner.neg())


def _between(points: isl.Set, dimension: int, low: int, high: int) -> isl.Set:
    bounded = points.lower_bound_val(isl.dim_type.set, dimension, isl.Val(low))
    return bounded.upper_bound_val(isl.dim_type.set, dimension, isl.Val(high - 1))
