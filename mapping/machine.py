"""What the passes need to know of the processor that a CPU kernel is compiled for."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor.

    ``vector_bytes`` is the width of a vector register and ``registers`` their number.  ``datapath_bytes`` is what one
    of the units that multiply and add takes in a cycle; wider vectors pass through it in parts.  ``threads`` may run at
    a time.
    """

    vector_bytes: int
    registers: int
    datapath_bytes: int
    threads: int


def this_machine() -> Machine:
    """The processor that this process runs on; plain 128-bit vectors where nothing is known."""
    facts = _processor_facts()
    flags = facts.get("flags", "").split()
    threads = len(os.sched_getaffinity(0))
    if "avx512f" in flags:
        halved = (facts.get("vendor_id"), facts.get("cpu family")) == ("AuthenticAMD", "25")
        return Machine(64, 32, 32 if halved else 64, threads)
    if "avx2" in flags:
        return Machine(32, 16, 32, threads)
    return Machine(16, 32 if platform.machine() in ("aarch64", "arm64") else 16, 16, threads)


@functools.cache
def _processor_facts() -> Mapping[str, str]:
    """What Linux says of the first processor, by name; empty where it says nothing."""
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {}
