"""Panels of bound arrays, which are packed before a kernel is called: where they lie, and the function that packs them.

Each corner of such a panel has a place of its own, in the order of the grid on which they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcomp.backends.arena import ALIGNMENT
from tcomp.backends.c.contractions.groupedpanels import panel_of
from tcomp.backends.c.contractions.panels import Panel
from tcomp.backends.dialect import mangle
from tcomp.mapping.memory.corners import Corners, corners_of
from tcomp.mapping.memory.places import places
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.storages import contiguous_strides

MEMORY = "packed"
"""The C name of the memory: no tensor has it."""


@dataclass(frozen=True, slots=True)
class AheadPanel:
    """A panel all of whose boxes lie one after another from a byte ``offset`` on."""

    panel: Panel
    corners: Corners
    offset: int

    @property
    def room(self) -> int:
        """Bytes of one box: vectors may reach past its end."""
        return -(-self.panel.copy.bytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT

    @property
    def end(self) -> int:
        """What follows the last box."""
        return self.offset + self.corners.number * self.room

    def address(self, corner: Sequence[str]) -> str:
        """The C text of where the box with some corner lies."""
        weights = contiguous_strides(self.corners.counts)
        terms = [
            f"(({text}) - {first}) / {apart} * {weight * self.room}L"
            for text, first, apart, count, weight in zip(
                corner, self.corners.first, self.corners.apart, self.corners.counts, weights, strict=True
            )
            if count > 1
        ]
        return " + ".join([f"{MEMORY} + {self.offset}L", *terms])

    def filled(self, vector_bytes: int) -> Iterator[str]:
        """The lines that fill all boxes."""
        moving = [d for d, count in enumerate(self.corners.counts) if count > 1]
        yield from (f"for (long c{d} = 0; c{d} < {self.corners.counts[d]}; c{d}++)" for d in moving)
        grid = zip(self.corners.first, self.corners.apart, strict=True)
        corner = [f"{first} + {apart} * c{d}" if d in moving else f"{first}" for d, (first, apart) in enumerate(grid)]
        yield "{"
        yield from (f"  {line}" for line in self.panel.declared(self.address(corner), corner))
        lines = [*self.panel.bordered(), *self.panel.filled(mangle(self.panel.copy.storage), vector_bytes)]
        yield from (f"  {line}" for line in lines)
        yield "}"


@dataclass(frozen=True, slots=True)
class AheadPanels:
    """The panels of a kernel that are packed ahead, by their names."""

    by_name: dict[str, AheadPanel]

    @property
    def bytes(self) -> int:
        """The memory that they need."""
        return max((p.end for p in self.by_name.values()), default=0)

    def filled(self, vector_bytes: int) -> list[str]:
        """The lines that pack all of them."""
        return [line for panel in self.by_name.values() for line in panel.filled(vector_bytes)]


def ahead_panels(plan: Plan) -> AheadPanels:
    """The panels of a plan that are packed ahead of calls."""
    chosen = [c for c in plan.copies if c.ahead]
    marks = {p.mark: p for p in places(plan.tree)} if chosen else {}
    found: dict[str, AheadPanel] = {}
    end = 0
    for copy in chosen:
        corners = corners_of(marks[copy.mark], copy)
        if corners is not None:
            panel = panel_of(copy, plan.scop.storages[copy.storage])
            found[panel.name] = AheadPanel(panel, corners, end)
            end = found[panel.name].end
    return AheadPanels(found)
