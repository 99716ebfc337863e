"""Kernels that are functions of this process and read main memory."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.backends.arena import ALIGNMENT
from tcomp.backends.native import NativeFunction
from tcomp.backends.runtime import Site
from tcomp.backends.source import Source
from tcomp.dataaddress import data_address
from tcomp.devices import Memory
from tcomp.errors import ShapeError, TcompError
from tcomp.grammar.limits import MAX_INDICES

_LARGEST_KEPT_SCRATCH = 1 << 28
"""Bytes.  Up to this size a thread keeps its scratch memory; pages that are there already need not be mapped again."""


class _Workspace(threading.local):
    """Scratch memory and report of the kernels that a thread runs, which it does one at a time."""

    def __init__(self) -> None:
        report = (ctypes.c_int64 * (3 + MAX_INDICES))()
        self.reporting = report, ctypes.addressof(report)
        self._arena = np.empty(0, np.uint8)

    def scratch(self, count: int) -> tuple[int, Any]:
        """The address of ``count`` aligned bytes, and what keeps them alive."""
        arena = self._arena
        if arena.size < count + ALIGNMENT:
            arena = np.empty(count + ALIGNMENT, np.uint8)
            if count <= _LARGEST_KEPT_SCRATCH:
                self._arena = arena
        address = data_address(arena)
        return address + -address % ALIGNMENT, arena


_WORKSPACE = _Workspace()


@dataclass(frozen=True, slots=True)
class HostRuntime:
    """A target whose kernels ``function_of`` makes functions of: by a C compiler, or with a simulator around them."""

    function_of: Callable[[Source], NativeFunction]

    @property
    def memory(self) -> Memory:
        """Where its arrays are."""
        return Memory.MAIN

    def load(self, source: Source) -> HostProgram:
        """Raises TargetError."""
        return HostProgram(self.function_of(source), source.scratch_bytes)


class HostProgram:
    """A function of this process.  There is but one place for its arrays, so it is what runs there, too."""

    __slots__ = ("_function", "_scratch_bytes")

    def __init__(self, function: NativeFunction, scratch_bytes: int) -> None:
        self._function = function
        self._scratch_bytes = scratch_bytes

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

    def failure(self, error: Exception) -> TcompError:
        """That there is no room."""
        room = f"there is no room for the outputs and {self._scratch_bytes} bytes of scratch memory"
        return ShapeError(f"{room}: {error}")
