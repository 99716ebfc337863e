"""Compile a source for the simulator and run its launches."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tcomp import debug
from tcomp.backends.gpu.blocks import LARGEST_GRID
from tcomp.backends.host import images, native
from tcomp.backends.host.native import NativeFunction
from tcomp.backends.simulator import compiler, ffi
from tcomp.backends.simulator.arena import CHUNK_SHIFT, SHARED, Arena
from tcomp.backends.simulator.compiler import STACK_BYTES
from tcomp.backends.simulator.elf import Symbol, read_section
from tcomp.backends.simulator.findings import Names, counts_of, findings_of
from tcomp.backends.simulator.places import Places
from tcomp.backends.simulator.report import (
    Finding,
    FindingKind,
    KernelCounts,
    Report,
    SimulationError,
    in_all,
)
from tcomp.backends.simulator.text import dynamic_names, shared_arrays, simulated_text
from tcomp.backends.source import Launch, Source, TensorMap
from tcomp.errors import TargetError
from tcomp.mapping.options.choices import MOST_THREADS
from tcomp.storage.cache import store
from tcomp.storage.memo import MOST_KEPT, Memo

MAX_THREADS = 1024
MAX_DYNAMIC_SHARED = 256 * 1024
MAX_ARGUMENTS = 64
_NARROWEST = ((b"__tsan_read1\0", 1), (b"__tsan_write1\0", 1), (b"__tsan_read2\0", 2), (b"__tsan_write2\0", 2))
_GUARD = "tc_guard_"

Order = Literal["forward", "reverse", "random"]
_ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run goes.

    ``order`` is that of blocks, and of the threads of a block between barriers; random orders are drawn anew for each
    barrier interval, from ``seed``.  ``counting`` watches what accesses cost, in ``counted_blocks`` blocks spread over
    the grid (None: in all).  ``blocks`` is how many blocks of a kernel run at most, spread over its grid (None: all).
    If some are left out, results are incomplete, what they would have written counts as written, and counts are scaled
    to the whole grid.
    """

    order: Order = "forward"
    seed: int = 0
    counting: bool = False
    counted_blocks: int | None = None
    blocks: int | None = None


class _Library:
    """A compiled text in this process: one run at a time, as its state is its own."""

    def __init__(self, image: bytes) -> None:
        library = images.open_image(image)
        native.unload_with(library)
        self.runtime = ffi.Runtime(library)
        self.lock = threading.Lock()
        self.section = read_section(image, "tc_shared")
        self.image = image
        self.narrowest = min((n for mark, n in _NARROWEST if mark in image), default=4)

    @property
    def variables(self) -> tuple[Symbol, ...]:
        """The static shared variables of all kernels."""
        return tuple(s for s in self.section.symbols if not s.name.startswith(_GUARD))


_LIBRARIES: Memo[str, _Library] = Memo(MOST_KEPT)


