"""Where a contraction finds its operands and accumulators: in tensors, in packed copies, in copies with groups."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tcomp.backends.c.contractions.dotproducts import GroupedOperand
from tcomp.backends.c.contractions.groupedpanels import sum_of, sums_strides
from tcomp.backends.c.contractions.panels import Panel
from tcomp.backends.c.contractions.places import Border, Place
from tcomp.backends.c.loops.nests import Nest
from tcomp.backends.openextents import stride_text
from tcomp.backends.spelling import CopiedBox, Speller, loop_text
from tcomp.grammar.tree.function import Expr, Read, depends_on_data
from tcomp.loops.indexing import step_of
from tcomp.loops.ir import LoopExpr, substitute
from tcomp.mapping.contraction.borders import border_of, has_whole_columns
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import INT32


@dataclass(frozen=True, slots=True)
class OperandPlaces:
    """The places of what a statement accesses, where the iterators of its register tile have values given.

    ``speller`` makes one for a statement whose indices have the C text given; ``grouped`` are the operands that lie in
    copies with groups, too.
    """

    statement: ScopStatement
    nest: Nest
    plan: Plan
    speller: Callable[[str, Mapping[str, str]], Speller]
    grouped: Mapping[Read, GroupedOperand]

    def place(self, read: Read | None, corner: Mapping[str, LoopExpr]) -> Place | None:
        """The place of a read, or of the target; None where it has none of its own."""
        speller, scop = self._at(corner), self.plan.scop
        storage = self.statement.target if read is None else read.tensor
        subscripts = self.statement.subscripts if read is None else read.subscripts
        buffer = self.plan.buffers.get(storage)
        if any(depends_on_data(s) for s in subscripts) or (buffer is not None and buffer.space == "register"):
            return None
        panel = None if read is None else speller.panels.get(read)
        if panel is not None:
            return _element(panel, speller, subscripts)
        if read is not None and read.boundary is not None:
            return None
        text = speller.element(storage, tuple(speller.subscript(s) for s in subscripts))
        own = scop.storages[storage]
        if buffer is not None:
            return Place(text, own.dtype, buffer.strides)
        pitches = tuple(stride_text(own, d) if s is None else "" for d, s in enumerate(own.known_strides))
        return Place(text, own.dtype, own.known_strides, pitches=pitches)

    def lies_in_memory(self, read: Read) -> bool:
        """Whether an operand is read where its tensor lies, and not in a copy or a buffer of a tile."""
        buffer = self.plan.buffers.get(read.tensor)
        return read not in self._at({}).panels and (buffer is None or buffer.space == "global")

    def bordered(self, read: Read, corner: Mapping[str, LoopExpr]) -> tuple[Place, Border] | None:
        """The place of a read with a boundary, and what lies outside; None where not all columns do or none.

        The place is that of an element in the tensor, if it is in it.
        """
        panels = self._at(corner).panels
        moved = [
            index
            for index, argument in zip(self.statement.indices, self.nest.call.arguments, strict=True)
            if step_of(argument, self.nest.column.iterator) != 0
        ]
        whole = len(moved) == 1 and has_whole_columns(self.plan.scop, self.statement, read, moved[0])
        if read.boundary is None or read in panels or not whole:
            return None
        inside, text = self._at(corner).bordered(read)
        storage, buffer = self.plan.scop.storages[read.tensor], self.plan.buffers.get(read.tensor)
        if buffer is not None and buffer.space == "register":
            return None
        across = [coefficient(s, moved[0], self.plan.scop.sizes) == 0 for s in read.subscripts]
        checked = tuple(condition for condition, needed in zip(inside, across, strict=False) if needed)
        place = Place(text, storage.dtype, storage.known_strides if buffer is None else buffer.strides)
        return place, Border(checked, border_of(read))

    def copied(self, read: Read, corner: Mapping[str, LoopExpr]) -> Place:
        """The place of a read in a copy with groups."""
        return _element(self.grouped[read].panel, self._at(corner), read.subscripts)

    def sums(self, read: Read, corner: Mapping[str, LoopExpr]) -> Place:
        """The place of the sum that belongs to a read, behind a copy with groups."""
        speller, panel = self._at(corner), self.grouped[read].panel
        offsets = [f"{speller.subscript(s)} - {panel.corner(d)}" for d, s in enumerate(read.subscripts)]
        return Place(sum_of(panel, offsets), INT32, sums_strides(panel))

    def _at(self, corner: Mapping[str, LoopExpr]) -> Speller:
        arguments = [functools.reduce(_substituted, corner.items(), a) for a in self.nest.call.arguments]
        indices = {i: loop_text(a) for i, a in zip(self.statement.indices, arguments, strict=True)}
        return self.speller(self.statement.name, indices)


def _element(panel: CopiedBox, speller: Speller, subscripts: tuple[Expr, ...]) -> Place:
    texts = [speller.subscript(s) for s in subscripts]
    room, column = "", panel.copy.order[-1]
    if isinstance(panel, Panel) and panel.copy.groups is None and panel.copy.step == 1:
        room = f"{panel.copy.shape[column]} - ({texts[column]} - {panel.corner(column)})"
    return Place(panel.element(texts), panel.copy.dtype, panel.strides, panel.steps, room=room)


def _substituted(expr: LoopExpr, iterator: tuple[str, LoopExpr]) -> LoopExpr:
    return substitute(expr, *iterator)
