"""A program with blocks of steps, taken apart: what runs between two beginnings or ends of blocks is a ``Piece``.

A piece has a ``Scop`` of its own, in which the indices of the blocks around it are parameters: it runs once for each of
their values, and is scheduled, tiled and proved like any program, for all of them at once.  Pieces run one after
another as they are written, so nothing that passes do to one can be seen by another.

Tensors that outlive a piece are arguments of it.  Where all accesses of a piece to one have subscripts that are made of
steps, as ``U(t, i)`` and ``U(t-1, i)`` have, the piece gets the slices that these name, and knows them to be apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import islpy as isl

from tcomp.grammar.tree.forms import Form
from tcomp.grammar.tree.function import Expr, Function, Read
from tcomp.model.scop import Scop
from tcomp.model.stepwise.views import Slice
from tcomp.model.terms.storages import Storage

WIDEST_IN_LANES = 1 << 16
"""Rows of tiles in lanes, at most: each thread has memory for so many."""

_SET, _PARAM = isl.dim_type.set, isl.dim_type.param


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Statements that run without a block between them, inside ``steps``; ``slices`` says what its storages are of.

    ``numbers`` are those of its statements in the whole program.  ``private`` says that it has temporaries of its own.
    """

    function: Function
    scop: Scop
    steps: tuple[str, ...]
    slices: Mapping[str, Slice]
    numbers: tuple[int, ...]
    private: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """``body`` for each value of a step, from ``lower`` up to but not including ``upper``, forms over outer steps."""

    index: str
    lower: Form
    upper: Form
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """How far the tiles of a band lean, in elements for each step.

    Before statement ``k`` of step ``t`` of a block, the lower edge has moved by ``slope * t + shifts[k]``.
    """

    slope: int
    shifts: tuple[int, ...]

    def reach(self, steps: int) -> int:
        """How far an edge has moved at the last statement of so many steps."""
        return self.slope * (steps - 1) + max(self.shifts)

    def room(self, steps: int) -> int:
        """Rows that an edge takes of a tile of so many steps: as far as it moves, or to where the next ones begin."""
        return max(self.reach(steps), self.slope * steps)


