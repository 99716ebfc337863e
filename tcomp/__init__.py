"""Tensor comprehensions compiled to fast kernels for the CPU and the GPU.

``define`` makes operations of program text; calling one compiles it for the arguments and runs it::

    ops = tcomp.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    C = ops.mm(A, B)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tcomp.arrays.devices import synchronize
from tcomp.engine import ExecutionEngine, Library, Module, define, library
from tcomp.errors import (
    CompileError,
    DerivativeError,
    LegalityError,
    NetworkError,
    PlanError,
    ProgramWarning,
    ShapeError,
    TargetError,
    TcompError,
)
from tcomp.mapping.options.options import MappingOptions
from tcomp.operation import Operation
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.openkernel import size_range as range  # noqa: A004
from tcomp.runtime.registry import targets
from tcomp.storage.cache import CacheWarning
from tcomp.tuner.database.database import TuningWarning
from tcomp.version import __version__

if TYPE_CHECKING:
    from tcomp import networks
    from tcomp.networks import compile_network, from_onnx, load_network
    from tcomp.tuner.report.result import TuningResult

__all__ = [
    "CacheWarning",
    "CompileError",
    "DerivativeError",
    "ExecutionEngine",
    "Kernel",
    "LegalityError",
    "Library",
    "MappingOptions",
    "Module",
    "NetworkError",
    "Operation",
    "PlanError",
    "ProgramWarning",
    "ShapeError",
    "TargetError",
    "TcompError",
    "TuningResult",
    "TuningWarning",
    "__version__",
    "compile_network",
    "define",
    "from_onnx",
    "library",
    "load_network",
    "networks",
    "range",
    "synchronize",
    "targets",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """What is imported when somebody asks for it: results of tuning, with all that draws reports, and networks."""
    if name == "TuningResult":
        from tcomp.tuner.report.result import TuningResult  # noqa: PLC0415  (the tuner is imported when asked for)

        return TuningResult
    if name in ("networks", "compile_network", "from_onnx", "load_network"):
        networks = importlib.import_module("tcomp.networks")
        return networks if name == "networks" else getattr(networks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
