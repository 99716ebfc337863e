"""Runs of random programs on a CUDA device: arrays lie there as they do here, between bytes that nothing may write."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tcomp.arrays.addresses import data_address
from tcomp.arrays.arrays import fetched
from tcomp.arrays.devices import Memory, cupy_module, wait
from tcomp.driver import Compilation
from tcomp.errors import TargetError
from tcomp.fuzzing.programs.programs import Array, Data
from tcomp.mapping.options.options import MappingOptions
from tcomp.operation import Operation

_FILLING = 255
"""Every byte that is not an element's, and all of new memory: as NaN and -1 it does not go unnoticed."""

_MARGIN = 1 << 10
"""Bytes before and behind an array, a multiple of every alignment."""

_ALIGNMENT = 16
"""An address keeps its remainder: no kernel reads or writes more at once."""

_MOST_BYTES = 128 << 20
"""What a process may keep of the device's memory; programs have a few MiB, and many processes share the device."""


class SpoiledError(Exception):
    """A kernel has written where it must not."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A copy of ``original`` on the current device, with its strides.

    ``memory`` are the bytes there, margins included, ``image`` what they held at first.  The element with index zero
    is at ``offset``.
    """

    original: Array
    image: Array
    memory: Any
    offset: int

    @property
    def array(self) -> Any:
        """The array of CuPy."""
        original, start = self.original, self.memory.data + self.offset
        return cupy_module().ndarray(original.shape, original.dtype, start, original.strides)

    def content(self) -> Array:
        """What it holds now.  Raises SpoiledError if there was written beside its elements."""
        now: Array = cupy_module().asnumpy(self.memory)
        found, expected = self._elements(now), self.image.copy()
        self._elements(expected)[...] = found
        _compare(now, expected, self.offset)
        return found

    def check(self) -> None:
        """Raises SpoiledError if it, or the bytes around it, were written."""
        _compare(cupy_module().asnumpy(self.memory), self.image, self.offset)

    def _elements(self, memory: Array) -> Array:
        return _elements(self.original, memory, self.offset)


def placed(array: Array) -> Placed:
    """A copy of a NumPy array on the current device, however that lies in memory.  Raises TargetError without one."""
    address = data_address(array)
    low, high = byte_bounds(array) if array.size else (address, address)
    start = _MARGIN + low % _ALIGNMENT
    offset = start + address - low
    image = np.full(start + high - low + _MARGIN, _FILLING, np.uint8)
    _elements(array, image, offset)[...] = array
    return Placed(array, image, cupy_module().asarray(image), offset)


def _elements(like: Array, memory: Array, offset: int) -> Array:
    return np.ndarray(like.shape, like.dtype, memory, offset, like.strides)


def _compare(now: Array, expected: Array, offset: int) -> None:
    wrong = np.flatnonzero(now != expected)
    if wrong.size:
        where = f"from {wrong[0] - offset} to {wrong[-1] - offset}"
        raise SpoiledError(f"{wrong.size} bytes beside elements were written, {where} after the first element")


def run_on_device(
    operation: Operation, data: Data, target: str, options: MappingOptions
) -> tuple[dict[str, Array], Compilation]:
    """The outputs of a call by name, and what was compiled.

    Raises TcompError, SpoiledError, and RuntimeError for a fault of a kernel, after which CUDA may work in no process
    but a new one.
    """
    with _filled_memory():
        inputs = tuple(a if isinstance(a, int) else placed(a) for a in data.arguments)
        outputs = {name: placed(array) for name, array in data.contents.items()}
        arguments = tuple(a.array if isinstance(a, Placed) else a for a in inputs)
        out: Mapping[str, Any] | None = {name: output.array for name, output in outputs.items()} or None
        kernel = operation.compile(*arguments, out=out, target=target, options=options)
        results = operation(*arguments, out=out, target=target, options=options)
        wait(Memory.CUDA)
    made = results if isinstance(results, tuple) else (results,)
    found = {
        tensor.name: outputs[tensor.name].content() if tensor.name in outputs else fetched(array)
        for tensor, array in zip(operation.function.outputs, made, strict=True)
    }
    for argument in inputs:
        if isinstance(argument, Placed):
            argument.check()
    return found, kernel.compilation


def device_works() -> bool:
    """Whether the current device still does what this process tells it to, if there is one."""
    try:
        wait(Memory.CUDA)
    except TargetError:
        return True
    except RuntimeError:
        return False
    return True


def _filled_memory() -> AbstractContextManager[None]:
    """New memory of the device holds bytes of 255, as a kernel may not read what was not written."""
    cupy = cupy_module()
    pool = cupy.get_default_memory_pool()
    pool.set_limit(size=_MOST_BYTES)

    def allocate(count: int) -> Any:
        memory = pool.malloc(count)
        memory.memset_async(_FILLING, count)
        return memory

    manager: AbstractContextManager[None] = cupy.cuda.using_allocator(allocate)
    return manager
