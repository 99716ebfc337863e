"""Blocks whose steps run several at a time on tiles of rows, as in time tiling by split or diamond tiles.

What a block does to rows is found from all pairs of accesses to one element of which one writes, storage that slices
share included: how far the row of the later one may lie from that of the earlier one, and how many steps later it is.
Edges that lean by at least that much cut the rows into tiles that need nothing of each other.  Bondhugula et al.
(TOPLAS 2016) and Grosser et al. (CGO 2014) do the same in schedules; here each statement keeps a plan of its own, for
rows between two bounds, and only the loops around it change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.tree.forms import combine, interval, to_form
from tcomp.grammar.tree.function import Index, Statement
from tcomp.model.stepwise.cutting import Cutter, Part
from tcomp.model.stepwise.distances import Moves, moves_of
from tcomp.model.stepwise.lanes import OfBlock, is_line, lanes_of
from tcomp.model.stepwise.pieces import Band, Columns, Item, Lanes, Piece, Pieces, Repeat, Sweeps, TimeTiles
from tcomp.model.stepwise.rows import runs_along_rows

MOST_STATEMENTS = 8
ENOUGH = 4
"""Steps for which rows as a whole are good enough."""

LEAST_STRIP = 32
"""Rows of a strip of which none needs another: with fewer, calls take more time than steps."""

WIDEST = 8
"""Bytes of an element, at most, where a tile has a slice for each step."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of what tiles should stay in: those of a block whose tensors take less are not tiled.

    ``lines`` is how many lines of a cache half of the first one holds.  A tile has so many columns for each row where
    these are neighbours in memory, and so many where each is a row of memory itself, of which so many run ``together``.
    Tiles in the lanes of vectors of so many bytes stay in ``nearest``, have ``narrowest`` rows at least, and are shared
    by threads where a wave has ``shared`` instances.  For each row that goes to a lane or back, all lanes compute
    ``gains`` rows at least: the first where the block stays in the nearest cache, else the second.  Of rows that need
    nothing of each other so many ``vectors`` run all steps together.  Columns that need nothing of each other take
    ``strip`` bytes of all rows that the steps touch.
    """

    tile: int
    block: int
    lines: int
    threads: int
    columns: tuple[float, float] = (1.0, 1.0)
    together: int = 1
    vector_bytes: int = 0
    nearest: int = 0
    narrowest: int = 0
    shared: int = 0
    gains: tuple[float, float] = (0.0, 0.0)
    vectors: int = 1
    strip: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """Steps, rows and columns of a tile; 0 columns are all.  So many ``lanes`` of vectors have a tile each; 0: none.

    Some blocks run, strip by strip, with those that they follow.
    """

    height: int
    width: int
    columns: int = 0
    lanes: int = 0
    follows: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Tileable:
    """A block that may be tiled: the row and the column of each statement, and what depends on what along both.

    What a step writes has ``rank`` dimensions.  ``length`` is how many steps it has at most.  It ``moves_on`` if each
    step writes slices of its own, which stay.  ``position`` is 1 where the rows are those of the second dimension.
    """

    repeat: Repeat
    piece: Piece
    rows: tuple[str | int, ...]
    columns: tuple[str | int, ...] | None
    moves: tuple[Moves, ...]
    rank: int
    length: int
    moves_on: bool
    position: int = 0

    @property
    def stays(self) -> bool:
        """Whether no row needs anything of another one, so that tiles have straight edges."""
        return all(r.is_subset(isl.Set("{ [t, 0] }")) for r in self.moves[0].between.values())


def time_tiled(cutter: Cutter, pieces: Pieces, room: Room, shapes: Mapping[int, Shape] | None = None) -> Pieces:
    """The pieces, with blocks tiled that may be and whose tensors do not stay in a cache.

    ``shapes`` says which blocks are tiled, and how, instead; blocks are counted in the order of the text.
    """
    count = itertools.count()

    def each(item: Item) -> Item:
        if isinstance(item, Piece):
            return item
        number = next(count)
        if not isinstance(item, Repeat):
            return item
        wanted = None if shapes is None else shapes.get(number)
        tiles = None if shapes is not None and wanted is None else _tiles(cutter, pieces, item, room, wanted)
        return tiles or replace(item, body=tuple(map(each, item.body)))

    return replace(pieces, body=tuple(map(each, pieces.body)))


def prove_tiles(cutter: Cutter, pieces: Pieces) -> None:
    """Raise LegalityError where tiles of a block would run something before what it depends on, or beside it."""
    for item in blocks_of(pieces.body):
        if not isinstance(item, TimeTiles):
            continue
        block = block_of(cutter, pieces, item.repeat)
        sized = item.height >= 1 and item.width >= 1 and item.slack >= 0
        right = block is not None and sized and _covers(block, cutter, item)
        if block is not None and right:
            right = block.moves[0].is_made_up(item.lower, 1) and block.moves[0].is_made_up(item.upper, -1)
            if item.columns is not None:
                own = len(block.moves) > 1 and item.columns.width >= 1
                right = right and own and block.moves[1].is_made_up(item.columns.band, -1)
            if item.lanes is not None:
                right = right and _lanes(cutter, pieces, block, 0, item.lanes.count) == item.lanes and item.fits_lanes
        if not right:
            size = f"{item.height} steps of {item.width} rows"
            raise LegalityError(f"tiles of {size} of the block over {item.repeat.index} depend on each other")


def _covers(block: Tileable, cutter: Cutter, tiles: TimeTiles) -> bool:
    """Whether the tiles reach all rows and columns."""
    rows = range_of(block, cutter, block.rows)
    if tiles.rows != rows and (tiles.leans or tiles.rows[0] > rows[0] or tiles.rows[1] < rows[1]):
        return False
    columns = None if block.columns is None else range_of(block, cutter, block.columns)
    return tiles.columns is None or tiles.columns.range == columns


def worth_tiles(cutter: Cutter, pieces: Pieces, room: Room) -> bool:
    """Whether some block touches more than stays in a cache, or runs along rows."""
    blocks = [item for item in blocks_of(pieces.body) if isinstance(item, Repeat)]
    return any(
        _bytes(pieces, block) > room.block or runs_along_rows(cutter, pieces, block) or is_line(block)
        for block in blocks
    )


def blocks_of(body: Sequence[Item]) -> Iterator[Repeat | TimeTiles | Sweeps]:
    """All blocks, in the order of the text."""
    for item in body:
        if not isinstance(item, Piece):
            yield item
        if isinstance(item, Repeat):
            yield from blocks_of(item.body)


def _bytes(pieces: Pieces, repeat: Repeat) -> int:
    """The bytes of all tensors that the pieces of a block see of others."""
    own = [piece for piece in repeat.body if isinstance(piece, Piece)]
    tensors = {cut.tensor for piece in own for cut in piece.slices.values()}
    return sum(pieces.storages[name].bytes for name in tensors)


def _tiles(cutter: Cutter, pieces: Pieces, repeat: Repeat, room: Room, wanted: Shape | None) -> TimeTiles | None:
    total = _bytes(pieces, repeat)
    asked = wanted is not None or total > room.block
    along = asked or runs_along_rows(cutter, pieces, repeat) or is_line(repeat)
    block = block_of(cutter, pieces, repeat) if along else None
    count = 0 if wanted is None else wanted.lanes
    lanes = None if block is None else _lanes(cutter, pieces, block, room.vector_bytes, count)
    if block is None or not (asked or block.stays or lanes is not None):
        return None
    lower, upper = block.moves[0].band(1), block.moves[0].band(-1)
    if lower is None or upper is None:
        return None
    rows = range_of(block, cutter, block.rows)
    across = block.moves[1].band(-1) if len(block.moves) > 1 else None
    shape = wanted or (None if lanes is None else _in_lanes(block, lanes, room, lower, upper, rows, total))
    if shape is None and (asked or block.stays):
        shape = _shape(block, cutter, pieces, total, room, lower, upper, across, rows)
    if shape is None or (shape.lanes and lanes is None):
        return None
    columns = None
    if shape.columns:
        if across is None or block.columns is None:
            return None
        columns = Columns(shape.columns, range_of(block, cutter, block.columns), across)
    made = []
    steps = cutter.function.statements[block.piece.numbers[0]].steps
    for position, number in enumerate(block.piece.numbers):
        coordinates = [block.rows[position]]
        if columns is not None and block.columns is not None:
            coordinates.append(block.columns[position])
        piece = cutter.piece((number,), steps, Part(tuple(coordinates)))
        if piece is None:
            return None
        made.append(piece)
    own = lanes if shape.lanes else None
    tiles = TimeTiles(repeat, tuple(made), shape.height, shape.width, rows, lower, upper, columns, own)
    return tiles if own is None or tiles.fits_lanes else None


def _lanes(cutter: Cutter, pieces: Pieces, block: Tileable, vector_bytes: int, count: int) -> Lanes | None:
    """How tiles of a block run in the lanes of vectors, if they may."""
    if block.rank != 1 or block.stays:
        return None
    domains = [cutter.ranges.domains[n] for n in block.piece.numbers]
    facts = block.piece.function.statements, block.piece.slices, block.rows, domains
    return lanes_of(OfBlock(*facts, block.repeat.index, cutter.values), pieces, vector_bytes, count)


def _in_lanes(
    block: Tileable, lanes: Lanes, room: Room, lower: Band, upper: Band, rows: tuple[int, int], total: int
) -> Shape | None:  # fmt: skip
    """Tiles of which as many as there are lanes stay in the first cache, of about the same number of steps each."""
    count = max(1, rows[1] - rows[0])
    computed = block.length * sum(high - low for low, high in lanes.spans)
    least = lanes.count * lanes.moves * count * room.gains[total > 2 * room.nearest]
    rows_of_room = room.nearest // (room.vector_bytes * sum(own.slots for own in lanes.own))
    for threads in (room.threads, 1):
        width = lanes.widths(count, max(rows_of_room, 2 * room.narrowest), threads)
        height = min((width - lower.room(1) - upper.room(1)) // max(1, lower.slope + upper.slope) + 1, block.length)
        shared = threads == 1 or count * height * len(block.rows) >= room.shared
        if height < ENOUGH or width < room.narrowest or not shared:
            continue
        waves = -(-block.length // height)
        if computed >= least * (waves + 1):
            return Shape(-(-block.length // waves), width, lanes=lanes.count)
    return None


def _shape(
    block: Tileable, cutter: Cutter, pieces: Pieces, total: int, room: Room, lower: Band, upper: Band,
    leans: Band | None, rows: tuple[int, int],
) -> Shape | None:  # fmt: skip
    """Tiles as high as their room lets them be, at least two steps: it holds what a statement passes over."""
    if block.stays:
        lines = _rows_at_once(block, cutter, pieces, room)
        return _strips(block, max(1, rows[1] - rows[0]), room, total, beside_each_other(block, pieces, room), lines)
    count, slope = max(1, rows[1] - rows[0]), max(1, lower.slope + upper.slope)

    def shape(width: int, columns: int = 0) -> Shape | None:
        height = min((width - lower.room(1) - upper.room(1)) // slope + 1, block.length)
        return Shape(height, width, columns) if height >= 2 else None

    if block.moves_on:
        # Each step has slices of its own: a tile holds as many as it is high.
        return shape(min(math.isqrt(room.tile // WIDEST), max(LEAST_STRIP, count // (4 * room.threads))))
    whole = shape(min(room.tile * count // max(1, total), count))
    if block.columns is None or leans is None or (whole is not None and whole.height >= ENOUGH):
        return whole
    low, high = range_of(block, cutter, block.columns)
    across = max(1, high - low)
    cells = room.tile * count * across // max(1, total)
    width = min(math.isqrt(int(cells / room.columns[block.rank > 2])), count)
    columns = max(1, min(cells // max(1, width), across))
    if block.rank > 2:
        # Each is a row in memory: so many run together.
        columns = min(max(1, round(columns / room.together)) * room.together, across)
    part = shape(width, columns)
    return part if part is not None and (whole is None or part.height > whole.height) else whole


def beside_each_other(block: Tileable, pieces: Pieces, room: Room) -> int:
    """How many rows run together where they are neighbours in memory, or steps are."""
    storages = [pieces.storages[block.piece.slices[s.target].tensor] for s in block.piece.function.statements]
    together = room.nearest // room.lines if block.position else room.vectors * room.vector_bytes
    return max(1, together // min(storage.dtype.itemsize for storage in storages))


def _rows_at_once(block: Tileable, cutter: Cutter, pieces: Pieces, room: Room) -> int:
    """Rows that need nothing of each other for which the first cache has room: for all that the steps of a block write.

    They take lines of their own, as many as their elements fill; elements of the second dimension are neighbours.
    """
    found = room.lines // len(block.piece.slices)
    for number, row in zip(block.piece.numbers, block.rows, strict=True):
        statement = cutter.function.statements[number]
        domain, outer = cutter.ranges.domains[number].domain, len(statement.steps) - 1
        among = domain.project_out(isl.dim_type.set, outer, 1)
        apart = isl.Map.from_domain_and_range(among, among).deltas()
        for d in range(outer):
            apart = apart.fix_val(isl.dim_type.set, d, isl.Val(0))
        names = [n for n in statement.indices if n != block.repeat.index]
        others = (d for d, n in enumerate(names) if d >= outer and n != row)
        size = math.prod(apart.dim_max_val(d).to_python() + 1 for d in others)
        size *= cutter.tensors[statement.target].dtype.itemsize
        if block.position:
            found = min(found, room.strip // size)
        else:
            found = min(found, room.lines // len(block.piece.slices) // -(-size * room.lines // room.nearest))
    return found


def _strips(block: Tileable, count: int, room: Room, total: int, beside: int, most: int) -> Shape | None:
    """Rows that need nothing of each other: all steps at once, on as many as have room in the first cache, ``most``.

    All of them where they are few: threads would wait for each other longer than they run.  Strips have a multiple of
    so many rows as run ``beside`` each other.
    """
    if block.length < 2 or count < 2:
        return None
    if total <= room.tile:
        return Shape(block.length, count)
    most = max(LEAST_STRIP, most - most % beside if block.position else most)
    shares = max(1, -(-count // most))
    shares = -(-shares // room.threads) * room.threads
    width = -(-count // shares)
    if block.position or (block.rank == 1 and len(block.rows) == 1):
        # Threads share few rows in single vectors, and fewer without any.
        units = (beside,) if block.position else (beside, beside // room.vectors, 1)
        unit = next((unit for unit in units if 0 < unit <= width), beside)
        width = min(-(-width // unit) * unit, count)
    return Shape(block.length, width)


def block_of(cutter: Cutter, pieces: Pieces, repeat: Repeat) -> Tileable | None:
    """A block as one that may be tiled: along its second dimension only where it may not be along the first."""
    found = _along(cutter, pieces, repeat, 0)
    if found is not None and None not in (found.moves[0].band(1), found.moves[0].band(-1)):
        return found
    across = _along(cutter, pieces, repeat, 1)
    return across if across is not None and across.stays else None


def _along(cutter: Cutter, pieces: Pieces, repeat: Repeat, position: int) -> Tileable | None:
    """A few statements without temporaries of their own, each over rows along a dimension."""
    if len(repeat.body) != 1:
        return None
    (piece,) = repeat.body
    if not isinstance(piece, Piece) or piece.private or not 1 <= len(piece.numbers) <= MOST_STATEMENTS:
        return None
    statements = [cutter.function.statements[n] for n in piece.numbers]
    if any(s.reduction is not None or s.scatters for s in statements):
        return None
    fixed = {cut.tensor: tuple(d for d, _ in cut.at) for cut in piece.slices.values()}
    rows = [_coordinate(s, fixed[s.target], position, cutter) for s in statements]
    if any(row is None for row in rows):
        return None
    moves = moves_of(cutter, pieces, piece, statements, [row for row in rows if row is not None])
    if moves is None:
        return None
    columns = [] if position else [_coordinate(s, fixed[s.target], 1, cutter) for s in statements]
    known = [column for column in columns if column is not None]
    ranks = [len(s.subscripts) - len(fixed[s.target]) for s in statements]
    across = None
    if len(known) == len(columns) and min(ranks) > 1 and not position:
        across = moves_of(cutter, pieces, piece, statements, known)
    return Tileable(
        repeat, piece, tuple(row for row in rows if row is not None), tuple(known) if across is not None else None,
        (moves,) if across is None else (moves, across), max(ranks), _length(cutter, piece, repeat),
        all(_moves_on(pieces, piece, s, repeat.index) for s in statements), position,
    )  # fmt: skip


def _moves_on(pieces: Pieces, piece: Piece, statement: Statement, step: str) -> bool:
    own = [cut for cut in piece.slices.values() if cut.tensor == statement.target]
    named = all(any((step, 1) in form.terms for _, form in cut.at) for cut in own)
    return named and statement.target not in pieces.folds


def _length(cutter: Cutter, piece: Piece, repeat: Repeat) -> int:
    hull = cutter.ranges.domains[piece.numbers[0]].hull
    return max(0, interval(combine([(repeat.upper, 1), (repeat.lower, -1)], 0), hull)[1])


def _coordinate(statement: Statement, fixed: tuple[int, ...], position: int, cutter: Cutter) -> str | int | None:
    """The index, or the number, that says where along a dimension a statement writes."""
    left = [s for d, s in enumerate(statement.subscripts) if d not in fixed]
    if position >= len(left):
        return None
    subscript = left[position]
    if isinstance(subscript, Index):
        own = {step.index for step in statement.steps}
        return subscript.name if subscript.name not in own else None
    form = to_form(subscript, cutter.values)
    return form.constant if form is not None and not form.terms else None


def range_of(block: Tileable, cutter: Cutter, coordinates: Sequence[str | int]) -> tuple[int, int]:
    """The first coordinate, and the one behind the last, of all statements."""
    ends = []
    for number, coordinate in zip(block.piece.numbers, coordinates, strict=True):
        hull = cutter.ranges.domains[number].hull
        ends.append((coordinate, coordinate) if isinstance(coordinate, int) else hull[coordinate])
    return min(low for low, _ in ends), max(high for _, high in ends) + 1
