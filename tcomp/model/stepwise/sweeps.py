"""Sweeps in place, step after step, several of which run at the same time: each in a lane of vectors.

In ``for t { for i { for j { A(i,j) = f(A(i-1,j-1), ..., A(i+1,j+1)) } } }`` an element waits for the one beside it, but
step ``t + 1`` may go over a row as soon as step ``t`` is a row ahead, and over an element of it as soon as that is two
columns ahead.  So lane ``k`` runs step ``t + k``, ``k`` times some rows and columns behind the first: what it needs of
the step before is what the lane before it computed a little earlier.  Along ``i + lag * t`` no dependence goes back:
parts of that, of the steps that run together, are tiles, and those of a front need nothing of each other.

All dependences between elements in memory keep their order, so copies of what tiles touch may stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Ranges
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import (
    Binary,
    Expr,
    Function,
    Index,
    Read,
    Select,
    Statement,
    depends_on_data,
    map_children,
    walk,
)
from tcomp.model.accesses import Frame, element_map, reads_with_subscripts
from tcomp.model.stepwise.cutting import Cutter
from tcomp.model.stepwise.lanes import arithmetic_of_lanes
from tcomp.model.stepwise.pieces import WIDEST_IN_LANES, Item, Piece, Pieces, Repeat, Sweeps, SweptRead

FARTHEST = 4
"""Neighbours that are farther away are given up."""

_TYPES = ("float32", "float64", "int32", "uint32", "int64", "uint64")
_SET = isl.dim_type.set


@dataclass(frozen=True, slots=True)
class SweepRoom:
    """What sweeps may use: so many ``vectors`` of ``vector_bytes``, and ``threads`` for ``shared`` instances at once.

    Each of these has so many ``tiles`` in a front, of so many ``rows`` at least, and lanes some ``slack``.  Fewer rows
    or columns than ``narrowest`` stay as they are.
    """

    vector_bytes: int
    vectors: int
    threads: int
    shared: int
    tiles: int
    rows: int
    slack: int
    narrowest: int


@dataclass(frozen=True, slots=True)
class SweepShape:
    """So many ``steps`` at the same time, in vectors of so many ``lanes``, and ``rows`` of a tile."""

    steps: int
    rows: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Swept:
    """Statement ``number`` of a function is all of a block that may run so: its reads, and how far lanes lag."""

    number: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    length: int
    dims: tuple[int, int]
    reads: tuple[SweptRead, ...]
    row_lag: int
    column_lag: int


def sweeps_of(function: Function, ranges: Ranges, slack: int = 0) -> Iterator[Swept]:
    """The blocks of single elements over rows and columns, in a block of steps, that may run several at a time.

    Lanes are ``slack`` more columns behind one another than they need to be, so that none waits.
    """
    if len(ranges.domains) != len(function.statements):
        return
    for number, statement in enumerate(function.statements):
        if len(statement.steps) < 3:
            continue
        outer = statement.steps[-3].number
        if sum(any(step.number == outer for step in s.steps) for s in function.statements) == 1:
            found = _swept(function, ranges, number, slack)
            if found is not None:
                yield found


def _swept(function: Function, ranges: Ranges, number: int, slack: int = 0) -> Swept | None:
    statement, domain = function.statements[number], ranges.domains[number]
    target = function.tensors[statement.target]
    steps = tuple(step.index for step in statement.steps)
    plain = not statement.initialise and not statement.scatters and not statement.exists
    if not plain or statement.indices != steps or not domain.rectangular or domain.is_empty:
        return None
    dtype = target.dtype
    if target.rank != 2 or dtype.name not in _TYPES or statement.accumulator != dtype:
        return None
    i, j = steps[-2:]
    named = [s.name if isinstance(s, Index) else "" for s in statement.subscripts]
    if sorted(named) != sorted((i, j)) or i == j:
        return None
    value = in_one(statement)
    reads = reads_of_lanes(value, statement.target, (i, j), ranges.sizes)
    if reads is None or not any(read.of_target for read in reads):
        return None
    if any(function.tensors[read.read.tensor].dtype != dtype for read in reads):
        return None
    if not arithmetic_of_lanes(by_lanes(value, reads, j), j, dtype):
        return None
    row_lag, column_lag = _lags(reads, slack)
    spans = [(domain.hull[index][0], domain.hull[index][1] + 1) for index in steps[-3:]]
    (first, last), rows, columns = spans
    found = Swept(
        number, rows, columns, last - first, (named.index(i), named.index(j)), reads, row_lag, column_lag
    )  # fmt: skip
    return found if max(row_lag, column_lag) <= FARTHEST * 2 and _keeps_order(function, ranges, found) else None


def in_one(statement: Statement) -> Expr:
    """What a statement writes, with what it goes on from."""
    if statement.reduction is None:
        return statement.value
    before = Read(statement.target, statement.subscripts, statement.value.dtype, statement.span)
    return Binary(statement.reduction, before, statement.value, statement.value.dtype, statement.span)


def reads_of_lanes(
    value: Expr, target: str, indices: tuple[str, str], sizes: Mapping[str, int]
) -> tuple[SweptRead, ...] | None:  # fmt: skip
    """The different reads of rows or columns; None where one is not so many of these away, or is asked for."""
    found: dict[Read, SweptRead] = {}
    inside: set[Expr] = set()
    for each in walk(value):
        if isinstance(each, Select) or (isinstance(each, Index) and each not in inside):
            return None
        if not isinstance(each, Read):
            continue
        if each.boundary is not None or any(map(depends_on_data, each.subscripts)):
            return None
        inside |= {e for s in each.subscripts for e in walk(s) if isinstance(e, Index)}
        away: dict[str, tuple[int, int]] = {}
        places = []
        for d, subscript in enumerate(each.subscripts):
            form = to_form(subscript, sizes)
            if form is None or len(form.terms) > 1:
                return None
            index = form.terms[0][0] if form.terms else ""
            if form.terms and (index not in indices or form.terms[0][1] != 1 or index in away):
                return None
            if form.terms:
                away[str(index)] = d, form.constant
            places.append(form.constant)
        dims = tuple(away.get(index, (-1, 0))[0] for index in indices)
        own = each.tensor == target
        if own and min(dims) < 0:
            return None
        if max(dims) < 0:
            continue
        row, column = (away.get(index, (-1, 0))[1] for index in indices)
        found[each] = SweptRead(each, own, row, column, (dims[0], dims[1]), tuple(places))
    return tuple(found.values())


def by_lanes(value: Expr, reads: Sequence[SweptRead], along: str) -> Expr:
    """A value whose reads of rows or columns all have the subscript ``along``, under a name for each."""
    numbers = {read.read: number for number, read in enumerate(reads)}

    def changed(expr: Expr) -> Expr:
        if isinstance(expr, Read) and expr in numbers:
            place = next(e for s in expr.subscripts for e in walk(s) if isinstance(e, Index))
            return Read(f"lanes{numbers[expr]}", (replace(place, name=along),), expr.dtype, expr.span)
        return map_children(expr, changed)

    return changed(value)


def _lags(reads: Sequence[SweptRead], slack: int) -> tuple[int, int]:
    """How many rows and columns a lane is behind the one before it: what dependences need, and some slack."""
    own = [(read.row, read.column) for read in reads if read.of_target]
    rows = max(1, *(abs(row) for row, _ in own))
    # What a step reads that many rows ahead, or what reads it there, is so many columns ahead.
    columns = [column if row > 0 else -column for row, column in own if abs(row) == rows]
    return rows, max(0, 0, *columns) + 1 + slack


def _keeps_order(function: Function, ranges: Ranges, found: Swept) -> bool:
    """Whether all that depends on something else runs behind it, with isl.

    An instance runs in pass ``i + row_lag * t`` at moment ``j + column_lag * t``.  Those of one step keep their order.
    """
    statement, domain = function.statements[found.number], ranges.domains[found.number].domain
    frame = Frame(domain, ranges.sizes, ranges.boxes)
    write = element_map(frame, statement.target, statement.subscripts)
    value = in_one(statement)
    accesses = [write, *reads_with_subscripts(frame, value, ())]
    name = write.get_tuple_name(isl.dim_type.out)
    a, c = found.row_lag, found.column_lag
    wrong = isl.Set(
        f"{{ [t, i, j] : t > 0 and ({a} * t + i < 0 or ({a} * t + i = 0 and {c} * t + j <= 0)) }}"
    )  # fmt: skip
    for access in accesses:
        if access.get_tuple_name(isl.dim_type.out) != name:
            continue
        for one, other in ((write, access), (access, write)):
            moves = one.apply_range(other.reverse()).deltas().reset_tuple_id()
            outer = moves.dim(_SET) - 3
            for d in range(outer):
                moves = moves.fix_val(_SET, d, isl.Val(0))
            if not moves.project_out(_SET, 0, outer).intersect(wrong).is_empty():
                return False
    own = [(read.row, read.column) for read in found.reads if read.of_target]
    wanted = {(0, 0), *own}
    places = [_place(domain, name, found.dims, away) for away in wanted]
    touched = [access for access in accesses if access.get_tuple_name(isl.dim_type.out) == name]
    exact = all(any(access.is_equal(place) for place in places) for access in touched)
    return exact and write.is_equal(_place(domain, name, found.dims, (0, 0)))


def _place(domain: isl.Set, tensor: str, dims: tuple[int, int], away: tuple[int, int]) -> isl.Map:
    """From instances to the element of a tensor that is so many rows and columns away from theirs."""
    names = [f"i{d}" for d in range(domain.dim(_SET))]
    subscripts = {d: f"{name} + {by}" for d, name, by in zip(dims, names[-2:], away, strict=True)}
    there = ", ".join(subscripts[d] for d in range(2))
    return isl.Map(f"{{ {domain.get_tuple_name()}[{', '.join(names)}] -> {tensor}[{there}] }}").intersect_domain(domain)


def shape_of(found: Swept, function: Function, room: SweepRoom) -> SweepShape | None:
    """How a block runs; None where steps are too few, rows or columns too short, or so long that lanes leave caches."""
    dtype = function.tensors[function.statements[found.number].target].dtype
    lanes = room.vector_bytes // dtype.itemsize
    short = min(found.rows[1] - found.rows[0], found.columns[1] - found.columns[0])
    if lanes < 2 or 2 * found.length < lanes or short < room.narrowest:
        return None
    steps = lanes * min(room.vectors, -(-found.length // lanes))
    if found.columns[1] - found.columns[0] + (steps + 4) * found.column_lag > WIDEST_IN_LANES:
        return None
    passes = found.rows[1] - found.rows[0] + found.row_lag * steps
    rows = passes
    if room.threads > 1 and short * short * steps >= room.shared:
        rows = max(room.rows, -(-passes // (room.tiles * room.threads)))
    return SweepShape(steps, max(rows, found.row_lag * 2), lanes)


def swept(cutter: Cutter, pieces: Pieces, found: Mapping[int, tuple[Swept, SweepShape]]) -> Pieces:
    """The pieces, with blocks that run several steps at a time, by the number of their statement."""

    def each(item: Item) -> Item:
        if not isinstance(item, Repeat):
            return item
        piece = _only(item, 2)
        if piece is None or piece.numbers[0] not in found:
            return replace(item, body=tuple(map(each, item.body)))
        facts, shape = found[piece.numbers[0]]
        statement = cutter.function.statements[facts.number]
        if any(pieces.storages[e.tensor].opened is not None for e in _accesses(statement)):
            return item
        return Sweeps(
            item, piece, statement.target, in_one(statement), facts.rows, facts.columns, facts.dims, facts.reads,
            facts.row_lag, facts.column_lag, shape.steps, shape.rows, shape.lanes,
        )  # fmt: skip

    return replace(pieces, body=tuple(map(each, pieces.body)))


def _accesses(statement: Statement) -> Iterator[Read]:
    yield Read(statement.target, statement.subscripts, statement.value.dtype, statement.span)
    yield from (e for e in walk(statement.value) if isinstance(e, Read))


def _only(repeat: Repeat, depth: int) -> Piece | None:
    """The only statement of blocks that hold one another only, so many within this one."""
    only = repeat.body[0] if len(repeat.body) == 1 else None
    if isinstance(only, Repeat) and depth:
        return _only(only, depth - 1)
    return only if isinstance(only, Piece) and len(only.numbers) == 1 and not depth else None


def prove_sweeps(cutter: Cutter, pieces: Pieces) -> None:
    """Raise LegalityError where steps that run at the same time, or tiles of a front, depend on each other."""
    for item in _sweeps(pieces.body):
        number = item.piece.numbers[0]
        found = _swept(cutter.function, cutter.ranges, number)
        right = found is not None and (found.rows, found.columns, found.dims) == (item.rows, item.columns, item.dims)
        if found is not None and right:
            lags = replace(found, row_lag=item.row_lag, column_lag=item.column_lag)
            right = item.reads == found.reads and _keeps_order(cutter.function, cutter.ranges, lags)
            # What is kept of passes before goes back by one lag, and moments before it by another one.
            right = right and all(abs(read.row) <= item.row_lag for read in item.reads if read.of_target)
            reach = [r.column for r in item.reads if r.of_target and r.row == item.row_lag]
            right = right and item.row_lag >= 1 and all(column < item.column_lag for column in [0, *reach])
            right = right and item.rows_of_tile >= item.row_lag and item.steps % item.lanes == 0 < item.steps
        if not right:
            raise LegalityError(
                f"{item.steps} steps of the block over {item.repeat.index} at a time, in tiles of {item.rows_of_tile}"
                " rows, depend on each other"
            )


def _sweeps(body: Sequence[Item]) -> Iterator[Sweeps]:
    for item in body:
        if isinstance(item, Sweeps):
            yield item
        elif isinstance(item, Repeat):
            yield from _sweeps(item.body)
