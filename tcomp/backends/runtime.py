"""What the engine asks of a target that is to run kernels, whichever memory its arrays are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from tcomp.backends.directcalls import CallLayout
from tcomp.backends.source import Source
from tcomp.devices import Memory, Place
from tcomp.errors import TcompError


@dataclass(frozen=True, slots=True)
class Site:
    """Where a kernel is to run, and what the library of the caller's arrays lends it there.

    ``stream`` gives the number of the CUDA stream on which that library works at the moment (0 in main memory).
    ``allocate`` gives the address of so many bytes, and what keeps them alive: dropped after the launch, they are used
    again by nothing that runs before the kernels on that stream.
    """

    place: Place
    stream: Callable[[], int]
    allocate: Callable[[int], tuple[int, object]]


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
    failed check has left in the report (see ``Source``).  Raises TcompError.
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
