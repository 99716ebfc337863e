"""Whether a counter-example is one, found without isl's dependences, the plan or its proof.

Instances are listed one by one.  Two conflict where both touch an element and one of them writes it; who comes first in
the program follows from the order of its statements.  When an instance runs in a schedule follows from the loops as
the steps left them: a date is a pair of numbers for each loop, the place among what stands inside the loop around it,
and the value that the loop has.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import islpy as isl

from tcomp.model.scop import Scop, ScopStatement
from tcomp.schedules import Instance, Schedule
from tcomp.schedules.expressions import Expression, Name, Negative, Quotient, Rest, Sum
from tcomp.schedules.stages import PARALLEL, VECTORS, Stage
from tcomp.schedules.state import State

Point = tuple[int, ...]
Date = tuple[tuple[int, int], ...]
ITSELF = 1_000
"""The place of a stage's own statements in its loops: behind all stages that are computed there."""


def value(expression: Expression, indices: dict[str, int]) -> int:
    """The value of a loop for an instance."""
    match expression:
        case Name(name):
            return indices[name]
        case Quotient(inner, size):
            return value(inner, indices) // size
        case Rest(inner, size):
            return value(inner, indices) % size
        case Sum(first, times, second, shift):
            return times * value(first, indices) + value(second, indices) + shift
        case Negative(inner):
            return -value(inner, indices)


def points(domain: isl.Set) -> Iterator[Point]:
    """The members of a small set."""
    found: list[isl.Point] = []
    domain.foreach_point(found.append)
    rank = domain.dim(isl.dim_type.set)
    for point in found:
        yield tuple(point.get_coordinate_val(isl.dim_type.set, d).to_python() for d in range(rank))


@functools.cache
def touched(scop: Scop, name: str) -> dict[Point, tuple[frozenset[tuple[str, Point]], frozenset[tuple[str, Point]]]]:
    """What each instance of a statement writes and reads: storages and places in them."""
    statement = scop.by_name[name]
    found: dict[Point, tuple[set[tuple[str, Point]], set[tuple[str, Point]]]] = {}
    for number, accesses in enumerate(((statement.write,), statement.all_reads)):
        for access in accesses:
            storage = access.get_tuple_name(isl.dim_type.out)
            inputs = access.dim(isl.dim_type.in_)
            for pair in points(access.intersect_domain(statement.domain).wrap().flatten()):
                found.setdefault(pair[:inputs], (set(), set()))[number].add((storage, pair[inputs:]))
    return {at: (frozenset(w), frozenset(r)) for at, (w, r) in found.items()}


def place(scop: Scop, instance: Instance) -> tuple[ScopStatement, Point]:
    return scop.by_name[instance.statement], tuple(v for _, v in instance.indices)


def conflict(scop: Scop, first: Instance, second: Instance) -> bool:
    """Whether two instances touch an element that one of them writes, the first before the second in the program."""
    (one, at), (other, to) = place(scop, first), place(scop, second)
    (w1, r1), (w2, r2) = touched(scop, one.name)[at], touched(scop, other.name)[to]
    names = [s.name for s in scop.statements]
    earlier = (names.index(one.name), at) < (names.index(other.name), to)
    return earlier and bool(w1 & (w2 | r2) or r1 & w2)


def reads_from(scop: Scop, first: Instance, second: Instance) -> bool:
    """Whether the second reads an element that the first wrote last, element by element."""
    (one, at), (other, to) = place(scop, first), place(scop, second)
    names = [s.name for s in scop.statements]
    for element in touched(scop, one.name)[at][0] & touched(scop, other.name)[to][1]:
        writers = [
            (names.index(s.name), p)
            for s in scop.statements
            for p, (written, _) in touched(scop, s.name).items()
            if element in written and (names.index(s.name), p) < (names.index(other.name), to)
        ]
        if writers and max(writers) == (names.index(one.name), at):
            return True
    return False