@dataclass(frozen=True, slots=True, eq=False)
class TimeTiles:
    """A block whose steps run on tiles of rows that stay in a cache meanwhile.

    ``pieces`` has one piece for each statement, for rows between bounds.  Tiles lean by ``lower`` and ``upper``: each
    grows from a line for ``height`` steps, then, ``width`` rows wide at first, shrinks for as many.  Those beside each
    other need nothing of each other and run in parallel; the next ones stand on the lines between them.  Where no
    edge leans, a tile has the same rows at all steps.  Where there are ``columns``, a tile runs over these in parts of
    as many as given, one after another, each of which leans to the left.  Where there are ``lanes``, so many tiles
    beside each other run as one.  Tiles that follow others run in each strip right behind those; the first of them say
    what a strip has of its ``own``.
    """

    repeat: Repeat
    pieces: tuple[Piece, ...]
    height: int
    width: int
    rows: tuple[int, int]
    lower: Band
    upper: Band
    columns: Columns | None = None
    lanes: Lanes | None = None
    follows: bool = False
    own: tuple[OwnStrip, ...] = ()

    @property
    def leans(self) -> bool:
        """Whether some edge moves from step to step or from statement to statement."""
        return self.lower.room(self.height) + self.upper.room(self.height) > 0

    @property
    def slack(self) -> int:
        """Rows of a tile that no edge takes; below 0, tiles beside each other would depend on each other."""
        return self.width - self.lower.room(self.height) - self.upper.room(self.height)

    @property
    def line(self) -> int:
        """How many rows above the first one that a tile has at its widest the line lies from which it grows.

        What a tile grows over and what shrinks beside it, and the other way round, are then as far apart as a
        dependence may reach: by the rows that the upper edge takes below the line, by those that the lower one takes
        above it.
        """
        return self.upper.room(self.height) + max(0, self.slack) // 2

    @property
    def around(self) -> int:
        """In how many rows, a multiple of the width, tiles in lanes go round: all that they touch, none twice."""
        assert self.lanes is not None
        span = self.rows[1] - self.rows[0] + self.lanes.before + self.lanes.behind
        together = self.width * self.lanes.count
        return -(-span // together) * together

    @property
    def fits_lanes(self) -> bool:
        """Whether tiles are wide enough, and not too wide, for each to have its rows and those around for itself."""
        return self.lanes is not None and max(self.lanes.before, self.lanes.behind) <= self.width <= WIDEST_IN_LANES


@dataclass(frozen=True, slots=True)
class OwnStrip:
    """What a strip keeps of a tensor for itself, by a ``name`` of its own, its rows along ``dimension``.

    The slices at coordinates ``copied`` in the other dimensions are copied there first.
    """

    tensor: str
    dimension: int
    copied: tuple[tuple[int, ...], ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class OwnRows:
    """What a tile has of a tensor for itself: its rows, with some ``before`` and ``behind`` them that are read.

    ``cut`` names the other dimensions but a folded one, of which there are all ``slots``; rows lie along ``dimension``.
    """

    cut: Slice
    dimension: int
    slots: int
    before: int
    behind: int
    written: bool

    @property
    def tensor(self) -> str:
        """The tensor."""
        return self.cut.tensor


@dataclass(frozen=True, slots=True)
class Lanes:
    """``count`` tiles in the lanes of vectors, and what each has for itself.

    ``spans`` has the first row of each statement, and the one behind its last.
    """

    count: int
    own: tuple[OwnRows, ...]
    spans: tuple[tuple[int, int], ...]

    @property
    def before(self) -> int:
        """How many rows before its own a tile reads at most."""
        return max(rows.before for rows in self.own)

    @property
    def behind(self) -> int:
        """How many rows behind its own a tile reads at most."""
        return max(rows.behind for rows in self.own)

    @property
    def moves(self) -> int:
        """How many rows go to a tile, and back, for each of its own."""
        return sum(rows.slots * (1 + rows.written) for rows in self.own)

    def widths(self, rows: int, widest: int, threads: int) -> int:
        """The rows of a tile, at most so many, where each lane of each thread has as many tiles."""
        together, span = self.count * threads, rows + self.before + self.behind
        return -(-span // (-(-span // (widest * together)) * together))


@dataclass(frozen=True, slots=True)
class Columns:
    """Parts of ``width`` columns among all those from the first to the one behind the last."""

    width: int
    range: tuple[int, int]
    band: Band


@dataclass(frozen=True, slots=True)
class SweptRead:
    """A read of a block that sweeps over rows and columns: so many of these away from what it computes.

    ``dims`` are those of rows and of columns, -1 where it has none; ``places`` are the constants of its subscripts.
    """

    read: Read
    of_target: bool
    row: int
    column: int
    dims: tuple[int, int]
    places: tuple[int, ...]

    @property
    def is_new(self) -> bool:
        """Whether it is of what the same step has computed before."""
        return self.of_target and (self.row, self.column) < (0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Sweeps:
    """A block of steps that sweep over ``rows`` and ``columns`` of a target in place, of which so many run at a time.

    Each is in a lane of vectors, ``row_lag`` rows and ``column_lag`` columns behind the one before.  The steps that run
    together do so for ``rows_of_tile`` rows of the first one, counted along ``row + row_lag * step``; such tiles of
    one front run in parallel.  ``dims`` are the dimensions of rows and of columns.
    """

    repeat: Repeat
    piece: Piece
    target: str
    value: Expr
    rows: tuple[int, int]
    columns: tuple[int, int]
    dims: tuple[int, int]
    reads: tuple[SweptRead, ...]
    row_lag: int
    column_lag: int
    steps: int
    rows_of_tile: int
    lanes: int


Item = Piece | Repeat | TimeTiles | Sweeps
"""What stands in the body of a program."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """A program in pieces.  ``storages`` are those that outlive one: the caller's, and temporaries between pieces.

    ``folds`` gives, for temporaries that keep only some slices along a dimension, that dimension and how many: slice
    ``s`` lies at ``s`` modulo that.
    """

    storages: Mapping[str, Storage]
    body: tuple[Item, ...]
    sizes: Mapping[str, int]
    warnings: tuple[str, ...]
    folds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces that are compiled, in the order of the text."""
        return tuple(_pieces_of(self.body))

    @property
    def depth(self) -> int:
        """How many blocks are in one another at most."""
        return max((len(piece.steps) for piece in self.pieces), default=0)


def _pieces_of(body: Sequence[Item]) -> Iterator[Piece]:
    for item in body:
        match item:
            case Piece():
                yield item
            case Repeat():
                yield from _pieces_of(item.body)
            case TimeTiles():
                yield from item.pieces
            case Sweeps():
                yield item.piece


def fixed_everywhere(pieces: Pieces, name: str) -> tuple[int, ...]:
    """The dimensions of a tensor in which all accesses of all pieces name one slice."""
    found: set[int] | None = None
    for piece in pieces.pieces:
        for cut in piece.slices.values():
            if cut.tensor == name:
                own = {d for d, _ in cut.at}
                found = own if found is None else found & own
    return tuple(sorted(found or ()))
