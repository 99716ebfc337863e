"""Packed panels that a thread keeps from one tile to the next.

Tiles of a group run in any order.  Those that read the same panel follow one another, and only the first of them fills
it, unless another thread has taken that one.  A tile of several groups fills a panel many times, once for each part of
the keys of an attention, say: of such a panel a thread keeps all boxes, each in a place of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.backends.arena import ALIGNMENT, LARGEST_ON_STACK
from tcomp.backends.c.contractions.groupedpanels import panel_of
from tcomp.backends.c.contractions.panels import Panel
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import Execute, For, LoopNode, Scope, variables, walk
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpupanels import PACKING
from tcomp.mapping.memory.corners import Corners, corners_of
from tcomp.mapping.memory.places import places
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.storages import contiguous_strides
from tcomp.values.operators import INT64


@dataclass(frozen=True, slots=True)
class KeptPanel:
    """A panel that is the same for all tiles with the same values of some of their iterators."""

    panel: Panel
    iterators: tuple[str, ...]

    def declared(self) -> list[str]:
        """The lines in front of all tiles of a thread."""
        counters = (f"long {self._last(i)} = 0;" for i in self.iterators)
        return [f"long {self._filled} = 0;", *counters, *self.panel.facts()]

    def unless_kept(self, lines: Sequence[str]) -> list[str]:
        """The lines that fill the panel, for tiles whose panel is not there already."""
        differs = " || ".join([f"!{self._filled}", *(f"{self._last(i)} != {i}" for i in self.iterators)])
        noted = [f"{self._filled} = 1;", *(f"{self._last(i)} = {i};" for i in self.iterators)]
        return [f"if ({differs}) {{", *("  " + line for line in (*lines, *noted)), "}"]

    @property
    def _filled(self) -> str:
        return f"{self.panel.name}_filled"

    def _last(self, iterator: str) -> str:
        return f"{self.panel.name}_for_{iterator}"


@dataclass(frozen=True, slots=True)
class KeptBoxes:
    """The boxes of a panel that tiles read again, from a byte ``offset`` of a thread's room for such boxes on.

    Along the dimensions that are ``fixed`` a tile has one corner, along the others it has all.
    """

    panel: Panel
    corners: Corners
    fixed: frozenset[int]
    offset: int

    @property
    def counts(self) -> tuple[int, ...]:
        """How many boxes are kept along each dimension."""
        return tuple(1 if d in self.fixed else count for d, count in enumerate(self.corners.counts))

    @property
    def box(self) -> int:
        """Bytes of one box: vectors may reach past its end."""
        return -(-self.panel.copy.bytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT

    @property
    def end(self) -> int:
        """What follows the last box."""
        return self.offset + math.prod(self.counts) * self.box

    def declared(self) -> list[str]:
        """The line in front of all tiles of a thread: no box is filled."""
        return [f"long {self._filled}[{math.prod(self.counts)}] = {{0}};"]

    def address(self, corner: Sequence[str]) -> str:
        """The C text of where the box with some corner lies in a thread's room."""
        return f"{self.offset}L + ({self._place(corner)}) * {self.box}L"

    def unless_kept(self, corner: Sequence[str], lines: Sequence[str]) -> list[str]:
        """The lines that fill the box with some corner, where another one is in its place."""
        weights = contiguous_strides(self.corners.counts)
        number = self._sum(corner, [weights[d] if d in self.fixed else 0 for d in range(len(weights))])
        place = f"{self._filled}[{self._place(corner)}]"
        noted = f"{place} = {number} + 1;"
        return [f"if ({place} != {number} + 1) {{", *("  " + line for line in (*lines, noted)), "}"]

    def _place(self, corner: Sequence[str]) -> str:
        weights = contiguous_strides(self.counts)
        return self._sum(corner, [0 if d in self.fixed else weight for d, weight in enumerate(weights)])

    def _sum(self, corner: Sequence[str], weights: Sequence[int]) -> str:
        grid = zip(corner, self.corners.first, self.corners.apart, self.corners.counts, weights, strict=True)
        terms = [
            f"(({text}) - {first}L) / {apart} * {weight}L"
            for text, first, apart, count, weight in grid
            if weight and count > 1
        ]
        return " + ".join(terms) or "0"

    @property
    def _filled(self) -> str:
        return f"{self.panel.name}_filled"


