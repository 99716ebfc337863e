"""A module that stands for CuPy where there is no GPU: device memory is main memory, and kernels are Python functions.

It has what tcomp calls of CuPy, with the signatures of CuPy 14, and notes every launch, copy and change of device.
Memory remembers its device; reading an array's content on another one, or where the thread has no context, is an error
as it is in CUDA.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Body = Callable[..., None]
Allocator = Callable[[int], "Memory"]


class CudaError(RuntimeError):
    """Stands for CUDARuntimeError and CUDADriverError."""


class OutOfMemoryError(MemoryError):
    """Stands for the error of CuPy's memory pool."""


class Memory:
    """Stands for a MemoryPointer; ``held`` has the bytes of memory that was allocated as such."""

    def __init__(self, ptr: int, device_id: int, held: np.ndarray | None = None) -> None:
        self.ptr = ptr
        self.device_id = device_id
        self.held = held

    def __add__(self, offset: int) -> Memory:
        return Memory(self.ptr + offset, self.device_id, self.held)

    def memset_async(self, value: int, count: int) -> None:
        assert self.held is not None and count <= self.held.size
        ctypes.memset(self.ptr, value, count)


class Pool:
    """Stands for a MemoryPool of the first device."""

    def __init__(self) -> None:
        self.limit = 0

    def set_limit(self, size: int) -> None:
        self.limit = size

    def malloc(self, count: int) -> Memory:
        if count > self.limit > 0:
            raise OutOfMemoryError(f"Out of memory allocating {count:,} bytes")
        held = np.zeros(count, np.uint8)
        return Memory(held.ctypes.data, 0, held)


class Stream:
    """Stands for a CUDA stream."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class Graph:
    """Stands for a cupy.cuda.Graph: launches that were recorded, which run again when it is launched."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.note = note
        self.launches: list[Callable[[], None]] = []

    def launch(self, stream: Any = None) -> None:
        self.note("graph", len(self.launches), 0 if stream is None else stream.ptr)
        for launch in self.launches:
            launch()


class OwnStream:
    """Stands for a cupy.cuda.Stream that somebody made; current while it is entered, it records launches."""

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.ptr, self.graph = cupy, 500 + len(cupy.recording), Graph(cupy._note)
        cupy.recording[self.ptr] = self.graph

    def __enter__(self) -> OwnStream:
        self.before = self.cupy.streams
        device = self.cupy._current()
        self.cupy.streams = {**self.before, device: self}  # type: ignore[dict-item]
        return self

    def __exit__(self, *_: object) -> None:
        self.cupy.streams = self.before

    def begin_capture(self, mode: int | None = None) -> None:
        self.cupy._note("begin capture", self.ptr)
        self.cupy.capturing = self.cupy.capturing | {self.ptr}

    def end_capture(self) -> Graph:
        self.cupy.capturing = self.cupy.capturing - {self.ptr}
        return self.graph


class Function:
    """A kernel of a module that was loaded on a device."""

    def __init__(self, ptr: int, name: str, device: int) -> None:
        self.ptr = ptr
        self.name = name
        self.device = device
        self.shared_allowed = 0


class Event:
    """Stands for a CUDA event: whatever came before it is done already."""

    def __init__(self) -> None:
        self.seconds = math.nan

    def record(self) -> None:
        self.seconds = time.perf_counter()

    def synchronize(self) -> None:
        assert not math.isnan(self.seconds), "it was not recorded"


