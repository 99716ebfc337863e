"""Where kernels can run: the targets by name, and which of them work on this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends import native, toolchain
from tcomp.backends.cpu import CpuBackend
from tcomp.backends.cuda import CudaBackend
from tcomp.backends.cuda_runtime import CudaRuntime, architecture_at
from tcomp.backends.host_runtime import HostRuntime
from tcomp.backends.runtime import Runtime
from tcomp.backends.simulator import compiler as simulator_compiler
from tcomp.backends.simulator import simulation
from tcomp.backends.simulator.cost import estimated_seconds
from tcomp.backends.source import Source
from tcomp.devices import Memory, Place, describe_devices
from tcomp.driver import Backend
from tcomp.errors import Diagnostic, TargetError
from tcomp.mapping.gpu import DEFAULT_ARCHITECTURE, gpu_of
from tcomp.mapping.machine import this_machine

DEFAULT_TARGET = "cpu"
"""What runs programs on arrays in main memory unless the caller says otherwise."""

_DEFAULT_ON_CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a target works here; ``detail`` says with what, or why not.  True in conditions if it does."""

    available: bool
    detail: str

    def __bool__(self) -> bool:
        return self.available

    def __str__(self) -> str:
        return f"{'yes' if self.available else 'no'}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Target:
    """A target: how it spells kernels and how it runs them, both for an architecture, and whether it works here.

    ``architecture`` gives the one that a bare name stands for, from where the arrays are; None for targets that have
    none to choose from, whose backend and runtime get the empty string.  ``estimate`` is for targets on which a clock
    says nothing: given an architecture, a source, the floating-point operations of each statement and the addresses of
    the arguments, it runs the kernels and returns the seconds that they would take on the device.
    """

    backend: Callable[[str], Backend]
    runtime: Callable[[str], Runtime]
    memory: Memory
    state: Callable[[], Availability]
    architecture: Callable[[Place], str] | None = None
    estimate: Callable[[str, Source, Mapping[str, int], Sequence[int]], float] | None = None


def targets() -> dict[str, Availability]:
    """Every target by name, with what it runs on here or why it does not."""
    return {name: target.state() for name, target in TARGETS.items()}


def resolve(target: str | None, place: Place) -> str:
    """The full name of a target, such as ``cuda:sm_90`` for ``cuda``, for arrays that lie at ``place``.

    None stands for the target that reads them there.  Raises TargetError if there is no such target, or no device that
    says which architecture is meant.
    """
    default = _DEFAULT_ON_CUDA if place.memory is Memory.CUDA else DEFAULT_TARGET
    name = default if target is None else target
    row, architecture = _row(name)
    if row.architecture is None or architecture:
        return name
    return f"{name}:{row.architecture(place)}"


def memory_of(target: str | None) -> Memory | None:
    """Where the arrays of a target lie; None if the arrays decide on the target.  Raises TargetError."""
    return None if target is None else _row(target)[0].memory


def backend_of(target: str) -> Backend:
    """The backend of a target such as ``cpu`` or ``cuda:sm_90``.  Raises TargetError."""
    row, architecture = _row(target)
    return row.backend(architecture)


def runtime_of(target: str) -> Runtime:
    """What runs the kernels of a target such as ``cpu`` or ``cuda:sm_90``.  Raises TargetError."""
    row, architecture = _row(target)
    return row.runtime(architecture)


def check_available(target: str) -> None:
    """Raises TargetError if kernels of a target such as ``cpu`` or ``cuda:sm_90`` cannot run here."""
    state = _row(target)[0].state()
    if not state:
        raise TargetError(f"the target {target} is not here: {state.detail}")


def estimate_of(target: str) -> Callable[[Source, Mapping[str, int], Sequence[int]], float] | None:
    """What a call would take on the device that a target stands for (see ``Target``); None where a clock tells.

    Raises TargetError.
    """
    row, architecture = _row(target)
    return None if row.estimate is None else functools.partial(row.estimate, architecture)


def _row(target: str) -> tuple[Target, str]:
    """What is known of a target, and the architecture that its name ends in.  Raises TargetError."""
    name, colon, architecture = target.partition(":") if isinstance(target, str) else (target, "", "")
    row = TARGETS.get(name)
    if row is None or (colon and row.architecture is None):
        raise TargetError(Diagnostic(f"there is no target {target!r}", hint=f"targets: {', '.join(TARGETS)}"))
    if colon:
        gpu_of(architecture)
    return row, architecture


def _cpu() -> Availability:
    try:
        compiler = toolchain.find()
    except TargetError as error:
        return Availability(False, error.message)
    threads = "with OpenMP" if compiler.openmp else "without OpenMP, so on one thread"
    return Availability(True, f"{compiler.version}, {threads}")


def _cuda() -> Availability:
    try:
        return Availability(True, describe_devices())
    except TargetError as error:
        hint = error.diagnostics[0].hint
        return Availability(False, f"{error.message}; {hint}" if hint else error.message)


def _simulator() -> Availability:
    reason = simulator_compiler.why_not()
    return Availability(reason is None, reason or f"{simulator_compiler.find().version}")


TARGETS = {
    "cpu": Target(
        lambda _: CpuBackend(this_machine()),
        lambda _: HostRuntime(native.load, native=True, beginning=native.loading),
        Memory.MAIN,
        _cpu,
    ),
    "cuda": Target(lambda name: CudaBackend(gpu_of(name)), CudaRuntime, Memory.CUDA, _cuda, architecture_at),
    "simulator": Target(
        lambda name: CudaBackend(gpu_of(name), "simulator"),
        lambda _: HostRuntime(lambda source: simulation.load(source).entry),
        Memory.MAIN,
        _simulator,
        lambda _: DEFAULT_ARCHITECTURE,
        estimated_seconds,
    ),
}
