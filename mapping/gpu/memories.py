"""Pass: where temporaries live on a GPU.

As on every target a temporary belongs to the innermost mark across whose instances none of its values passes
(``memory/places.py``).  A GPU has three memories there.  What no two threads hand to each other is private to its
thread, in registers if the compiler can keep it there.  The rest is shared by the threads of the block.  What does not
fit into shared memory is a tile per block in global memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.machines.fitted.gpuloops import UNROLLING
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.memory.owners import BLOCK_LEVEL, coordinate_of, folded_dimension, home_of, is_shared, owned_alike
from tcomp.mapping.memory.places import Place, boxed, places
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Deal
from tcomp.mapping.plan.values import Buffer, Group, Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.storages import Storage

SCRATCH_BYTES = 2048
"""Room for the partial results of warps, 32 of 8 bytes for each of several reductions."""

PRIVATE_BYTES = 4096
"""What a thread may keep of one temporary.  Registers hold a quarter of it; for the rest the driver sets memory aside
for every thread that the device can run at a time, 1 GiB on the largest, and beyond 512 KiB a kernel is refused."""


def place_in_memories(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Give every temporary its smallest scope and its memory."""
    available = [p for p in places(plan.tree) if p.mark.startswith((*BLOCK_LEVEL, "point"))]
    placer = _Placer(plan, options, available)
    buffers = {s.name: placer.place(s) for s in plan.scop.storages.values() if s.role == "temporary"}
    return replace(plan, buffers=_within_budget(plan, buffers, shared_budget(gpu, options)))


def shared_budget(gpu: Gpu, options: MappingOptions) -> int:
    """Bytes of shared memory that a block may use for tiles; warps that share a reduction need some more."""
    most = gpu.shared_per_block - SCRATCH_BYTES
    return min(most, gpu.usual_shared_bytes if options.max_shared_memory is None else options.max_shared_memory)


def shared_bytes(plan: Plan, group: Group) -> int:
    """What the block of a group has in shared memory: its tiles, and its copies in all of their stages."""
    names = {s for c in group.clusters for s in plan.clusters[c].statements}
    written = {plan.scop.by_name[name].target for name in names}
    tiles = sum(b.bytes for b in plan.buffers.values() if b.space == "shared" and b.storage in written)
    stages = {mark: pipeline.stages for mark, pipeline in plan.pipelines.items()}
    return tiles + sum(c.bytes * stages.get(c.mark, 1) for c in plan.copies if c.statement in names)


def kept_by_warps(plan: Plan, storage: str, product: str) -> Buffer | None:
    """The buffer of a storage that threads could keep but for a ``product``, whose warps exchange it themselves.

    None if others than the thread that has an element use it, too.
    """
    buffer = plan.buffers.get(storage)
    if buffer is None or buffer.space not in ("shared", "private"):
        return None
    place = next(p for p in places(plan.tree) if p.mark == buffer.mark)
    users = [s for s in plan.scop.users[storage] if s.name != product]
    return _Placer(plan, MappingOptions(), [place]).private(plan.scop.storages[storage], place, users)


