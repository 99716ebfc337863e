"""Register tiles of sums of products in vector types: what the ``contract`` operation becomes on a CPU.

The accumulators of a tile are loaded into registers, all steps of the reduction run over them, and they are stored
again.  Whatever the program's indices are called and however many there are, a step is the same: along the columns of
the tile each operand is a vector or one element, along its rows it moves by a fixed stride or stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tcomp.backends.c.contractions.aheadpanels import NextBox
from tcomp.backends.c.contractions.edges import (
    clamped,
    edge_after,
    edge_before,
    edge_condition,
    edge_targets,
    row_lines,
)
from tcomp.backends.c.contractions.places import Border, Operand, Place
from tcomp.backends.c.contractions.resultlines import fetched_lines
from tcomp.backends.c.contractions.steps import cell, forgotten, step_lines
from tcomp.backends.c.loops.nests import (
    Nest,
    extents_of,
    has_no_others,
    heads_of_steps,
    loop_head,
    may_be_empty,
)
from tcomp.backends.c.vectors.types import PartialVector, vector_type
from tcomp.backends.c.vectors.widening import WIDENED, narrowed
from tcomp.backends.dialect import C_STORAGE_TYPES
from tcomp.backends.prelude import FREE_REGISTERS
from tcomp.backends.spelling import loop_text
from tcomp.grammar.tree.function import Binary, Cast, Expr, Read
from tcomp.loops.indexing import constant_extent, step_of
from tcomp.loops.ir import For, Let, LoopExpr, LoopNode, Number, Operation
from tcomp.mapping.contraction.registertile import Loads, RegisterTile, single_column, vectorised
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import DType

TORN = " /* not all rows and columns */"
"""Tells readers of a kernel that another version runs whole tiles."""

_SHORT = ("int16", "uint16")
_ARITHMETIC = ("float32", "float64", "int32", "uint32", "int64", "uint64", *_SHORT)
_LOADED = (*_ARITHMETIC, *WIDENED)
"""Types of accumulators, those among them of 16 bits, and types of operands.  Vectors of 16 bits are made of no others:
widening goes to 32 bits."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """An update whose register tiles can be spelled in vectors.

    ``place`` gives the C text of a read, or of the target, where iterators have the values given.  ``from_zero`` says
    that the accumulators are zero before, whatever lies in memory.  The results go to the elements of ``result``, if
    that is given, else to the accumulators; ``fetches`` says that their lines are fetched before the first step.
    ``bordered`` gives the place of a read with a boundary, and what lies outside.  Where calls say how many rows and
    columns there are, ``edges`` may be tiles of memory.  ``coming`` is what its steps fetch for those that come next,
    ``ahead`` gives what they fetch of a read, in elements from where they are, if its rows are so far apart.
    """

    statement: ScopStatement
    dtype: DType
    nest: Nest
    machine: Machine
    sizes: Mapping[str, int]
    place: Callable[[Read | None, Mapping[str, LoopExpr]], Place | None]
    from_zero: bool = False
    result: Read | None = None
    fetches: bool = False
    bordered: Callable[[Read, Mapping[str, LoopExpr]], tuple[Place, Border] | None] | None = None
    edges: bool = False
    coming: NextBox | None = None
    ahead: Callable[[Read, int], tuple[int, ...]] = lambda _read, _row: ()

    def lines(self, fallback: Callable[[LoopNode], list[str]]) -> list[str] | None:
        """The C text; None if it is no case for vectors.  ``fallback`` spells loops as they are, for odd extents."""
        operands = self._operands()
        target = self._target(None, "tc_c")
        result = self._target(self.result, "tc_r")
        if operands is None or target is None or result is None:
            return None
        rows = (1,) if self.nest.row is None else extents_of(self.nest.row)
        columns = extents_of(self.nest.column)
        beyond = all(o.place.steps is not None for o in operands if o.is_vector)
        beyond &= result.place.dtype == self.dtype
        loads = Loads(_rows_share_vectors(operands), self.dtype.itemsize, beyond=beyond)
        sides = [self.nest.column] if self.nest.row is None else [self.nest.column, self.nest.row]
        known = all(constant_extent(side.lower, side.upper) is not None for side in sides)
        sizes = [(r, c) for r in rows for c in columns if self.nest.may_have(r, c)]
        found = [self._vectors(r, c, loads) for r, c in sizes]
        if (self.nest.torn or any(found)) and all(o.place.dtype == self.dtype for o in (*operands, target, result)):
            found = [
                single_column(r, loads, self.machine) if tile is None and c == 1 else tile
                for (r, c), tile in zip(sizes, found, strict=True)
            ]
        tiles = [tile for tile in found if tile is not None][: 1 if known else None]
        whole = None not in found and all(map(has_no_others, sides))
        edges = [] if known or whole or not self.edges else [*self._edges(rows, columns, operands)]
        if not tiles and not edges:
            return None
        return list(self._spelled(tiles, edges, (target, result), operands, None if known or whole else fallback))

    def _vectors(self, rows: int, columns: int, loads: Loads) -> RegisterTile | None:
        """The vectors of a register tile; None if it is no case for them."""
        return vectorised(rows, columns, loads, self.machine)

    def _operands(self) -> tuple[Operand, Operand] | None:
        value = self.statement.value
        if not isinstance(value, Binary) or value.op != "*" or value.dtype != self.dtype:
            return None
        found = [self._operand(side, f"tc_{name}") for side, name in ((value.lhs, "a"), (value.rhs, "b"))]
        first, second = found
        if first is None or second is None or not (first.is_vector or second.is_vector):
            return None
        return first, second

    def _operand(self, expr: Expr, name: str) -> Operand | None:
        wanted = expr.dtype
        while isinstance(expr, Cast) and _widens(expr, wanted):
            expr = expr.operand
        if not isinstance(expr, Read) or expr.dtype.name not in _LOADED:
            return None
        place = self.place(expr, self.nest.corner())
        rows = None
        if place is None and expr.boundary is not None:
            rows = self._rows_of(expr)
            place = None if rows is None else rows(0)[0]
        if place is None:
            return None
        row, pitch = self._rows_apart(expr.subscripts, place)
        column = self._stride(self.nest.column, expr.subscripts, place)
        if row is None or column not in (0, 1):
            return None
        if column and self.dtype.name in _SHORT and place.dtype != self.dtype:
            return None
        again = not column and not pitch and any(self._meets(loop, row, expr, place) for loop in self.nest.steps)
        ahead = self.ahead(expr, row) if row and not column and rows is None else ()
        return Operand(place, row, column, name, again, rows, pitch, ahead=ahead)

    def _rows_of(self, read: Read) -> Callable[[int], tuple[Place, Border]] | None:
        """Where each row of a tile reads with a boundary, and what is outside; None if that cannot be told."""
        if self.bordered is None or self.bordered(read, self.nest.corner()) is None:
            return None

        def at(number: int) -> tuple[Place, Border]:
            assert self.bordered is not None
            corner, row = self.nest.corner(), self.nest.row
            if row is not None and number:
                corner[row.iterator] = Operation("+", (row.lower, Number(number)))
            found = self.bordered(read, corner)
            assert found is not None
            return found

        return at

    def _meets(self, loop: For | Let, row: int, read: Read, place: Place) -> bool:
        """Whether a step of a loop reads in one row, ``row`` elements from the last, what another reads elsewhere."""
        if not isinstance(loop, For) or not row or self.nest.row is None:
            return False
        step, rows = self._stride(loop, read.subscripts, place), max(extents_of(self.nest.row), default=1)
        extent = constant_extent(loop.lower, loop.upper)
        if not step or extent is None:
            return False
        together = math.lcm(step, row)
        return together // abs(step) < extent and together // abs(row) < rows

    def _target(self, written: Read | None, name: str) -> Operand | None:
        """What is written, as ``place`` takes it, if its columns are neighbours in memory."""
        place = self.place(written, self.nest.corner())
        if place is None or self.dtype.name not in _ARITHMETIC:
            return None
        row, pitch = self._rows_apart(self.statement.subscripts, place)
        column = self._stride(self.nest.column, self.statement.subscripts, place)
        return Operand(place, row, column, name, pitch=pitch) if row is not None and column == 1 else None

    def _rows_apart(self, subscripts: tuple[Expr, ...], place: Place) -> tuple[int | None, str]:
        """How far the next row is, and the stride of which that counts, if it is one that calls say."""
        row = self._stride(self.nest.row, subscripts, place)
        if row is not None or place.steps is not None:
            return row, ""
        for d, pitch in enumerate(place.pitches):
            alone = replace(place, strides=tuple(int(d == e) if s is None else s for e, s in enumerate(place.strides)))
            others = replace(alone, strides=tuple(0 if e == d else s for e, s in enumerate(place.strides)))
            row, other = (self._stride(self.nest.row, subscripts, p) for p in (alone, others))
            if pitch and row is not None and other == 0:
                return row, pitch
        return None, ""

    def _stride(self, loop: For | None, subscripts: tuple[Expr, ...], place: Place) -> int | None:
        """Elements between what neighbouring iterations of a loop touch; None if that is not constant."""
        if loop is None:
            return 0
        moved = self._moved_by(loop)
        if moved is None:
            return None
        known: list[int] = []
        for subscript in subscripts:
            steps = [(coefficient(subscript, index, self.sizes), times) for index, times in moved.items()]
            if any(step is None for step, _ in steps):
                return None
            known.append(sum(step * times for step, times in steps if step is not None))
        apart = place.steps or (1,) * len(known)
        if any(step % unit for step, unit in zip(known, apart, strict=True)):
            return None
        moved_by = [(step // unit, stride) for step, unit, stride in zip(known, apart, place.strides, strict=True)]
        if any(step and stride is None for step, stride in moved_by):
            return None
        return sum(step * stride for step, stride in moved_by if stride is not None)

    def _moved_by(self, loop: For) -> dict[str, int] | None:
        """The indices that move with the iterator of a loop, and how far; None if that is not constant.

        There may be several: where an index has one value for each of another, isl makes no loop of it.
        """
        moved: dict[str, int] = {}
        for index, argument in zip(self.statement.indices, self.nest.call.arguments, strict=True):
            step = step_of(argument, loop.iterator)
            if step is None:
                return None
            if step:
                moved[index] = step
        return moved

    def _spelled(
        self,
        tiles: list[RegisterTile],
        edges: list[tuple[str, RegisterTile]],
        targets: tuple[Operand, Operand],
        operands: tuple[Operand, Operand],
        fallback: Callable[[LoopNode], list[str]] | None,
    ) -> Iterator[str]:
        depth = 0
        for loop in self.nest.outer:
            yield "  " * depth + loop_head(loop)
            depth += 1
        row, column = self.nest.row, self.nest.column
        inside = "  " * depth
        if fallback is not None or len(tiles) > 1:
            height = "1" if row is None else f"{loop_text(row.upper)} - {loop_text(row.lower)}"
            yield f"{inside}const long tc_rows = {height};"
            yield f"{inside}const long tc_columns = {loop_text(column.upper)} - {loop_text(column.lower)};"
        for tile in tiles if fallback is not None else tiles[:-1]:
            yield f"{inside}if (tc_rows == {tile.rows} && tc_columns == {tile.columns}) {{"
            yield from (f"{inside}  {line}" for line in self._tile(tile, targets, operands))
            yield f"{inside}}} else"
        for condition, tile in edges:
            yield f"{inside}if ({condition}) {{  // not all of a tile"
            yield from (f"{inside}  {line}" for line in self._edge(tile, targets, operands))
            yield f"{inside}}} else"
        last = self._tile(tiles[-1], targets, operands) if fallback is None else fallback(self.nest.inner)
        there = " && ".join(filter(None, map(may_be_empty, (row, column)))) if fallback is None else ""
        yield f"{inside}{f'if ({there}) ' if there else ''}{{{TORN if self.nest.torn else ''}"
        yield from (f"{inside}  {line}" for line in last)
        yield f"{inside}}}"
        for d in range(depth - 1, -1, -1):
            yield "  " * d + "}"

    def _edges(
        self, rows: tuple[int, ...], columns: tuple[int, ...], operands: tuple[Operand, Operand]
    ) -> Iterator[tuple[str, RegisterTile]]:
        """The tiles that stand for those which are not whole, fewer rows first, each with its condition.

        ``rows`` and ``columns`` begin with those of a whole tile.
        """
        allowed = edge_condition(self.nest, columns[0], operands) if rows and columns else None
        loads = Loads(_rows_share_vectors(operands), self.dtype.itemsize)
        for count in sorted({-(-rows[0] // 3), rows[0]}) if allowed else ():
            tile = self._vectors(count, columns[0], loads)
            if tile is not None and tile.columns >= tile.lanes:
                at_most = f"0 < tc_rows && tc_rows <= {count} && tc_columns <= {columns[0]}"
                yield f"{at_most} && {allowed}", tile

    def _edge(
        self, tile: RegisterTile, targets: tuple[Operand, Operand], operands: tuple[Operand, Operand]
    ) -> Iterator[str]:
        """All steps of a tile of which not all rows and columns are there."""
        target, result = targets
        yield from edge_before(self.dtype, tile.rows, tile.columns, target, self.from_zero)
        yield from row_lines(operands, tile.rows)
        yield "{"
        lines = self._tile(tile, edge_targets(self.dtype, tile.columns, targets), clamped(operands))
        yield from ("  " + line for line in lines)
        yield "}"
        yield from edge_after(self.dtype, tile.columns, result)

    def _tile(
        self, tile: RegisterTile, targets: tuple[Operand, Operand], operands: tuple[Operand, Operand]
    ) -> Iterator[str]:
        """All steps of one register tile.  ``targets`` are where accumulators are loaded from and stored to."""
        target, result = targets
        vector = vector_type(self.dtype, tile.lanes)
        offsets = [max(0, min(v * tile.lanes, tile.columns - tile.lanes)) for v in range(tile.vectors)]
        cells = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
        partial = PartialVector(self.dtype, tile.columns, tile.lanes) if tile.columns < tile.lanes else None
        element = C_STORAGE_TYPES[self.dtype.name]
        for o in operands:
            if o.bordered is not None:
                yield from o.bordered(0)[1].declared(o.name, o.place.dtype, max(tile.columns, tile.lanes))
        yield FREE_REGISTERS
        if not self.from_zero:
            yield f"const {element} *{target.name} = &{target.place.text};"
            yield forgotten(target.name, "volatile ")
        for r, v in cells:
            where = f"{target.name} + {target.offset(r, offsets[v])}"
            value = f"*(const {vector} *)({where})" if partial is None else partial.loaded(where)
            yield f"{vector} {cell(r, v)} = {'{0}' if self.from_zero else value};"
        written = f"{C_STORAGE_TYPES[result.place.dtype.name]} *const {result.name} = &{result.place.text};"
        yield from self._fetched(written, result, tile)
        before, within = (self.coming.fetched(self.nest) if self.coming is not None else None) or ("", "")
        yield from filter(None, [before])
        yield from heads_of_steps(self.nest, tile.rows)
        depth = len(self.nest.steps)
        inside = "  " * depth
        yield from (inside + line for line in filter(None, [within]))
        yield from (inside + line for line in step_lines(tile, operands, offsets, self.dtype))
        for d in range(depth - 1, -1, -1):
            yield "  " * d + "}"
        yield from () if self.fetches else (written,)
        for r, v in cells:
            offset, sums = result.offset(r, offsets[v]), cell(r, v)
            if partial is None:
                yield stored(result, offset, sums, self.dtype, tile.lanes)
            else:
                yield partial.stored(f"{result.name} + {offset}", sums)

    def _fetched(self, written: str, result: Operand, tile: RegisterTile) -> Iterator[str]:
        """The lines of results, fetched where they are far; ``written`` declares the pointer to them."""
        if self.fetches:
            yield written
        if self.fetches and not result.pitch:
            runs = ((r * result.row, tile.columns) for r in range(tile.rows))
            yield from fetched_lines(result.name, runs, result.place.dtype.itemsize)


def _rows_share_vectors(operands: tuple[Operand, Operand]) -> bool:
    """Whether the vectors of a step stay in registers while rows pass by, one element each."""
    return not any(o.is_vector and o.row for o in operands) and not all(o.is_vector for o in operands)


def stored(result: Operand, offset: int | str, cell: str, dtype: DType, lanes: int) -> str:
    """The C statement that stores a vector of a type, rounded to the elements that are there."""
    place = f"{result.name} + {offset}"
    if result.place.dtype == dtype:
        return f"*({vector_type(dtype, lanes)} *)({place}) = {cell};"
    return narrowed(place, cell, result.place.dtype, lanes)


def _widens(cast: Cast, wanted: DType) -> bool:
    """Whether a conversion on the way to a type is one of every lane alone, without saturation, that may be skipped."""
    source, result = cast.operand.dtype, cast.dtype
    if source.kind == "int" and result.kind == "uint" and result != wanted:
        return False
    if result.kind == "float":
        return source.kind in ("float", "int", "uint") and source.name in _LOADED and source.bits < result.bits
    return source.kind in ("int", "uint") and source.bits < result.bits
