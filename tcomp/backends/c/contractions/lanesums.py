"""Register tiles of dot products in vector types: a vector for every sum, whose lanes run along the reduction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tcomp.backends.c.contractions.places import Operand
from tcomp.backends.c.contractions.registertiles import Contraction
from tcomp.backends.c.loops.nests import loop_head
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.dialect import C_STORAGE_TYPES, called
from tcomp.backends.prelude import FREE_REGISTERS, INLINE
from tcomp.backends.spelling import loop_text
from tcomp.grammar.tree.function import Binary, Expr, Read
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import For
from tcomp.mapping.contraction.registertile import Loads, RegisterTile
from tcomp.mapping.machines.fitted.cpucontractions import REGISTER_TILES
from tcomp.values.operators import DTYPES, DType

TOGETHER = 4
"""Sums whose lanes are added up in one function, by turning them into each other."""

_CALLED = called(r"lanes_added_([a-z]+\d+)_x(\d+)\b")


def lane_sum_functions(text: str) -> str:
    """The definitions of those functions that a text calls: each gives the sums of the lanes of four vectors."""
    return "".join(_definition(DTYPES[name], int(lanes)) for name, lanes in sorted(set(_CALLED.findall(text))))


def _definition(dtype: DType, lanes: int) -> str:
    vector, result = vector_type(dtype, lanes), vector_type(dtype, TOGETHER)
    names = tuple("abcd")
    lines: list[str] = []
    while lanes > TOGETHER:
        lanes //= 2
        half = vector_type(dtype, lanes)
        pairs = zip("abcd", names, strict=True)
        lines += [f"{half} {n}{lanes} = *(const {half} *)&{of} + *((const {half} *)&{of} + 1);" for n, of in pairs]
        names = tuple(f"{n}{lanes}" for n in "abcd")
    if lanes < TOGETHER:
        lines.append(f"return ({result}){{{', '.join(f'{n}[0] + {n}[1]' for n in names)}}};")
    else:
        a, b, c, d = names
        lines.append(f"{result} e = {_turned(a, b, '0, 4, 1, 5')} + {_turned(a, b, '2, 6, 3, 7')};")
        lines.append(f"{result} f = {_turned(c, d, '0, 4, 1, 5')} + {_turned(c, d, '2, 6, 3, 7')};")
        lines.append(f"return {_turned('e', 'f', '0, 1, 4, 5')} + {_turned('e', 'f', '2, 3, 6, 7')};")
    arguments = ", ".join(f"{vector} {n}" for n in "abcd")
    body = "".join(f"  {line}\n" for line in lines)
    return f"{INLINE} {result} tc_lanes_added_{vector.removeprefix('tc_')}({arguments}) {{\n{body}}}\n"


def _turned(first: str, second: str, lanes: str) -> str:
    return f"__builtin_shufflevector({first}, {second}, {lanes})"


@dataclass(frozen=True, slots=True)
class LaneSums(Contraction):
    """A contraction of which neighbouring steps read neighbours of both operands.

    A tile has as many sums as it has rows and columns, each in as many vectors as hide how long a multiply-add takes.
    """

    def _vectors(self, rows: int, columns: int, loads: Loads) -> RegisterTile | None:
        lanes, extent = self.machine.vector_bytes // self.dtype.itemsize, self._extent()
        while lanes > max(extent, 1):
            lanes //= 2
        return RegisterTile(rows, columns, lanes, 0.0) if lanes > 1 else None

    def _operands(self) -> tuple[Operand, Operand] | None:
        value = self.statement.value
        if not isinstance(value, Binary) or value.op != "*" or self._extent() == 0:
            return None
        found = [self._in_lanes(side, f"tc_{name}") for side, name in ((value.lhs, "a"), (value.rhs, "b"))]
        first, second = found
        return None if first is None or second is None else (first, second)

    def _in_lanes(self, read: Expr, name: str) -> Operand | None:
        """An operand whose neighbouring steps are neighbours in memory, without a conversion on the way."""
        if not isinstance(read, Read) or read.dtype != self.dtype:
            return None
        place = self.place(read, self.nest.corner())
        if place is None or self._stride(self._innermost, read.subscripts, place) != 1:
            return None
        row, column = (self._stride(loop, read.subscripts, place) for loop in (self.nest.row, self.nest.column))
        return None if row is None or column is None else Operand(place, row, column, name)

    def _target(self, written: Read | None, name: str) -> Operand | None:
        place = self.place(written, self.nest.corner())
        if place is None or place.dtype != self.dtype:
            return None
        row, pitch = self._rows_apart(self.statement.subscripts, place)
        column = self._stride(self.nest.column, self.statement.subscripts, place)
        return None if row is None or column is None else Operand(place, row, column, name, pitch=pitch)

    def _tile(
        self, tile: RegisterTile, targets: tuple[Operand, Operand], operands: tuple[Operand, Operand]
    ) -> Iterator[str]:
        """All steps of one register tile, and its sums.  ``targets`` are where sums begin and where they are stored."""
        cells = [(r, v) for r in range(tile.rows) for v in range(tile.columns)]
        extent, lanes = self._extent(), tile.lanes
        turns = max(1, min(REGISTER_TILES.latency * REGISTER_TILES.ports // len(cells), extent // lanes))
        kind = vector_type(self.dtype, lanes)
        yield FREE_REGISTERS
        for r, v in cells:
            yield " ".join(f"{kind} {_sum(r, v, turn)} = {{0}};" for turn in range(turns))
        *outer, loop = self.nest.steps
        assert isinstance(loop, For)
        for depth, around in enumerate(outer):
            yield "  " * depth + loop_head(around)
        inside = "  " * len(outer)
        i, upper = loop.iterator, loop_text(loop.upper)
        yield f"{inside}{{"
        yield f"{inside}  long {i} = {loop_text(loop.lower)};"
        for count in dict.fromkeys((turns, 1)):
            if count == turns or extent % (turns * lanes) >= lanes:
                yield f"{inside}  for (; {i} + {count * lanes} <= {upper}; {i} += {count * lanes}) {{"
                yield from (f"{inside}    {line}" for line in self._step(tile, operands, count))
                yield f"{inside}  }}"
        if extent % lanes:
            yield f"{inside}  {i} = {upper} - {lanes};"
            yield from (f"{inside}  {line}" for line in self._step(tile, operands, 1, extent % lanes))
        yield f"{inside}}}"
        for depth in reversed(range(len(outer))):
            yield "  " * depth + "}"
        for r, v in cells:
            yield from (f"{_sum(r, v)} += {_sum(r, v, turn)};" for turn in range(1, turns))
        yield from self._stored(cells, lanes, targets)

    def _step(
        self, tile: RegisterTile, operands: tuple[Operand, Operand], turns: int, left: int | None = None
    ) -> Iterator[str]:
        """The products of the next lanes, so many vectors of them; of one vector only so many may be ``left``."""
        for o in operands:
            yield f"const {C_STORAGE_TYPES[self.dtype.name]} *const {o.name} = &{o.place.text};"
        for turn in range(turns):
            for o in operands:
                if not o.row:
                    for v in range(tile.columns if o.column else 1):
                        yield self._load(o, 0, v, turn, tile, left)
            for r in range(tile.rows):
                for o in operands:
                    if o.row:
                        for v in range(tile.columns if o.column else 1):
                            yield self._load(o, r, v, turn, tile, left)
                for v in range(tile.columns):
                    a, b = (_part(o, r, v, turn) for o in operands)
                    yield f"{_sum(r, v, turn)} += {a} * {b};"

    def _load(self, operand: Operand, row: int, column: int, turn: int, tile: RegisterTile, left: int | None) -> str:
        """One vector in a register; as volatile if it is used again, since gcc would rather read it for every use."""
        lanes, kind = tile.lanes, vector_type(self.dtype, tile.lanes)
        again = (tile.rows > 1 and not operand.row) or (tile.columns > 1 and not operand.column)
        offset = row * operand.row + column * operand.column + turn * lanes
        value = f"*(const {'volatile ' if again else ''}{kind} *)({operand.name} + {offset})"
        if left is not None:
            mask = f"tc_int{self.dtype.bits}_x{lanes}"
            chosen = ", ".join(["0"] * (lanes - left) + ["-1"] * left)
            value = f"({kind})(({mask})({value}) & ({mask}){{{chosen}}})"
        return f"const {kind} {_part(operand, row, column, turn)} = {value};"

    def _stored(self, cells: list[tuple[int, int]], lanes: int, targets: tuple[Operand, Operand]) -> Iterator[str]:
        """The lanes of every sum added up, and stored."""
        target, result = targets
        element = C_STORAGE_TYPES[self.dtype.name]
        for o in (result,) if self.from_zero else (target, result):
            yield f"{element} *const {o.name} = &{o.place.text};"
        names, sums = [_sum(r, v) for r, v in cells], list[str]()
        function, kind = f"tc_lanes_added_{self.dtype.name}_x{lanes}", vector_type(self.dtype, TOGETHER)
        for number, first in enumerate(range(0, len(names), TOGETHER)):
            four = [names[min(first + n, len(names) - 1)] for n in range(TOGETHER)]
            yield f"const {kind} tc_sums{number} = {function}({', '.join(four)});"
            sums += [f"tc_sums{number}[{n}]" for n in range(TOGETHER)]
        for (r, v), value in zip(cells, sums, strict=False):
            before = "" if self.from_zero else f"{target.name}[{target.offset(r, v * target.column)}] + "
            yield f"{result.name}[{result.offset(r, v * result.column)}] = {before}{value};"

    def _extent(self) -> int:
        """Steps of the innermost loop of the reduction; 0 where that is not known."""
        loop = self.nest.steps[-1] if self.nest.steps else None
        known = constant_extent(loop.lower, loop.upper) if isinstance(loop, For) and loop.step == 1 else None
        return known or 0

    @property
    def _innermost(self) -> For | None:
        loop = self.nest.steps[-1]
        return loop if isinstance(loop, For) else None


def _sum(row: int, column: int, turn: int = 0) -> str:
    return f"tc_c{row}_{column}" + (f"_{turn}" if turn else "")


def _part(operand: Operand, row: int, column: int, turn: int) -> str:
    """The register that holds what an operand gives to one sum."""
    return f"{operand.name}{row if operand.row else 0}_{column if operand.column else 0}_{turn}"
