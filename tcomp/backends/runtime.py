"""What the engine asks of a target that is to run kernels, whichever memory its arrays are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tcomp.arrays.devices import Memory, Place
from tcomp.backends.source import Source
from tcomp.errors import TcompError


@dataclass(frozen=True, slots=True)
class Site:
    """Where a kernel is to run, and what the library of the caller's arrays lends it there.

    ``stream`` gives the number of the CUDA stream on which that library works at the moment (0 in main memory).
    ``allocate`` gives the address of so many bytes, and what keeps them alive: dropped after the launch, they are used
    again by nothing that runs before the kernels on that stream.  ``failure`` makes an error of what a kernel reports
    after its call has returned.
    """

    place: Place
    stream: Callable[[], int]
    allocate: Callable[[int], tuple[int, object]]
    failure: Callable[[Sequence[int]], TcompError]


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What an array must be like: the one at ``position`` of the arguments, or of the outputs.

    ``strides`` are in bytes; ``low`` and ``high`` bound the bytes of its elements, from the address of the first.
    """

    position: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int

    def numbers(self) -> list[int]:
        """As the C function reads them."""
        sides = [n for pair in zip(self.shape, self.strides, strict=True) for n in pair]
        return [self.position, id(self.dtype), self.dtype.itemsize - 1, self.low, self.high, len(self.shape), *sides]


@dataclass(frozen=True, slots=True)
class CallLayout:
    """What the arguments and outputs of a call must be like, for so many ``arguments``.

    ``constants`` are the integers among them, by position: the very objects, so that none need be compared.  ``fixed``
    are the addresses of what is bound, which follow those of the outputs.
    """

    arguments: int
    inputs: tuple[ArrayFacts, ...]
    outputs: tuple[ArrayFacts, ...]
    constants: tuple[tuple[int, int], ...]
    fixed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DirectRun:
    """A kernel that looks at the arrays of a call itself.

    ``run`` takes the arguments, and the output or a tuple of several.  It returns 0 if the kernel ran, 1 if a check
    failed, of which ``report`` then tells, and a negative number if it did nothing, since something is not as it was.
    """

    run: Callable[[tuple[Any, ...], Any], int]
    report: Callable[[], Sequence[int]]


class Run(Protocol):
    """A kernel ready to run on arrays at one site.

    Called with one address for each argument of the ``Source``, it runs, or starts running, and returns None, or what a
    failed check has left in the report (see ``Source``).  Where it only starts, a later call raises what checks find,
    or who waits for the device.  Raises TcompError.
    """

    def __call__(self, addresses: Sequence[int]) -> Sequence[int] | None: ...

    def direct(self, layout: CallLayout) -> DirectRun | None:
        """The quick way to run on arrays of one layout, where there is one."""
        ...

    def keep(self, objects: object) -> bool:
        """Keep objects if a CUDA graph records what runs now, for it will use them again; whether one does."""
        ...

    def failure(self, error: Exception) -> TcompError:
        """What to raise when making outputs raised ``error``, a MemoryError, ValueError or RuntimeError."""
        ...


class Program(Protocol):
    """A source that was compiled."""

    def at(self, site: Site) -> Run:
        """Make it ready to run at a site.  Raises TargetError if it cannot run there."""
        ...

    def pack(self, addresses: Sequence[int]) -> None:
        """Fill the panels of bound arrays, of a source with ``packing``; the addresses are those of its bound
        arguments."""
        ...


class Runtime(Protocol):
    """How the kernels of a target become programs that run on arrays in ``memory``."""

    @property
    def memory(self) -> Memory: ...

    def loading(self, source: Source) -> AbstractContextManager[None]:
        """Compile a source meanwhile, where another process does it, and drop that if the block raises.

        Raises TargetError.
        """
        ...

    def load(self, source: Source) -> Program:
        """Compile a source, or find it in the cache.  Raises TargetError."""
        ...
