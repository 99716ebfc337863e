"""The loops over tiles as blocks of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.backends.gpu.words.dialect import DeviceDialect
from tcomp.backends.gpu.words.names import renamed
from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import For, If, LoopExpr, LoopNode, Number, Operation, Scope, Variable

LARGEST_GRID = (2**31 - 1, 65535, 65535)
"""Blocks that a grid may have in x, y, z."""


@dataclass(frozen=True, slots=True)
class BlockLoop:
    """A loop over tiles: its bounds as they stand, and the ``low``est and ``high``est value that its iterator takes.

    There are tiles where all ``conditions`` hold.
    """

    iterator: str
    lower: LoopExpr
    upper: LoopExpr
    step: int
    conditions: tuple[LoopExpr, ...]
    low: int = 0
    high: int = 0

    @property
    def extent(self) -> int:
        """Number of values from the lowest to the highest."""
        return max(0, (self.high - self.low) // self.step + 1)

    def renamed(self, names: Mapping[str, str]) -> BlockLoop:
        """The loop with other names for iterators."""
        return replace(
            self,
            iterator=names.get(self.iterator, self.iterator),
            lower=renamed(self.lower, names),
            upper=renamed(self.upper, names),
            conditions=tuple(renamed(c, names) for c in self.conditions),
        )


@dataclass(frozen=True, slots=True)
class MappedLoop:
    """A loop over tiles and its place in the grid: how the iterator is had from the coordinates of a block.

    ``blocks`` lie along it; as C, their number is ``count``.
    """

    loop: BlockLoop
    identifier: str
    blocks: int
    count: str
    ranges: Ranges

    @property
    def iterator(self) -> str:
        return self.loop.iterator

    @property
    def low(self) -> int:
        return self.loop.low

    @property
    def high(self) -> int:
        return max(self.loop.low, self.loop.high)

    @property
    def repeats(self) -> bool:
        """Whether a block runs several tiles in turn."""
        return self.loop.extent > self.blocks

    @property
    def opens(self) -> bool:
        """Whether its lines open a block of C that must be closed."""
        return self.repeats or bool(self._guards())

    def lines(self, index: str) -> list[str]:
        """C that defines the iterator."""
        loop, name = self.loop, self.loop.iterator
        guards = " && ".join(expression_text(g, self.ranges, 2) for g in self._guards())
        if self.repeats:
            # The iterator ends beyond the last tile, by as many as there are blocks.
            index = "long long" if loop.high + loop.step * self.blocks >= 2**31 else index
            start, step = self._value(index), self.count
            step = step if loop.step == 1 else f"{loop.step} * {_signed(step, index)}"
            head = f"for ({index} {name} = {start}; {name} <= {loop.high}; {name} += {step}) {{"
            return [head + (f"  if (!({guards})) continue;" if guards else "")]
        first = f"const {index} {name} = {self._value(index)};"
        return [first, f"if ({guards}) {{"] if guards else [first]

    def _value(self, index: str) -> str:
        if self.loop.step == 1 and self.loop.low == 0:
            return self.identifier
        identifier = f"({self.identifier})" if " " in self.identifier and self.loop.step != 1 else self.identifier
        text = _signed(identifier, index)
        text = text if self.loop.step == 1 else f"{self.loop.step} * {text}"
        return text if self.loop.low == 0 else f"{self.loop.low} + {text}"

    def _guards(self) -> list[LoopExpr]:
        i = Variable(self.loop.iterator)
        found = [Operation(">=", (i, self.loop.lower)), Operation("<", (i, self.loop.upper)), *self.loop.conditions]
        known = self.ranges.knowing(self.loop.iterator, self.loop.low, self.high)
        return [known.condition(g) for g in found if known.decide(g) is not True]


def _signed(text: str, index: str) -> str:
    """Coordinates may be unsigned 32-bit integers: they wrap to ``int``, but must be widened before arithmetic."""
    return text if index == "int" else f"({index}){text}"


def block_loops(node: LoopNode, ranges: Ranges) -> tuple[list[BlockLoop], LoopNode]:
    """The loops over tiles above a group, outermost first, and what is below them; ``ranges`` are those of steps."""
    found: list[BlockLoop] = []
    condition: LoopExpr | None = None
    while True:
        match node:
            case Scope(name=name) if name.startswith("parallel"):
                node = node.body
            case For():
                low, high = ranges.bounds(node.lower), ranges.bounds(node.upper)
                assert low is not None and high is not None
                tests, step = ([] if condition is None else [condition]), node.step
                if step != 1 and low[0] != low[1]:
                    # Where the first tile is another one in each loop around, blocks are counted one by one.
                    distance = Operation("mod", (Operation("-", (Variable(node.iterator), node.lower)), Number(step)))
                    tests, step = [*tests, Operation("==", (distance, Number(0)))], 1
                found.append(BlockLoop(node.iterator, node.lower, node.upper, step, tuple(tests), low[0], high[1] - 1))
                ranges = ranges.knowing(node.iterator, low[0], max(low[0], high[1] - 1))
                condition = None
                node = node.body
            case If(otherwise=None) if condition is None and isinstance(node.then, For):
                condition = node.condition
                node = node.then
            case _:
                return found, node


def grid_of(
    dialect: DeviceDialect, loops: list[BlockLoop], blocks: tuple[int, ...] | None, ranges: Ranges | None = None
) -> tuple[list[MappedLoop], tuple[int, int, int]]:
    """Loops on the axes of a grid, innermost on x; what is outside three goes on z together.  Also the grid.

    ``ranges`` are those of the steps around.
    """
    given = blocks or ()
    caps = [min(given[n] if n < len(given) else most, most) for n, most in enumerate(LARGEST_GRID)]
    mapped: list[MappedLoop] = []
    grid = [1, 1, 1]
    ranges = ranges or Ranges({})
    shares = _shares([loop.extent for loop in loops[:-2]], caps[2])
    for position, loop in enumerate(loops):
        axis = min(len(loops) - 1 - position, 2)
        identifier, count, along = dialect.block(axis), dialect.blocks(axis), min(loop.extent, caps[axis])
        if axis == 2 and len(shares) > 1:
            along = shares[position]
            identifier, count = _part(identifier, position, shares), str(along)
        grid[axis] *= along
        mapped.append(MappedLoop(loop, identifier, along, count, ranges))
        ranges = ranges.knowing(loop.iterator, loop.low, max(loop.low, loop.high))
    return mapped, (grid[0], grid[1], grid[2])


@dataclass(frozen=True, slots=True)
class Tiles:
    """The loops over tiles of a kernel; ``lines`` say which tile a block takes, or, in a loop ``head``, takes next."""

    loops: list[MappedLoop]
    lines: list[str]
    head: str | None = None


def in_rows(mapped: list[MappedLoop], dialect: DeviceDialect, rows: int, fresh: Callable[[str], str]) -> Tiles:
    """C that gives a block its tile along the two innermost loops, so many ``rows`` of tiles after one another.

    Loops stay as they were where a block runs several tiles, or there are too many.
    """
    if len(mapped) < 2 or any(loop.repeats for loop in mapped[-2:]):
        return Tiles(mapped, [])
    height, width = (loop.blocks for loop in mapped[-2:])
    if height * width >= 2**31 or min(rows, height) < 2:
        return Tiles(mapped, [])
    block, x, y = fresh("block"), dialect.block(0), dialect.block(1)
    first = f"const unsigned int {block} = {x} + {width} * {y};"
    lines, loops = _rows_of_tiles(mapped[-2], mapped[-1], block, rows, fresh)
    return Tiles([*mapped[:-2], *loops], [first, *lines])


def backwards(mapped: list[MappedLoop]) -> list[MappedLoop]:
    """The loops with blocks that take the tiles of the innermost one, of those that have several, from the last on.

    They stay as they were where a block runs several tiles.
    """
    at = max((n for n, loop in enumerate(mapped) if loop.blocks > 1), default=None)
    if at is None or mapped[at].repeats:
        return mapped
    turned = replace(mapped[at], identifier=f"{mapped[at].blocks - 1} - {mapped[at].identifier}")
    return [*mapped[:at], turned, *mapped[at + 1 :]]


def in_turn(
    mapped: list[MappedLoop], dialect: DeviceDialect, rows: int, blocks: int, fresh: Callable[[str], str]
) -> Tiles | None:
    """C in which so many ``blocks`` take all tiles: each the one of its number, then the one ``blocks`` further.

    Numbers run through ``rows`` of tiles together, as blocks do in ``in_rows``.  None where loops repeat already, there
    are too many tiles, or no more than blocks.
    """
    total = math.prod(loop.blocks for loop in mapped)
    if not mapped or any(loop.repeats for loop in mapped) or not blocks < total < 2**31:
        return None
    tile, lines = fresh("tile"), []
    head = f"for (unsigned int {tile} = {dialect.block(0)}; {tile} < {total}; {tile} += {blocks}) {{  // tiles in turn"
    plane = math.prod(loop.blocks for loop in mapped[-2:])
    counts = [loop.blocks for loop in mapped]
    loops = [replace(loop, identifier=_part(tile, n, counts)) for n, loop in enumerate(mapped)]
    if len(mapped) > 1 and min(rows, mapped[-2].blocks) > 1:
        number = tile
        if plane < total:
            number = fresh("block")
            lines.append(f"const unsigned int {number} = {tile} % {plane};")
        own, inner = _rows_of_tiles(mapped[-2], mapped[-1], number, rows, fresh)
        lines, loops = [*lines, *own], [*loops[:-2], *inner]
    return Tiles(loops, lines, head)


def _rows_of_tiles(
    outer: MappedLoop, inner: MappedLoop, block: str, rows: int, fresh: Callable[[str], str]
) -> tuple[list[str], list[MappedLoop]]:
    """The row and the column of a tile by its number, and the loops that take them.

    In a group of rows tiles come column by column; the last group may have fewer rows.
    """
    height, width = outer.blocks, inner.blocks
    rows, lines = min(rows, height), []
    row, column = (fresh(name) for name in ("block_row", "block_column"))
    if height % rows == 0:
        first, group = f"{block} / {rows * width} * {rows}", str(rows)
    else:
        start, group = fresh("first_row"), fresh("rows_together")
        lines.append(f"const unsigned int {start} = {block} / {rows * width} * {rows};")
        lines.append(f"const unsigned int {group} = {start} + {rows} > {height} ? {height} - {start} : {rows};")
        first = start
    lines.append(f"const unsigned int {row} = {first} + {block} % {rows * width} % {group};")
    lines.append(f"const unsigned int {column} = {block} % {rows * width} / {group};")
    return lines, [replace(outer, identifier=row), replace(inner, identifier=column)]


def _shares(extents: Sequence[int], cap: int) -> list[int]:
    """Blocks along each of some loops that share an axis of at most ``cap`` blocks: inner loops get theirs first."""
    shares: list[int] = []
    for extent in reversed(extents):
        shares.insert(0, min(extent, cap))
        cap //= max(1, shares[0])
    return shares


def _part(identifier: str, position: int, shares: Sequence[int]) -> str:
    """The coordinate along one of the loops that share an axis, outermost first."""
    inner = math.prod(max(1, share) for share in shares[position + 1 :])
    quotient = f"{identifier} / {inner}" if inner > 1 else identifier
    if position == 0:
        return quotient
    return f"{f'({quotient})' if inner > 1 else quotient} % {max(1, shares[position])}"
