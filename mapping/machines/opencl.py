"""What the passes need to know of devices with OpenCL, which are told apart by kind alone.

A device says what it is when a program runs; a text is written for a kind, so that it can be written anywhere.  ``gpu``
has what nearly every GPU of the last ten years has: 32 KiB of local memory and work groups of 256 (OpenCL 1.2 promises
less).
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.errors import Diagnostic, TargetError
from tcomp.mapping.machines.gpu import Gpu

OPENCL_DEVICES: dict[str, Gpu] = {
    g.architecture: replace(g, shuffles=False, atomic_words=())
    for g in (
        Gpu("cpu", "processor", 16, 1024, 4, 65536, 64 << 10, 32 << 10, 0.5e12, 0.05e12),
        Gpu("gpu", "GPU", 32, 1024, 16, 65536, 64 << 10, 24 << 10, 8e12, 0.3e12, threads_per_block=256),
        Gpu(
            "gpu-single", "GPU without doubles", 32, 1024, 16, 65536, 64 << 10, 24 << 10, 8e12, 0.3e12,
            threads_per_block=256, float64=False,
        ),
    )
}  # fmt: skip
"""Every kind that can be named as ``opencl:gpu``.  What threads that share a reduction need is left of local memory.

None hands values from thread to thread, or combines them by atomic operations."""


def opencl_device(kind: str) -> Gpu:
    """The device that a kind stands for.  Raises TargetError."""
    found = OPENCL_DEVICES.get(kind)
    if found is None:
        hint = f"kinds: {', '.join(OPENCL_DEVICES)}"
        raise TargetError(Diagnostic(f"there is no kind {kind!r} of OpenCL devices", hint=hint))
    return found
