"""What the names of a definition stand for, and what the names of one statement stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tcomp.errors import Span
from tcomp.grammar.tree.conversions import Typed
from tcomp.grammar.tree.function import Expr
from tcomp.values.operators import INTRINSICS, DType

REWRITTEN: dict[str, int] = {"select": 3, "clamp": 3}
"""Built-in functions that the checker spells with operators, with their number of arguments."""

BOUNDARIES: dict[str, int] = {
    "constant_exterior": 2,
    "repeat_edge": 1,
    "mirror_image": 1,
    "mirror_interior": 1,
    "repeat_image": 1,
}
"""Reads outside a tensor, with the number of arguments before the subscripts."""


def is_function(name: str) -> bool:
    """Is this a built-in function?  A tensor may have its name, which then means the tensor in the whole definition."""
    return name in INTRINSICS or name in REWRITTEN


@dataclass(slots=True)
class TensorEntry:
    """A tensor while its definition is being checked; ``dtype`` and ``rank`` are None until known.

    What is ``opened`` is first written by a block of steps, which may read what earlier steps wrote.  ``found``
    collects the types of what is assigned while the type itself is sought.
    """

    name: str
    role: str
    span: Span
    dtype: DType | None = None
    rank: int | None = None
    dims: tuple[Expr, ...] | None = None
    declared: bool = False
    written: bool = False
    read: bool = False
    failed: bool = False
    opened: bool = False
    found: list[DType] | None = None


@dataclass(slots=True)
class Environment:
    """The names of a definition: size symbols, ``const`` parameters (both with their types) and tensors.

    ``defaults`` are the values of ``const`` parameters that have one, ``defs`` the defs that may be called.
    ``misdirected`` says that a statement writes something that may not be written, so that an output that is never
    written is no separate mistake.
    """

    sizes: dict[str, DType] = field(default_factory=dict)
    constants: dict[str, DType] = field(default_factory=dict)
    defaults: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, TensorEntry] = field(default_factory=dict)
    written_later: frozenset[str] = frozenset()
    needs_content: set[str] = field(default_factory=set)
    misdirected: bool = False
    defs: Collection[str] = ()

    def kind_of(self, name: str) -> str | None:
        """What ``name`` is in this definition, for messages; None if nothing."""
        if name in self.sizes:
            return "a size"
        if name in self.constants:
            return "a compile-time scalar"
        if name in self.tensors:
            entry = self.tensors[name]
            return "a scalar" if entry.rank == 0 else "a tensor"
        return None

    def scalars(self) -> Iterator[str]:
        """Names that stand for a number wherever they occur."""
        yield from self.sizes
        yield from self.constants
        yield from (name for name, entry in self.tensors.items() if entry.rank == 0)

    def callables(self) -> Iterator[str]:
        """Names that may stand before parentheses."""
        yield from (name for name, entry in self.tensors.items() if entry.written or entry.role == "output")
        yield from self.defs
        yield from INTRINSICS
        yield from REWRITTEN


@dataclass(slots=True)
class Scope:
    """The names of one statement: index variables with the place of their first occurrence, and lets."""

    indices: dict[str, Span] = field(default_factory=dict)
    lets: dict[str, Typed] = field(default_factory=dict)