class _Placer:
    def __init__(self, plan: Plan, options: MappingOptions, available: list[Place]) -> None:
        self.plan = plan
        self.options = options
        self.available = available

    def place(self, storage: Storage) -> Buffer:
        """The buffer of one temporary."""
        scop = self.plan.scop
        users = scop.users[storage.name]
        writers = [s for s in users if s.target == storage.name]
        names = {s.name for s in users}
        if writers:
            handed_on = scop.values_through[storage.name]
            for place in reversed(self.available):
                if names <= set(place.prefixes) and place.holds(handed_on):
                    found = self._in_place(storage, place, users, writers)
                    if found is not None:
                        return found
        return Buffer(storage.name, storage.dtype, "global", storage.box.extent, storage.box.origin, None, "")

    def _in_place(
        self, storage: Storage, place: Place, users: list[ScopStatement], writers: list[ScopStatement]
    ) -> Buffer | None:
        """The buffer at a place; None if it is larger than what a thread may keep and belongs to one."""
        tile = boxed(storage, place, writers)
        if not place.mark.startswith(BLOCK_LEVEL):
            return tile if tile.bytes <= PRIVATE_BYTES else None
        fold = folded_dimension(self.plan, storage.name)
        folded = () if fold is None else (fold,)
        private = self.private(storage, place, users)
        if private is not None:
            return private
        return _folded(replace(boxed(storage, place, writers, always=True), space="shared"), folded)

    def private(self, storage: Storage, place: Place, users: list[ScopStatement]) -> Buffer | None:
        """The buffer of what each thread has for itself at a place; None if threads hand it to each other."""
        owner = owned_alike(self.plan, storage.name, users) if self.options.use_private_memory else None
        if owner is None:
            return None
        writers = [s for s in users if s.target == storage.name]
        by_shares = any(is_shared(self.plan, s) and s.target != storage.name for s in users)
        if place.mark.startswith("round"):
            tile = boxed(storage, place, writers)
            return None if by_shares else replace(tile, space="register", shape=(), lower=None)
        fold = folded_dimension(self.plan, storage.name)
        folded = () if fold is None else (fold,)
        deals = tuple(Deal(1, 1, 1, None) if d is None else d[0] for d in owner.dimensions)
        shape = tuple(d.elements for d in deals)
        lower = dealt_corner(self.plan, writers[0], storage, place)
        private = Buffer(storage.name, storage.dtype, "private", shape, (), lower, place.mark, deals, folded=folded)
        unrolled = not by_shares or math.prod(shape) <= UNROLLING.longest
        return private if private.bytes <= PRIVATE_BYTES and unrolled else None


def dealt_corner(plan: Plan, user: ScopStatement, storage: Storage, place: Place) -> isl.MultiAff:
    """The corner from which the elements of a private buffer are counted: that of the tile that was dealt."""
    group, number = home_of(plan, user.name)
    corner = box_hull(group.footprints[number].tiles).lower
    subscripts = user.subscripts if user.target == storage.name else next(
        e.subscripts for e in walk(user.value) if isinstance(e, Read) and e.tensor == storage.name
    )  # fmt: skip
    coordinates = plan.clusters[number].coordinates[user.name]
    space = isl.Space.alloc(corner.get_ctx(), 0, corner.dim(isl.dim_type.in_), len(subscripts))
    lower = isl.MultiAff.zero(space)
    fold = folded_dimension(plan, storage.name)
    for position, subscript in enumerate(subscripts):
        d = coordinate_of(user, coordinates, subscript)
        if position == fold:
            continue
        if d is None:
            zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space.domain()))
            lower = lower.set_at(position, zero.set_constant_val(isl.Val(storage.box.origin[position])))
        else:
            lower = lower.set_at(position, corner.get_at(d))
    beyond = corner.dim(isl.dim_type.in_) - place.prefixes[user.name].dim(isl.dim_type.out)
    if beyond > 0:
        # What is kept from turn to turn is nowhere else in another turn.
        lower = lower.drop_dims(isl.dim_type.in_, corner.dim(isl.dim_type.in_) - beyond, beyond)
    return lower


def _folded(buffer: Buffer, dimensions: tuple[int, ...]) -> Buffer:
    """The buffer with one place along some dimensions, whose elements use it in turn."""
    if not dimensions:
        return buffer
    assert buffer.lower is not None
    shape = tuple(1 if d in dimensions else extent for d, extent in enumerate(buffer.shape))
    lower = buffer.lower
    for d in dimensions:
        lower = lower.set_at(d, lower.get_at(d).mul(isl.Aff.zero_on_domain(lower.get_at(d).get_domain_local_space())))
    return replace(buffer, shape=shape, lower=lower, folded=dimensions)


def _within_budget(plan: Plan, buffers: Mapping[str, Buffer], budget: int) -> dict[str, Buffer]:
    """The buffers with the largest of each group moved to global memory until what is shared fits."""
    result = dict(buffers)
    for group in plan.groups:
        statements = {s for c in group.clusters for s in plan.clusters[c].statements}
        own = [b for b in buffers.values() if b.space == "shared" and
               any(s.target == b.storage for s in plan.scop.statements if s.name in statements)]  # fmt: skip
        for b in sorted(own, key=lambda b: (-b.bytes, b.storage)):
            if sum(result[o.storage].bytes for o in own if result[o.storage].space == "shared") <= budget:
                break
            result[b.storage] = replace(b, space="block")
    return result
