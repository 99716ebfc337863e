"""What a backend's ``emit`` gives: program text and everything a caller must know to run it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tcomp.values.operators import DType

ALIGNMENT = 16
"""What vectors begin at a multiple of, in bytes."""

ANYWHERE = "-DTC_ANYWHERE"
"""The flag with which CUDA text reads and stores vectors element by element."""

REPORT = "*report"
"""What a launch calls the report among its arguments: no tensor can have this name."""

PACKED = "*packed"
"""The name of the last bound argument where panels are packed ahead of calls: the memory that holds them."""


def elements_before(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of memory lie between an array's lowest and its first: there are where strides are negative."""
    return sum(-s * max(0, e - 1) for e, s in zip(shape, strides, strict=True) if s < 0)


SIZE = "size"
"""The role of an argument that is no pointer but an open size."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One tensor pointer of the entry point.

    ``shape`` and ``strides`` (in elements) describe the array handed in or out; the pointer addresses the element
    whose index is all zeros.  ``role`` is "input", "output" or "inout" (an output whose content is read), or
    ``SIZE``.  What is ``bound`` is the same in every call.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    role: str
    bound: bool = False

    @property
    def before(self) -> int:
        """How many elements lie in front of the one whose index is all zeros."""
        return elements_before(self.shape, self.strides)


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """A data-dependent subscript: it must lie in ``[origin, origin + extent)`` of a dimension of ``tensor``.

    ``subscript`` is its text, which stands at ``[start, end)`` of the program; ``indices`` names the indices whose
    values the kernel reports when the check fails.  ``unsigned`` says that the subscript has no sign: the 64 bits that
    the kernel reports of it are then those of a number that is not below zero.  ``part`` names what of a range whose
    ends data give is checked instead (``tcomp/model/dataranges.py``): there is no tensor then.
    """

    tensor: str
    dimension: int
    extent: int
    origin: int
    subscript: str
    start: int
    end: int
    indices: tuple[str, ...]
    unsigned: bool = False
    part: str = ""


@dataclass(frozen=True, slots=True)
class Temporary:
    """A global intermediate of a launch sequence, at byte ``offset`` of the scratch memory; C order, unit strides."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How a device copies boxes of a tensor to shared memory by itself, in rows of 128 bytes with their swizzle.

    ``storage`` is an argument or a temporary; its element with coordinates 0 is the one that its pointer addresses.
    Dimensions stand innermost first: ``extents`` count elements, so does a ``box``, and neighbours along a dimension
    are ``strides`` elements apart, those along the first one 1.  What is outside of the extents becomes zeros.
    """

    storage: str
    dtype: DType
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """What a copy of a box brings, zeros included."""
        return math.prod(self.box) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a launch sequence; ``grid`` and ``block`` are extents in x, y, z.

    ``arguments`` names, in order, what the kernel takes a pointer to: arguments and temporaries of the source, or
    ``REPORT``; behind these it takes ``maps``, and the numbers of the ``steps`` that it runs in; in OpenCL then by how
    many bytes each pointer is to be moved, where the program runs step by step.  ``shared_bytes`` is
    the dynamic shared memory.  ``lines`` maps lines of the text (counted from 1) to the statement that they execute.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[str, ...]
    lines: tuple[tuple[int, str], ...] = ()
    steps: tuple[str, ...] = ()
    maps: tuple[TensorMap, ...] = ()


Turn = tuple[int, ...]
"""One of the launches of a program that runs step by step: its number, then by how many bytes each of its arguments
lies behind where the array begins (0 for the report), then the values of its steps."""


@dataclass(frozen=True, slots=True)
class Source:
    """Text of a kernel, or of several that are launched one after another.

    A CPU kernel is ``int32_t entry(inputs..., outputs..., char *scratch, int64_t *report)``: inputs in parameter order,
    outputs in order, then what is bound, ``scratch`` 64-byte aligned and ``scratch_bytes`` long (null where that is 0).
    Where ``packing`` is the name of a function, it takes the bound arguments, and fills the last one, which is 64-byte
    aligned, from the others: once, before the first call.  Those that are ``packed`` the entry does not read: their
    addresses may be null.  It returns 0, or 1 after an indirect subscript was
    outside its tensor; then ``report[0]`` is the position in ``checks``, ``report[1]`` the subscript's value, and from
    ``report[3]`` on stand the values of the check's indices.

    CUDA text has no entry function but ``launches``, to be run in order; ``temporaries`` lie in the scratch memory.
    A failed check sets ``report[2]``, which is 0 before the first launch.  The ``aligned`` arguments must begin at
    multiples of ``ALIGNMENT`` bytes; where one does not, the source ``anywhere`` is the one to compile.  What runs step
    by step says in ``turns`` what is launched when; otherwise each is launched once.

    Where launches take maps of tensors, ``otherwise`` is the same without: for devices whose driver makes none, and for
    arrays that begin elsewhere.

    ``warnings`` are what whoever makes a kernel of it is told of the program, ``notes`` what its text does and its plan
    does not say.
    """

    text: str
    entry: str
    arguments: tuple[Argument, ...]
    scratch_bytes: int
    checks: tuple[IndexCheck, ...]
    flags: tuple[str, ...]
    launches: tuple[Launch, ...] = ()
    temporaries: tuple[Temporary, ...] = ()
    aligned: tuple[str, ...] = ()
    packing: str | None = None
    warnings: tuple[str, ...] = ()
    turns: tuple[Turn, ...] | None = None
    otherwise: Source | None = None
    packed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> Iterator[Turn]:
        """All launches, one after another."""
        if self.turns is None:
            return ((n, *(0 for _ in launch.arguments)) for n, launch in enumerate(self.launches))
        return iter(self.turns)

    @property
    def called(self) -> tuple[Argument, ...]:
        """The arguments that every call gives: inputs, then outputs."""
        return tuple(a for a in self.arguments if not a.bound)

    @property
    def bound(self) -> tuple[Argument, ...]:
        """The arguments behind these, which are the same in every call."""
        return tuple(a for a in self.arguments if a.bound)

    @property
    def anywhere(self) -> Source:
        """The same for arguments that begin at any address."""
        own = self.otherwise or self
        return replace(own, flags=(*own.flags, ANYWHERE), aligned=())

    def fits(self, addresses: Sequence[int]) -> bool:
        """Whether arguments at these addresses begin where they must."""
        return all(
            address % ALIGNMENT == 0
            for argument, address in zip(self.arguments, addresses, strict=False)
            if argument.name in self.aligned
        )
