"""What a kernel is specialised to: sizes, strides, open sizes, and which part of a program it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a program whose inputs ``bound`` are known before it is called.

    ``once`` is the part that is computed when they are: it takes them and gives what the other part reads of them.
    """

    bound: tuple[str, ...]
    once: bool = False


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The values that an open size may have: multiples of ``multiple`` from ``first`` to ``last``, both included."""

    first: int
    last: int
    multiple: int = 1

    def __contains__(self, value: int) -> bool:
        return self.first <= value <= self.last and value % self.multiple == 0

    def __str__(self) -> str:
        multiples = f", multiples of {self.multiple}" if self.multiple > 1 else ""
        return f"{self.first} to {self.last}{multiples}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a kernel is specialised to.

    ``values`` gives every size symbol and ``const`` parameter; ``strides`` the element strides of tensors that are not
    in C order (negative and zero strides are allowed).  ``part`` is the part of the program that the kernel computes,
    where some arrays are bound (``bindingtime.py``); None is all of it.  ``open`` has the sizes that each call says,
    whose ``values`` are the largest ones.
    """

    values: Mapping[str, int]
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    part: Part | None = None
    open: Mapping[str, SizeRange] = field(default_factory=dict)
