"""What the passes need to know of the processor that a CPU kernel is compiled for."""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """``vector_bytes`` is the width of a vector register, ``registers`` their number."""

    vector_bytes: int
    registers: int


@functools.cache
def this_machine() -> Machine:
    """The processor that this process runs on; a plain 128-bit machine where nothing is known."""
    flags: set[str] = set()
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    if "avx512f" in flags:
        return Machine(64, 32)
    return Machine(32, 16) if "avx2" in flags else Machine(16, 16)
