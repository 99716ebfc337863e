"""Updates of a register tile that are no products: sums, products and extrema of shifted, strided or gathered reads.

The elements of the tile are loaded into vector registers, all steps of the reduction run over them, and they are stored
again, as in a contraction.  What a step adds is any arithmetic on vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tcomp.backends.c.loops.nests import (
    Nest,
    extents_of,
    has_no_others,
    heads_of_steps,
    loop_head,
    may_be_empty,
)
from tcomp.backends.c.vectors.extrema import of_vectors
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import VectorSpeller, neighbours
from tcomp.backends.dialect import constant_text
from tcomp.backends.spelling import Gather, Speller, loop_text
from tcomp.grammar.tree.function import Constant
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import Number, Operation, substitute
from tcomp.mapping.contraction.registertile import Loads, RegisterTile, vectorised
from tcomp.mapping.machines.cpu import Machine
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import DType


@dataclass(frozen=True, slots=True)
class Accumulation:
    """An update whose register tile has a number of rows and columns.

    ``speller`` spells expressions where indices have the C text given and some data-dependent subscripts are known.
    Elements begin at ``start`` if that is given, and are stored where ``result``, a statement, copies them.
    """

    statement: ScopStatement
    dtype: DType
    nest: Nest
    machine: Machine
    gathers: tuple[Gather, ...]
    speller: Callable[[Mapping[str, str], Mapping[Gather, str]], Speller]
    start: Constant | None = None
    result: ScopStatement | None = None

    def lines(self, fallback: Callable[[], list[str]]) -> list[str] | None:
        """The C text; None if the tile is no case for vectors.

        ``fallback`` spells the loops as they are: a row that is not whole has vectors for what the last tile has left.
        """
        column, row = self.nest.column, self.nest.row
        columns = constant_extent(column.lower, column.upper)
        rows = 1 if row is None else constant_extent(row.lower, row.upper)
        if rows is None or not self.nest.steps or self.dtype.bits < 32:
            return None
        if columns is not None:
            return self._vectors(rows, columns)
        left = () if self.nest.outer or row is not None else extents_of(column)[1:]
        for count in left:
            lines = self._vectors(1, count)
            if lines is not None:
                whole = self._vectors(1, extents_of(column)[0]) if has_no_others(column) else None
                return self._if_left(count, lines, whole or fallback())
        return None

    def _if_left(self, columns: int, lines: list[str], otherwise: list[str]) -> list[str]:
        """Lines for so many columns, and others."""
        column = self.nest.column
        head = f"if ({loop_text(column.upper)} - {loop_text(column.lower)} == {columns}) {{"
        there = may_be_empty(column)
        other = f"}} else if ({there}) {{" if there else "} else {"
        return [head, *("  " + line for line in lines), other, *("  " + line for line in otherwise), "}"]

    def _vectors(self, rows: int, columns: int) -> list[str] | None:
        """The C text of a tile of so many rows and columns; None if it is no case for vectors."""
        along = neighbours(self.nest.column, self.nest.call, self.statement)
        tile = vectorised(rows, columns, Loads(True, self.dtype.itemsize), self.machine) if rows and columns else None
        if along is None or tile is None:
            return None
        if any(self._write_stride(s, along, tile) != 1 for s in (self.statement, self._stored)):
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
        cells = [(r, v, o) for r in range(tile.rows) for v, o in enumerate(offsets)]
        first = None if self.start is None else f"({kind}){{}} + {constant_text(self.start.value, self.dtype)}"
        for r, v, o in cells:
            yield f"{'  ' * depth}{kind} tc_sum{r}_{v} = {first or self._place(kind, self.statement, r, o)};"
        outside = depth
        yield from ("  " * depth + line for line in heads_of_steps(self.nest, tile.rows))
        depth += len(self.nest.steps)
        for r in range(tile.rows):
            yield from ("  " * depth + line for line in self._row(r, offsets, tile, along))
        while depth > outside:
            depth -= 1
            yield "  " * depth + "}"
        for r, v, o in cells:
            yield f"{'  ' * depth}{self._place(kind, self._stored, r, o)} = tc_sum{r}_{v};"
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

    @property
    def _stored(self) -> ScopStatement:
        """The statement that says where elements are stored."""
        return self.result or self.statement

    def _write_stride(self, statement: ScopStatement, along: str, tile: RegisterTile) -> int | None:
        own = statement.indices[self.statement.indices.index(along) - self.statement.tile_rank + statement.tile_rank]
        return VectorSpeller(self._at(0, 0, {}), own, tile.lanes).write_stride(statement)

    def _place(self, kind: str, statement: ScopStatement, row: int, column: int) -> str:
        """The C text of a vector of elements that a statement writes."""
        speller = self._at(row, column, {})
        own = self.statement.indices[self.statement.tile_rank :]
        texts = dict(zip(statement.indices[statement.tile_rank :], (speller.indices[i] for i in own), strict=False))
        speller = replace(speller, indices=texts)
        element = speller.written(statement.target, statement.subscripts)
        return f"*({kind} *)&{element}"

    def _at(self, row: int, column: int, known: Mapping[Gather, str]) -> Speller:
        """Spells expressions at one element of the tile."""
        arguments = dict(zip(self.statement.indices, self.nest.call.arguments, strict=True))
        for loop, offset in ((self.nest.column, column), (self.nest.row, row)):
            if loop is not None:
                there = Operation("+", (loop.lower, Number(offset))) if offset else loop.lower
                arguments = {n: substitute(a, loop.iterator, there) for n, a in arguments.items()}
        return self.speller({n: loop_text(a) for n, a in arguments.items()}, known)
