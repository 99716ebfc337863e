"""The target ``opencl``: OpenCL C for a plan, for a kind of device."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tcomp.backends.gpu.program import write_program
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

_DOUBLE = re.compile(r"\bdouble\b")


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
        source = write_program(dialect, function, plan, loops, options, checked, self._flags)
        if not self.gpu.float64 and _DOUBLE.search(source.text):
            hint = "write float for double, or choose opencl:gpu, opencl:cpu or another target"
            what = f"{function.name} computes in double precision, which opencl:{self.gpu.architecture} has not"
            raise TargetError(Diagnostic(what, hint=hint))
        return source

    def _flags(self, options: MappingOptions) -> tuple[str, ...]:
        """What the compiler of a device is told."""
        single = () if self.gpu.float64 else ("-cl-single-precision-constant",)
        return (*single, *(("-cl-fast-relaxed-math",) if options.fast_math else ()))
