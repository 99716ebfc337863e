"""Packed panels on a CPU: how they are filled, and where an element of one lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.backends.arena import panel_name
from tcomp.backends.dialect import C_STORAGE_TYPES, mangle
from tcomp.mapping.plan import Copy
from tcomp.scop import Storage, contiguous_strides


@dataclass(frozen=True, slots=True)
class Panel:
    """The copy of a box of a tensor."""

    copy: Copy
    storage: Storage

    @property
    def name(self) -> str:
        """Its name in C."""
        return mangle(panel_name(self.copy))

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each dimension of the tensor lie in the panel."""
        by_order = contiguous_strides(self.copy.room)
        return tuple(by_order[self.copy.order.index(d)] for d in range(len(self.copy.shape)))

    def element(self, subscripts: Sequence[str]) -> str:
        """The C text of an element, from that of its subscripts in the tensor."""
        terms = [
            f"({text} - {self._corner(d)}) * {stride}L"
            for d, (text, stride, extent) in enumerate(zip(subscripts, self.strides, self.copy.shape, strict=True))
            if extent > 1
        ]
        return f"{self.name}[{' + '.join(terms) or '0'}]"

    def filled(self, memory: str, corner: Sequence[str], source: str) -> list[str]:
        """The lines that declare the panel at some ``memory`` and fill it; ``corner`` is the text of its first element.

        What of the box is outside the tensor stays as it is: nobody reads it.
        """
        c = C_STORAGE_TYPES[self.copy.dtype.name]
        lines = [f"{c} *const {self.name} = ({c} *)({memory});"]
        rank = len(corner)
        lines += [f"const long {self._corner(d)} = {corner[d]};" for d in range(rank)]
        box = self.storage.box
        for depth, d in enumerate(self.copy.order):
            low = f"tc_max(0, {box.origin[d]} - {self._corner(d)})"
            high = f"tc_min({self.copy.shape[d]}, {box.origin[d] + box.extent[d]} - {self._corner(d)})"
            lines.append("  " * depth + f"for (long o{d} = {low}; o{d} < {high}; o{d}++)")
        target = " + ".join(f"o{d} * {stride}L" for d, stride in enumerate(self.strides)) or "0"
        terms = [f"({self._corner(d)} + o{d} - {box.origin[d]}) * {self.storage.strides[d]}L" for d in range(rank)]
        lines.append("  " * rank + f"{self.name}[{target}] = {source}[{' + '.join(terms) or '0'}];")
        return lines

    def _corner(self, d: int) -> str:
        return f"{self.name}_at{d}"
