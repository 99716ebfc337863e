"""The simulated device's global memory: a copy of every argument, far from the others, and room for temporaries."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.backends.simulator.ffi import BufferStructure
from tcomp.backends.source import REPORT, Argument, Source
from tcomp.errors import TargetError
from tcomp.grammar.tree.limits import MAX_INDICES

CHUNK_SHIFT = 16
"""Every buffer has chunks of this many bits' bytes for itself, so an address tells its buffer."""

REPORT_WORDS = 3 + MAX_INDICES

_INPUT, _UNWRITTEN, _WRITTEN, SHARED = range(4)
_LARGEST_GAP = 1 << 26
_ALIGNMENT = 16
"""Bytes.  A copy lies as its original does, modulo this; what is aligned so is aligned to a chunk."""

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A buffer of global memory and how its elements lie.

    ``address`` is that of the element whose index is all zeros, on the device; ``low`` and ``bytes`` bound its memory;
    ``strides`` are in bytes.
    """

    name: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    role: int
    address: int
    low: int
    bytes: int

    def element(self, offset: int) -> str:
        """The element at a byte offset from ``low``, spelled with its indices."""
        if not 0 <= offset < self.bytes:
            where = f"{-offset} bytes before" if offset < 0 else f"{offset - self.bytes} bytes behind the end of"
            return f"what lies {where} {self.name}[{', '.join(map(str, self.shape))}]"
        rest = offset
        indices = [0] * len(self.shape)
        for d in sorted(range(len(self.shape)), key=lambda d: -abs(self.strides[d])):
            stride, extent = self.strides[d], self.shape[d]
            if stride and extent > 1:
                step = min(rest // abs(stride), extent - 1)
                rest -= step * abs(stride)
                indices[d] = step if stride > 0 else extent - 1 - step
        name = f"{self.name}[{', '.join(map(str, indices))}]"
        return name if rest < self.itemsize else f"what lies {rest} bytes behind {name}"


class Arena:
    """Global memory of one run.  Raises TargetError if there is not enough memory."""

    def __init__(self, source: Source, addresses: Sequence[int], report_address: int | None) -> None:
        """Copy what the kernels may read from the addresses of the arguments, one for each."""
        self._hosts = [*addresses, report_address]
        report = np.zeros(REPORT_WORDS, np.int64)
        if report_address is None:
            self._hosts[-1] = report.ctypes.data
        self._report = report
        layouts = [_layout(a, address) for a, address in zip(source.arguments, addresses, strict=True)]
        layouts += [(t.name, t.dtype.itemsize, t.shape, _packed(t.shape, t.dtype.itemsize), _UNWRITTEN, 0)
                    for t in source.temporaries]  # fmt: skip
        layouts.append((REPORT, 8, (REPORT_WORDS,), (8,), _WRITTEN, 0))
        end = 1 << CHUNK_SHIFT
        places = []
        for _, itemsize, shape, strides, _, shift in layouts:
            low, high = _reach(shape, strides, itemsize)
            places.append(end + shift)
            gap = min(max(high - low, 1 << CHUNK_SHIFT), _LARGEST_GAP)
            end += shift + high - low + gap
            end += -end % (1 << CHUNK_SHIFT)
        self.bytes = end
        self._area, self.start = _reserve(end)
        self.tensors: list[Tensor] = []
        for (name, itemsize, shape, strides, role, _), place in zip(layouts, places, strict=True):
            low, high = _reach(shape, strides, itemsize)
            at = self.start + place
            self.tensors.append(Tensor(name, itemsize, shape, strides, role, at - low, at, high - low))
        self._arguments = [*range(len(source.arguments)), len(self.tensors) - 1]
        self._valid: list[_Bytes | None] = [_validity(t) for t in self.tensors]
        for number, host in zip(self._arguments, self._hosts, strict=True):
            tensor = self.tensors[number]
            if tensor.role != _UNWRITTEN and tensor.bytes:
                _elements(tensor, tensor.address)[...] = _elements(tensor, host)
        self.by_name = {t.name: t for t in self.tensors}

    def structures(self) -> ctypes.Array[BufferStructure]:
        """What the runtime needs to know of the buffers; valid as long as the arena lives."""
        array = (BufferStructure * len(self.tensors))()
        for entry, tensor, valid in zip(array, self.tensors, self._valid, strict=True):
            entry.start, entry.size = tensor.low, tensor.bytes
            entry.valid = None if valid is None else valid.ctypes.data
            entry.shift = tensor.itemsize.bit_length() - 1
            entry.role = tensor.role
        return array

    def outputs(self) -> list[int]:
        """The numbers of the outputs whose old content is not read."""
        return [n for n in self._arguments if self.tensors[n].role == _UNWRITTEN]

    def copy_back(self) -> int:
        """Write outputs and report to the caller's memory; returns the status: 1 if a check failed."""
        for number, host in zip(self._arguments, self._hosts, strict=True):
            tensor = self.tensors[number]
            if tensor.role != _INPUT and tensor.bytes:
                _elements(tensor, host)[...] = _elements(tensor, tensor.address)
        return int(_elements(self.tensors[-1], self.tensors[-1].address)[2] != 0)


