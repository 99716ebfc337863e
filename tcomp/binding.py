"""The fast way to call a kernel again: with arrays of layouts that were checked before."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.arguments import byte_range, share_memory
from tcomp.arrays import ALIGNMENT, KINDS, NUMPY, ArrayKind, View
from tcomp.backends.native import NativeFunction
from tcomp.backends.source import IndexCheck, Source
from tcomp.calls import Call, Outputs
from tcomp.errors import Diagnostic, ShapeError, Span, TcompError
from tcomp.grammar.limits import MAX_INDICES

_LARGEST_KEPT_SCRATCH = 1 << 28
"""Bytes.  Up to this size a thread keeps its scratch memory; pages that are there already need not be mapped again."""


class _Workspace(threading.local):
    """Scratch memory and report of the kernels that a thread runs, which it does one at a time."""

    def __init__(self) -> None:
        self.report = (ctypes.c_int64 * (3 + MAX_INDICES))()
        self.report_address = ctypes.addressof(self.report)
        self._arena = np.empty(0, np.uint8)

    def scratch(self, count: int) -> tuple[int, Any]:
        """The address of ``count`` aligned bytes, and what keeps them alive."""
        arena = self._arena
        if arena.size < count + ALIGNMENT:
            arena = np.empty(count + ALIGNMENT, np.uint8)
            if count <= _LARGEST_KEPT_SCRATCH:
                self._arena = arena
        address = arena.ctypes.data
        return address + -address % ALIGNMENT, arena


_WORKSPACE = _Workspace()


class Binding:
    """A kernel, and how to get addresses out of arrays that are laid out as those of ``call``."""

    __slots__ = (
        "_checks",
        "_entry",
        "_getters",
        "_makers",
        "_masks",
        "_program",
        "_ranges",
        "_scratch",
        "_takers",
        "_views",
    )

    def __init__(self, source: Source, entry: NativeFunction, call: Call) -> None:
        self._entry = entry
        self._scratch = source.scratch_bytes
        self._checks = source.checks
        self._program = call.function.source
        self._masks = tuple(a.dtype.itemsize - 1 for a in source.arguments)
        self._takers = tuple(
            (position, _kind(array).address)
            for position, (tensor, array) in enumerate(zip(call.function.inputs, call.arrays, strict=True))
            if tensor.role != "const"
        )
        made = KINDS[type(call.example)] or NUMPY
        outputs = source.arguments[len(self._takers) :]
        self._makers = tuple(functools.partial(made.empty, a.shape, a.dtype) for a in outputs)
        self._getters = tuple((made if given is None else _kind(given)).address for given in call.outputs)
        self._views = tuple(
            call.views.get(a.name, View(a.dtype, a.shape, a.strides, 0, True)) for a in source.arguments
        )
        self._ranges = tuple(byte_range(replace(view, address=0)) for view in self._views)

    def run(self, arrays: Sequence[Any], outputs: Outputs | None) -> Outputs:
        """Call the kernel.  ``outputs`` has None for what is to be made, or is None if all is.  Returns the outputs.

        Raises ShapeError for a misaligned array, for an output that cannot be written or shares memory with another
        argument, and for a data-dependent subscript outside its tensor; in the last case outputs are written in part.
        """
        addresses = [address(arrays[position]) for position, address in self._takers]
        results, scratch, arena = self._make_room(outputs)
        addresses += [address(array) for address, array in zip(self._getters, results, strict=True)]
        if outputs is not None:
            self._check_outputs(addresses, results)
        for address, mask in zip(addresses, self._masks, strict=True):
            if address & mask:
                raise ShapeError("an array is not aligned to the size of its elements; pass a copy of it")
        status = self._entry(*addresses, scratch, _WORKSPACE.report_address)
        del arena
        if status:
            raise self._failure(status, _WORKSPACE.report)
        return results

    def _make_room(self, outputs: Outputs | None) -> tuple[Outputs, int | None, Any]:
        """The outputs, the address of the scratch memory, and what keeps that alive."""
        try:
            if outputs is None:
                results = tuple([make() for make in self._makers])
            else:
                pairs = zip(self._makers, outputs, strict=True)
                results = tuple([given if given is not None else make() for make, given in pairs])
            if not self._scratch:
                return results, None, None
            return results, *_WORKSPACE.scratch(self._scratch)
        except (MemoryError, ValueError, RuntimeError) as error:
            room = f"there is no room for the outputs and {self._scratch} bytes of scratch memory"
            raise ShapeError(f"{room}: {error}") from None

    def _check_outputs(self, addresses: Sequence[int], results: Outputs) -> None:
        """Raises ShapeError if an output is read-only or has a byte in common with another argument."""
        first = len(self._takers)
        for array in results:
            if isinstance(array, np.ndarray) and not array.flags.writeable:
                raise ShapeError("an array of out= is read-only")
        spans = [(a + low, a + high) for a, (low, high) in zip(addresses, self._ranges, strict=True)]
        for later in range(first, len(spans)):
            low, high = spans[later]
            for earlier in range(later):
                other_low, other_high = spans[earlier]
                if low < other_high and other_low < high and self._overlap(addresses, earlier, later):
                    what = f"input {earlier}" if earlier < first else f"output {earlier - first}"
                    raise ShapeError(
                        f"output {later - first} (counted from 0) shares memory with {what}; pass arrays of their own"
                    )

    def _overlap(self, addresses: Sequence[int], one: int, other: int) -> bool:
        return share_memory(
            replace(self._views[one], address=addresses[one]), replace(self._views[other], address=addresses[other])
        )

    def _failure(self, status: int, report: ctypes.Array[ctypes.c_int64]) -> TcompError:
        if status != 1 or not 0 <= report[0] < len(self._checks):
            return TcompError(f"the kernel ended with status {status}")
        check = self._checks[report[0]]
        place = dict(zip(check.indices, report[3:], strict=False))
        message = describe_failure(check, report[1], place)
        return ShapeError(Diagnostic(message, self._program, Span(check.start, check.end)))


def describe_failure(check: IndexCheck, value: int, place: Mapping[str, int]) -> str:
    """What a kernel found wrong with a data-dependent subscript, and where: ``place`` holds the indices."""
    at = ", ".join(f"{name} = {index}" for name, index in place.items())
    subscript = f"indirect subscript {check.subscript} of {check.tensor} in dimension {check.dimension} is {value}"
    subscript += f" at {at}" if at else ""
    if check.extent <= 0:
        return f"{subscript}, but that dimension has no elements"
    return f"{subscript}, but must lie in {check.origin}..{check.origin + check.extent - 1}"


def _kind(array: Any) -> ArrayKind:
    kind = KINDS[type(array)]
    assert kind is not None
    return kind
