"""What the engine asks of a target that is to run kernels, whichever memory its arrays are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from tcomp.arrays.devices import Memory, Place
from tcomp.arrays.matching import TensorSigns
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


DirectBinding = Callable[[tuple[Any, ...], Any], Any]
"""Runs a kernel on the arguments of a call and what was given as ``out``.

Returns what the call returns, or None if nothing was done, since something is not as in the call that it was made for.
"""


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What an array must be like: the one at ``position`` of the arguments, or of the outputs.

    ``kind`` is the type of the elements of an array of NumPy, of which there is one object, and the class of a tensor.
    Bits of ``mask`` are 0 in its address; ``low`` and ``high`` bound the bytes of its elements, from that address.
    ``shape`` and ``strides``, in bytes, are empty where the library of the arrays looks at those.  Where so many bytes
    are ``copied``, the kernel takes a copy in C order.
    """

    position: int
    kind: object
    mask: int
    low: int
    high: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    copied: int = 0


@dataclass(frozen=True, slots=True)
class CallLayout:
    """What the arguments and outputs of a call must be like, for so many ``arguments``, and how results are made.

    ``constants`` are the integers among them, by position: the very objects, so that none need be compared.  ``signs``
    are what tensors have; without, arrays are NumPy's.  Outputs are ``given``, or not, or either if it is None; those
    that are not are made by ``makers``, and ``note`` is told of the others.  ``failure`` makes an error of what a check
    reports.  ``fixed`` are the addresses of what is bound, which follow those of the outputs.
    """

    arguments: int
    inputs: tuple[ArrayFacts, ...]
    outputs: tuple[ArrayFacts, ...]
    constants: tuple[tuple[int, int], ...]
    makers: tuple[Callable[[], Any], ...]
    failure: Callable[[Sequence[int]], TcompError]
    signs: TensorSigns | None = None
    given: bool | None = None
    note: Callable[[Any], None] | None = None
    fixed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a context of autograd: a value, or without one those of a call's arguments and, behind these,
    results that have some ``places``."""

    name: str
    value: object = None
    places: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pulled:
    """How a node of autograd gets its gradients from a kernel, which takes so many ``saved`` tensors, and cotangents.

    ``used`` says which cotangents are there, ``sources`` for each argument of the kernel whether it is a cotangent, and
    the place among those or the saved tensors; of numbers it is any.  ``returns`` are places of gradients among the
    results of the kernel.
    """

    saved: int
    used: tuple[bool, ...]
    sources: tuple[tuple[bool, int], ...]
    returns: tuple[int | None, ...]


class QuickRun(Protocol):
    """A kernel that looks at the arrays of a call itself."""

    def binding(self) -> DirectBinding:
        """The call."""
        ...

    def forward(self, attributes: Sequence[Attribute], otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """``forward(ctx, *arguments)`` of a node of autograd, for arguments that fit; sets attributes of the context.

        Without memory for the results ``otherwise(*arguments)`` gives them.
        """
        ...

    def recorded(self, apply: Callable[..., Any], taken: int) -> DirectBinding:
        """A call of ``apply`` where the arguments fit: of its results so many, or all if that is 0."""
        ...

    def backward(self, pulled: Pulled) -> Callable[..., Any] | None:
        """``backward(saved, *cotangents)`` of a node of autograd, which gives None where something does not fit.

        None if there is no way.
        """
        ...


class Run(Protocol):
    """A kernel ready to run on arrays at one site.

    Called with one address for each argument of the ``Source``, it runs, or starts running, and returns None, or what a
    failed check has left in the report (see ``Source``).  Where it only starts, a later call raises what checks find,
    or who waits for the device.  Raises TcompError.
    """

    def __call__(self, addresses: Sequence[int]) -> Sequence[int] | None: ...

    def direct(self, layout: CallLayout) -> QuickRun | None:
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
