"""Packed panels that a thread keeps from one tile to the next.

Tiles of a group run in any order.  Those that read the same panel follow one another, and only the first of them fills
it, unless another thread has taken that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.backends.c.contractions.groupedpanels import panel_of
from tcomp.backends.c.contractions.panels import Panel
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import Execute, For, LoopNode, Scope, variables, walk
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.plan.values import Plan


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


def kept_panels(plan: Plan, loops: Sequence[For], tile: LoopNode) -> list[KeptPanel]:
    """The panels that are the same for all iterations of some loops over tiles, and of tensors that no tile writes.

    Groups that share loops share memory for panels, too, so that none of them is kept there.
    """
    scop, below = plan.scop, [*walk(tile)]
    if sum(isinstance(n, Scope) and n.name.startswith("group") for n in below) > 1:
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
