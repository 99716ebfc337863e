"""What the passes need to know of the processor that a CPU kernel is compiled for."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tcomp.mapping.machines.fitted.cputext import THREADS
from tcomp.mapping.machines.fitted.cputiles import CACHES
from tcomp.mapping.machines.permission import may_use_matrix_tiles
from tcomp.values.operators import BFLOAT16, DType

LINE_BYTES = 64
"""What common processors fetch into a cache at a time."""

PAGE = 4096
"""Bytes that a way of the nearest cache has on common processors, and those of a page of memory."""

DOTS: Mapping[str, Mapping[int, int]] = {
    "avx512_vnni": {8: 4, 16: 2},
    "avx_vnni": {8: 4, 16: 2},
    "avx2": {16: 2},
    "": {},
}
"""Instructions that multiply neighbouring integers and add the products to a sum of 32 bits that wraps, by the feature
that brings them: the bits of an integer, and how many of them lie in a lane.  Integers of 8 bits are unsigned in one
operand and signed in the other, those of 16 bits are signed."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor.

    ``vector_bytes`` is the width of a vector register and ``registers`` their number.  ``datapath_bytes`` is what one
    of the units that multiply and add takes in a cycle; wider vectors pass through it in parts.  ``threads`` may run at
    a time.  ``nearest_cache``, ``middle_cache`` and ``last_cache`` are the bytes of the first, the second and the last
    data cache, of which threads share the last.  ``dots`` names its instructions for sums of products of narrow
    integers, one of ``DOTS``; ``widens`` says that it has those of AVX2 and F16C that load narrow elements as vectors
    of 32 bits, and ``bfloat16`` that it adds products of pairs of them.  ``matrix_tiles`` says that it multiplies whole
    tiles of bytes and of bfloat16 (AMX), and that the system lets it.
    """

    vector_bytes: int
    registers: int
    datapath_bytes: int
    threads: int
    nearest_cache: int = 32 << 10
    middle_cache: int = 512 << 10
    last_cache: int = 32 << 20
    dots: str = ""
    widens: bool = False
    bfloat16: bool = False
    matrix_tiles: bool = False

    @property
    def atomic_words(self) -> tuple[int, ...]:
        """The bytes of elements into which threads combine values by one operation; none where these are too few."""
        return (1, 2, 4, 8) if self.threads >= THREADS.atomic else ()

    @property
    def far_stride(self) -> int:
        """Bytes between the steps of a column from which on its lines should be brought together."""
        return CACHES.far_stride_if_large if self.middle_is_large else CACHES.far_stride

    @property
    def middle_is_large(self) -> bool:
        """Whether the second cache is so large that lines that lie apart come fast enough."""
        return self.middle_cache >= CACHES.large_middle

    def overflows(self, tensor_bytes: int) -> bool:
        """Whether tensors of so many bytes are too large to stay in the caches from call to call."""
        return tensor_bytes >= CACHES.last_share * self.last_cache

    def products_in_a_lane(self, dtype: DType) -> int:
        """How many products of elements of a type one instruction adds to a sum of 32 bits; 0 where there is none."""
        if dtype == BFLOAT16:
            return 2 if self.bfloat16 else 0
        return DOTS[self.dots].get(dtype.bits, 0) if dtype.is_integer else 0


def this_machine() -> Machine:
    """The processor that this process runs on; plain 128-bit vectors where nothing is known."""
    facts = _processor_facts()
    flags = facts.get("flags", "").split()
    threads = len(os.sched_getaffinity(0))
    caches = _cache_sizes()
    nearest, last = caches.get(min(caches, default=0), 32 << 10), caches.get(max(caches, default=0), 32 << 20)
    middle = caches.get(2, 512 << 10)
    if "avx512f" in flags:
        halved = (facts.get("vendor_id"), facts.get("cpu family")) == ("AuthenticAMD", "25")
        dots = next((name for name, needed in _WIDE_DOTS if needed <= set(flags)), "")
        tiles = set(flags) >= _MATRIX_TILES and may_use_matrix_tiles()
        return Machine(
            64, 32, 32 if halved else 64, threads, nearest, middle, last, dots, True, "avx512_bf16" in flags, tiles
        )
    if "avx2" in flags:
        dots = "avx_vnni" if "avx_vnni" in flags else "avx2"
        return Machine(32, 16, 32, threads, nearest, middle, last, dots, "f16c" in flags)
    registers = 32 if platform.machine() in ("aarch64", "arm64") else 16
    return Machine(16, registers, 16, threads, nearest, middle, last)


def processor_features() -> frozenset[str]:
    """The features of the processor in Linux' words; empty where it does not say."""
    facts = _processor_facts()
    return frozenset(facts.get("flags", facts.get("Features", "")).split())


def processor_name() -> str:
    """The model of the processor in its maker's words; empty where Linux does not say."""
    facts = _processor_facts()
    return facts.get("model name", facts.get("CPU part", ""))


_WIDE_DOTS = (("avx512_vnni", {"avx512_vnni", "avx512bw", "avx512vl"}), ("avx2", {"avx512bw", "avx512vl"}))
"""The instructions of a processor with vectors of 64 bytes, and the features that bring them for all widths."""


_MATRIX_TILES = frozenset({"amx_tile", "amx_int8", "amx_bf16", "avx512_vnni", "avx512_bf16", "avx512bw", "avx512vl"})


@functools.cache
def _processor_facts() -> Mapping[str, str]:
    """What Linux says of the first processor, by name; empty where it says nothing."""
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {}


@functools.cache
def _cache_sizes() -> Mapping[int, int]:
    """Bytes of the data caches of the first processor, by level; empty where Linux does not say."""
    found: dict[int, int] = {}
    for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        with suppress(OSError, ValueError):
            kind, level, size = (cache.joinpath(name).read_text().strip() for name in ("type", "level", "size"))
            units = {"K": 1 << 10, "M": 1 << 20}
            if kind != "Instruction" and size[-1:] in units:
                found[int(level)] = int(size[:-1]) * units[size[-1]]
    return found
