"""The target ``opencl``: OpenCL C for a plan, for a kind of device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcomp.backends.equality import rounding_flags
from tcomp.backends.gpu.program import write_program
from tcomp.backends.gpu.stepwise import write_pieces
from tcomp.backends.opencl.dialect import OPENCL_C
from tcomp.backends.source import Source
from tcomp.errors import Diagnostic, TargetError
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import LoopNode
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass, gpu_passes
from tcomp.mapping.text.devices import check_device
from tcomp.model.stepwise.pieces import Pieces

_DOUBLE = re.compile(r"\bdouble\b")
_UNFUSED = "#pragma OPENCL FP_CONTRACT OFF\n"


@dataclass(frozen=True, slots=True)
class OpenClBackend:
    """The manifest of the target: the kind of device it compiles for, its passes, how it spells loops."""

    gpu: Gpu
    name: str = "opencl"

    @property
    def passes(self) -> tuple[Pass, ...]:
        """What it does to a plan: what other GPUs do."""
        return gpu_passes(self.gpu)

    def emit(self, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool) -> Source:
        """OpenCL C for the loops of a plan.  ``checked`` guards data-dependent subscripts.

        Raises PlanError where the device cannot run the plan, TargetError where the program needs doubles and the
        device has none.
        """
        check_device(plan, self.gpu)
        dialect = replace(OPENCL_C, doubles=self.gpu.float64)
        return self._computed(function, write_program(dialect, function, plan, loops, options, checked, self._flags))

    @property
    def machine(self) -> None:
        """No processor: blocks of steps are not tiled over time."""
        return None

    def emit_pieces(
        self, function: Function, pieces: Pieces, made: Sequence[tuple[Plan, LoopNode]], options: MappingOptions,
        checked: bool,
    ) -> Source:  # fmt: skip
        """OpenCL C for a program in pieces, each with its plan and its loops.

        Raises PlanError and TargetError as ``emit`` does, CompileError for too many launches.
        """
        for plan, _ in made:
            check_device(plan, self.gpu)
        dialect = replace(OPENCL_C, doubles=self.gpu.float64, moved=True, from_lowest=False)
        return self._computed(function, write_pieces(dialect, function, pieces, made, options, checked, self._flags))

    def _computed(self, function: Function, source: Source) -> Source:
        """The text, if the device computes what is in it.  Raises TargetError."""
        if not self.gpu.float64 and _DOUBLE.search(source.text):
            hint = "write float for double, or choose opencl:gpu, opencl:cpu or another target"
            what = f"{function.name} computes in double precision, which opencl:{self.gpu.architecture} has not"
            raise TargetError(Diagnostic(what, hint=hint))
        return replace(source, text=_UNFUSED + source.text) if rounding_flags(function) else source

    def _flags(self, _: Function, options: MappingOptions) -> tuple[str, ...]:
        """What the compiler of a device is told."""
        single = () if self.gpu.float64 else ("-cl-single-precision-constant",)
        return (*single, *(("-cl-fast-relaxed-math",) if options.fast_math else ()))
