"""Where kernels can run: the targets by name, and which of them work on this machine.

What only GPUs need, and the simulator, is imported when somebody asks for it: most processes use the CPU alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tcomp.arrays.devices import Memory, Place, describe_devices
from tcomp.backends.c.target import CpuBackend
from tcomp.backends.host import emulated, native, toolchain
from tcomp.backends.host.runtime import HostRuntime
from tcomp.backends.runtime import Runtime
from tcomp.backends.source import Source
from tcomp.driver import Backend
from tcomp.errors import Diagnostic, TargetError
from tcomp.mapping.machines.amd import DEFAULT_AMD, amd_gpu
from tcomp.mapping.machines.cpu import Machine, this_machine
from tcomp.mapping.machines.gpu import DEFAULT_ARCHITECTURE, gpu_of
from tcomp.mapping.machines.opencl import opencl_device
from tcomp.mapping.machines.processors import Processor, processor_of
from tcomp.runtime.calibrated import calibrated

DEFAULT_TARGET = "cpu"
"""What runs programs on arrays in main memory unless the caller says otherwise."""

_DEFAULT_ON_CUDA = "cuda"

_ONLY_COMPILED = "texts for AMD's GPUs are compiled, not run"


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
    none to choose from, or can do without one: whose backend and runtime then get the empty string.  ``known`` raises
    TargetError for an architecture that is none; None for targets that have none.  ``estimate`` is for targets on which
    a clock says nothing: given an architecture, a source, the floating-point operations of each statement and the
    addresses of the arguments, it runs the kernels and returns the seconds that they would take on the device.
    """

    backend: Callable[[str], Backend]
    runtime: Callable[[str], Runtime]
    memory: Memory
    state: Callable[[str], Availability]
    known: Callable[[str], object] | None = None
    architecture: Callable[[Place], str] | None = None
    estimate: Callable[[str, Source, Mapping[str, int], Sequence[int]], float] | None = None


def targets() -> dict[str, Availability]:
    """Every target by name, with what it runs on here or why it does not."""
    return {name: target.state("") for name, target in TARGETS.items()}


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
    row, architecture = _row(target)
    state = row.state(architecture)
    if not state:
        raise TargetError(f"the target {target} is not here: {state.detail}")


def estimate_of(target: str) -> Callable[[Source, Mapping[str, int], Sequence[int]], float] | None:
    """What a call would take on the device that a target stands for (see ``Target``); None where a clock tells.

    Raises TargetError.
    """
    row, architecture = _row(target)
    return None if row.estimate is None else functools.partial(row.estimate, architecture)


def runs_emulated(target: str) -> bool:
    """Whether kernels of a target such as ``cpu:neoverse-v1`` run, but not at the speed of what it stands for.

    Raises TargetError.
    """
    processor = _processor(target)
    return processor is not None and bool(processor.missing)


def machine_of(target: str) -> Machine:
    """The processor of a target such as ``cpu:neoverse-v1``; this machine's for others.  Raises TargetError."""
    processor = _processor(target)
    return this_machine() if processor is None else processor.machine


def _processor(target: str) -> Processor | None:
    """The processor that a target names; None for this machine's, and for devices.  Raises TargetError."""
    _, name = _row(target)
    return processor_of(name) if name and target.partition(":")[0] == DEFAULT_TARGET else None


def _row(target: str) -> tuple[Target, str]:
    """What is known of a target, and the architecture that its name ends in.  Raises TargetError."""
    name, colon, architecture = target.partition(":") if isinstance(target, str) else (target, "", "")
    row = TARGETS.get(name)
    if row is None or (colon and row.known is None):
        raise TargetError(Diagnostic(f"there is no target {target!r}", hint=f"targets: {', '.join(TARGETS)}"))
    if colon and row.known is not None:
        row.known(architecture)
    return row, architecture


def _cpu(processor: str) -> Availability:
    if processor and processor_of(processor).missing:
        return _emulator(processor_of(processor))
    try:
        compiler = toolchain.find()
    except TargetError as error:
        return Availability(False, error.message)
    threads = "with OpenMP" if compiler.openmp else "without OpenMP, so on one thread"
    return Availability(True, f"{compiler.version}, {threads}")


def _emulator(processor: Processor) -> Availability:
    try:
        tools = emulated.find(processor)
    except TargetError as error:
        return Availability(False, f"{error.message}; {error.diagnostics[0].hint}")
    return Availability(True, f"{tools.compiler}, run by {tools.emulator}")


