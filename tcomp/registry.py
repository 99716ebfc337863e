"""Where kernels can run: the backends by name, and which of them work on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.backends import toolchain
from tcomp.backends.cpu import CpuBackend
from tcomp.driver import Backend
from tcomp.errors import Diagnostic, TargetError
from tcomp.mapping.machine import this_machine

_BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": lambda: CpuBackend(this_machine())}
_PLANNED = ("cuda", "simulator")


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a target works here; ``detail`` says with what, or why not.  True in conditions if it does."""

    available: bool
    detail: str

    def __bool__(self) -> bool:
        return self.available

    def __str__(self) -> str:
        return f"{'yes' if self.available else 'no'}: {self.detail}"


def targets() -> dict[str, Availability]:
    """Every target by name, with what it runs on here or why it does not."""
    found = {"cpu": _cpu()}
    return found | {name: Availability(False, "not in this version of tcomp yet") for name in _PLANNED}


def backend_of(target: str) -> Backend:
    """The backend of a target such as ``cpu`` or ``cuda:sm_90``.  Raises TargetError."""
    name = target.partition(":")[0] if isinstance(target, str) else target
    if name in _PLANNED:
        raise TargetError(f"the target {name} is not in this version of tcomp yet")
    if name not in _BACKENDS or name != target:
        raise TargetError(Diagnostic(f"there is no target {target!r}", hint=f"targets: {', '.join(_BACKENDS)}"))
    return _BACKENDS[name]()


def _cpu() -> Availability:
    try:
        compiler = toolchain.find()
    except TargetError as error:
        return Availability(False, error.message)
    threads = "with OpenMP" if compiler.openmp else "without OpenMP, so on one thread"
    return Availability(True, f"{compiler.version}, {threads}")