class ndarray:  # noqa: N801
    """Stands for cupy.ndarray."""

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, memptr: Memory, strides: tuple[int, ...] | None = None
    ) -> None:
        held = memptr.held
        assert held is not None
        self._keep(np.ndarray(shape, dtype, held, memptr.ptr - held.ctypes.data, strides), memptr)

    def _keep(self, host: np.ndarray, memory: Memory) -> None:
        self.host = host
        self.data = memory
        self.dtype, self.shape, self.strides, self.itemsize = host.dtype, host.shape, host.strides, host.itemsize

    @property
    def _c_contiguous(self) -> bool:
        return self.host.flags.c_contiguous

    def __getitem__(self, key: Any) -> ndarray:
        return held(self.host[key], self.data.device_id)

    def __setitem__(self, key: Any, value: ndarray) -> None:
        self.host[key] = value.host

    def copy(self) -> ndarray:
        if not self.host.flags.c_contiguous and not self.host.flags.aligned:
            raise CudaError("cudaErrorMisalignedAddress: misaligned address")
        octets = np.frombuffer(bytearray(self.host.tobytes()), np.uint8)
        return ndarray(self.shape, self.dtype, Memory(octets.ctypes.data, self.data.device_id, octets))

    @property
    def T(self) -> ndarray:  # noqa: N802
        return held(self.host.T, self.data.device_id)

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("nothing has to export a CuPy array")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.data.device_id


def held(host: np.ndarray, device: int) -> ndarray:
    """An array on a device, of which ``host`` is the content."""
    made = ndarray.__new__(ndarray)
    octets = host.reshape(-1).view(np.uint8) if host.flags.c_contiguous and host.ndim else None
    made._keep(host, Memory(host.ctypes.data, device, octets))
    return made


