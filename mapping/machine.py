"""What the passes need to know of the processor that a CPU kernel is compiled for."""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """``vector_bytes`` is the width of a vector register, ``registers`` their number; ``threads`` may run at a time."""

    vector_bytes: int
    registers: int
    threads: int


def this_machine() -> Machine:
    """The processor that this process runs on; plain 128-bit vectors where nothing is known."""
    flags = _processor_flags()
    threads = len(os.sched_getaffinity(0))
    if "avx512f" in flags:
        return Machine(64, 32, threads)
    return Machine(32 if "avx2" in flags else 16, 16, threads)


@functools.cache
def _processor_flags() -> frozenset[str]:
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        return next((frozenset(line.split()) for line in file if line.startswith("flags")), frozenset())
    return frozenset()
