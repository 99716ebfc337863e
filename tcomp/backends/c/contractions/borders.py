"""Columns of a register tile that lie in a tensor all together, or outside of it: there they are a row of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tcomp.backends.dialect import C_STORAGE_TYPES, constant_text
from tcomp.mapping.machines.cpu import LINE_BYTES
from tcomp.values.operators import DType


@dataclass(frozen=True, slots=True)
class Border:
    """What columns are where not all of ``inside``, in C, holds: a number each, unless they are always inside."""

    inside: tuple[str, ...]
    number: int | float | None

    def address(self, element: str, operand: str) -> str:
        """The C text of the address of a row of columns, whose first one is an ``element`` where it is inside."""
        return f"{' && '.join(self.inside)} ? &{element} : {_name(operand)}" if self.inside else f"&{element}"

    def declared(self, operand: str, dtype: DType, columns: int) -> list[str]:
        """The C declaration of a row of columns outside, if any are."""
        if not self.inside or self.number is None:
            return []
        zero = self.number == 0 and math.copysign(1, self.number) > 0
        value = "{0}" if zero else f"{{[0 ... {columns - 1}] = {constant_text(self.number, dtype)}}}"
        array = f"static const {C_STORAGE_TYPES[dtype.name]} {_name(operand)}[{columns}]"
        return [f"{array} __attribute__((aligned({LINE_BYTES}))) = {value};"]


def _name(operand: str) -> str:
    return f"{operand}_outside"
