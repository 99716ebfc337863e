"""The GPU targets of NVIDIA: CUDA C++ for a plan, compiled for one architecture, or simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcomp.backends.cuda.dialect import CUDA_C
from tcomp.backends.equality import rounding_flags
from tcomp.backends.gpu.program import write_program
from tcomp.backends.gpu.stepwise import write_pieces
from tcomp.backends.source import Source
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import LoopNode
from tcomp.mapping.gpu.matrices.feeding import fed_by_threads
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass, gpu_passes
from tcomp.mapping.text.devices import check_device
from tcomp.model.stepwise.pieces import Pieces


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
        source = write_program(CUDA_C, function, plan, loops, options, checked, cuda_flags)
        by_threads = fed_by_threads(plan, options)
        if by_threads is plan:
            return source
        otherwise = write_program(CUDA_C, function, by_threads, loops, options, checked, cuda_flags)
        return replace(source, otherwise=otherwise)

    @property
    def machine(self) -> None:
        """No processor: blocks of steps are not tiled over time."""
        return None

    def emit_pieces(
        self, function: Function, pieces: Pieces, made: Sequence[tuple[Plan, LoopNode]], options: MappingOptions,
        checked: bool,
    ) -> Source:  # fmt: skip
        """CUDA C++ for a program in pieces, each with its plan and its loops.

        Raises PlanError as ``emit`` does, CompileError for too many launches.
        """
        made = [(fed_by_threads(plan, options), loops) for plan, loops in made]
        for plan, _ in made:
            check_device(plan, self.gpu)
        return write_pieces(CUDA_C, function, pieces, made, options, checked, cuda_flags)


def cuda_flags(function: Function, options: MappingOptions) -> tuple[str, ...]:
    """What NVRTC is told."""
    return (*(("-ffast-math",) if options.fast_math else ()), *rounding_flags(function))
