"""The device that a target such as ``cuda:sm_90`` or ``opencl:gpu`` stands for, whichever table it is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tcomp.mapping.machines.amd import DEFAULT_AMD, amd_gpu
from tcomp.mapping.machines.gpu import DEFAULT_ARCHITECTURE, Gpu, gpu_of
from tcomp.mapping.machines.opencl import opencl_device

KNOWN: Mapping[str, tuple[Callable[[str], Gpu], str]] = {
    "cuda": (gpu_of, DEFAULT_ARCHITECTURE),
    "simulator": (gpu_of, DEFAULT_ARCHITECTURE),
    "opencl": (opencl_device, "cpu"),
    "hip": (amd_gpu, DEFAULT_AMD),
}
"""By the name of a target, what finds its devices, and the one that stands for all where none is named."""


def device_of(target: str) -> Gpu | None:
    """What is known of a target's device; None where it is no GPU.  Raises TargetError for one that there is not."""
    name, _, architecture = target.partition(":")
    if name not in KNOWN:
        return None
    find, usual = KNOWN[name]
    return find(architecture or usual)
