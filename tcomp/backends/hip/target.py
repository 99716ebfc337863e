"""The targets ``hip:gfx90a`` and so on: HIP for a plan, for one of AMD's architectures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.backends.equality import rounding_flags
from tcomp.backends.gpu.program import write_program
from tcomp.backends.gpu.stepwise import write_pieces
from tcomp.backends.hip.dialect import hip_dialect
from tcomp.backends.source import Source
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import LoopNode
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass, gpu_passes
from tcomp.mapping.text.devices import check_device
from tcomp.model.stepwise.pieces import Pieces


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

    @property
    def machine(self) -> None:
        """No processor: blocks of steps are not tiled over time."""
        return None

    def emit_pieces(
        self, function: Function, pieces: Pieces, made: Sequence[tuple[Plan, LoopNode]], options: MappingOptions,
        checked: bool,
    ) -> Source:  # fmt: skip
        """HIP for a program in pieces, each with its plan and its loops.

        Raises PlanError as ``emit`` does, CompileError for too many launches.
        """
        for plan, _ in made:
            check_device(plan, self.gpu)
        return write_pieces(hip_dialect(self.gpu.wave), function, pieces, made, options, checked, hip_flags)


def hip_flags(function: Function, options: MappingOptions) -> tuple[str, ...]:
    """What a compiler of HIP is told."""
    return (*(("-ffast-math",) if options.fast_math else ()), *rounding_flags(function))
