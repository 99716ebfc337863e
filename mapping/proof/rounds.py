"""Memory that the rounds of a tile use in turn for different elements.

No dependence of the program tells that a round must wait until the one before has read what it will overwrite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from tcomp.mapping.gpu.threads import Ends, ThreadMaps
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import Place, own_element
from tcomp.mapping.plan.values import Buffer, Plan
from tcomp.model.scop import ScopStatement


def reuses(plan: Plan, marks: Mapping[str, Place], maps: ThreadMaps) -> Iterator[tuple[Ends, isl.Map]]:
    """Pairs of instances that touch one place of such memory in two rounds, one of them writing, and their threads."""
    for buffer in plan.buffers.values():
        if buffer.space in ("shared", "block"):
            users = plan.scop.users[buffer.storage]
            members = len(home_of(plan, users[0].name)[0].members) if users else 0
            again = _later_rounds(buffer, marks[buffer.mark], members)
            if again is not None:
                for first in users:
                    for second in users:
                        if buffer.storage in (first.target, second.target):
                            before, after = (_touched(buffer, marks[buffer.mark], s) for s in (first, second))
                            ends = (maps.touching(first, buffer.storage), maps.touching(second, buffer.storage))
                            yield ends, before.apply_range(again).apply_range(after.reverse())


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


def _touched(buffer: Buffer, place: Place, statement: ScopStatement) -> isl.Map:
    """Instance to its round and the places in the memory that it touches."""
    assert buffer.lower is not None
    prefix = place.prefixes[statement.name]
    accesses = [r for r in statement.all_reads if r.get_tuple_name(isl.dim_type.out) == buffer.storage]
    accesses += [statement.write] if statement.target == buffer.storage else []
    corner = prefix.apply_range(isl.Map.from_multi_aff(buffer.lower)).neg()
    elements = [own_element(a, len(buffer.shape)).sum(corner) for a in accesses]
    found = elements[0]
    for other in elements[1:]:
        found = found.union(other)
    return prefix.flat_range_product(found)