class Dates:
    """When instances run in a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.state: State = schedule.state
        self.scop = self.state.scop
        self.stage_of = {name: stage for stage in self.state.stages for name in stage.statements}

    def of(self, name: str, at: Point) -> set[Date]:
        """The dates of an instance; several if it is computed several times."""
        stage, statement = self.stage_of[name], self.scop.by_name[name]
        common = 0
        if stage.place is None:
            starts: set[Date] = {()}
        elif stage.place.shift is not None:
            consumer = self.state.stage(stage.place.consumer)
            common = consumer.depth(stage.place.loop)
            values = self._values(stage, statement, at)[:common]
            values[-1] += stage.place.shift
            root, sums = self._root(consumer), len(consumer.statements) > 1
            own = [root, *(ITSELF + (sums and d == consumer.shared) for d in range(1, common))]
            starts = {tuple(zip(own, values, strict=True))}
        else:
            starts = self._needed(stage, name, at)
        return {self._inside(stage, statement, at, start, common) for start in starts}

    def _root(self, stage: Stage) -> int:
        return self.state.position(stage.name) if stage.place is None else ITSELF

    def _values(self, stage: Stage, statement: ScopStatement, at: Point) -> list[int]:
        """The values of the loops that the statement has: for a start or an end, those over its elements alone."""
        indices = dict(zip(statement.indices, at, strict=True))
        whole = statement.kind in ("update", "assign")
        return [value(loop.value, indices) for loop in (stage.loops if whole else stage.loops[: stage.shared])]

    def _inside(self, stage: Stage, statement: ScopStatement, at: Point, start: Date, common: int) -> Date:
        values = self._values(stage, statement, at)[common:]
        own = self.state.position(stage.name)
        part = {"init": ITSELF, "update": ITSELF + 1, "finish": ITSELF + 2}.get(statement.kind, ITSELF)
        date = [*start, (own, 0)] if start else []
        for depth in range(len(values) + 1):
            among = own if not date else part if depth + common == stage.shared else ITSELF
            date.append((among, values[depth] if depth < len(values) else 0))
        return tuple(date)

    def _needed(self, stage: Stage, name: str, at: Point) -> set[Date]:
        """The iterations of the consumer's loops in which something reads what the instance computes."""
        assert stage.place is not None
        consumer = self.state.stage(stage.place.consumer)
        depth = consumer.depth(stage.place.loop)
        elements = {e for s in stage.statements for p, (w, _) in touched(self.scop, s).items()
                    if p[: len(stage.coordinates)] == at[: len(stage.coordinates)] for e in w}  # fmt: skip
        found: set[Date] = set()
        for reader in self._below(consumer, depth, stage):
            for user in reader.statements:
                for to, (_, read) in touched(self.scop, user).items():
                    if read & elements:
                        found |= {date[:depth] for date in self.of(user, to)}
        if stage.place.kept is not None and found:
            kept = consumer.depth(stage.place.kept) if stage.place.kept else 0
            groups = itertools.groupby(sorted(found), key=lambda date: date[:kept])
            found = {min(group) for _, group in groups}
        return found

    def _below(self, consumer: Stage, depth: int, stage: Stage) -> Iterator[Stage]:
        yield consumer
        for inner in self.state.inside(consumer.name):
            assert inner.place is not None
            later = self.state.position(inner.name) > self.state.position(stage.name)
            if later and consumer.depth(inner.place.loop) >= depth:
                yield inner


def shows(schedule: Schedule, first: Instance, second: Instance) -> bool:
    """Whether two instances show that a schedule computes something else than the program.

    The first must run before the second, and does not in every case; or they run at the same time; or the second
    reads what the first leaves, which is computed for another nest alone.
    """
    dates, scop = Dates(schedule), schedule.state.scop
    one, other = dates.of(*_named(first)), dates.of(*_named(second))
    if not conflict(scop, first, second):
        return False
    if any(not any(d < to for d in one) for to in other):
        return True
    stages = [dates.stage_of[i.statement] for i in (first, second)]
    roots = [schedule.state.root(stage) for stage in stages]
    if roots[0].name != roots[1].name:
        return stages[0].place is not None and reads_from(scop, first, second)
    for depth, loop in enumerate(roots[0].loops):
        if loop.how in (PARALLEL, VECTORS):
            for a, b in itertools.product(one, other):
                same = a[:depth] == b[:depth]
                if same and len(a) > depth < len(b) and a[depth][1] != b[depth][1]:
                    return True
    return False


def _named(instance: Instance) -> tuple[str, Point]:
    return instance.statement, tuple(v for _, v in instance.indices)
