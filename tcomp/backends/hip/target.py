"""The targets ``hip:gfx90a`` and so on: HIP for a plan, for one of AMD's architectures."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.backends.gpu.program import write_program
from tcomp.backends.hip.dialect import hip_dialect
from tcomp.backends.source import Source
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import LoopNode
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass, gpu_passes
from tcomp.mapping.text.devices import check_device


@dataclass(frozen=True, slots=True)
class HipBackend:
    """The manifest of the target: the device it compiles for, its passes, how it spells loops."""

    gpu: Gpu
    name: str = "hip"

    @property
    def passes(self) -> tuple[Pass, ...]:
        """What it does to a plan: what other GPUs do."""
        return gpu_passes(self.gpu)

    def emit(self, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool) -> Source:
        """HIP for the loops of a plan.  ``checked`` guards data-dependent subscripts.

        Raises PlanError where the device cannot run the plan.
        """
        check_device(plan, self.gpu)
        return write_program(hip_dialect(self.gpu.wave), function, plan, loops, options, checked, hip_flags)


def hip_flags(options: MappingOptions) -> tuple[str, ...]:
    """What a compiler of HIP is told."""
    return ("-ffast-math",) if options.fast_math else ()
