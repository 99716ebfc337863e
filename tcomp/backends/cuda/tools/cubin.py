"""What a compiled kernel takes of the machine, read from what NVRTC gives.

Registers, spills, stack and shared memory are in the log that ``--ptxas-options=-v`` asks for, constant banks are
sections of the ELF file that a cubin is, and the launch bounds stand in the PTX.  None of the three has it all: a
cubin says nothing of spills and counts 1 KiB more of shared memory from sm_90 on, which the system takes.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

LOG_OPTION = "--ptxas-options=-v"
"""The option that makes NVRTC's log hold what is read here."""


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one kernel takes: 32-bit registers for each thread, and bytes.

    ``spill_stores`` and ``spill_loads`` are the bytes that its instructions, and those of the functions that it calls,
    write and read per thread because registers ran out.  ``stack_bytes``, per thread, also holds arrays that are
    indexed by variables, and so does not tell of spills.  ``shared_bytes`` is static, per block, without what a launch
    adds.  ``constant_bytes`` are the kernel's own constant banks, with its parameters and what precedes them.
    ``max_threads`` is the largest block that its launch bounds allow, None without any.
    """

    name: str
    registers: int
    spill_stores: int
    spill_loads: int
    stack_bytes: int
    shared_bytes: int
    constant_bytes: int
    max_threads: int | None = None


def kernel_resources(ptx: str, cubin: bytes, log: str) -> tuple[KernelResources, ...]:
    """The resources of every kernel, in the order of the text.

    Raises ValueError if the three do not belong together or are not of the kind that NVRTC gives.
    """
    sections = _section_sizes(cubin)
    reported = dict(_kernel_logs(log))
    kernels = []
    for entry in _ENTRY.finditer(ptx):
        name = entry["name"]
        if name not in reported or f".text.{name}" not in sections:
            raise ValueError(f"kernel {name} is in the PTX, but not in the log and the cubin")
        bounds = _MAX_THREADS.search(entry["directives"])
        kernels.append(
            KernelResources(
                name,
                registers=_total(_REGISTERS, reported[name]),
                spill_stores=_total(_SPILL_STORES, reported[name]),
                spill_loads=_total(_SPILL_LOADS, reported[name]),
                stack_bytes=_total(_STACK, reported[name]),
                shared_bytes=_total(_SHARED, reported[name]),
                constant_bytes=sum(sections[f".nv.constant{bank}.{name}"] for bank in range(18)),
                max_threads=math.prod(int(extent) for extent in bounds[1].split(",")) if bounds else None,
            )
        )
    return tuple(kernels)


_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\([^)]*\)(?P<directives>[^{]*)\{")
_MAX_THREADS = re.compile(r"\.maxntid\s+(\d+(?:\s*,\s*\d+)*)")

_KERNEL_LOG = re.compile(r"Compiling entry function '([^']+)'")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILL_STORES = re.compile(r"(\d+) bytes spill stores")
_SPILL_LOADS = re.compile(r"(\d+) bytes spill loads")
_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+) bytes smem")


def _kernel_logs(log: str) -> Iterator[tuple[str, str]]:
    """Kernels with the part of the log that is theirs, which includes the functions that they call."""
    _, *parts = _KERNEL_LOG.split(log)
    return zip(parts[::2], parts[1::2], strict=True)


def _total(pattern: re.Pattern[str], log: str) -> int:
    return sum(int(number) for number in pattern.findall(log))


_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, least significant byte first."""

_HEADER = struct.Struct("<40xQ10xHHH")
"""Of an ELF header: offset of the section headers, their size, how many there are, which one holds the names."""

_SECTION = struct.Struct("<I20xQQ")
"""Of a section header: where the name starts, offset and size of the content."""


def _section_sizes(cubin: bytes) -> Counter[str]:
    """Bytes in each section of an ELF file, summed over those of one name.  Raises ValueError."""
    if not cubin.startswith(_MAGIC):
        raise ValueError("a cubin is an ELF file of 64 bits")
    sizes: Counter[str] = Counter()
    try:
        table, width, count, names = _HEADER.unpack_from(cubin)
        headers = [_SECTION.unpack_from(cubin, table + width * index) for index in range(count)]
        for start, _, size in headers:
            first = headers[names][1] + start
            sizes[cubin[first : cubin.index(b"\0", first)].decode()] += size
    except (struct.error, IndexError) as error:
        raise ValueError(f"the cubin is damaged: {error}") from None
    return sizes