_Layout = tuple[str, int, tuple[int, ...], tuple[int, ...], int, int]


def _layout(argument: Argument, address: int) -> _Layout:
    """Name, bytes of an element, shape, strides in bytes, role, and bytes beyond an aligned address."""
    itemsize = argument.dtype.itemsize
    strides = tuple(s * itemsize for s in argument.strides)
    low, _ = _reach(argument.shape, strides, itemsize)
    role = {"input": _INPUT, "output": _UNWRITTEN, "inout": _WRITTEN}[argument.role]
    return argument.name, itemsize, argument.shape, strides, role, (address + low) % _ALIGNMENT


def _packed(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The first byte of an array and the one behind its last, from the element whose index is all zeros."""
    if 0 in shape:
        return 0, 0
    reaches = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    return sum(min(r, 0) for r in reaches), sum(max(r, 0) for r in reaches) + itemsize


def _reserve(count: int) -> tuple[mmap.mmap, int]:
    """Memory of zeros that costs nothing until it is touched, and its address."""
    try:
        area = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    except (OSError, OverflowError) as error:
        raise TargetError(f"there is no room for {count} bytes of simulated memory: {error}") from None
    return area, np.frombuffer(area, np.uint8).ctypes.data


def _elements(tensor: Tensor, address: int | None) -> np.ndarray[Any, np.dtype[Any]]:
    """The elements of an array laid out like ``tensor``, as bits; ``address`` is that of its first index."""
    assert address is not None
    low, high = _reach(tensor.shape, tensor.strides, tensor.itemsize)
    memory = memoryview((ctypes.c_uint8 * (high - low)).from_address(address + low))
    return np.ndarray(_in_memory(tensor), f"u{tensor.itemsize}", memory, -low, tensor.strides)


def _in_memory(tensor: Tensor) -> tuple[int, ...]:
    """The extents of an array's elements in memory: those that a broadcast repeats are there once."""
    return tuple(n if s else min(n, 1) for n, s in zip(tensor.shape, tensor.strides, strict=True))


def _validity(tensor: Tensor) -> _Bytes | None:
    """Which bytes between an array's first and last belong to elements; None where all do."""
    stepped = [n for n, s in zip(tensor.shape, tensor.strides, strict=True) if s]
    if math.prod(stepped) * tensor.itemsize == tensor.bytes or not tensor.bytes:
        return None
    valid = np.zeros(tensor.bytes, np.uint8)
    low, _ = _reach(tensor.shape, tensor.strides, tensor.itemsize)
    for byte in range(tensor.itemsize):
        np.ndarray(_in_memory(tensor), np.uint8, valid.data, byte - low, tensor.strides)[...] = 1
    return valid
