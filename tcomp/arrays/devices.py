"""Where arrays lie: in main memory, or on a CUDA device, which tcomp reaches through CuPy."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tcomp.arrays.late import raise_after, raise_found
from tcomp.errors import Diagnostic, TargetError

_WITHOUT_DEVICE = "without a GPU, a target such as cuda:sm_90 compiles, and the target simulator runs"
_INSTALL_HINT = f"`pip install cupy-cuda13x`, or cupy-cuda12x for an older driver; {_WITHOUT_DEVICE}"


class Memory(Enum):
    """What a target's kernels read and write."""

    MAIN = "main memory"
    CUDA = "the memory of a CUDA device"


@dataclass(frozen=True, slots=True)
class Place:
    """Main memory, whose ``device`` is 0, or the memory of the CUDA device of that number."""

    memory: Memory
    device: int = 0

    def __str__(self) -> str:
        return f"cuda:{self.device}" if self.memory is Memory.CUDA else self.memory.value


MAIN = Place(Memory.MAIN)


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A CUDA device.  ``capability`` is its compute capability, major and minor."""

    number: int
    name: str
    capability: tuple[int, int]

    def __str__(self) -> str:
        return f"cuda:{self.number} ({self.name}, sm_{self.capability[0]}{self.capability[1]})"


def cupy_module() -> Any:
    """CuPy.  Raises TargetError where it is not installed or does not work."""
    try:
        import cupy  # noqa: PLC0415  (optional, and slow to load)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise TargetError(Diagnostic("the target cuda needs CuPy", hint=_INSTALL_HINT)) from None
        reason = next((line for line in reversed(str(error).splitlines()) if line.strip(" =")), "")
        raise TargetError(Diagnostic(f"CuPy cannot be loaded: {reason.strip()}", hint=_INSTALL_HINT)) from None
    return cupy


def device_count() -> int:
    """How many CUDA devices there are, at least one.  Raises TargetError if there is none or no driver for it."""
    runtime = cupy_module().cuda.runtime
    try:
        count = int(runtime.getDeviceCount())
    except RuntimeError as error:
        raise TargetError(Diagnostic(f"there is no CUDA device: {error}", hint=_WITHOUT_DEVICE)) from None
    if not count:
        raise TargetError(Diagnostic("there is no CUDA device", hint=_WITHOUT_DEVICE))
    return count


def current_place() -> Place:
    """The memory of the CUDA device that CuPy uses at the moment.  Raises TargetError where there is none."""
    device_count()
    return Place(Memory.CUDA, int(cupy_module().cuda.runtime.getDevice()))


def wait(memory: Memory | None, device: int | None = None) -> None:
    """Return when a device, the current one if none is named, has done what it was told to, on whatever stream.

    In main memory nothing is left to be done.  Raises ShapeError for a data-dependent subscript that a kernel found
    outside its tensor.
    """
    if memory is Memory.CUDA:
        cupy_module().cuda.Device(device).synchronize()
        raise_found()


def synchronize() -> None:
    """Wait until the CUDA devices that kernels ran on have done what they were told, and raise what was wrong.

    A call on arrays of a device returns before its kernels are done.  A data-dependent subscript that one of them finds
    outside its tensor is raised by the next call on a device, or here.  Raises ShapeError.  Without CuPy it does
    nothing.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return
    devices = [cupy.cuda.Device(number) for number in range(device_count())]
    raise_after(lambda: [device.synchronize() for device in devices])


def seconds_of(run: Callable[[], object], memory: Memory) -> float:
    """How long a function takes in which kernels run on arrays in a memory: on the current stream, or on processors.

    Raises what CUDA does where a kernel fails.
    """
    if memory is not Memory.CUDA:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin
    cuda = cupy_module().cuda
    before, after = cuda.Event(), cuda.Event()
    before.record()
    run()
    after.record()
    after.synchronize()
    raise_found()
    return float(cuda.get_elapsed_time(before, after)) / 1e3


@functools.cache
def cuda_device(number: int) -> CudaDevice:
    """The CUDA device of that number.  Raises TargetError."""
    count = device_count()
    if not 0 <= number < count:
        raise TargetError(f"there is no device cuda:{number}; devices are counted from 0, and there are {count}")
    cuda = cupy_module().cuda
    digits = cuda.Device(number).compute_capability
    name: bytes = cuda.runtime.getDeviceProperties(number)["name"]
    return CudaDevice(number, name.decode(errors="replace"), (int(digits[:-1]), int(digits[-1])))


def describe_devices() -> str:
    """The CUDA devices, the driver and CuPy in one line.  Raises TargetError where there is no device."""
    devices = ", ".join(str(cuda_device(number)) for number in range(device_count()))
    driver = ".".join(map(str, driver_version() or ()))
    return f"{devices}; driver for CUDA {driver}, CuPy {cupy_module().__version__}"


def driver_version() -> tuple[int, int] | None:
    """The newest CUDA version that the driver takes, or None where there is no driver, or no CuPy to ask."""
    with suppress(TargetError, RuntimeError):
        version = int(cupy_module().cuda.runtime.driverGetVersion())
        if version:
            return version // 1000, version % 1000 // 10
    return None


def runs_on(architecture: str, device: CudaDevice) -> bool:
    """Whether machine code for an architecture such as ``sm_90`` runs on a device.

    It does on devices of the same major version that are not older; the code of ``sm_90a`` on 9.0 alone.  See "Binary
    Compatibility" in the CUDA programming guide.
    """
    digits = architecture.removeprefix("sm_").rstrip("af")
    major, minor = int(digits[:-1]), int(digits[-1])
    if architecture.endswith("a"):
        return device.capability == (major, minor)
    return device.capability[0] == major and device.capability[1] >= minor
