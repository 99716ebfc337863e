"""What the passes need to know of AMD's GPUs.

Limits are those of the white papers of CDNA and RDNA and of AMD's instruction set manuals: waves, registers and local
data share of a compute unit.  Rates are those of one card of each architecture, and no device has timed a kernel.
"""

from __future__ import annotations

from tcomp.errors import Diagnostic, TargetError
from tcomp.mapping.machines.gpu import Gpu

_SHARED_BYTES = 64 << 10
"""Local data share of a compute unit, all of which a block may use."""


def _gpu(
    architecture: str, name: str, units: int, threads: int, registers: int, flops: float, bandwidth: float, wave: int
) -> Gpu:
    """A device by its compute units, the threads and registers of each, its rates and the threads of a wave."""
    return Gpu(
        architecture, name, units, threads, 32, registers, _SHARED_BYTES, _SHARED_BYTES, flops, bandwidth, wave=wave,
        registers_per_thread=256,
    )  # fmt: skip


AMD_GPUS: dict[str, Gpu] = {
    g.architecture: g
    for g in (
        _gpu("gfx906", "MI50", 60, 2560, 65536, 13.3e12, 1.02e12, 64),
        _gpu("gfx908", "MI100", 120, 2560, 65536, 23.1e12, 1.23e12, 64),
        _gpu("gfx90a", "MI250X", 110, 2048, 131072, 23.9e12, 1.6e12, 64),
        _gpu("gfx942", "MI300X", 304, 2048, 131072, 163e12, 5.3e12, 64),
        _gpu("gfx1030", "RX 6800 XT", 72, 1024, 65536, 20.7e12, 0.51e12, 32),
        _gpu("gfx1100", "RX 7900 XTX", 96, 1024, 98304, 61.4e12, 0.96e12, 32),
    )
}
"""Every architecture that can be named as ``hip:gfx90a``; half an MI250X is a device."""

DEFAULT_AMD = "gfx90a"


def amd_gpu(architecture: str) -> Gpu:
    """The device that an architecture stands for.  Raises TargetError."""
    found = AMD_GPUS.get(architecture)
    if found is None:
        hint = f"architectures: {', '.join(AMD_GPUS)}"
        raise TargetError(Diagnostic(f"there is no architecture {architecture!r} of AMD's GPUs", hint=hint))
    return found