class FakeCupy(types.ModuleType):
    """The module.  ``bodies`` are the kernels by name: called with the grid, the block and the arguments' addresses."""

    __version__ = "14.2.0"

    def __init__(self, capabilities: tuple[str, ...] = ("90",)) -> None:
        super().__init__("cupy")
        self.capabilities = capabilities
        self.bodies: dict[str, Body] = {}
        self.events: list[tuple[Any, ...]] = []
        self.failures: dict[str, Exception] = {}
        self.functions: dict[int, Function] = {}
        self.streams: dict[int, Stream] = {}
        self.capturing: set[int] = set()
        self.recording: dict[int, Graph] = {}
        self.loaded: list[tuple[int, bytes]] = []
        self.pool = Pool()
        self._allocator: Allocator | None = None
        self._thread = threading.local()
        self.ndarray = ndarray
        self.cuda = types.SimpleNamespace(
            runtime=types.SimpleNamespace(
                getDeviceCount=lambda: self._checked("getDeviceCount") or len(self.capabilities),
                getDevice=self._current,
                setDevice=self._set_device,
                memGetInfo=self._open_context,
                driverGetVersion=lambda: 13000,
                getDeviceProperties=lambda number: {"name": f"Fake GPU {number}".encode()},
                streamIsCapturing=lambda stream: stream in self.capturing,
                pointerGetAttributes=lambda ptr: types.SimpleNamespace(device=self.owners[ptr]),
            ),
            driver=types.SimpleNamespace(launchKernel=self._launch, funcSetAttribute=self._set_attribute),
            Device=self._device,
            Module=self._module,
            Event=Event,
            Stream=lambda non_blocking=False: OwnStream(self),
            using_allocator=self._using_allocator,
            alloc_pinned_memory=self._pinned,
            get_elapsed_time=lambda before, after: 1e3 * (after.seconds - before.seconds),
            get_current_stream=lambda number: self.streams.get(number, Stream(0)),
        )
        self.owners: dict[int, int] = {}

    def on(self, values: np.ndarray, device: int = 0) -> ndarray:
        """An array with these values on a device."""
        return held(np.array(values), device)

    def names(self) -> list[str]:
        """The kernels that ran, in order."""
        return [event[1] for event in self.events if event[0] == "launch"]

    def empty(self, shape: tuple[int, ...], dtype: Any) -> ndarray:
        self._checked("empty")
        count = math.prod(shape) * np.dtype(dtype).itemsize
        self._note("empty", self._current(), count)
        if self._allocator is not None:
            return ndarray(shape, dtype, self._allocator(count))
        return held(np.full(shape, 77, dtype), self._current())

    def get_default_memory_pool(self) -> Pool:
        return self.pool

    @contextmanager
    def _using_allocator(self, allocator: Allocator) -> Iterator[None]:
        before, self._allocator = self._allocator, allocator
        try:
            yield
        finally:
            self._allocator = before

    def asarray(self, values: Any) -> ndarray:
        if isinstance(values, ndarray):
            assert values.data.device_id == self._current(), "CuPy would copy it"
            return values
        if hasattr(values, "__cuda_array_interface__"):
            return held(values.host, self._current())
        self._note("upload", self._current(), np.asarray(values).nbytes)
        return held(np.array(values), self._current())

    def asnumpy(self, array: ndarray) -> np.ndarray:
        assert array.data.device_id == self._current()
        return array.host.copy()

    def from_dlpack(self, value: Any) -> ndarray:
        return held(value.host, value.__dlpack_device__()[1])

    def _note(self, *event: Any) -> None:
        self.events.append(event)
        self._checked(event[0])

    def _checked(self, what: str) -> None:
        if what in self.failures:
            raise self.failures[what]

    def _current(self) -> int:
        return getattr(self._thread, "device", 0)

    def _set_device(self, number: int) -> None:
        assert 0 <= number < len(self.capabilities)
        self._note("device", number)
        self._thread.device = number

    def _open_context(self) -> tuple[int, int]:
        self._thread.__dict__.setdefault("contexts", set()).add(self._current())
        return 1, 2

    def _device(self, number: int | None = None) -> Any:
        number = self._current() if number is None else number

        @contextmanager
        def guard() -> Iterator[None]:
            before = self._current()
            self._thread.device = number
            try:
                yield
            finally:
                self._thread.device = before

        manager = guard()
        manager.compute_capability = self.capabilities[number]  # type: ignore[attr-defined]
        manager.synchronize = lambda: self._note("device synchronize", number)  # type: ignore[attr-defined]
        return manager

    def _module(self) -> Any:
        def load(image: bytes) -> None:
            self._note("load", self._current(), image)
            self._open_context()

        def get_function(name: str) -> Function:
            function = Function(1000 + len(self.functions), name, self._current())
            self.functions[function.ptr] = function
            return function

        return types.SimpleNamespace(load=load, get_function=get_function)

    def _set_attribute(self, function: int, attribute: int, value: int) -> None:
        assert attribute == 8
        self._note("attribute", self.functions[function].name, value)
        self.functions[function].shared_allowed = value

    def _pinned(self, count: int) -> Memory:
        self._note("pinned", count)
        held = np.full(count, 77, np.uint8)
        return Memory(held.ctypes.data, 0, held)

    def _launch(self, function: int, *rest: int) -> None:
        *extents, shared, stream, parameters, extra = rest
        known = self.functions[function]
        if self._current() not in getattr(self._thread, "contexts", ()):
            raise CudaError("CUDA_ERROR_INVALID_CONTEXT: invalid device context")
        if known.device != self._current():
            raise CudaError("CUDA_ERROR_INVALID_HANDLE: invalid resource handle")
        if shared > known.shared_allowed:
            raise CudaError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        assert len(extents) == 6 and extra == 0 and min(extents) > 0
        grid, block = tuple(extents[:3]), tuple(extents[3:])
        self._note("launch", known.name, grid, block, shared, stream, known.device)
        body = self.bodies[known.name]
        count = body.__code__.co_argcount - 2
        pointers = (ctypes.c_void_p * count).from_address(parameters)
        values = [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]
        if stream in self.capturing and stream in self.recording:
            self.recording[stream].launches.append(lambda: body(grid, block, *values))
        else:
            body(grid, block, *values)


def floats(address: int, *shape: int) -> np.ndarray:
    """The float32 array at an address, in C order."""
    count = int(np.prod(shape, dtype=int))
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address)).reshape(shape)


def words(address: int, count: int) -> np.ndarray:
    """The 64-bit integers at an address."""
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))