def _for_processor(name: str) -> Backend:
    if not name:
        calibrated()
        return CpuBackend(this_machine())
    return CpuBackend(processor_of(name).machine, flags=processor_of(name).flags)


def _on_processor(name: str) -> Runtime:
    if name and processor_of(name).missing:
        return HostRuntime(lambda source: emulated.load(source, processor_of(name)))
    return HostRuntime(native.load, native=True, beginning=native.loading)


def _cuda(_: str) -> Availability:
    try:
        return Availability(True, describe_devices())
    except TargetError as error:
        hint = error.diagnostics[0].hint
        return Availability(False, f"{error.message}; {hint}" if hint else error.message)


def _simulator(_: str) -> Availability:
    from tcomp.backends.simulator import compiler  # noqa: PLC0415

    reason = compiler.why_not()
    return Availability(reason is None, reason or f"{compiler.find().version}")


def _opencl(_: str) -> Availability:
    from tcomp.backends.opencl.devices import describe_device  # noqa: PLC0415

    try:
        return Availability(True, describe_device())
    except TargetError as error:
        hint = error.diagnostics[0].hint
        return Availability(False, f"{error.message}; {hint}" if hint else error.message)


def _spelled_in_opencl(kind: str) -> Backend:
    from tcomp.backends.opencl.target import OpenClBackend  # noqa: PLC0415

    return OpenClBackend(opencl_device(kind))


def _through_opencl(_: str) -> Runtime:
    from tcomp.backends.opencl.runtime import OpenClRuntime  # noqa: PLC0415

    return OpenClRuntime()


def _hip(_: str) -> Availability:
    return Availability(False, f"{_ONLY_COMPILED}; {_clang()}")


def _clang() -> str:
    from tcomp.backends.hip import compiler  # noqa: PLC0415

    try:
        return f"{compiler.find()} checks texts"
    except TargetError as error:
        return f"{error.message}: {error.diagnostics[0].hint}"


def _spelled_in_hip(architecture: str) -> Backend:
    from tcomp.backends.hip.target import HipBackend  # noqa: PLC0415

    return HipBackend(amd_gpu(architecture))


def _not_run(architecture: str) -> Runtime:
    hint = f"`tcomp compile --target hip:{architecture}` prints the text, for hipcc; opencl runs on AMD's GPUs"
    raise TargetError(Diagnostic(f"kernels for hip:{architecture} are not run by tcomp", hint=hint))


def _kind_here(_: Place) -> str:
    from tcomp.backends.opencl.devices import kind_of_device  # noqa: PLC0415

    return kind_of_device()


def _spelled_in_cuda(architecture: str, target: str) -> Backend:
    from tcomp.backends.cuda.target import CudaBackend  # noqa: PLC0415

    return CudaBackend(gpu_of(architecture), target)


def _on_devices(architecture: str) -> Runtime:
    from tcomp.backends.cuda.runtime import CudaRuntime  # noqa: PLC0415

    return CudaRuntime(architecture)


def _architecture_at(place: Place) -> str:
    from tcomp.backends.cuda.runtime import architecture_at  # noqa: PLC0415

    return architecture_at(place)


def _simulated(_: str) -> Runtime:
    from tcomp.backends.simulator.simulation import load  # noqa: PLC0415

    return HostRuntime(lambda source: load(source).entry)


def _estimated(architecture: str, source: Source, flops: Mapping[str, int], addresses: Sequence[int]) -> float:
    from tcomp.backends.simulator.cost import estimated_seconds  # noqa: PLC0415

    return estimated_seconds(architecture, source, flops, addresses)


TARGETS = {
    "cpu": Target(
        _for_processor,
        _on_processor,
        Memory.MAIN,
        _cpu,
        processor_of,
    ),
    "cuda": Target(
        lambda name: _spelled_in_cuda(name, "cuda"), _on_devices, Memory.CUDA, _cuda, gpu_of, _architecture_at
    ),
    "simulator": Target(
        lambda name: _spelled_in_cuda(name, "simulator"),
        _simulated,
        Memory.MAIN,
        _simulator,
        gpu_of,
        lambda _: DEFAULT_ARCHITECTURE,
        _estimated,
    ),
    "hip": Target(_spelled_in_hip, _not_run, Memory.MAIN, _hip, amd_gpu, lambda _: DEFAULT_AMD),
    "opencl": Target(_spelled_in_opencl, _through_opencl, Memory.MAIN, _opencl, opencl_device, _kind_here),
}