class Simulation:
    """A source that can be run on the CPU, thread by thread."""

    def __init__(self, source: Source, library: _Library, line_flops: Mapping[int, int]) -> None:
        self.source = source
        self._library = library
        self._line_flops = dict(line_flops)
        self._arrays = shared_arrays(source.text)
        self._dynamic = next(iter(dynamic_names(source.text)), "dynamic shared memory")
        self._places = Places(source, simulated_text(source.text, line_flops), library.image)

    @property
    def entry(self) -> NativeFunction:
        """``entry(*addresses, scratch, report_address) -> status``, as of a CPU kernel; temporaries do not use scratch.

        Raises SimulationError if there are findings.
        """
        return self.entry_with(Settings())

    def entry_with(self, settings: Settings) -> NativeFunction:
        """The entry for other settings."""

        def entry(*addresses: int) -> int:
            *arguments, _, report_address = addresses
            report = self.run(arguments, report_address, settings)
            if report.findings:
                raise SimulationError(report)
            return report.status

        return entry

    def run(
        self, addresses: Sequence[int], report_address: int | None = None, settings: Settings | None = None
    ) -> Report:
        """Run all launches on copies of the arguments and write outputs back.

        ``addresses`` has one for each argument of the source, of the element whose index is all zeros.  Kernels after
        one with findings do not run.  Where an argument begins at no multiple of what vectors need, the text that is
        compiled for those runs.  Raises TargetError if there is too little memory.
        """
        if not self.source.fits(addresses):
            return load(self.source.anywhere, self._line_flops).run(addresses, report_address, settings)
        settings = settings or Settings()
        arena = Arena(self.source, addresses, report_address)
        library = self._library
        names = Names(arena.tensors, library.variables, self._arrays, self._dynamic, self._places)
        with library.lock:
            runtime = library.runtime
            held = self._settings(arena, settings)
            if not runtime.begin(held):
                raise TargetError(f"there is too little memory to simulate {self.source.entry}")
            try:
                findings, total, kernels = self._launch_all(arena, names, settings)
                status = arena.copy_back()
                complete = self._runs_whole(settings)
                if not findings and not status and complete:
                    findings = self._unwritten(arena, names)
                    total = len(findings)
            finally:
                runtime.end()
        return Report(status, findings, total, kernels, complete)

    def _runs_whole(self, settings: Settings) -> bool:
        """Whether no kernel has more blocks than are to run."""
        most = settings.blocks
        return most is None or all(math.prod(launch.grid) <= most for launch in self.source.launches)

    @property
    def progress(self) -> tuple[int, int]:
        """Blocks of the kernel at work that have run, and how many are to run.  Any thread may ask."""
        return self._library.runtime.progress()

    def _settings(self, arena: Arena, settings: Settings) -> ffi.SettingsStructure:
        library = self._library
        section, base = library.section, library.runtime.base()
        variables = (ffi.BufferStructure * (len(library.variables) + 1))()
        shift = library.narrowest.bit_length() - 1
        for entry in variables:
            entry.shift, entry.role = shift, SHARED
        for entry, symbol in zip(variables, library.variables, strict=False):
            entry.start, entry.size = base + symbol.address, symbol.size
        line_count = max(self._line_flops, default=-1) + 1
        counted = 0
        if settings.counting:
            counted = _most(settings.counted_blocks)
        return ffi.SettingsStructure(
            arena.start, arena.bytes, arena.structures(), len(arena.tensors), CHUNK_SHIFT, base + section.address,
            section.size, variables, len(variables), _ORDERS.index(settings.order), settings.seed % 2**64, STACK_BYTES,
            counted, line_count, _most(settings.blocks),
        )  # fmt: skip

    def _launch_all(
        self, arena: Arena, names: Names, settings: Settings
    ) -> tuple[tuple[Finding, ...], int, tuple[KernelCounts, ...]]:
        runtime = self._library.runtime
        counted: list[list[KernelCounts]] = [[] for _ in self.source.launches]
        for number, *given in self.source.order:
            launch = self.source.launches[number]
            behind = given[: len(launch.arguments)]
            addresses = [arena.by_name[name].address + own for name, own in zip(launch.arguments, behind, strict=True)]
            maps = [_map(m, arena.by_name[m.storage].address) for m in launch.maps]
            steps = (step % 2**64 for step in given[len(behind) :])
            words = (ctypes.c_uint64 * MAX_ARGUMENTS)(*addresses, *map(ctypes.addressof, maps), *steps)
            runtime.launch(
                ffi.LaunchStructure(
                    runtime.kernel(launch.kernel), words, len(given) + len(maps), launch.grid, launch.block,
                    launch.shared_bytes,
                )
            )  # fmt: skip
            structures, total = runtime.findings()
            if settings.counting:
                counts = runtime.counts(max(self._line_flops, default=-1) + 1)
                counted[number].append(counts_of(*counts, launch, names, self._line_flops))
            findings, total = findings_of(structures, total, launch, names)
            if findings:
                return findings, total, self._in_all(counted)
        return (), 0, self._in_all(counted) if settings.counting else ()

    def _in_all(self, counted: Sequence[Sequence[KernelCounts]]) -> tuple[KernelCounts, ...]:
        """What was counted of each kernel; where findings stopped the run, of those that ran."""
        pairs = zip(self.source.launches, counted, strict=True)
        if self.source.turns is None:
            return tuple(count for _, own in pairs for count in own)
        return tuple(in_all(launch, own) for launch, own in pairs)

    def _unwritten(self, arena: Arena, names: Names) -> tuple[Finding, ...]:
        """Outputs of which an element was left out by all kernels."""
        found = []
        for number in arena.outputs():
            offset = self._library.runtime.unwritten(number)
            if offset >= 0:
                name = names.buffer(number)
                element = names.element(number, offset)
                found.append(
                    Finding(FindingKind.UNWRITTEN_OUTPUT, self.source.entry, name, element, None, None, "", "", None, 1)
                )
        return tuple(found)


