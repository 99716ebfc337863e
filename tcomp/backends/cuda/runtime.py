"""Kernels that run on a CUDA device, loaded and launched through CuPy.

What is called here is in CuPy's documentation of ``cupy.cuda`` and the CUDA driver API's of ``cuLaunchKernel``.  All of
it is the same in CuPy 13 and 14.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tcomp.arrays.devices import (
    CudaDevice,
    Memory,
    Place,
    cuda_device,
    cupy_module,
    current_place,
    driver_version,
    runs_on,
)
from tcomp.arrays.late import LAUNCHING, WATCHED, LateReport, raise_found
from tcomp.backends.alignment import ProgramForAddresses
from tcomp.backends.cuda import tensormaps
from tcomp.backends.cuda.tensormaps import MAP_BYTES, Maps
from tcomp.backends.cuda.tools.images import Image, compile_image
from tcomp.backends.host.native import describe
from tcomp.backends.runtime import CallLayout, Program, QuickRun, Site
from tcomp.backends.source import REPORT, Launch, Source, Turn
from tcomp.errors import Diagnostic, ShapeError, TargetError, TcompError
from tcomp.grammar.tree.limits import MAX_INDICES
from tcomp.mapping.machines.gpu import GPUS
from tcomp.storage.memo import Memo

_REPORT_WORDS = 3 + MAX_INDICES
_REPORT_BYTES = 8 * _REPORT_WORDS
_MAX_DYNAMIC_SHARED_SIZE = 8  # of enum CUfunction_attribute

_RECORDED: list[object] = []
"""What CUDA graphs have recorded and may use again, kernels and memory: nobody says when the last graph goes."""

_LATE_ERRORS = (
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "launch failure",
    "launch timed out",
    "device-side assert",
)
"""What CUDA says of errors that kernels make while they run; whichever call of CUDA comes next reports them."""

_LATE_HINT = (
    "a kernel that ran before may have caused this: with CUDA_LAUNCH_BLOCKING=1 the one that did is named; "
    "CUDA works again only in a new process"
)


def architecture_at(place: Place) -> str:
    """The architecture to compile for where arrays lie at ``place``: in main memory, that of the current device.

    Raises TargetError where there is no device, or none that tcomp knows.
    """
    device = cuda_device((place if place.memory is Memory.CUDA else current_place()).device)
    major, minor = device.capability
    for older in range(minor, -1, -1):
        if f"sm_{major}{older}" in GPUS:
            return f"sm_{major}{older}"
    raise TargetError(Diagnostic(f"tcomp does not know {device}", hint=f"architectures: {', '.join(GPUS)}"))


@dataclass(frozen=True, slots=True)
class CudaRuntime:
    """The target ``cuda:sm_90``, say.  Compiling needs no device, running one of that architecture."""

    architecture: str

    @property
    def memory(self) -> Memory:
        """Where its arrays are."""
        return Memory.CUDA

    def loading(self, source: Source) -> AbstractContextManager[None]:
        """Nothing: NVRTC runs in this process."""
        return nullcontext()

    def load(self, source: Source) -> Program:
        """Raises TargetError if there is no NVRTC, or it fails on the text."""
        version = driver_version()
        if source.otherwise is not None and version and not tensormaps.are_made():
            source = source.otherwise
        newest = version[0] if version else None
        program = CudaProgram(source, compile_image(source, self.architecture, newest))
        if not source.aligned:
            return program
        other = source.anywhere
        return ProgramForAddresses(
            source, program, lambda: CudaProgram(other, compile_image(other, self.architecture, newest))
        )


class CudaProgram:
    """A compiled launch sequence, and what of it was loaded on each device."""

    def __init__(self, source: Source, image: Image) -> None:
        self._source = source
        self._image = image
        self._functions: Memo[int, dict[str, Any]] = Memo()

    def at(self, site: Site) -> CudaRun:
        """Load it on the device of a site.

        Raises TargetError if machine code for its architecture does not run there, or CUDA refuses it.
        """
        device = cuda_device(site.place.device)
        architecture = self._image.architecture
        if not runs_on(architecture, device):
            hint = f"compile it with target='cuda:{architecture_at(site.place)}', or just 'cuda'"
            raise TargetError(
                Diagnostic(f"{self._name} was compiled for {architecture}, which does not run on {device}", hint=hint)
            )
        try:
            with cupy_module().cuda.Device(device.number):
                functions = self._functions.get(device.number, lambda: self._load(device))
                return CudaRun(self._source, functions, site)
        except RuntimeError as error:
            message = f"{self._name} cannot be loaded on {device}: {error}"
            raise TargetError(Diagnostic(message, hint=_hint(error))) from None

    def pack(self, addresses: Sequence[int]) -> None:
        """There is nothing to pack: kernels of a GPU fetch panels as they run."""
        raise TcompError(f"{self._name} has no panels to be packed")

    @property
    def _name(self) -> str:
        return describe(self._source)

    def _load(self, device: CudaDevice) -> dict[str, Any]:
        """The functions of the image by name, allowed the dynamic shared memory that they are launched with.

        The device must be current.  Raises RuntimeError as CUDA does.
        """
        cuda = cupy_module().cuda
        module = cuda.Module()
        module.load(self._image.cubin)
        functions = {launch.kernel: module.get_function(launch.kernel) for launch in self._source.launches}
        for kernel, function in functions.items():
            shared = max(launch.shared_bytes for launch in self._source.launches if launch.kernel == kernel)
            if not shared:
                continue
            try:
                cuda.driver.funcSetAttribute(function.ptr, _MAX_DYNAMIC_SHARED_SIZE, shared)
            except RuntimeError as error:
                what = f"kernel {kernel} of {self._name} needs {shared} bytes of dynamic shared memory"
                raise TargetError(f"{what}, which {device} does not have: {error}") from None
        return functions


class _Frame(threading.local):
    """What one thread hands to the driver for a call.

    ``slots`` holds the value of every argument of the launch sequence.  ``parameters`` has, for each launch, the
    address of an array of pointers to its own; behind these come pointers to its ``maps``.  Each thread needs a frame
    because the driver reads it while other threads run.
    """

    def __init__(
        self, count: int, launches: tuple[tuple[int, ...], ...], maps: Maps, own: tuple[range, ...],
        open_context: Callable[[], Any],
    ) -> None:  # fmt: skip
        # The driver launches in the thread's current context, which a new thread lacks until it calls the runtime.
        open_context()
        self.slots = (ctypes.c_uint64 * count)()
        base = ctypes.addressof(self.slots)
        self._memory, self.maps = maps.room()
        self.written = [0] * sum(map(len, own))
        self._pointers = tuple(
            (ctypes.c_void_p * (len(positions) + len(numbers)))(
                *(base + 8 * position for position in positions), *(self.maps + MAP_BYTES * n for n in numbers)
            )
            for positions, numbers in zip(launches, own, strict=True)
        )
        self.parameters = tuple(ctypes.addressof(pointers) for pointers in self._pointers)
        self.ready = self.slots, self.parameters


class CudaRun:
    """A launch sequence on one device, called with arrays of one library: everything but addresses is prepared."""

    __slots__ = (
        "_cuda",
        "_current",
        "_device",
        "_frame",
        "_functions",
        "_heads",
        "_launch_kernel",
        "_launches",
        "_maps",
        "_names",
        "_offsets",
        "_pack",
        "_plain",
        "_report",
        "_report_address",
        "_room",
        "_site",
        "_source",
        "_stream",
        "_turns",
    )

    def __init__(self, source: Source, functions: dict[str, Any], site: Site) -> None:
        """The device of the site must be current.  Raises RuntimeError as CUDA does."""
        self._cuda = cupy_module().cuda
        self._current = self._cuda.runtime.getDevice
        self._launch_kernel = self._cuda.driver.launchKernel
        self._source = source
        self._functions = functions
        self._site = site
        self._stream = site.stream
        self._device = site.place.device
        self._report = self._new_report() if source.checks else None
        self._report_address = 0 if self._report is None else self._report.address
        self._room = source.scratch_bytes
        # Arguments, then temporaries, which lie in the room, and the report, which is null where there is none.
        self._offsets = tuple(t.offset for t in source.temporaries)
        names = [*(a.name for a in source.arguments), *(t.name for t in source.temporaries), REPORT]
        slots = {name: position for position, name in enumerate(names)}
        self._pack = struct.Struct(f"={len(names)}Q").pack_into
        self._launches = tuple(launch for launch in source.launches if 0 not in launch.grid)
        self._heads = tuple(
            (functions[launch.kernel].ptr, *launch.grid, *launch.block, launch.shared_bytes)
            for launch in self._launches
        )
        self._names = names
        self._turns = _turns_of(source)
        self._maps = Maps([(slots[m.storage], m) for launch in self._launches for m in launch.maps])
        ends = list(itertools.accumulate((len(launch.maps) for launch in self._launches), initial=0))
        own = tuple(range(a, b) for a, b in itertools.pairwise(ends))
        self._plain = not self._room and self._turns is None and not ends[-1]
        positions = tuple(tuple(slots[name] for name in launch.arguments) for launch in self._launches)
        if self._turns is not None:
            # Each launch has its own values, one behind another.
            most = max((len(launch.arguments) + len(launch.steps) for launch in self._launches), default=0)
            names, positions, own = [""] * max(most, len(names)), (tuple(range(most)),), (range(0),)
        self._frame = _Frame(len(names), positions, self._maps, own, self._cuda.runtime.memGetInfo)

    def _new_report(self) -> LateReport:
        """Memory of the host that kernels write, too: the driver gives it one address for both."""
        memory = self._cuda.alloc_pinned_memory(_REPORT_BYTES)
        return LateReport(memory, memory.ptr, _REPORT_WORDS, self._site.failure, self._settle)

    def _settle(self) -> None:
        try:
            self._cuda.Device(self._device).synchronize()
        except RuntimeError as error:
            raise self.failure(error) from None

    def __call__(self, addresses: Sequence[int]) -> None:
        """Launch on the arguments at these addresses; see ``Run``.  Waits for nothing.

        Raises what checks of kernels that ran before have found.
        """
        if WATCHED:
            raise_found()
        try:
            before = self._current()
            run = self._run if self._report is None else self._run_checked
            if before == self._device:
                run(addresses)
                return
            runtime = self._cuda.runtime
            runtime.setDevice(self._device)
            try:
                run(addresses)
            finally:
                runtime.setDevice(before)
        except (MemoryError, RuntimeError) as error:
            raise self.failure(error) from None

    def _run_checked(self, addresses: Sequence[int]) -> None:
        """The same of kernels that report; nobody takes a report meanwhile, and it is watched from then on."""
        assert self._report is not None
        with LAUNCHING:
            try:
                self._run(addresses)
            finally:
                WATCHED[self._report] = None

    def _run(self, addresses: Sequence[int]) -> None:
        stream, (slots, parameters), memory = self._stream(), self._frame.ready, None
        if self._plain:
            self._pack(slots, 0, *addresses, *self._offsets, self._report_address)
        else:
            base, memory = self._site.allocate(self._room) if self._room else (0, None)
            values = (*addresses, *[base + offset for offset in self._offsets], self._report_address)
            if self._turns is None:
                self._pack(slots, 0, *values)
                self._maps.fill(self._frame.maps, values, self._frame.written)
            else:
                self._in_turn(self._turns, dict(zip(self._names, values, strict=True)), stream)
        if self._turns is None:
            for position, given in enumerate(parameters):
                self._launch(position, stream, given)
        if stream and self._is_recorded(stream):
            self._note_recorded(memory)

    def _note_recorded(self, objects: object) -> None:
        """A graph that is recorded will use objects, and the kernels, again, and report again."""
        _RECORDED.append((self._functions, self._report, objects))
        if self._report is not None:
            self._report.kept = True

    def _launch(self, position: int, stream: int, parameters: int) -> None:
        try:
            self._launch_kernel(*self._heads[position], stream, parameters, 0)
        except RuntimeError as error:
            raise self._launch_failure(self._launches[position], error) from None

    def _in_turn(self, turns: Sequence[Turn], at: Mapping[str, int], stream: int) -> None:
        """Launch what runs step by step; the driver copies what a launch is given before it returns."""
        (parameters,), slots = self._frame.parameters, self._frame.slots
        bases = [[at[name] for name in launch.arguments] for launch in self._launches]
        for position, *given in turns:
            own = bases[position]
            for slot, (base, behind) in enumerate(zip(own, given, strict=False)):
                slots[slot] = base + behind
            for slot, step in enumerate(given[len(own) :], len(own)):
                slots[slot] = step % 2**64
            self._launch(position, stream, parameters)

    def _is_recorded(self, stream: int) -> bool:
        """Whether a graph records a stream; the default one, number 0, cannot be."""
        return bool(stream) and bool(self._cuda.runtime.streamIsCapturing(stream))

    def keep(self, objects: object) -> bool:
        """See ``Run``."""
        recorded = self._is_recorded(self._stream())
        if recorded:
            _RECORDED.append(objects)
        return recorded

    def direct(self, layout: CallLayout) -> QuickRun | None:
        """There is none: launching a kernel takes Python."""
        return None

    def failure(self, error: Exception) -> TcompError:
        """What CUDA, or an allocator, complained of while this kernel was called."""
        name = describe(self._source)
        if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
            room = f"there is no room on {self._site.place} for the outputs and {self._room} bytes of scratch memory"
            return ShapeError(f"{room} of {name}: {error}")
        return TcompError(Diagnostic(f"CUDA failed on {self._site.place} at {name}: {error}", hint=_hint(error)))

    def _launch_failure(self, launch: Launch, error: Exception) -> TcompError:
        shape = f"grid {launch.grid}, block {launch.block}, {launch.shared_bytes} bytes of dynamic shared memory"
        message = f"CUDA failed on {self._site.place} at kernel {launch.kernel} of {describe(self._source)}, {shape}"
        return TcompError(Diagnostic(f"{message}: {error}", hint=_hint(error)))


def _turns_of(source: Source) -> tuple[Turn, ...] | None:
    """The launches of a program that runs step by step, by their number among those that have blocks."""
    if source.turns is None:
        return None
    numbers: dict[int, int] = {}
    for number, launch in enumerate(source.launches):
        if 0 not in launch.grid:
            numbers[number] = len(numbers)
    return tuple((numbers[number], *given) for number, *given in source.turns if number in numbers)


def _hint(error: Exception) -> str | None:
    text = str(error).lower()
    if any(phrase in text for phrase in _LATE_ERRORS):
        return _LATE_HINT
    if "captur" in text:
        return "a CUDA graph can record a kernel that ran once before"
    return None
