"""Iterations of a program with blocks of steps: what runs at each value of the steps, in order, and what it needs.

A picture has a step and an index, or two steps where a statement computes single elements.  What runs along wavefronts
is drawn by rows and columns, as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.forms import value
from tcomp.model.accesses import Frame, element_map, reads_with_subscripts
from tcomp.model.scop import ScopStatement
from tcomp.model.stepwise.pieces import Item, Piece, Repeat, Sweeps, TimeTiles
from tcomp.pictures.points import MOST, Point, Shown, numbers_of, points_of, with_least
from tcomp.pictures.tiles import dates_of, tiles_of
from tcomp.stepwise import StepwiseCompilation

_SET, _OUT, _PARAM = isl.dim_type.set, isl.dim_type.out, isl.dim_type.param


@dataclass(frozen=True, slots=True)
class _Turn:
    """A piece as it runs once: the values of its steps, and the tile in which that is."""

    piece: Piece
    at: Mapping[str, int]
    tile: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Front:
    """What a step along wavefronts stands for: it is ``slope`` times the row, and the column."""

    column: str
    slope: int


@dataclass(frozen=True, slots=True)
class _Sides:
    """The steps and indices of a statement that are drawn; the last one is missing where there is only one."""

    first: str
    second: str
    front: _Front | None = None

    @property
    def axes(self) -> tuple[str, str]:
        """The names of both sides of the picture."""
        return (self.second, self.front.column) if self.front else (self.first, self.second)

    def place(self, instance: Mapping[str, int]) -> tuple[int, int]:
        """Where an instance is drawn."""
        first, second = instance[self.first], instance[self.second or self.first]
        return (second, first - self.front.slope * second) if self.front else (first, second)

    def values(self, place: tuple[int, int]) -> dict[str, int]:
        """The instance of a place."""
        first, second = place
        if self.front:
            return {self.first: second + self.front.slope * first, self.second: first}
        return {self.second: second, self.first: first} if self.second else {self.first: first}


class Steps:
    """The pictures of one compilation, in a part of its steps and indices that begins with the least ones.

    A tile is what runs in one step, or in one tile over steps.
    """

    def __init__(self, compilation: StepwiseCompilation) -> None:
        self.made = {id(m.piece): m for m in compilation.made}
        self.body = compilation.pieces.body
        self.function, self.ranges = compilation.cutter.function, compilation.cutter.ranges
        self.fronts: dict[str, _Front] = {}
        for waves in compilation.waves:
            for n in waves.statements:
                wave, column = (f.statements[n].steps[-1].index for f in (waves.after, waves.before))
                self.fronts[wave] = _Front(column, waves.slope)
        self.sides: dict[int, _Sides] = {}
        self.shown: dict[int, Shown] = {}

    def panels(self, most: int) -> list[Shown]:
        """What is drawn of the last statements, at most so many."""
        points: dict[int, list[Point]] = {}
        for number, turn in enumerate(self._turns(self.body, {})):
            statements = turn.piece.scop.statements
            main = [s for s in statements if s.kind in ("update", "assign")]
            for statement in main or statements:
                origin = turn.piece.numbers[statement.origin]
                sides = self.sides.setdefault(origin, self._sides(origin, statement))
                points.setdefault(origin, []).extend(self._points(turn, statement, sides, number))
        drawn = [(origin, found) for origin, found in sorted(points.items()) if found]
        for origin, found in drawn[-most:]:
            self.shown[origin] = self._panel(origin, found)
        return list(self.shown.values())

    def _panel(self, origin: int, points: list[Point]) -> Shown:
        """The points that fit into a picture, in order."""
        least = [min((p.at[d] for p in points), default=0) for d in range(2)]
        kept = [p for p in points if all(at < low + MOST for at, low in zip(p.at, least, strict=True))]
        hull, sides = self.ranges.domains[origin].hull, self.sides[origin]
        drawn = [name for name in (sides.first, sides.second) if name and name not in self.fronts]
        whole = len(kept) == len(points) and all(hull[n][1] - hull[n][0] < MOST for n in drawn)
        target = self.function.statements[origin].target
        return Shown(f"S{origin}", target, sides.axes, tuple(sorted(kept, key=lambda p: p.date)), whole)

    def _turns(self, body: Sequence[Item], at: Mapping[str, int]) -> Iterator[_Turn]:
        """The first turns along each step, in the order in which they run."""
        for item in body:
            match item:
                case Piece():
                    yield _Turn(item, at, tuple(at.values()))
                case Repeat():
                    low, front = value(item.lower, at), self.fronts.get(item.index)
                    most = MOST * (front.slope + 1 if front else 1)
                    for step in range(low, min(value(item.upper, at), low + most)):
                        yield from self._turns(item.body, {**at, item.index: step})
                case TimeTiles():
                    yield from _tiles(item, at)
                case Sweeps():
                    # As they are written: what runs at the same time keeps that order for each element.
                    yield from self._turns([item.repeat], at)

    def _sides(self, origin: int, statement: ScopStatement) -> _Sides:
        """The last step and the first index that names an element; without such an index two steps, and without steps
        two indices."""
        steps = tuple(step.index for step in self.function.statements[origin].steps)
        own = statement.indices[statement.tile_rank :]
        naming = own[: statement.coordinates - statement.tile_rank]
        drawn = (*steps[-2:], *naming[:1])[-2:] if steps else naming[-2:] if len(naming) > 1 else own[:2]
        front = self.fronts.get(steps[-1]) if steps else None
        return _Sides(drawn[0] if drawn else "", drawn[1] if len(drawn) > 1 else "", front)

    def _points(self, turn: _Turn, statement: ScopStatement, sides: _Sides, number: int) -> Iterator[Point]:
        """The instances of a statement in one turn; indices that are not drawn have their least values."""
        plan = self.made[id(turn.piece)].plan
        part = _fixed(statement.domain, turn.at)
        tiles = None if turn.at else tiles_of(plan, statement)
        own = range(statement.tile_rank, len(statement.indices))
        names = {d: statement.indices[d] for d in own}
        if not sides.first or part.is_empty():
            return
        for d in own:
            if names[d] not in (sides.first, sides.second):
                part = with_least(part, {d})
            else:
                low = self.ranges.domains[turn.piece.numbers[statement.origin]].hull[names[d]][0]
                part = part.upper_bound_val(_SET, d, isl.Val(low + MOST - 1))
        both = _fixed(dates_of(plan, statement), turn.at).intersect_domain(part)
        date = both.dim(_OUT)
        if tiles is not None:
            both = tiles.intersect_domain(part).flat_range_product(both)
        count, total = part.dim(_SET), both.dim(_OUT)
        for numbers in numbers_of(both):
            instance = {**turn.at, **{names[d]: numbers[d] for d in own}}
            behind = numbers[count:]
            tile = (*(turn.tile if own else ()), *behind[: total - date])
            yield Point(f"S{turn.piece.numbers[statement.origin]}", sides.place(instance), tile,
                        (number, *behind[total - date :]))  # fmt: skip

    def needs(self, of: Point) -> list[tuple[str, tuple[int, int]]]:
        """The instances of drawn statements that one needs: of those that run before, the last that write what it
        reads."""
        reader = int(of.statement[1:])
        sides, statement = self.sides[reader], self.function.statements[reader]
        domain = self.ranges.domains[reader].domain
        for name, at in sides.values(of.at).items():
            domain = domain.fix_val(_SET, statement.indices.index(name), isl.Val(at))
        reduced = len(statement.indices) - len(self.ranges.domains[reader].lhs.get_var_names(_SET))
        domain = with_least(domain, set(range(len(statement.indices) - reduced)))
        frame = Frame(domain, self.ranges.sizes, self.ranges.boxes)
        found: dict[tuple[str, tuple[int, int]], None] = {}
        for read in reads_with_subscripts(frame, statement.value, statement.subscripts):
            name = read.get_tuple_name(_OUT)
            for element in points_of(read.range())[:MOST]:
                writers = [p for n, panel in self.shown.items() if panel.target == name
                           for p in self._writers(n, element) if p.date < of.date]  # fmt: skip
                if writers:
                    last = max(writers, key=lambda p: p.date)
                    found[last.statement, last.at] = None
        return sorted(found)

    def _writers(self, number: int, element: tuple[int, ...]) -> Iterator[Point]:
        """The drawn instances of a statement that write an element."""
        statement = self.function.statements[number]
        frame = Frame(self.ranges.domains[number].domain, self.ranges.sizes, self.ranges.boxes)
        writing = element_map(frame, statement.target, statement.subscripts)
        for d, at in enumerate(element):
            writing = writing.fix_val(_OUT, d, isl.Val(at))
        places = {
            self.sides[number].place(dict(zip(statement.indices, numbers, strict=True)))
            for numbers in points_of(writing.domain())
        }
        return (p for p in self.shown[number].points if p.at in places)


def _fixed(of: isl.Set | isl.Map, at: Mapping[str, int]) -> isl.Set | isl.Map:
    """What a set or a map is at some values of steps."""
    for name, number in at.items():
        position = of.find_dim_by_name(_PARAM, step_parameter(name))
        if position >= 0:
            of = of.fix_val(_PARAM, position, isl.Val(number))
    return of


def _tiles(tiles: TimeTiles, at: Mapping[str, int]) -> Iterator[_Turn]:
    """The steps of a block in tiles: those that run at the same time, then the next ones."""
    first, last = value(tiles.repeat.lower, at), value(tiles.repeat.upper, at)
    height, rows = tiles.height, min(MOST, tiles.rows[1] - tiles.rows[0])
    steps = 2 * height if tiles.leans else height
    strips = -(-(rows + (tiles.width - 1 if tiles.leans else 0)) // tiles.width)
    parts = 1
    if tiles.columns is not None:
        first_column, last_column = tiles.columns.range
        reach = min(MOST, last_column - first_column) + tiles.columns.band.reach(steps)
        parts = -(-reach // tiles.columns.width)
    for wave, begin in enumerate(range(first - (height if tiles.leans else 0), min(last, first + MOST), height)):
        for strip in range(strips):
            for part in range(parts):
                tile = (*at.values(), wave, strip, part)
                for step in range(max(begin, first), min(begin + steps, last)):
                    yield from _in_tile(tiles, {**at, tiles.repeat.index: step}, step - begin, tile)


def _in_tile(tiles: TimeTiles, at: Mapping[str, int], past: int, tile: tuple[int, ...]) -> Iterator[_Turn]:
    """The pieces of a tile at one of its steps, which is so many steps ``past`` its first."""
    wave, strip, part = tile[-3:]
    corner = tiles.rows[0] + strip * tiles.width
    grows = tiles.leans and past < tiles.height
    if tiles.leans:
        corner -= wave * tiles.line % tiles.width
    for number, piece in enumerate(tiles.pieces):
        since = past if grows or not tiles.leans else past - tiles.height
        left, right = (band.slope * since + band.shifts[number] for band in (tiles.lower, tiles.upper))
        ends = [corner + left, corner + tiles.width - right]
        if grows:
            ends = [corner + tiles.line - right, corner + tiles.line + left]
        if tiles.columns is not None:
            band, width = tiles.columns.band, tiles.columns.width
            begin = tiles.columns.range[0] + part * width - (band.slope * past + band.shifts[number])
            ends += [begin, begin + width]
        yield _Turn(piece, {**at, **dict(zip(piece.steps[-len(ends) :], ends, strict=True))}, tile)
