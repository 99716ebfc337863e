"""What the languages of GPUs spell otherwise: coordinates, barriers, memories, the head of a kernel.

CUDA's words are in ``backends/cuda/dialect.py``, HIP's and OpenCL's in rooms of their own.  A writer asks its dialect
for these and spells everything else itself, since it is C in all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tcomp.backends.dialect import C_STORAGE_TYPES, Dialect
from tcomp.values.operators import DType

DEVICE_TYPES = C_STORAGE_TYPES | {"float16": "unsigned short"}
"""The C type of one element in memory."""


SWIZZLE_ALIGNMENT = 1024
"""Eight rows of 128 bytes, after which a swizzle begins again."""


@dataclass(frozen=True, slots=True)
class SharedArray:
    """An array in shared memory; extents outermost first, ``itemsize`` in bytes, ``wide`` if aligned to 16 bytes.

    What is ``swizzled`` by its addresses begins where their pattern does.
    """

    element: str
    name: str
    shape: tuple[int, ...]
    itemsize: int
    wide: bool = False
    swizzled: bool = False

    @property
    def alignment(self) -> int:
        """What its address is a multiple of, in bytes."""
        return SWIZZLE_ALIGNMENT if self.swizzled else 16 if self.wide else self.itemsize

    @property
    def bytes(self) -> int:
        """Size in bytes, rounded up so that the next array is aligned, too."""
        return -(-math.prod(self.shape) * self.itemsize // 16) * 16

    @property
    def extents(self) -> str:
        """The extents as C has them behind a name."""
        return "".join(f"[{e}]" for e in self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDialect(Dialect, ABC):
    """A language of kernels.

    ``lanes`` is how many threads hand values to each other by shuffles; 0 where the language promises none.
    ``multiplies`` and ``asks_ahead`` say whether it has instructions for matrices, and copies that threads need not
    wait for; ``most_declared`` is how much shared memory kernels may declare, in bytes: for more a launch asks.
    ``zeros`` is a vector of 16 bytes without content, ``global_space`` stands in front of the type of what all blocks
    see.  ``from_lowest`` says that kernels get pointers to the lowest element of an array, and not to the first;
    ``meets_first`` that threads which go on to another tile wait in front of it, and not behind the one before.
    Kernels are ``moved`` if launches can give them the beginnings of arrays only: behind everything else they take by
    how many bytes each of their pointers is to be moved.
    """

    lanes: int
    multiplies: bool
    asks_ahead: bool
    most_declared: int
    zeros: str
    global_space: str
    from_lowest: bool
    meets_first: bool
    moved: bool = False

    @abstractmethod
    def thread(self, axis: int) -> str:
        """The coordinate of a thread in its block along an axis: 0 is x."""

    @abstractmethod
    def block(self, axis: int) -> str:
        """The coordinate of a block in the grid."""

    @abstractmethod
    def blocks(self, axis: int) -> str:
        """The blocks of the grid along an axis."""

    @abstractmethod
    def barrier(self, level: str, everywhere: bool) -> str:
        """Where the threads of a ``level`` ("warp" or "block") wait for each other, and see what others have stored.

        They may have stored it in shared memory, or ``everywhere``.
        """

    @abstractmethod
    def head(self, block: Sequence[int], resident: int) -> str:
        """What stands in front of the name of a kernel; ``block`` are its threads in x, y, z, of which a
        multiprocessor should hold so many blocks."""

    @abstractmethod
    def parameter(self, element: str, name: str, written: bool, restricted: bool) -> str:
        """A kernel's parameter that points to elements in global memory."""

    @abstractmethod
    def shared(self, arrays: Sequence[SharedArray], dynamic: bool) -> list[str]:
        """Declarations of shared memory, at the head of a kernel; ``dynamic`` where a launch asks for it."""

    @abstractmethod
    def aligned(self, element: str, name: str, count: int, alignment: int) -> str:
        """The declaration of some elements of a thread, at a multiple of so many bytes."""

    @abstractmethod
    def typed(self, function: str, element: str) -> str:
        """The name of one of our functions for elements of a C type."""

    @abstractmethod
    def shuffled(self, part: str, dtype: DType, width: int, threads: int) -> str:
        """What the thread has in ``part`` that is ``lane`` away, by exclusive or, of ``width`` neighbours.

        Blocks have so many ``threads``.  May name the number of this one, ``thread``, where ``names_thread`` says so.
        """

    @abstractmethod
    def names_thread(self, width: int, threads: int) -> bool:
        """Whether a shuffle names the number of the thread."""

    @abstractmethod
    def check(self, arguments: str, reported: Sequence[str]) -> str:
        """A checked subscript: ``arguments`` of the check, and the values that are reported where it fails."""

    @abstractmethod
    def function(self, intrinsic: str, c_type: str) -> str:
        """What a kernel calls for a built-in function.  Raises TargetError where there is none."""

    @abstractmethod
    def definitions(self, calls: Iterable[tuple[str, str]]) -> str:
        """Definitions of those called functions, given as (intrinsic, C type), that the language lacks."""

    @abstractmethod
    def prelude(self, text: str) -> str:
        """What stands in front of a text: definitions of our own functions that it calls."""

    @abstractmethod
    def finished(self, text: str) -> str:
        """A whole text, with what this language has other words for; no line moves."""

    @property
    @abstractmethod
    def reserved(self) -> frozenset[str]:
        """Words that no name of a program may be spelled as."""
