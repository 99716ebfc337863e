"""GPUs for sandboxes: importing this puts a stand-in in the place of CuPy, and kernels with faults into ``cuda``.

Every call notes its process and the GPU that this may see in a file beside the kernels.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.arrays.devices import Memory
from tcomp.backends.cuda import runtime as cuda_runtime
from tcomp.backends.cuda.runtime import CudaRuntime, architecture_at
from tcomp.backends.cuda.tools.images import Image
from tcomp.backends.source import Launch, Source
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.runtime.registry import TARGETS, Availability, Target
from tests.cuda.fake_cupy import CudaError, FakeCupy, floats
from tests.targets import CPU

ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"
N = 1000
NOTES = "calls"

SOUND, SPOILS_INPUTS, FAILS, ABORTS = (MappingOptions(tile_sizes=(size,)) for size in (8, 16, 32, 64))


def _sound(grid: Any, block: Any, a: int, b: int, c: int) -> None:
    with Path(os.environ["TCOMP_CACHE"], NOTES).open("a") as file:
        file.write(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}\n")
    np.add(floats(a, N), floats(b, N), out=floats(c, N))


def _spoils_inputs(grid: Any, block: Any, a: int, b: int, c: int) -> None:
    floats(a, N)[:] = -1
    floats(c, N)[:] = -1


def _fails(grid: Any, block: Any, a: int, b: int, c: int) -> None:
    raise CudaError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")


def _aborts(grid: Any, block: Any, a: int, b: int, c: int) -> None:
    os.abort()


_KERNELS = {SPOILS_INPUTS: "spoils_inputs", FAILS: "fails", ABORTS: "aborts"}


class _Backend:
    """The CPU's pipeline, with the launch of a kernel from above at its end."""

    name = "cuda"
    passes = CPU.passes

    def emit(self, function: Any, plan: Any, loops: Any, options: MappingOptions, checked: bool) -> Source:
        kernel = _KERNELS.get(options, "sound")
        launch = Launch(kernel, (1, 1, 1), (32, 1, 1), 0, ("A", "B", "C"))
        source = CPU.emit(function, plan, loops, options, checked)
        return replace(source, text=f"// {kernel}\n", launches=(launch,), scratch_bytes=0)


def _compiled(source: Source, architecture: str, newest: int | None = None) -> Image:
    return Image(architecture, "", b"image", "", ())


CUPY = FakeCupy()
CUPY.bodies.update(sound=_sound, spoils_inputs=_spoils_inputs, fails=_fails, aborts=_aborts)
sys.modules["cupy"] = CUPY
cuda_runtime.compile_image = _compiled
TARGETS["cuda"] = Target(
    lambda _: _Backend(),
    CudaRuntime,
    Memory.CUDA,
    lambda _: Availability(True, "for tests"),
    architecture=architecture_at,
    known=gpu_of,
)
