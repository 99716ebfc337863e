"""Kernels that run on a device with OpenCL, built and launched through pyopencl.

Arrays lie in main memory.  A device reads and writes them there (``CL_MEM_USE_HOST_PTR``), or its driver copies them:
what was written is in main memory when it was mapped (OpenCL 1.2, 5.2.1 and 5.4.2).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.arrays.devices import Memory
from tcomp.backends.alignment import ProgramForAddresses
from tcomp.backends.host.native import describe
from tcomp.backends.opencl import devices
from tcomp.backends.opencl.images import build
from tcomp.backends.runtime import CallLayout, Program, QuickRun, Site
from tcomp.backends.source import ALIGNMENT, REPORT, Argument, Launch, Source
from tcomp.errors import Diagnostic, ShapeError, TargetError, TcompError
from tcomp.grammar.tree.limits import MAX_INDICES

_REPORT_WORDS = 3 + MAX_INDICES


class OpenClRuntime:
    """The target ``opencl:cpu``, say."""

    @property
    def memory(self) -> Memory:
        """Where its arrays are."""
        return Memory.MAIN

    def loading(self, source: Source) -> AbstractContextManager[None]:
        """Nothing: compilers of OpenCL run in this process."""
        return nullcontext()

    def load(self, source: Source) -> Program:
        """Raises TargetError if there is no device, or it does not take the text."""
        _check_launches(source)
        aligned = {a.name: a for a in source.arguments if a.name in source.aligned}
        # A device may have a copy that begins at a whole vector with the first byte, which is not the first element.
        torn = any(a.before * a.dtype.itemsize % ALIGNMENT for a in aligned.values())
        if torn:
            return OpenClProgram(source.anywhere)
        if not aligned:
            return OpenClProgram(source)
        return ProgramForAddresses(source, OpenClProgram(source), lambda: OpenClProgram(source.anywhere))


def _check_launches(source: Source) -> None:
    """Raises TargetError for blocks that the device does not take."""
    device = devices.current().device
    for launch in source.launches:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        too_many = threads > device.max_work_group_size
        if too_many or any(n > m for n, m in zip(launch.block, device.max_work_item_sizes, strict=False)):
            what = f"kernel {launch.kernel} of {describe(source)} has blocks of {launch.block} threads"
            hint = f"options.threads with a product of at most {device.max_work_group_size}"
            raise TargetError(Diagnostic(f"{what}, which {device.name.strip()} does not run", hint=hint))


class OpenClProgram:
    """A launch sequence that was built for the device of this process."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._built = build(source)

    def at(self, site: Site) -> OpenClRun:
        """Make it ready.  Raises TargetError where the driver refuses a kernel."""
        return OpenClRun(self._source, self._built)

    def pack(self, addresses: Sequence[int]) -> None:
        """There is nothing to pack: kernels fetch panels as they run."""
        raise TcompError(f"{describe(self._source)} has no panels to be packed")


@dataclass(frozen=True, slots=True)
class _Region:
    """The bytes of an argument: ``low`` in front of its first element, of which there are ``count``."""

    low: int
    count: int
    written: bool

    @classmethod
    def of(cls, argument: Argument) -> _Region:
        """The bytes between its lowest and its highest element."""
        if 0 in argument.shape:
            return cls(0, 0, argument.role != "input")
        itemsize = argument.dtype.itemsize
        span = sum(abs(s) * (e - 1) for e, s in zip(argument.shape, argument.strides, strict=True)) + 1
        return cls(argument.before * itemsize, span * itemsize, argument.role != "input")

    def at(self, address: int) -> memoryview | None:
        """The bytes of the argument at an address."""
        return memoryview((ctypes.c_ubyte * self.count).from_address(address - self.low)) if self.count else None


