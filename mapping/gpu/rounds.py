"""Memory that the rounds or turns of a tile use one after another for different elements.

No dependence of the program tells that a round must wait until the one before has read what it will overwrite.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import islpy as isl

from tcomp.mapping.gpu.threads import Ends, ThreadMaps
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import Place, own_element
from tcomp.mapping.plan.values import Buffer, Plan
from tcomp.model.scop import ScopStatement


def reuses(plan: Plan, marks: Mapping[str, Place], maps: ThreadMaps) -> Iterator[tuple[Ends, isl.Map]]:
    """Pairs of instances that touch one place of such memory one after the other, one of them writing, with threads."""
    for buffer in plan.buffers.values():
        if buffer.space in ("shared", "block"):
            users = plan.scop.users[buffer.storage]
            for first in users:
                for second in users:
                    if buffer.storage in (first.target, second.target):
                        pairs = reused(plan, marks, buffer, first, second)
                        if pairs is not None:
                            yield (maps.touching(first, buffer.storage), maps.touching(second, buffer.storage)), pairs


def reused(
    plan: Plan, marks: Mapping[str, Place], buffer: Buffer, first: ScopStatement, second: ScopStatement
) -> isl.Map | None:
    """Instances of two statements that touch one place in a buffer, for different elements, the first one first.

    None if each place is for one element in all of a tile.
    """
    members = len(home_of(plan, first.name)[0].members)
    place = marks[buffer.mark]
    ways = [m for m in (_later_rounds(buffer, place, members), _later_elements(buffer, place)) if m is not None]
    if not ways:
        return None
    again = functools.reduce(isl.Map.union, ways)
    before, after = (_touched(buffer, place, s) for s in (first, second))
    return before.apply_range(again).apply_range(after.reverse())


def in_one_place(
    plan: Plan, marks: Mapping[str, Place], buffer: Buffer
) -> Iterator[tuple[ScopStatement, ScopStatement, isl.Map]]:
    """For a buffer with folded dimensions: who touches an element, who writes a later one in its place, and when."""
    later = _later_elements(buffer, marks[buffer.mark])
    users = plan.scop.users[buffer.storage]
    for first in users if later is not None else ():
        for second in (s for s in users if s.target == buffer.storage):
            touched = _touched(buffer, marks[buffer.mark], first)
            written = _touched(buffer, marks[buffer.mark], second, writes=True)
            yield first, second, touched.apply_range(later).apply_range(written.reverse())


def _later_rounds(buffer: Buffer, place: Place, members: int) -> isl.Map | None:
    """A round and a place in the memory to the same place in later rounds of the tile; None without rounds."""
    rounds = next(iter(place.prefixes.values())).dim(isl.dim_type.out)
    if rounds == members:
        return None
    names = [f"i{d}" for d in range(rounds)]
    later = [f"j{d}" for d in range(rounds)]
    offsets = [f"o{d}" for d in range(len(buffer.shape))]
    tile = [f"{i} = {j}" for i, j in zip(names[:members], later[:members], strict=True)]
    order = " or ".join(
        " and ".join([*(f"{names[k]} = {later[k]}" for k in range(members, d)), f"{names[d]} < {later[d]}"])
        for d in range(members, rounds)
    )
    condition = " and ".join([*tile, f"({order})"])
    return isl.Map(f"{{ [{', '.join(names + offsets)}] -> [{', '.join(later + offsets)}] : {condition} }}")


def _later_elements(buffer: Buffer, place: Place) -> isl.Map | None:
    """A tile and an element to those further on along folded dimensions, which have its place; None without such."""
    if not buffer.folded:
        return None
    rounds = next(iter(place.prefixes.values())).dim(isl.dim_type.out)
    names = [f"i{d}" for d in range(rounds)]
    offsets = [f"o{d}" for d in range(len(buffer.shape))]
    later = [f"p{d}" if d in buffer.folded else o for d, o in enumerate(offsets)]
    order = " or ".join(
        " and ".join([*(f"o{k} = p{k}" for k in buffer.folded if k < d), f"o{d} < p{d}"]) for d in buffer.folded
    )
    return isl.Map(f"{{ [{', '.join(names + offsets)}] -> [{', '.join(names + later)}] : {order} }}")


def _touched(buffer: Buffer, place: Place, statement: ScopStatement, writes: bool = False) -> isl.Map:
    """Instance to its round and the places in the memory that it touches, or ``writes``."""
    assert buffer.lower is not None
    prefix = place.prefixes[statement.name]
    read = () if writes else statement.all_reads
    accesses = [r for r in read if r.get_tuple_name(isl.dim_type.out) == buffer.storage]
    accesses += [statement.write] if statement.target == buffer.storage else []
    corner = prefix.apply_range(isl.Map.from_multi_aff(buffer.lower)).neg()
    elements = [own_element(a, len(buffer.shape)).sum(corner) for a in accesses]
    found = elements[0]
    for other in elements[1:]:
        found = found.union(other)
    return prefix.flat_range_product(found)
