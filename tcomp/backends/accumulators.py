"""Updates of a register tile that are no products: sums, products and extrema of shifted, strided or gathered reads.

The elements of the tile are loaded into vector registers, all steps of the reduction run over them, and they are stored
again, as in a contraction.  What a step adds is any arithmetic on vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tcomp.backends.spelling import Gather, Speller, loop_text
from tcomp.backends.tilenests import Nest, constant_extent, heads_of_steps, loop_head
from tcomp.backends.vectorextrema import of_vectors
from tcomp.backends.vectortypes import vector_type
from tcomp.backends.vectorvalues import VectorSpeller, neighbours
from tcomp.loops import Number, Operation, substitute
from tcomp.mapping.machine import Machine
from tcomp.mapping.registertile import Loads, RegisterTile, vectorised
from tcomp.operators import DType
from tcomp.scop import ScopStatement


@dataclass(frozen=True, slots=True)
class Accumulation:
    """An update whose register tile has a number of rows and columns.

    ``speller`` spells expressions where indices have the C text given and some data-dependent subscripts are known.
    """

    statement: ScopStatement
    dtype: DType
    nest: Nest
    machine: Machine
    gathers: tuple[Gather, ...]
    speller: Callable[[Mapping[str, str], Mapping[Gather, str]], Speller]

    def lines(self) -> list[str] | None:
        """The C text; None if the tile is no case for vectors."""
        column, row = self.nest.column, self.nest.row
        along = neighbours(column, self.nest.call, self.statement)
        columns = constant_extent(column.lower, column.upper)
        rows = 1 if row is None else constant_extent(row.lower, row.upper)
        if along is None or not rows or not columns or not self.nest.steps or self.dtype.bits < 32:
            return None
        tile = vectorised(rows, columns, Loads(True, self.dtype.itemsize), self.machine)
        if tile is None or VectorSpeller(self._at(0, 0, {}), along, tile.lanes).write_stride(self.statement) != 1:
            return None
        known = {g: f"tc_at{n}" for n, g in enumerate(self.gathers)}
        if VectorSpeller(self._at(0, 0, known), along, tile.lanes).value(self.statement.value, self.dtype) is None:
            return None
        return [*self._spelled(tile, along)]

    def _spelled(self, tile: RegisterTile, along: str) -> Iterator[str]:
        offsets = [min(v * tile.lanes, tile.columns - tile.lanes) for v in range(tile.vectors)]
        kind = vector_type(self.dtype, tile.lanes)
        depth = 0
        for loop in self.nest.outer:
            yield "  " * depth + loop_head(loop)
            depth += 1
        cells = [(r, v, f"*({kind} *)&{self._target(r, o)}") for r in range(tile.rows) for v, o in enumerate(offsets)]
        for r, v, place in cells:
            yield f"{'  ' * depth}{kind} tc_sum{r}_{v} = {place};"
        outside = depth
        yield from ("  " * depth + line for line in heads_of_steps(self.nest, tile.rows))
        depth += len(self.nest.steps)
        for r in range(tile.rows):
            yield from ("  " * depth + line for line in self._row(r, offsets, tile, along))
        while depth > outside:
            depth -= 1
            yield "  " * depth + "}"
        for r, v, place in cells:
            yield f"{'  ' * depth}{place} = tc_sum{r}_{v};"
        for d in range(depth - 1, -1, -1):
            yield "  " * d + "}"

    def _row(self, row: int, offsets: list[int], tile: RegisterTile, along: str) -> Iterator[str]:
        """One step of one row."""
        assert self.statement.reduction is not None
        known: dict[Gather, str] = {}
        for number, gather in enumerate(self.gathers):
            text = self._at(row, 0, known).gathered(gather.tensor, gather.dimension, gather.subscript)
            known[gather] = f"tc_at{row}_{number}"
            yield f"const long {known[gather]} = {text};"
        for v, offset in enumerate(offsets):
            speller = VectorSpeller(self._at(row, offset, known), along, tile.lanes)
            value = speller.value(self.statement.value, self.dtype)
            assert value is not None
            cell = f"tc_sum{row}_{v}"
            yield f"{cell} = {of_vectors(self.statement.reduction, self.dtype, tile.lanes)(cell, value)};"

    def _target(self, row: int, column: int) -> str:
        speller = self._at(row, column, {})
        return speller.element(self.statement.target, tuple(speller.subscript(s) for s in self.statement.subscripts))

    def _at(self, row: int, column: int, known: Mapping[Gather, str]) -> Speller:
        """Spells expressions at one element of the tile."""
        arguments = dict(zip(self.statement.indices, self.nest.call.arguments, strict=True))
        for loop, offset in ((self.nest.column, column), (self.nest.row, row)):
            if loop is not None:
                there = Operation("+", (loop.lower, Number(offset))) if offset else loop.lower
                arguments = {n: substitute(a, loop.iterator, there) for n, a in arguments.items()}
        return self.speller({n: loop_text(a) for n, a in arguments.items()}, known)