class OpenClRun:
    """A launch sequence, called with addresses in main memory.  One call runs at a time."""

    def __init__(self, source: Source, built: Any) -> None:
        self._source = source
        self._regions = tuple(_Region.of(a) for a in source.arguments)
        self._first = {a.name: region.low for a, region in zip(source.arguments, self._regions, strict=True)}
        self._launches = source.launches
        opencl = devices.opencl_module()
        try:
            self._kernels = tuple(opencl.Kernel(built, launch.kernel) for launch in self._launches)
        except opencl.Error as error:
            raise TargetError(f"{describe(source)} cannot be loaded: {error}") from None
        self._lock = threading.Lock()

    def __call__(self, addresses: Sequence[int]) -> Sequence[int] | None:
        """Run on the arguments at these addresses; see ``Run``."""
        opencl, here = devices.opencl_module(), devices.current()
        try:
            with self._lock:
                return self._run(opencl, here, addresses)
        except (MemoryError, opencl.Error) as error:
            raise self.failure(error) from None

    def _run(self, opencl: Any, here: devices.Here, addresses: Sequence[int]) -> Sequence[int] | None:
        source, flags, queue = self._source, opencl.mem_flags, here.queue
        held: dict[str, Any] = {}
        written = []
        shared: dict[tuple[int, int], Any] = {}
        for argument, region, address in zip(source.arguments, self._regions, addresses, strict=False):
            place = region.at(address)
            if place is None:
                held[argument.name] = None
                continue
            key = (address - region.low, region.count)
            if key not in shared:
                access = flags.READ_WRITE if region.written else flags.READ_ONLY
                shared[key] = opencl.Buffer(here.context, access | flags.USE_HOST_PTR, hostbuf=place)
            held[argument.name] = shared[key]
            if region.written:
                written.append((shared[key], region.count))
        for temporary in source.temporaries:
            held[temporary.name] = here.allocate(temporary.bytes) if temporary.bytes else None
        report = self._new_report(opencl, here) if source.checks else None
        held[REPORT] = report
        for number, *given in source.order:
            launch, kernel = self._launches[number], self._kernels[number]
            if 0 in launch.grid:
                continue
            kernel.set_args(*(held[name] for name in launch.arguments), *self._numbers(launch, given))
            every = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
            opencl.enqueue_nd_range_kernel(queue, kernel, every, launch.block)
        for buffer, count in written:
            mapped, _ = opencl.enqueue_map_buffer(queue, buffer, opencl.map_flags.READ, 0, (count,), np.uint8)
            mapped.base.release(queue)
        found = None
        if report is not None:
            words = np.zeros(_REPORT_WORDS, np.int64)
            opencl.enqueue_copy(queue, words, report)
            found = tuple(int(w) for w in words) if words[2] else None
        queue.finish()
        return found

    def _numbers(self, launch: Launch, given: Sequence[int]) -> Sequence[Any]:
        """What a kernel takes behind its pointers where the program runs step by step: steps, and where slices are."""
        if self._source.turns is None:
            return ()
        names = launch.arguments
        behind = [own + self._first.get(name, 0) for name, own in zip(names, given, strict=False) if name != REPORT]
        return [np.int64(n) for n in (*given[len(names) :], *behind)]

    @staticmethod
    def _new_report(opencl: Any, here: devices.Here) -> Any:
        report = here.allocate(8 * _REPORT_WORDS)
        opencl.enqueue_copy(here.queue, report, np.zeros(_REPORT_WORDS, np.int64))
        return report

    def direct(self, layout: CallLayout) -> QuickRun | None:
        """There is none: launching a kernel takes Python."""
        return None

    def keep(self, objects: object) -> bool:
        """Nothing is recorded."""
        return False

    def failure(self, error: Exception) -> TcompError:
        """What OpenCL, or an allocator, complained of while this kernel was called."""
        name, device = describe(self._source), devices.current().device.name.strip()
        if isinstance(error, MemoryError) or "MEM_OBJECT_ALLOCATION" in str(error) or "OUT_OF" in str(error):
            room = f"there is no room on {device} for the arguments and {self._source.scratch_bytes} bytes of scratch"
            return ShapeError(f"{room} memory of {name}: {error}")
        return TcompError(f"OpenCL failed on {device} at {name}: {error}")
