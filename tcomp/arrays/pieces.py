"""Pieces of main memory, as NumPy and torch make them, from which results are made."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.arrays.addresses import data_address
from tcomp.arrays.kept import LEAST, KeptMemory
from tcomp.model.terms.storages import contiguous_strides

Octets = np.ndarray[Any, np.dtype[np.uint8]]

ALIGNMENT = 64
"""Bytes; new arrays of a cache line or more start at a multiple of this."""


class NumpyPieces:
    """Arrays that are views of arrays of bytes."""

    def __init__(self) -> None:
        self._kept: KeptMemory[Octets] = KeptMemory(sys.getrefcount, lambda _: True, lambda: np.empty(1, np.uint8))

    def maker(self, shape: tuple[int, ...], element: np.dtype[Any]) -> Callable[[], np.ndarray[Any, np.dtype[Any]]]:
        """What makes arrays in C order with any content, aligned where they are not tiny."""
        count = math.prod(shape) * element.itemsize
        if count < ALIGNMENT:
            return functools.partial(np.empty, shape, element)

        def array_of(piece: Octets) -> np.ndarray[Any, np.dtype[Any]]:
            return np.ndarray(shape, element, piece, -data_address(piece) % ALIGNMENT)

        if count >= LEAST:
            return self._kept.maker(None, count + ALIGNMENT, lambda size: np.empty(size, np.uint8), array_of)
        return lambda: array_of(np.empty(count + ALIGNMENT, np.uint8))


@dataclass(frozen=True, slots=True)
class _TorchPiece:
    tensor: Any
    storage: Any
    handle: int
    address: int


class TorchPieces:
    """Tensors whose storage is that of an older tensor.

    They are made by what torch's own compiler calls, without dispatch, so that they are like tensors of
    ``torch.empty``: of the mode of inference that is on when they are made, with a version of their own, and of a
    storage that can be resized and shared with other processes.  Memory that was, is not used again.
    """

    def __init__(self, torch: Any) -> None:
        """Raises AttributeError where this torch lacks one of the functions."""
        guards = torch._C._dynamo.guards
        self._empty: Callable[..., Any] = guards._empty_strided_cpu
        self._view: Callable[..., Any] = guards._reinterpret_tensor
        uses: Callable[[int], int] = torch._C._storage_Use_Count
        self._kept: KeptMemory[_TorchPiece] = KeptMemory(
            lambda piece: uses(piece.handle),
            lambda piece: bool(piece.storage.data_ptr() == piece.address),
            lambda: self._piece(1, torch.uint8),
        )

    def maker(self, shape: tuple[int, ...], dtype: Any) -> Callable[[], Any]:
        """What makes tensors in main memory in C order with any content."""
        strides, itemsize = contiguous_strides(shape), dtype.itemsize
        count = math.prod(shape) * itemsize
        if count < LEAST:
            return functools.partial(self._empty, shape, strides, dtype)
        return self._kept.maker(
            dtype,
            count,
            lambda size: self._piece(size // itemsize, dtype),
            lambda piece: self._view(piece.tensor, shape, strides, 0),
        )

    def _piece(self, count: int, dtype: Any) -> _TorchPiece:
        tensor = self._empty((count,), (1,), dtype)
        storage = tensor.untyped_storage()
        return _TorchPiece(tensor, storage, storage._cdata, storage.data_ptr())
