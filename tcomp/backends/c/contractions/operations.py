"""Which of the ways to spell a contraction one takes: register tiles, sums in lanes, dot products, matrix tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.c.contractions.aheadpanels import NextBox
from tcomp.backends.c.contractions.dotproducts import DotContraction, GroupedOperand
from tcomp.backends.c.contractions.lanesums import LaneSums
from tcomp.backends.c.contractions.matrixtiles import MatrixContraction
from tcomp.backends.c.contractions.operands import OperandPlaces
from tcomp.backends.c.contractions.panels import Panel
from tcomp.backends.c.contractions.registertiles import Contraction
from tcomp.backends.c.contractions.resultlines import NextTile, are_far
from tcomp.backends.c.loops.nests import nest_of
from tcomp.backends.c.loops.stages import clears, copied_by
from tcomp.backends.spelling import Speller
from tcomp.grammar.tree.function import Read
from tcomp.loops.ir import For, LoopExpr, LoopNode, Scope
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """The operations ``contract`` of a plan.

    ``speller`` spells the instances of a statement, ``captured`` gives the lines of a node; ``grouped`` has the copies
    of each statement that have groups of steps, ``corners`` the corners of those that are declared around an operation.
    ``coming`` gives what a statement's operation may fetch meanwhile for the one after it, ``around`` the loops around.
    """

    plan: Plan
    machine: Machine
    speller: Callable[..., Speller]
    captured: Callable[[LoopNode], list[str]]
    grouped: Mapping[str, Mapping[Read, Panel]]
    corners: Mapping[str, tuple[LoopExpr, ...]]
    coming: Callable[[str], NextBox | None]
    around: Sequence[For]

    def contracted(
        self, operation: Scope, statement: ScopStatement, start: LoopNode | None, after: LoopNode | None
    ) -> list[str] | None:
        """The lines of a register tile in vectors; None if it has to be plain loops.

        ``start`` is what runs before, ``after`` what runs behind it: they are spelled with it only if they set the same
        tile to zero, and copy it.
        """
        scop = self.plan.scop
        nest = nest_of(operation.body, statement, operation.torn)
        if nest is None or (start is not None and not clears(start, nest, statement, scop)):
            return None
        copy = None if after is None else copied_by(after, nest, statement, self.plan)
        if after is not None and copy is None:
            return None
        span = statement.value.span
        result = None if copy is None else Read(copy.target, statement.subscripts, copy.value.dtype, span)

        grouped = self._operands(statement)
        places = OperandPlaces(statement, nest, self.plan, self.speller, grouped)
        dtype = scop.storages[statement.target].dtype
        written = statement.target if copy is None else copy.target
        fetches = (start is not None or copy is not None) and are_far(self.plan, self.machine, written)
        begins = start is not None
        facts = (statement, dtype, nest, self.machine, scop.sizes, places.place, begins, result, fetches)

        def plainly(inner: LoopNode) -> list[str]:
            return [line for n in (start, inner, after) if n is not None for line in self.captured(n)]

        edges = scop.around is not None and scop.around.open
        coming = self.coming(statement.name)
        following = NextTile(statement, nest, self.plan, self.machine, self.around)

        def ahead(read: Read, row: int) -> tuple[int, ...]:
            own = read.boundary is None and places.lies_in_memory(read)
            return following.distances(read, row) if own and not edges else ()

        contraction = Contraction(*facts, bordered=places.bordered, edges=edges, coming=coming, ahead=ahead)
        lines = contraction.lines(plainly) or LaneSums(*facts).lines(plainly)
        if grouped:
            whole = all(o.groups.depth for o in grouped.values())
            kind = MatrixContraction if whole else DotContraction
            dots = kind(*facts, grouped=grouped, copied=places.copied, sums=places.sums)
            lines = dots.lines_or(lines or plainly(operation.body), plainly) or lines
        return lines

    def _operands(self, statement: ScopStatement) -> dict[Read, GroupedOperand]:
        """The operands of a contraction that lie in copies with groups of steps: both of them, or none."""
        found: dict[Read, GroupedOperand] = {}
        for read, panel in self.grouped.get(statement.name, {}).items():
            groups = panel.copy.groups
            if groups is None or (groups.depth and not self.machine.matrix_tiles):
                continue
            taken = self.machine.products_in_a_lane(panel.copy.dtype) == groups.size
            if taken and panel.name in self.corners:
                found[read] = GroupedOperand(panel, self.corners[panel.name][groups.dimension])
        return found if len(found) == 2 else {}
