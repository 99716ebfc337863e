"""What the passes, the occupancy table and the simulator need to know of a CUDA device.

Limits are those of the CUDA programming guide's table of technical specifications; rates are those of one common card
of each architecture, and serve to rank mappings, not to predict times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcomp.errors import Diagnostic, TargetError
from tcomp.mapping.machines.atoms import Atom
from tcomp.mapping.machines.fitted.gpu import DEVICE

WARP = 32
"""Threads that run in lock step."""

REGISTER_BYTES = 4

USUAL_REGISTERS = 65_536 // DEVICE.threads_resident
"""What each thread of a full multiprocessor has: all architectures have 65,536 registers on one."""

MOST_REGISTERS = 255
"""Registers that a thread can have."""

VECTOR_BYTES = 16
"""The widest access of a thread, to global or shared memory."""

SECTOR_BYTES = 32
"""The unit in which global memory is read and written."""


STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory that a kernel may use without opting in."""

RESERVED_SHARED_BYTES = 1024
"""What the system takes of the shared memory of each block."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One architecture.

    ``shared_per_block`` is what a block may use after opting in (48 KiB without), ``registers_per_multiprocessor``
    counts 32-bit registers.  ``flops`` (single precision, per second), ``half_flops`` (products of halves with sums of
    floats by ``mma.sync``; 0 where there is no such instruction) and ``bandwidth`` (bytes per second) are peaks;
    ``doubles`` says whether matrices of doubles are multiplied faster than one by one: then as fast as single floats.
    ``float64`` says whether it computes with doubles at all; ``wave`` threads run in lock step, of which a kernel that
    asks for nothing more than NVIDIA's devices promise takes ``WARP`` together.  ``shuffles`` says whether these hand
    values to each other without memory; ``warpgroups`` whether four warps multiply matrices together, which the code of
    one generation alone may ask for.  ``atomic_words`` are the bytes of elements into which threads combine values
    by one operation.
    """

    architecture: str
    name: str
    multiprocessors: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int
    flops: float
    bandwidth: float
    half_flops: float = 0.0
    doubles: bool = False
    threads_per_block: int = 1024
    registers_per_thread: int = MOST_REGISTERS
    float64: bool = True
    wave: int = WARP
    shuffles: bool = True
    warpgroups: bool = False
    atomic_words: tuple[int, ...] = (4, 8)

    @property
    def version(self) -> int:
        """The architecture as a number, 90 for ``sm_90`` and ``sm_90a``; 0 for devices that are not NVIDIA's."""
        number = self.architecture.removeprefix("sm_").rstrip("af")
        return int(number) if self.architecture.startswith("sm_") else 0

    def matrix_flops(self, atom: Atom) -> float:
        """Peak of an instruction that multiplies matrices, per second; 0 where there is none."""
        if not self.half_flops or self.version < atom.least or (atom.in_groups and not self.warpgroups):
            return 0.0
        if atom.kind == "float64":
            return self.flops if self.doubles else 0.0
        return atom.rate * self.half_flops

    @property
    def all_threads(self) -> int:
        """How many threads run at the same time."""
        return self.multiprocessors * self.threads_per_multiprocessor

    @property
    def copies_asynchronously(self) -> bool:
        """Whether threads can go on while what they asked for is on its way to shared memory (``cp.async``)."""
        return self.version >= 80

    @property
    def usual_shared_bytes(self) -> int:
        """Shared memory of a block that leaves as much to another one, and is not less than what needs no opting in."""
        return max(STATIC_SHARED_BYTES, self.shared_per_multiprocessor // 2 - RESERVED_SHARED_BYTES)


_H100 = Gpu(
    "sm_90", "H100", 132, 2048, 32, 65536, 228 << 10, 227 << 10, 66.9e12, 3.35e12, 613e12, True, warpgroups=True
)

GPUS: dict[str, Gpu] = {
    g.architecture: g
    for g in (
        Gpu("sm_75", "T4", 40, 1024, 16, 65536, 64 << 10, 64 << 10, 8.1e12, 0.32e12),
        Gpu("sm_80", "A100", 108, 2048, 32, 65536, 164 << 10, 163 << 10, 19.5e12, 1.55e12, 312e12, True),
        Gpu("sm_86", "RTX 3090", 82, 1536, 16, 65536, 100 << 10, 99 << 10, 35.6e12, 0.94e12, 71e12),
        Gpu("sm_89", "RTX 4090", 128, 1536, 24, 65536, 100 << 10, 99 << 10, 82.6e12, 1.01e12, 165e12),
        _H100,
        replace(_H100, architecture="sm_90a"),
        Gpu("sm_100", "B200", 148, 2048, 32, 65536, 228 << 10, 227 << 10, 80.0e12, 8.0e12, 1000e12, True),
        Gpu("sm_120", "RTX 5090", 170, 1536, 24, 65536, 100 << 10, 99 << 10, 104.8e12, 1.79e12, 209e12),
    )
}
"""Every architecture that can be named as ``cuda:sm_90``."""

DEFAULT_ARCHITECTURE = "sm_90"

OF_ONE_GENERATION = ("wgmma.", "setmaxnreg.")
"""Instructions that only ``sm_90a`` has, as they are spelled in a text (PTX ISA, "Target ISA Notes")."""


def is_wide(kept: int) -> bool:
    """Whether a thread that keeps elements in so many registers needs more than usual: fewer threads are resident."""
    return DEVICE.base_registers + kept > USUAL_REGISTERS


def gpu_of(architecture: str) -> Gpu:
    """The device that an architecture stands for; suffixes such as that of ``sm_100a`` are ignored, if unknown.

    Raises TargetError.
    """
    found = GPUS.get(architecture) or GPUS.get(architecture.rstrip("af"))
    if found is None:
        hint = f"architectures: {', '.join(GPUS)}"
        raise TargetError(Diagnostic(f"there is no GPU architecture {architecture!r}", hint=hint))
    return found


def is_of_one_generation(text: str) -> bool:
    """Whether a text has instructions that only ``sm_90a`` has."""
    return any(word in text for word in OF_ONE_GENERATION)


def generation_of(architecture: str, text: str) -> str:
    """The architecture that NVRTC compiles a text for: ``sm_90a`` for ``sm_90``, if its instructions are in the text.

    Of capability 9 there are devices of 9.0 alone, which run the code of both.
    """
    return "sm_90a" if architecture == "sm_90" and is_of_one_generation(text) else architecture
