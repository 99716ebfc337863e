"""The GPU targets of NVIDIA: CUDA C++ for a plan, compiled for one architecture, or simulated."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.backends.cuda.dialect import CUDA_C
from tcomp.backends.gpu.program import write_program
from tcomp.backends.source import Source
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import LoopNode
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass, gpu_passes
from tcomp.mapping.text.devices import check_device


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """The manifest of the target: its name, the device it compiles for, its passes, how it spells loops."""

    gpu: Gpu
    name: str = "cuda"

    @property
    def passes(self) -> tuple[Pass, ...]:
        """What it does to a plan."""
        return gpu_passes(self.gpu)

    def emit(self, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool) -> Source:
        """CUDA C++ for the loops of a plan.  ``checked`` guards data-dependent subscripts.

        Raises PlanError where the device cannot run the plan.
        """
        check_device(plan, self.gpu)
        return write_program(CUDA_C, function, plan, loops, options, checked, cuda_flags)


def cuda_flags(options: MappingOptions) -> tuple[str, ...]:
    """What NVRTC is told."""
    return ("-ffast-math",) if options.fast_math else ()
