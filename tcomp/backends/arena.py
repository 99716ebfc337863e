"""Byte offsets in the scratch memory of a kernel.

Global temporaries share memory over time: large ones are placed first, each at the lowest offset where it meets no
other that is alive in the same groups (greedy by size, as TensorFlow Lite's memory planner does it).  Behind them
every thread has a slice for packed panels and the tile buffers that are too large for its stack, which groups share
over time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.plan.values import Buffer, Plan

ALIGNMENT = 64

LARGEST_ON_STACK = 16 * 1024
STACK_BYTES = 128 * 1024
"""The bytes of a tile buffer, and of all of them, on a thread's stack, where no two share a place.  Others live in the
thread's slice."""


@dataclass(frozen=True, slots=True)
class Arena:
    """``shared`` gives offsets of global temporaries, ``private`` of large tile buffers within a thread's slice.

    ``alone`` names the storages whose memory no other one ever uses: only their pointers may be ``restrict``.
    """

    shared: Mapping[str, int]
    private: Mapping[str, int]
    shared_bytes: int
    slice_bytes: int
    alone: frozenset[str]


def lay_out(plan: Plan) -> Arena:
    """The arena of a plan whose buffers are placed; vectors may reach past the end of a panel, but not of its room."""
    lives = group_lives(plan)
    used = [b for b in plan.buffers.values() if b.storage in lives]
    nest_of = {group: number for number, nest in enumerate(plan.nests) for group in nest}
    # Threads are at different groups of a nest at the same time, but each is at one after another.
    shared, shared_bytes, shared_alone = _pack(
        (b.storage, b.bytes, (nest_of[lives[b.storage][0]], nest_of[lives[b.storage][1]]))
        for b in used
        if b.space == "global"
    )
    large = [(b.storage, b.bytes, lives[b.storage]) for b in _off_the_stack(used)]
    home = home_groups(plan)
    panels = [
        (c.panel, c.bytes + ALIGNMENT, (home[c.statement], home[c.statement])) for c in plan.copies if not c.ahead
    ]
    private, slice_bytes, private_alone = _pack((*large, *panels))
    return Arena(shared, private, shared_bytes, slice_bytes, shared_alone | private_alone)


def _off_the_stack(buffers: Iterable[Buffer]) -> list[Buffer]:
    """The tile buffers without a place on the stack, which the smallest take first."""
    rest, left = [], STACK_BYTES
    for buffer in sorted((b for b in buffers if b.space == "tile"), key=lambda b: b.bytes):
        left -= buffer.bytes
        if buffer.bytes > LARGEST_ON_STACK or left < 0:
            rest.append(buffer)
    return rest


def home_groups(plan: Plan) -> dict[str, int]:
    """The number of the group of every statement."""
    return {s: g for g, group in enumerate(plan.groups) for c in group.clusters for s in plan.clusters[c].statements}


def group_lives(plan: Plan) -> dict[str, tuple[int, int]]:
    """For each storage the first and the last group that touches it."""
    home = home_groups(plan)
    lives: dict[str, tuple[int, int]] = {}
    for statement in plan.scop.statements:
        group = home[statement.name]
        for storage in {statement.target, *(r.get_tuple_name(isl.dim_type.out) for r in statement.reads)}:
            first, last = lives.get(storage, (group, group))
            lives[storage] = (min(first, group), max(last, group))
    return lives


def _pack(rooms: Iterable[tuple[str, int, tuple[int, int]]]) -> tuple[dict[str, int], int, frozenset[str]]:
    """Offsets for (name, bytes, life), the bytes taken in all, and the names that overlap no other."""
    placed: dict[str, tuple[int, int, tuple[int, int]]] = {}
    for name, count, (first, last) in sorted(rooms, key=lambda room: (-room[1], room[0])):
        size = -(-max(1, count) // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, life in sorted(placed.values()):
            if life[0] <= last and first <= life[1] and start < offset + size:
                offset = max(offset, end)
        placed[name] = (offset, offset + size, (first, last))
    total = max((end for _, end, _ in placed.values()), default=0)
    alone = {
        name
        for name, (start, end, _) in placed.items()
        if not any(other != name and start < e and s < end for other, (s, e, _) in placed.items())
    }
    return {name: offset for name, (offset, _, _) in placed.items()}, total, frozenset(alone)
