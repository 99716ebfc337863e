"""Where operands and results of register tiles lie, how far apart their rows are, and what is outside the tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tcomp.backends.dialect import C_STORAGE_TYPES, constant_text
from tcomp.mapping.machines.cpu import LINE_BYTES
from tcomp.mapping.tiles.strides import Strides
from tcomp.values.operators import DType


@dataclass(frozen=True, slots=True)
class Place:
    """An element in memory: the C text of its lvalue, its type, and the strides of the tensor's dimensions.

    The stride of a dimension is the distance between elements that are ``steps`` apart in it, if that is given.  Those
    that calls say are None, and ``pitches`` has their names.  ``room`` is the C text of how many columns are in memory
    from the element on, where it lies in a panel, whose columns may be more than those of its tensor.
    """

    text: str
    dtype: DType
    strides: Strides
    steps: tuple[int, ...] | None = None
    pitches: tuple[str, ...] = ()
    room: str = ""


@dataclass(frozen=True, slots=True)
class Border:
    """What columns are where not all of ``inside``, in C, holds: a number each, unless they are always inside.

    Columns lie in a tensor all together, or outside of it: there they are a row of their own.
    """

    inside: tuple[str, ...]
    number: int | float | None

    def address(self, element: str, operand: str) -> str:
        """The C text of the address of a row of columns, whose first one is an ``element`` where it is inside."""
        return f"{' && '.join(self.inside)} ? &{element} : {_row_outside(operand)}" if self.inside else f"&{element}"

    def declared(self, operand: str, dtype: DType, columns: int) -> list[str]:
        """The C declaration of a row of columns outside, if any are."""
        if not self.inside or self.number is None:
            return []
        zero = self.number == 0 and math.copysign(1, self.number) > 0
        value = "{0}" if zero else f"{{[0 ... {columns - 1}] = {constant_text(self.number, dtype)}}}"
        array = f"static const {C_STORAGE_TYPES[dtype.name]} {_row_outside(operand)}[{columns}]"
        return [f"{array} __attribute__((aligned({LINE_BYTES}))) = {value};"]


@dataclass(frozen=True, slots=True)
class Operand:
    """How a step reads an operand: from ``place``, moving by ``row`` and ``column`` elements in the tile.

    ``again`` says that neighbouring steps read what other rows have read before.  ``bordered`` gives the place of each
    row, and what is there outside the tensor.  Where ``pitch`` is the name of a stride, rows move by so many of it.
    Rows behind the last one are the last one again where it is ``clamped``.  Each step fetches what is so many elements
    ``ahead``.
    """

    place: Place
    row: int
    column: int
    name: str
    again: bool = False
    bordered: Callable[[int], tuple[Place, Border]] | None = None
    pitch: str = ""
    clamped: bool = False
    ahead: tuple[int, ...] = ()

    def offset(self, row: int, element: int) -> str:
        """The C text of the distance from the place to an element of a row."""
        if self.clamped and row * self.row:
            return f"{self.name}_row{row} + {element}"
        if not self.pitch or not row * self.row:
            return str(row * self.row + element)
        return f"{row * self.row}L * {self.pitch} + {element}"

    def apart(self, size: int = 1) -> str:
        """The C text of the distance from one row to the next, in units of which an element has ``size``."""
        return f"{self.row * size}L * {self.pitch}" if self.pitch else str(self.row * size)

    @property
    def is_vector(self) -> bool:
        """Whether neighbouring columns read neighbouring elements."""
        return self.column == 1


def _row_outside(operand: str) -> str:
    return f"{operand}_outside"
