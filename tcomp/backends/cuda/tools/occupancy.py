"""How many blocks of a kernel a multiprocessor runs at a time, and what keeps it from running more.

The rules are those of ``cuda_occupancy.h`` in the CUDA toolkit, for compute capability 7.5 and later.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.errors import TcompError
from tcomp.mapping.machines.gpu import WARP, Gpu

_PARTITIONS = 4
"""Parts of a multiprocessor that each own a quarter of the registers."""

_REGISTER_UNIT = 256
"""Registers are given to a warp in multiples of this."""

_SHARED_UNIT = 128
_SHARED_UNIT_TURING = 256
"""Shared memory is given to a block in multiples of this many bytes."""

_RESERVED_SHARED = 1024
"""Bytes of shared memory that the system takes of each block, from compute capability 8.0 on."""

_TURING = "sm_75"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What of a kernel is on one multiprocessor at a time.

    ``fraction`` is that of the warps that there could be.  ``limit`` names what allows no more: "threads", "blocks",
    "registers" or "shared memory"; of several, the first in this order.  Where ``blocks`` is 0, the kernel cannot
    be launched with this block for want of it.
    """

    blocks: int
    warps: int
    fraction: float
    limit: str


def occupancy(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """The occupancy of a kernel whose blocks have ``threads`` threads of ``registers`` registers each and
    ``shared_bytes`` bytes of static and dynamic shared memory together.

    Raises TcompError if an argument is not a possible number.
    """
    if threads < 1 or registers < 0 or shared_bytes < 0:
        raise TcompError(f"no block has {threads} threads, {registers} registers and {shared_bytes} shared bytes")
    warps = -(-threads // WARP)
    possible = gpu.threads_per_multiprocessor // WARP
    limits = {
        "threads": possible // warps if threads <= gpu.threads_per_block else 0,
        "blocks": gpu.blocks_per_multiprocessor,
    }
    if registers > 0:
        limits["registers"] = _blocks_by_registers(gpu, warps, registers)
    if shared_bytes > 0 or _reserved(gpu) > 0:
        limits["shared memory"] = _blocks_by_shared(gpu, shared_bytes)
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return Occupancy(blocks, blocks * warps, blocks * warps / possible, limit)


def _blocks_by_registers(gpu: Gpu, warps: int, registers: int) -> int:
    of_warp = _round_up(registers * WARP, _REGISTER_UNIT)
    # A launch is checked as if each part of the multiprocessor got as many warps of the block as any other.
    launched = of_warp * _round_up(warps, _PARTITIONS)
    if registers > gpu.registers_per_thread or launched > gpu.registers_per_multiprocessor:
        return 0
    return gpu.registers_per_multiprocessor // _PARTITIONS // of_warp * _PARTITIONS // warps


def _blocks_by_shared(gpu: Gpu, shared_bytes: int) -> int:
    if shared_bytes > gpu.shared_per_block:
        return 0
    unit = _SHARED_UNIT_TURING if gpu.architecture == _TURING else _SHARED_UNIT
    return gpu.shared_per_multiprocessor // _round_up(shared_bytes + _reserved(gpu), unit)


def _reserved(gpu: Gpu) -> int:
    return 0 if gpu.architecture == _TURING else _RESERVED_SHARED


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
