"""A CUDA device for random programs: CuPy's stand-in keeps the arrays, the simulator runs the kernels.

``install`` is for processes of their own.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tcomp.arrays.devices import Memory
from tcomp.backends.cuda.runtime import architecture_at
from tcomp.backends.host.runtime import HostProgram
from tcomp.backends.simulator.simulation import load
from tcomp.backends.source import Source
from tcomp.fuzzing.cases import Case
from tcomp.fuzzing.draws import Draw, Drawn
from tcomp.fuzzing.execution import Outcome, Verdict, execute
from tcomp.fuzzing.rewriting import body
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.runtime import registry
from tests.cuda.fake_cupy import CudaError, FakeCupy

FAULT = CudaError("cudaErrorIllegalAddress: an illegal memory access was encountered")


class SimulatedRuntime:
    """Runs CUDA text on the simulator, whose memory is that of the stand-in, too."""

    memory = Memory.CUDA

    def loading(self, source: Source) -> AbstractContextManager[None]:
        return nullcontext()

    def load(self, source: Source) -> HostProgram:
        return HostProgram(load(source).entry, source.scratch_bytes, native=False)


TARGET = registry.Target(
    lambda name: registry._spelled_in_cuda(name, "cuda"),
    lambda _: SimulatedRuntime(),
    Memory.CUDA,
    registry._cuda,
    architecture=architecture_at,
    known=gpu_of,
)


def install() -> FakeCupy:
    """Put a device into this process."""
    cupy = FakeCupy()
    sys.modules["cupy"] = cupy
    registry.TARGETS["cuda"] = TARGET
    return cupy


def failing(request: Draw | Case) -> Drawn | Outcome:
    """What comes of a program of several statements on a device that fails; nothing else is run.  Tells the process."""
    found = Outcome(Verdict.PASSED)
    if isinstance(request, Case) and len(body(request.program.definition)) > 1:
        cupy = install()
        cupy.failures = {"upload": FAULT, "device synchronize": FAULT}
        found = execute(request)
    return replace(found, detail=str(os.getpid()))
