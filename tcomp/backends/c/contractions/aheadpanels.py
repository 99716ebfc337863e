"""Panels of bound arrays, which are packed before a kernel is called: where they lie, and the function that packs them.

Each corner of such a panel has a place of its own, in the order of the grid on which they lie.  Where all of them are
more than a near cache holds, the register tiles that share a box fetch the next one meanwhile, a part in each step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tcomp.backends.arena import ALIGNMENT
from tcomp.backends.c.contractions.groupedpanels import panel_of
from tcomp.backends.c.contractions.panels import Panel
from tcomp.backends.c.loops.nests import Nest, extents_of
from tcomp.backends.dialect import mangle
from tcomp.backends.spelling import loop_text
from tcomp.grammar.tree.function import Read
from tcomp.loops.indexing import step_of
from tcomp.loops.ir import For, LoopExpr, variables
from tcomp.mapping.machines.cpu import LINE_BYTES, Machine
from tcomp.mapping.machines.fitted.cputext import NEXT_BOXES
from tcomp.mapping.memory.corners import Corners, corners_of
from tcomp.mapping.memory.places import places
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.storages import contiguous_strides

MEMORY = "packed"
"""The C name of the memory: no tensor has it."""


@dataclass(frozen=True, slots=True)
class NextBox:
    """The box that is read after another: its ``address`` in C, its bytes, and the loops over tiles of the other."""

    address: str
    bytes: int
    tiles: tuple[For, ...]

    def fetched(self, nest: Nest) -> tuple[str, str] | None:
        """What a register tile says before its first step, and in each step, to fetch its part of the box.

        None where that would be more than a line in each step: then the box is fetched as fast as it could be read.
        """
        tiles = [*self.tiles, *(loop for loop in nest.outer if isinstance(loop, For))]
        counts = [max(extents_of(loop), default=0) for loop in tiles]
        steps = [max(extents_of(loop), default=0) for loop in nest.steps if isinstance(loop, For)]
        if 0 in (*counts, *steps):
            return None
        part = -(-self.bytes // math.prod(counts))
        each = -(-part // math.prod(steps))
        if each > LINE_BYTES:
            return None
        apart = contiguous_strides(tuple(counts))
        terms = [
            f"({loop.iterator} - {loop_text(loop.lower)}) * {apart[d] * part}L"
            for d, loop in enumerate(tiles)
            if counts[d] > 1
        ]
        address = " + ".join([f"(const char *){self.address}", *terms])
        return f"const char *tc_next = {address};", f"__builtin_prefetch(tc_next); tc_next += {each};"


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

    def next_box(
        self, corner: Sequence[LoopExpr], around: Sequence[For], tiles: Sequence[For], machine: Machine
    ) -> NextBox | None:
        """The box that the innermost loop ``around`` comes to next; None if all are near, or that cannot be told.

        ``tiles`` are the loops between the box with some corner and a register tile.
        """
        moving = [loop for loop in around if any(loop.iterator in variables(c) for c in corner)]
        if not moving or self.end - self.offset <= NEXT_BOXES.near_share * machine.middle_cache:
            return None
        loop, distance = moving[-1], 0
        weights = contiguous_strides(self.corners.counts)
        for expr, apart, weight in zip(corner, self.corners.apart, weights, strict=True):
            step = step_of(expr, loop.iterator)
            if step is None or step * loop.step % apart:
                return None
            distance += step * loop.step // apart * weight
        return NextBox(f"{self.panel.name} + {distance * self.room}L", self.panel.copy.bytes, tuple(tiles))

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


class Boxes:
    """Where the boxes of panels packed ahead are in the loops that are being spelled, outermost first."""

    def __init__(self, ahead: AheadPanels, panels: Mapping[str, Mapping[Read, Panel]], machine: Machine) -> None:
        """``panels`` has those of each statement."""
        self._ahead, self._panels, self._machine = ahead, panels, machine
        self.loops: list[For] = []
        """Those around what is being spelled."""
        self._entered: dict[str, tuple[tuple[LoopExpr, ...], int]] = {}

    @contextmanager
    def inside(self, *loops: For) -> Iterator[None]:
        """While what is inside some loops is spelled."""
        self.loops += loops
        yield
        del self.loops[len(self.loops) - len(loops) :]

    def enter(self, panel: Panel, corner: tuple[LoopExpr, ...]) -> None:
        """A panel holds the box with some corner from here on."""
        self._entered[panel.name] = (corner, len(self.loops))

    def coming(self, statement: str) -> NextBox | None:
        """What register tiles of a statement here may fetch, as they will read it next; None if there is nothing."""
        for panel in self._panels.get(statement, {}).values():
            if panel.name in self._ahead.by_name and panel.name in self._entered:
                corner, outside = self._entered[panel.name]
                loops = self.loops[:outside], self.loops[outside:]
                return self._ahead.by_name[panel.name].next_box(corner, *loops, self._machine)
        return None


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
