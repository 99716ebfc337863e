"""Kernels that are functions of this process and read main memory."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.arrays.addresses import data_address
from tcomp.arrays.devices import Memory
from tcomp.backends.arena import ALIGNMENT
from tcomp.backends.host.directcalls import MOST_ARGUMENTS, MOST_ARRAYS, DirectCall, entry
from tcomp.backends.host.native import NativeFunction
from tcomp.backends.runtime import CallLayout, QuickRun, Site
from tcomp.backends.source import Source
from tcomp.errors import ShapeError, TcompError
from tcomp.grammar.tree.limits import MAX_INDICES

_LARGEST_KEPT_SCRATCH = 1 << 28
"""Bytes.  Up to this size a thread keeps its scratch memory; pages that are there already need not be mapped again."""


class _Workspace(threading.local):
    """Scratch memory and report of the kernels that a thread runs, which it does one at a time."""

    def __init__(self) -> None:
        report = (ctypes.c_int64 * (3 + MAX_INDICES))()
        self.reporting = report, ctypes.addressof(report)
        self._arena: Any = None
        self._address = self._size = 0

    def scratch(self, count: int) -> tuple[int, Any]:
        """The address of ``count`` aligned bytes, and what keeps them alive."""
        if count <= self._size:
            return self._address, self._arena
        arena = np.empty(count + ALIGNMENT, np.uint8)
        address = data_address(arena)
        address += -address % ALIGNMENT
        if count <= _LARGEST_KEPT_SCRATCH:
            self._arena, self._address, self._size = arena, address, count
        return address, arena

    def dirty(self, count: int) -> None:
        """Make every byte of at least so many that the next kernel gets 255: a NaN, and -1."""
        self.scratch(count)
        if self._arena is not None:
            self._arena[...] = 255


_WORKSPACE = _Workspace()


def workspace(count: int) -> tuple[int | None, Any, Any, int]:
    """This thread's scratch memory of ``count`` bytes, what keeps it alive, the report and its address.

    Raises ShapeError if there is no room.
    """
    report, address = _WORKSPACE.reporting
    report[2] = 0
    if not count:
        return None, None, report, address
    try:
        scratch, arena = _WORKSPACE.scratch(count)
    except (MemoryError, ValueError) as error:
        raise ShapeError(f"there is no room for {count} bytes of scratch memory: {error}") from None
    return scratch, arena, report, address


def dirty_scratch(count: int = 1 << 20) -> None:
    """Leave nothing in this thread's scratch memory that a kernel could take for its own; for tests of kernels."""
    _WORKSPACE.dirty(count)


@dataclass(frozen=True, slots=True)
class HostRuntime:
    """A target whose kernels ``function_of`` makes functions of: by a C compiler, or with a simulator around them.

    ``native`` says that they are C functions, which may be called without Python.  ``beginning`` is how to have one
    ready after a block.
    """

    function_of: Callable[[Source], NativeFunction]
    native: bool = False
    beginning: Callable[[Source], AbstractContextManager[None]] = lambda _: nullcontext()

    @property
    def memory(self) -> Memory:
        """Where its arrays are."""
        return Memory.MAIN

    def loading(self, source: Source) -> AbstractContextManager[None]:
        """See ``Runtime``."""
        return self.beginning(source)

    def load(self, source: Source) -> HostProgram:
        """Raises TargetError."""
        return HostProgram(self.function_of(source), source.scratch_bytes, self.native)


class HostProgram:
    """A function of this process.  There is but one place for its arrays, so it is what runs there, too."""

    __slots__ = ("_function", "_native", "_scratch_bytes")

    def __init__(self, function: NativeFunction, scratch_bytes: int, native: bool) -> None:
        self._function = function
        self._scratch_bytes = scratch_bytes
        self._native = native

    def at(self, site: Site) -> HostProgram:
        """Itself."""
        return self

    def __call__(self, addresses: Sequence[int]) -> Sequence[int] | None:
        """Run on the arguments at these addresses; see ``Run``."""
        scratch = arena = None
        report, report_address = _WORKSPACE.reporting
        report[2] = 0
        if self._scratch_bytes:
            try:
                scratch, arena = _WORKSPACE.scratch(self._scratch_bytes)
            except (MemoryError, ValueError) as error:
                raise self.failure(error) from None
        status = self._function(*addresses, scratch, report_address)
        del arena
        if not status:
            return None
        if status != 1:
            raise TcompError(f"the kernel ended with status {status}")
        return tuple(report)

    @property
    def machine_code(self) -> tuple[NativeFunction, int] | None:
        """The C function and the bytes of scratch memory that it takes; None if there is Python around it."""
        return (self._function, self._scratch_bytes) if self._native else None

    def pack(self, addresses: Sequence[int]) -> None:
        """See ``Program``."""
        self._function.packing(*addresses)  # type: ignore[attr-defined]

    def direct(self, layout: CallLayout) -> QuickRun | None:
        """See ``Run``."""
        arrays = len(layout.inputs) + len(layout.outputs) + len(layout.fixed)
        few = 0 < arrays <= MOST_ARRAYS and layout.arguments <= MOST_ARGUMENTS
        made = entry() if self._native and few else None
        if made is None:
            return None
        scratch = functools.partial(_WORKSPACE.scratch, self._scratch_bytes) if self._scratch_bytes else None
        return DirectCall(made, self._function, layout, scratch)

    def keep(self, objects: object) -> bool:
        """See ``Run``."""
        return False

    def failure(self, error: Exception) -> TcompError:
        """That there is no room."""
        room = f"there is no room for the outputs and {self._scratch_bytes} bytes of scratch memory"
        return ShapeError(f"{room}: {error}")