def kept_boxes(plan: Plan, machine: Machine, loops: Sequence[For], tile: LoopNode) -> list[KeptBoxes]:
    """The panels of tiles of several groups all of whose boxes are kept for the tiles that follow and read the same.

    They are of tensors that no tile writes, and take a share of what a thread has of the last cache; their numbers have
    room on its stack.
    """
    below = [*walk(tile)]
    if sum(map(_is_group, below)) < 2:
        return []
    written = {plan.scop.by_name[n.statement].target for n in below if isinstance(n, Execute)}
    iterators = {loop.iterator for loop in loops}
    moving = [loop.iterator for loop in loops if constant_extent(loop.lower, loop.upper) != loop.step]
    marks = {p.mark: p for p in places(plan.tree)}
    found: list[KeptBoxes] = []
    for copy in plan.copies:
        here = [n for n in below if isinstance(n, Scope) and n.name == copy.mark]
        if len(here) != 1 or copy.storage in written or copy.ahead or copy.groups is not None:
            continue
        corner = affine_expressions(copy.lower, here[0].around)
        corners = corners_of(marks[copy.mark], copy)
        needed = frozenset().union(*map(variables, corner)) & iterators
        alike = [i not in needed for i in moving]
        if corners is None or not any(alike) or alike != sorted(alike):
            continue
        fixed = frozenset(d for d, text in enumerate(corner) if variables(text) <= iterators)
        panel = panel_of(copy, plan.scop.storages[copy.storage])
        kept = KeptBoxes(panel, corners, fixed, found[-1].end if found else 0)
        near = kept.end <= PACKING.kept_share * machine.last_cache / machine.threads
        if near and math.prod(kept.counts) * INT64.itemsize <= LARGEST_ON_STACK:
            found.append(kept)
    return found


def _is_group(node: LoopNode) -> bool:
    return isinstance(node, Scope) and node.name.startswith("group")


def kept_panels(plan: Plan, loops: Sequence[For], tile: LoopNode) -> list[KeptPanel]:
    """The panels that are the same for all iterations of some loops over tiles, and of tensors that no tile writes.

    Groups that share loops share memory for panels, too, so that none of them is kept there.
    """
    scop, below = plan.scop, [*walk(tile)]
    if sum(map(_is_group, below)) > 1:
        return []
    written = {scop.by_name[n.statement].target for n in below if isinstance(n, Execute)}
    iterators = {loop.iterator for loop in loops}
    moving = {loop.iterator for loop in loops if constant_extent(loop.lower, loop.upper) != loop.step}
    found: list[KeptPanel] = []
    for copy in plan.copies:
        places = [n for n in below if isinstance(n, Scope) and n.name == copy.mark]
        corners = {affine_expressions(copy.lower, place.around) for place in places}
        if len(corners) != 1 or copy.storage in written or copy.ahead:
            continue
        (corner,) = corners
        needed = frozenset().union(*map(variables, corner))
        if needed <= iterators and moving - needed:
            found.append(KeptPanel(panel_of(copy, scop.storages[copy.storage]), tuple(sorted(needed))))
    return found


def panel_by_panel(plan: Plan, machine: Machine, loops: Sequence[For], kept: Iterable[KeptPanel]) -> list[For]:
    """Loops over tiles, outermost first, so that tiles with the same panel, the largest one, follow one another.

    What else these read is then read again for every panel, so they stay as they are where it lies in memory.
    """
    largest = max(kept, key=lambda k: k.panel.copy.bytes, default=None)
    if largest is None:
        return list(loops)
    storages = plan.scop.storages
    statement = plan.scop.by_name[largest.panel.copy.statement]
    others = {r.get_tuple_name(isl.dim_type.out) for r in statement.reads} - {largest.panel.copy.storage}
    if machine.overflows(sum(storages[name].bytes for name in others)):
        return list(loops)
    return sorted(loops, key=lambda loop: loop.iterator not in largest.iterators)


def nested(loops: Sequence[For], body: LoopNode) -> LoopNode:
    """A body in some loops, outermost first."""
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body
