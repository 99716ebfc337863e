"""What is known of a candidate for a GPU before it is compiled, and what it costs there by an analytic model.

The tile of each cluster is dealt to threads as the passes would deal it.  From that come the blocks and their waves,
the elements and registers of a thread, the shared memory of a block, and the sectors that requests touch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tcomp.mapping.gpu.dealing import deal, steps_at_a_time
from tcomp.mapping.machines.fitted.gpu import DEVICE
from tcomp.mapping.machines.gpu import SECTOR_BYTES, WARP, Gpu, is_wide
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Dealt
from tcomp.mapping.plan.values import Plan
from tcomp.tuner.space.outline import Access, Band, heaviest


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """What a band costs under some options, in seconds, and what it is made of.

    ``sectors`` is how many are fetched for each that would do; ``busy`` the share of the device that has work.
    """

    seconds: float
    arithmetic: float
    memory: float
    waiting: float
    blocks: int
    threads: int
    elements: int
    shared_bytes: int
    sectors: float
    resident: int
    busy: float
    tile: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What is known of the candidates for a program on a device.

    ``plan`` is what the scheduler made, ``bands`` its outline, and ``start`` the tile that stands for the model's.
    """

    plan: Plan
    bands: tuple[Band, ...]
    start: tuple[int, ...]
    gpu: Gpu

    def __call__(self, options: MappingOptions) -> Mapping[str, float]:
        """The features of a candidate but for the values of its options."""
        costs = self._costs(options)
        found = {"estimate": _log(sum(c.seconds for c in costs))}
        main = heaviest(self.bands)
        if main is not None:
            found |= self._of_band(main, costs[self.bands.index(main)])
        found["arithmetic"] = _log(sum(c.arithmetic for c in costs))
        found["memory"] = _log(sum(c.memory for c in costs))
        found["waiting"] = _log(sum(c.waiting for c in costs))
        return found

    def _costs(self, options: MappingOptions) -> list[DeviceCost]:
        sizes = self.start if options.tile_sizes is None else options.tile_sizes
        found = []
        for cluster, band in zip(self.plan.clusters, self.bands, strict=True):
            tile = band.tile(sizes)
            found.append(
                band_cost(band, tile, deal(self.gpu, self.plan.scop, cluster, tile, options), options, self.gpu)
            )
        return found

    def _of_band(self, band: Band, cost: DeviceCost) -> dict[str, float]:
        vector = 1 if band.vector is None else cost.tile[band.vector]
        row = 1 if band.row is None else cost.tile[band.row]
        points = math.prod(cost.tile)
        turns = cost.blocks / (max(1, cost.resident) * self.gpu.multiprocessors)
        return {
            "vector tile": _log(vector),
            "row tile": _log(row),
            "other tile": _log(points / (vector * row)),
            "blocks": _log(cost.blocks),
            "threads": _log(cost.threads),
            "warp unfilled": _log(-(-cost.threads // WARP) * WARP / cost.threads),
            "elements": _log(cost.elements),
            "shared": _log(1 + cost.shared_bytes),
            "sectors": _log(cost.sectors),
            "resident": float(cost.resident),
            "busy": cost.busy,
            "waves": _log(turns),
            "last wave": math.ceil(turns) / turns,
            "covered": _log(cost.blocks * points / math.prod(band.extents)),
        }


def band_cost(band: Band, tile: tuple[int, ...], dealt: Dealt, options: MappingOptions, gpu: Gpu) -> DeviceCost:
    """The cost of a band whose tiles are dealt to threads so."""
    blocks = band.tiles(tile) * (options.split_reduction or 1)
    threads = dealt.threads
    elements = math.prod(d.elements for d in dealt.deals)
    operands = [a for a in band.accesses if not a.writes]
    steps = min(band.steps, steps_at_a_time(gpu, dealt, sum(_side(a, tile) for a in operands), options))
    fetched = band.contraction and options.use_shared_memory and dealt.form == "serial"
    shared = steps * sum(_side(a, tile) * a.itemsize for a in operands) if fetched else 0
    registers = DEVICE.base_registers + elements + 2 * math.isqrt(elements)
    resident = _resident(gpu, threads, min(registers, gpu.registers_per_thread), shared)
    across = 1 if band.vector is None else _threads_along(dealt, band.vector)
    sectors = [_sectors(a, band, across, dealt, fetched=fetched) for a in band.accesses]
    needed = sum(a.bytes(tile) for a in band.accesses)
    moved = sum(s * a.bytes(tile) for s, a in zip(sectors, band.accesses, strict=True))
    once = sum(a.bytes(band.extents) for a in band.accesses)
    memory = max(once / gpu.bandwidth, blocks * moved / (DEVICE.l2_advantage * gpu.bandwidth))
    enough = DEVICE.enough_threads // 2 if is_wide(elements) else DEVICE.enough_threads
    busy = min(1.0, blocks * threads / (gpu.multiprocessors * enough))
    turns = -(-blocks // (gpu.multiprocessors * max(1, resident)))
    lanes = -(-threads // WARP) * WARP / threads
    reuse = elements / (elements + (2.0 if fetched else 8.0)) if band.contraction else 1.0
    spilled = DEVICE.spilled if registers > gpu.registers_per_thread or not options.use_private_memory else 1.0
    flops = band.flops * math.prod(band.extents) * _overhang(band, tile)
    arithmetic = flops * lanes * spilled / (gpu.flops * reuse)
    waiting = turns * (-(-band.steps // steps) if fetched else 1) * DEVICE.step_latency
    seconds = max(arithmetic, memory) / max(busy, 1e-3) + waiting + DEVICE.launch_seconds
    if resident == 0:
        seconds *= 10
    return DeviceCost(
        seconds, arithmetic, memory, waiting, blocks, threads, elements, shared, moved / max(1, needed), resident,
        busy, tile,
    )  # fmt: skip


def _overhang(band: Band, tile: tuple[int, ...]) -> float:
    """Instances that tiles cover for each that there is."""
    return band.tiles(tile) * math.prod(tile) / math.prod(band.extents)


def _side(access: Access, tile: tuple[int, ...]) -> int:
    """Elements that a step of the reduction reads of an operand."""
    return math.prod(replace(s, reach=0).touched(tile) for s in access.subscripts)


def _threads_along(dealt: Dealt, coordinate: int) -> int:
    """Neighbouring threads that have neighbouring values of a coordinate."""
    found = dealt.deals[coordinate]
    innermost = len(dealt.shape) - 1
    return found.threads if found.dimension == innermost and found.vector == 1 else 1


def _sectors(access: Access, band: Band, across: int, dealt: Dealt, *, fetched: bool) -> float:
    """Bytes of the sectors that an access touches for each byte that it needs."""
    if access.vector_stride == 0 or (fetched and not access.writes):
        return 1.0
    if dealt.form == "shared" and not access.writes:
        return 1.0
    run = across if access.vector_stride == 1 else 1
    return max(1.0, SECTOR_BYTES / (run * access.itemsize))


def _resident(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks that a multiprocessor holds at a time."""
    if shared_bytes > gpu.shared_per_block:
        return 0
    return min(
        gpu.threads_per_multiprocessor // threads,
        gpu.registers_per_multiprocessor // (registers * threads),
        gpu.shared_per_multiprocessor // max(1, shared_bytes),
        gpu.blocks_per_multiprocessor,
    )


def _log(value: float) -> float:
    return math.log2(max(value, 1e-12))
