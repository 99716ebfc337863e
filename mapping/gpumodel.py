"""What a tile of a contraction costs on a device: an estimate that ranks tiles, not a prediction.

The time is the longer of arithmetic and traffic, each with the waves that the grid takes, plus what every tile of steps
costs in latency because all threads wait for its operands (Roller, OSDI 2022, and tritonBLAS rank tiles in this
manner).  Arithmetic is slowed by the reads from shared memory that a thread's share of elements needs for each
multiplication.
"""

from __future__ import annotations

import math

from tcomp.mapping.gpu import REGISTER_BYTES, STATIC_SHARED_BYTES, THREADS_RESIDENT, Gpu
from tcomp.records import dataclass

L2_ADVANTAGE = 2.5
"""How much faster the second-level cache is than memory, where neighbouring blocks find each other's operands."""

STEP_LATENCY = 0.6e-6
"""Seconds from asking for a tile of operands to having it in shared memory, without a second buffer to hide them."""

BASE_REGISTERS = 32
"""Registers of a thread besides its accumulators and the operands of one step."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """The tile of a block: ``rows`` by ``columns`` elements by ``threads``, of each ``share`` (rows, columns) elements.

    ``steps`` is how much of the reduction is fetched at a time; ``itemsize`` in bytes.
    """

    rows: int
    columns: int
    threads: int
    share: tuple[int, int]
    steps: int
    itemsize: int

    @property
    def shared_bytes(self) -> int:
        """Bytes of both operands."""
        return (self.rows + self.columns) * self.steps * self.itemsize

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        values = self.share[0] * self.share[1] + sum(self.share)
        return BASE_REGISTERS + values * max(1, self.itemsize // REGISTER_BYTES)


def resident_blocks(gpu: Gpu, tile: TileShape) -> int:
    """Blocks that a multiprocessor holds at a time, as registers, threads and shared memory allow; 0 if none fits.

    None does if it needs more registers than kernels are compiled for.
    """
    most = min(gpu.registers_per_thread, gpu.registers_per_multiprocessor // THREADS_RESIDENT)
    if tile.shared_bytes > STATIC_SHARED_BYTES or tile.registers > most:
        return 0
    return min(
        gpu.threads_per_multiprocessor // tile.threads,
        gpu.registers_per_multiprocessor // (tile.registers * tile.threads),
        gpu.shared_per_multiprocessor // max(1, tile.shared_bytes),
        gpu.blocks_per_multiprocessor,
    )


def contraction_seconds(gpu: Gpu, tile: TileShape, blocks: int, steps: int) -> float:
    """Seconds for ``blocks`` tiles of a contraction with ``steps`` steps each; infinite where none fits."""
    resident = resident_blocks(gpu, tile)
    if resident == 0:
        return math.inf
    rows, columns = tile.share
    busy = rows * columns / (rows * columns + rows + columns)
    flops = 2.0 * tile.rows * tile.columns * steps
    waves = -(-blocks // gpu.multiprocessors)
    arithmetic = waves * flops / (busy * gpu.flops / gpu.multiprocessors)
    traffic = blocks * (tile.rows + tile.columns) * steps * tile.itemsize / (L2_ADVANTAGE * gpu.bandwidth)
    turns = -(-blocks // (gpu.multiprocessors * resident))
    return max(arithmetic, traffic) + turns * -(-steps // tile.steps) * STEP_LATENCY
