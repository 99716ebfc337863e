"""Programs and a target for tests that run kernels on devices which are not there."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcomp.arrays import arrays, devices
from tcomp.arrays.arrays import KINDS
from tcomp.arrays.devices import Memory
from tcomp.backends.cuda import runtime as cuda_runtime
from tcomp.backends.cuda.runtime import CudaRuntime, architecture_at
from tcomp.backends.cuda.tools.images import Image
from tcomp.backends.source import Launch, Source
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.runtime import registry
from tests.cuda.fake_cupy import FakeCupy, floats, ndarray
from tests.targets import CPU

N = 6
VALUES = np.arange(N, dtype=np.float32)
ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"

ONE_LAUNCH = (Launch("add_0", (2, 1, 1), (3, 1, 1), 0, ("A", "B", "C")),)


def add(grid: Any, block: Any, a: int, b: int, c: int) -> None:
    floats(c, N)[:] = floats(a, N) + floats(b, N)


class Foreign:
    """An array of some other library, with CUDA's array interface or DLPack only."""

    def __init__(self, host: np.ndarray, device: int) -> None:
        self.host = host
        self.device = device


class WithInterface(Foreign):
    read_only = False

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.host.ctypes.data, self.read_only), "shape": self.host.shape, "typestr": "<f4"}


class WithDlpack(Foreign):
    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("the module that stands for CuPy does not call it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __array_namespace__(self) -> Any:
        return types.SimpleNamespace(from_dlpack=lambda array: ("own", array))


class StandIn:
    """A target whose kernels are those of the test: the CPU's pipeline with other launches at its end."""

    name = "cuda"
    passes = CPU.passes

    def __init__(self, finish: Callable[[Source], Source]) -> None:
        self._finish = finish

    def emit(self, *stages: Any) -> Source:
        return self._finish(CPU.emit(*stages))


class FakeDevices:
    """CuPy's stand-in with devices of some compute capabilities, and a target that compiles nothing.

    ``compiled`` has what would have been compiled: entries, architectures and the newest CUDA allowed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *capabilities: str) -> None:
        self.cupy = FakeCupy(capabilities)
        self.cupy.bodies["add_0"] = add
        self.compiled: list[tuple[str, str, int | None]] = []
        self._patch = monkeypatch
        monkeypatch.setitem(sys.modules, "cupy", self.cupy)
        monkeypatch.setattr(cuda_runtime, "compile_image", self._compile)
        self.emit(launches=ONE_LAUNCH, scratch_bytes=0)

    def emit(self, **changes: Any) -> None:
        """What the emitter of the target gives from now on."""
        target = registry.Target(
            lambda _: StandIn(lambda source: replace(source, **changes)),
            CudaRuntime,
            Memory.CUDA,
            registry._cuda,
            architecture=architecture_at,
            known=gpu_of,
        )
        self._patch.setitem(registry.TARGETS, "cuda", target)

    def _compile(self, source: Source, architecture: str, newest: int | None = None) -> Image:
        self.compiled.append((source.entry, architecture, newest))
        return Image(architecture, "", f"image for {architecture}".encode(), "", ())


def forget_devices() -> None:
    """Drop what tcomp has found out about CuPy and its devices."""
    devices.cuda_device.cache_clear()
    arrays._cupy_kind.cache_clear()
    KINDS.pop(ndarray, None)