def _map(own: TensorMap, address: int) -> ffi.TensorMapStructure:
    """A map as the runtime reads it."""
    strides = tuple(s * own.dtype.itemsize for s in own.strides)
    return ffi.TensorMapStructure(address, own.extents, strides, own.box, len(own.box), own.dtype.itemsize)


def _most(blocks: int | None) -> int:
    """A number of blocks as the runtime takes it."""
    return ffi.ALL_BLOCKS if blocks is None else min(blocks, ffi.ALL_BLOCKS)


def load(source: Source, line_flops: Mapping[int, int] | None = None) -> Simulation:
    """Compile a CUDA source for the CPU, or take it from the cache.

    ``line_flops`` says how many floating point operations the statement on a line of the text (counted from 1) does
    each time it is executed; without it flops are not counted.  Raises TargetError if there is no GNU C++ compiler,
    the text does not compile, or a launch is beyond what the simulator runs.
    """
    for launch in source.launches:
        _check_launch(launch)
    found = compiler.find()
    text = simulated_text(source.text, line_flops or {})
    key = compiler.image_key(found, text, source.flags)

    def make() -> _Library:
        with store().turn("simulation", key):
            kept = store().get("simulation", key)
            if kept is None:
                kept = compiler.compile_image(found, text, source.text, source.flags, source.entry)
                debug.log(1, f"simulation {source.entry}: compiled, {len(kept)} bytes")
                store().put("simulation", key, native.describe(source), kept)
        try:
            return _Library(kept)
        except (OSError, AttributeError) as error:
            raise TargetError(f"simulation {source.entry} was compiled but cannot be loaded: {error}") from None

    return Simulation(source, _LIBRARIES.get(key, make), line_flops or {})


def _check_launch(launch: Launch) -> None:
    """Raises TargetError for a launch that no device takes either."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    problem = None
    if not 0 < threads <= MAX_THREADS:
        problem = f"blocks have {threads} threads; 1 to {MAX_THREADS} are possible"
    elif any(count > most for count, most in zip(launch.block, MOST_THREADS, strict=True)):
        problem = f"blocks of {_by(launch.block)} threads are larger than {_by(MOST_THREADS)}"
    elif any(count > most for count, most in zip(launch.grid, LARGEST_GRID, strict=True)):
        problem = f"a grid of {_by(launch.grid)} blocks is larger than {_by(LARGEST_GRID)}"
    elif launch.shared_bytes > MAX_DYNAMIC_SHARED:
        problem = f"{launch.shared_bytes} bytes of dynamic shared memory are more than {MAX_DYNAMIC_SHARED}"
    elif (count := len(launch.arguments) + len(launch.maps) + len(launch.steps)) > MAX_ARGUMENTS:
        problem = f"{count} arguments are more than {MAX_ARGUMENTS}"
    if problem is not None:
        raise TargetError(f"kernel {launch.kernel} cannot be simulated: {problem}")


def _by(extents: Sequence[int]) -> str:
    return " x ".join(map(str, extents))
