"""What the kernels of a launch sequence take of a GPU, as a table for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tcomp.backends.cuda.tools.images import Image
from tcomp.backends.cuda.tools.occupancy import occupancy
from tcomp.backends.source import Launch
from tcomp.mapping.machines.gpu import Gpu

_COLUMNS = (
    *("kernel", "grid", "block", "registers", "spilled", "stack", "shared"),
    *("blocks/SM", "warps/SM", "occupancy", "limited by"),
)
_LEFT_ALIGNED = ("kernel", "limited by")


def resource_table(image: Image, launches: Sequence[Launch], gpu: Gpu) -> str:
    """One line for each launch, under a heading that names the device.

    Registers and stack (bytes) are per thread; what is spilled is bytes stored + loaded per thread; shared memory is
    static + dynamic bytes per block; occupancy is what the blocks that a multiprocessor (SM) runs at a time are of the
    warps that it could hold.  Raises TargetError if a launch is of a kernel that the image does not have.
    """
    heading = f"{image.architecture} ({gpu.name}, {gpu.multiprocessors} multiprocessors)"
    return "\n".join((heading, *_aligned([_COLUMNS, *(_row(image, launch, gpu) for launch in launches)]))) + "\n"


def _row(image: Image, launch: Launch, gpu: Gpu) -> tuple[str, ...]:
    kernel = image.kernel(launch.kernel)
    threads = math.prod(launch.block)
    shared = kernel.shared_bytes + launch.shared_bytes
    found = occupancy(gpu, threads, kernel.registers, shared)
    return (
        launch.kernel,
        _extents(launch.grid),
        _extents(launch.block),
        str(kernel.registers),
        f"{kernel.spill_stores}+{kernel.spill_loads}",
        str(kernel.stack_bytes),
        f"{kernel.shared_bytes}+{launch.shared_bytes}",
        str(found.blocks),
        str(found.warps),
        f"{found.fraction:.0%}",
        found.limit,
    )


def _extents(extents: tuple[int, int, int]) -> str:
    """``16x16`` for (16, 16, 1): extents of 1 at the end are left out."""
    count = max((position for position, extent in enumerate(extents, 1) if extent > 1), default=1)
    return "x".join(map(str, extents[:count]))


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if name in _LEFT_ALIGNED else cell.rjust(width)
            for name, cell, width in zip(_COLUMNS, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
