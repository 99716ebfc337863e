"""Register tiles of sums of products of narrow integers, several steps of the reduction at a time.

Both operands lie in packed copies with groups of steps together (``groupedpanels.py``): along the columns of the tile a
vector of groups, along its rows one group, which all lanes get.  A step of the tile is one instruction for each of its
vectors (``dotinstructions.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tcomp.backends.c.contractions.dotinstructions import LANE, LANE_BYTES, dot
from tcomp.backends.c.contractions.groupedpanels import least_name
from tcomp.backends.c.contractions.panels import Panel
from tcomp.backends.c.contractions.places import Operand, Place
from tcomp.backends.c.contractions.registertiles import Contraction
from tcomp.backends.c.loops.nests import loop_head
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.widening import NARROWED, narrowed
from tcomp.backends.dialect import C_STORAGE_TYPES, store
from tcomp.backends.prelude import FREE_REGISTERS
from tcomp.grammar.tree.function import Binary, Read
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import For, LoopExpr, LoopNode, Number, Variable, flattened
from tcomp.mapping.contraction.registertile import Loads, RegisterTile, vectorised
from tcomp.mapping.plan.layouts import StepGroups
from tcomp.mapping.plan.operations import bare
from tcomp.values.operators import BFLOAT16, FLOAT32, INT32, DType

_EXPONENTS = 2 * 127 - 90
"""What the exponents of two numbers whose product is 2^-90 add up to."""

_LEAST_LANES = 4
"""Lanes of the narrowest vectors that the instructions take."""


@dataclass(frozen=True, slots=True)
class GroupedOperand:
    """An operand in a copy with groups, which begin at the value ``first`` of the reduction index."""

    panel: Panel
    first: LoopExpr

    @property
    def groups(self) -> StepGroups:
        """How steps lie together."""
        assert self.panel.copy.groups is not None
        return self.panel.copy.groups

    @property
    def least(self) -> str | None:
        """The C name of what bounds the elements of the copy from below, where instructions take that for zero."""
        return least_name(self.panel) if self.panel.copy.dtype == BFLOAT16 else None

    @property
    def is_signed(self) -> bool:
        """Whether the copy holds signed integers."""
        return (self.panel.copy.dtype.kind == "int") != self.groups.flipped


@dataclass(frozen=True, slots=True)
class DotContraction(Contraction):
    """A contraction whose operands are ``grouped``.  ``copied`` gives the place of an element of a copy and ``sums``
    that of a sum of elements, as ``place`` does of an element of the tensor."""

    grouped: Mapping[Read, GroupedOperand] = field(kw_only=True)
    copied: Callable[[Read, Mapping[str, LoopExpr]], Place] = field(kw_only=True)
    sums: Callable[[Read, Mapping[str, LoopExpr]], Place] = field(kw_only=True)

    def lines_or(self, others: list[str], fallback: Callable[[LoopNode], list[str]]) -> list[str] | None:
        """The C text, with that of ``others`` for when the instructions do not compute what the program says."""
        lines, conditions = self.lines(fallback), self._conditions()
        if lines is None or not conditions:
            return lines
        return [f"if ({' && '.join(conditions)}) {{", *lines, "} else {", *others, "}"]

    def _conditions(self) -> list[str]:
        """The C texts of what must hold for the instructions to compute what the program says; none if they always do.

        Those for bfloat16 take numbers below 2^-126 for zero, at every step.  Where all products are 2^-90 or more or
        zero, that is less than what rounding their sum may do.
        """
        least = [o.least for o in self.grouped.values() if o.least is not None]
        if not least:
            return []
        exponents = [f"(({name} + 1) >> 7)" for name in least]
        return [*exponents, f"{' + '.join(exponents)} >= {_EXPONENTS}"]

    def _operands(self) -> tuple[Operand, Operand] | None:
        found: list[Operand] = []
        for read, name in zip(self._reads(), ("tc_a", "tc_b"), strict=True):
            place = self.copied(read, self.nest.corner())
            if not self._steps_whole_groups(self.grouped[read]):
                return None
            row, column = (self._stride(loop, read.subscripts, place) for loop in (self.nest.row, self.nest.column))
            if row is None or column not in (0, self.grouped[read].groups.size):
                return None
            found.append(Operand(place, row, 1 if column else 0, name))
        first, second = found
        return (first, second) if first.is_vector != second.is_vector else None

    def _reads(self) -> tuple[Read, Read]:
        value = self.statement.value
        assert isinstance(value, Binary)
        first, second = bare(value.lhs), bare(value.rhs)
        assert isinstance(first, Read) and isinstance(second, Read)
        return first, second

    def _steps_whole_groups(self, operand: GroupedOperand) -> bool:
        """Whether the loop over the grouped index goes through whole groups, of which zeros may fill up the last."""
        loop = self._grouped_loop()
        if loop is None or loop.step != 1:
            return False
        unknown = Ranges({})
        first = unknown.sum_of(operand.first)
        copy, groups = operand.panel.copy, operand.groups
        begin = unknown.sum_of(loop.lower).plus(first, -1)
        storage = operand.panel.storage
        if storage.is_open(groups.dimension):
            return False
        end = Number(storage.box.origin[groups.dimension] + storage.box.extent[groups.dimension])
        for upper in flattened(loop.upper, "min"):
            distance = unknown.sum_of(upper).plus(first, -1)
            whole = distance.constant % groups.whole == 0 or distance.constant == copy.shape[groups.dimension]
            if upper != end and (distance.terms or not whole):
                return False
        return not begin.terms and begin.constant == 0

    def _groups(self) -> StepGroups:
        return next(iter(self.grouped.values())).groups

    def _grouped_loop(self) -> For | None:
        """The loop over the index whose values are grouped, if it is the innermost one in which the index moves."""
        positions = {o.groups.step for o in self.grouped.values()}
        argument = self.nest.call.arguments[positions.pop()] if len(positions) == 1 else None
        loops = [n for n in self.nest.steps if isinstance(n, For) and Variable(n.iterator) == argument]
        return loops[0] if len(loops) == 1 else None

    def _vectors(self, rows: int, columns: int, loads: Loads) -> RegisterTile | None:
        if columns < _LEAST_LANES:
            return RegisterTile(rows, columns, _LEAST_LANES, float(rows))
        tile = vectorised(rows, columns, loads, self.machine)
        return None if tile is None or tile.lanes < _LEAST_LANES else tile

    def _sums(self) -> Operand | None:
        """What accumulators begin with to make up for flipped bits; None where nothing has to be."""
        summed = [read for read, o in self.grouped.items() if o.groups.summed is not None]
        if not summed:
            return None
        place = self.sums(summed[0], self.nest.corner())
        row, column = (self._stride(loop, summed[0].subscripts, place) for loop in (self.nest.row, self.nest.column))
        assert row is not None and column is not None
        return Operand(place, row, column, "tc_s")

    def _tile(
        self, tile: RegisterTile, targets: tuple[Operand, Operand], operands: tuple[Operand, Operand]
    ) -> Iterator[str]:
        """All steps of one register tile.

        The instructions for bfloat16 take small numbers for zero, so what is in memory is added when they are done.
        """
        target, result = targets
        offsets = [max(0, min(v * tile.lanes, tile.columns - tile.lanes)) for v in range(tile.vectors)]
        cells = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
        dtype = FLOAT32 if self.dtype == FLOAT32 else INT32
        vector = vector_type(dtype, tile.lanes)
        late = self.dtype == FLOAT32 and not self.from_zero
        sums, element = self._sums(), C_STORAGE_TYPES[self.dtype.name]
        yield FREE_REGISTERS
        if not self.from_zero:
            yield f"const {element} *const {target.name} = &{target.place.text};"
        if sums is not None:
            yield f"const int *const {sums.name} = &{sums.place.text};"
        for r, v in cells:
            values = [] if self.from_zero or late else [_loaded(target, r, offsets[v], tile, vector)]
            values += [] if sums is None else [_start(sums, r, offsets[v], vector)]
            yield f"{vector} {_cell(r, v)} = {' + '.join(values) or '{0}'};"
        yield from self._all_steps(self._step(tile, operands, offsets))
        yield f"{C_STORAGE_TYPES[result.place.dtype.name]} *const {result.name} = &{result.place.text};"
        if late:
            yield from (f"{_cell(r, v)} += {_loaded(target, r, offsets[v], tile, vector)};" for r, v in cells)
        for r, v in cells:
            yield from _stored(result, r, offsets[v], _cell(r, v), tile, dtype)

    def _all_steps(self, step: Iterator[str]) -> Iterator[str]:
        """The loops over all steps, around the lines of as many as an instruction takes."""
        depth = 0
        for loop in self.nest.steps:
            head = loop_head(loop)
            if loop is self._grouped_loop():
                assert isinstance(loop, For)
                head = loop_head(replace(loop, step=self._groups().whole))
            yield "  " * depth + head
            depth += 1
        yield from ("  " * depth + line for line in step)
        for d in range(depth - 1, -1, -1):
            yield "  " * d + "}"

    def _step(self, tile: RegisterTile, operands: tuple[Operand, Operand], offsets: list[int]) -> Iterator[str]:
        """One group of steps for every vector of a tile."""
        reads = dict(zip(self._reads(), operands, strict=True))
        for o in operands:
            yield f"const {C_STORAGE_TYPES[o.place.dtype.name]} *const {o.name} = &{o.place.text};"
        for o in operands:
            if not o.row:
                yield from self._loads(o, 0, tile, offsets)
        signed = next((o for read, o in reads.items() if self.grouped[read].is_signed), operands[1])
        unsigned = operands[0] if signed is operands[1] else operands[1]
        dtype = operands[0].place.dtype
        for r in range(tile.rows):
            for o in operands:
                if o.row:
                    yield from self._loads(o, r, tile, offsets)
            for v in range(tile.vectors):
                total = dot(_cell(r, v), _part(unsigned, r, v), _part(signed, r, v), dtype, tile.lanes)
                yield f"{_cell(r, v)} = {total};"

    def _loads(self, operand: Operand, row: int, tile: RegisterTile, offsets: list[int]) -> Iterator[str]:
        """One row of an operand, in registers: its vectors, or one group in all lanes of a vector."""
        vector = vector_type(INT32, tile.lanes)
        start = f"{operand.name} + {row * operand.row}"
        if not operand.is_vector:
            yield f"const {vector} {_part(operand, row, 0)} = ({vector}){{0}} + *(const {LANE} *)({start});"
            return
        size = LANE_BYTES // operand.place.dtype.itemsize
        for v, offset in enumerate(offsets):
            place = f"{operand.name} + {row * operand.row + offset * size}"
            yield f"const {vector} {_part(operand, row, v)} = *(const {vector} *)({place});"


def _start(sums: Operand, row: int, offset: int, vector: str) -> str:
    """What a vector of accumulators begins with."""
    place = f"{sums.name} + {row * sums.row + offset * sums.column}"
    return f"*(const {vector} *)({place})" if sums.column else f"(({vector}){{0}} + *({place}))"


def _loaded(target: Operand, row: int, offset: int, tile: RegisterTile, vector: str) -> str:
    """A vector of accumulators in memory, which may have fewer columns than lanes."""
    if tile.columns >= tile.lanes:
        return f"*(const {vector} *)({target.name} + {target.offset(row, offset)})"
    return f"({vector}){{{', '.join(f'{target.name}[{target.offset(row, offset + c)}]' for c in range(tile.columns))}}}"


def _stored(result: Operand, row: int, offset: int, cell: str, tile: RegisterTile, dtype: DType) -> Iterator[str]:
    start, own = result.offset(row, offset), result.place.dtype
    if tile.columns < tile.lanes:
        places = (result.offset(row, offset + c) for c in range(tile.columns))
        yield from (f"{result.name}[{place}] = {store(f'{cell}[{c}]', own)};" for c, place in enumerate(places))
    elif own in NARROWED:
        yield narrowed(f"{result.name} + {start}", cell, own, tile.lanes)
    else:
        yield f"*({vector_type(dtype, tile.lanes)} *)({result.name} + {start}) = {cell};"


def _cell(row: int, vector: int) -> str:
    return f"tc_c{row}_{vector}"


def _part(operand: Operand, row: int, vector: int) -> str:
    """The register that holds what an operand gives to one vector of accumulators."""
    return f"{operand.name}{row if operand.row else 0}_{vector if operand.is_vector else 0}"
