"""Ranges and extents as expressions of sizes: ``h in 0:H - KH + 1``, whatever ``H`` and ``KH`` are.

The same rounds as inference for given sizes (``inference.py``, ``intervals.py``), on polynomials in place of numbers.
What that needs to know of sizes is what ``polynomials.py`` says of them, so the outcome holds where inference for given
sizes finds the same: ask ``Symbolic.agrees``.  Remainders bound no index here, and ranges that other indices bound
count as never empty.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tcomp.grammar.ranges.intervals import dependence_order
from tcomp.grammar.ranges.linear import Linear, linear
from tcomp.grammar.ranges.polynomials import Polynomial, greatest, least
from tcomp.grammar.ranges.ranges import Ranges
from tcomp.grammar.ranges.rebasing import rebased_dimensions
from tcomp.grammar.tree.function import (
    Function,
    Index,
    Read,
    Statement,
    Step,
    Tensor,
    depends_on_data,
    is_indirect,
    walk,
)

Span = tuple[Polynomial, Polynomial]
"""First and last value, both inclusive."""


@dataclass(frozen=True, slots=True)
class Symbolic:
    """What is known for all sizes; what could not be found is left out.

    ``ranges`` has, for each statement, the first and last value of its indices.  ``boxes`` has, for each tensor, the
    first and last coordinate of each dimension.
    """

    ranges: tuple[Mapping[str, Span], ...]
    boxes: Mapping[str, tuple[Span, ...]]

    def extents(self, tensor: str) -> tuple[Polynomial, ...]:
        """The extents of a tensor.  Raises KeyError where they were not found."""
        return tuple(last - first + 1 for first, last in self.boxes[tensor])

    def agrees(self, ranges: Ranges) -> bool:
        """Whether inference for given sizes found the same, as far as anything was found here."""
        sizes = ranges.sizes
        for name, box in self.boxes.items():
            found = tuple((first.value(sizes), (last - first + 1).value(sizes)) for first, last in box)
            if found != tuple(zip(ranges.boxes[name].origin, ranges.boxes[name].extent, strict=True)):
                return False
        return all(
            (low.value(sizes), high.value(sizes)) == domain.hull[index]
            for known, domain in zip(self.ranges, ranges.domains, strict=True)
            for index, (low, high) in known.items()
        )


@dataclass(frozen=True, slots=True)
class Effect:
    """The ranges of the indices of a statement, and what is known of its target after it."""

    ranges: Mapping[str, Span]
    written: tuple[object, ...]


def symbolic_ranges(function: Function) -> Symbolic:
    """Find the ranges and extents of a checked program for all sizes, as far as that can be said in one formula."""
    found = SymbolicPass(function)
    found.extend(function)
    return found.result()


@dataclass(slots=True)
class SymbolicPass:
    """One forward pass; ``known`` is where reads must lie, ``stored`` what has been written."""

    function: Function
    known: dict[str, list[Span]] = field(default_factory=dict)
    stored: dict[str, list[Span]] = field(default_factory=dict)
    rebased: dict[str, list[bool]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    ranges: list[Mapping[str, Span]] = field(default_factory=list)

    def extend(self, function: Function) -> None:
        """Go on with the statements that a program has now beyond those that have been seen."""
        self.begin(function)
        for statement in function.statements[len(self.ranges) :]:
            self.add(statement)

    def begin(self, function: Function) -> None:
        """Take what a program declares, and none of its statements."""
        self.function = function
        for tensor in function.tensors.values():
            if tensor.role == "input" or (tensor.name in function.needs_content and tensor.dims is not None):
                declared = _declared(tensor)
                if declared is not None:
                    self.known[tensor.name] = declared

    def add(self, statement: Statement) -> None:
        """Go on with one statement."""
        self.ranges.append(self._statement(statement))

    def effect(self, statement: Statement) -> Effect:
        """What a statement would tell, of its indices and of what it writes.  Nothing of it is kept."""
        target = statement.target
        before = self.known, self.stored, self.rebased, self.broken
        self.known, self.stored, self.rebased = dict(self.known), dict(self.stored), dict(self.rebased)
        self.broken = set(self.broken)
        ranges = self._statement(statement)
        written = (self.known.get(target), self.stored.get(target), self.rebased.get(target), target in self.broken)
        self.known, self.stored, self.rebased, self.broken = before
        return Effect(ranges, written)

    def result(self) -> Symbolic:
        """All that was found."""
        boxes = {tensor.name: self._box(tensor) for tensor in self.function.tensors.values()}
        return Symbolic(tuple(self.ranges), {name: tuple(box) for name, box in boxes.items() if box is not None})

    def box(self, tensor: Tensor) -> tuple[Span, ...] | None:
        """First and last coordinates of a tensor, if they are declared or everything between them has been written."""
        box = self._box(tensor)
        if box is None or (tensor.dims is None and tensor.rank and self.known.get(tensor.name) != box):
            return None
        return tuple(box)

    def _statement(self, statement: Statement) -> Mapping[str, Span]:
        given = _given(statement)
        if given is None:
            self.broken.add(statement.target)
            return {}
        for step in statement.steps:
            if step.lower is None and (open_steps := self._open_steps(step)) is not None:
                given[step.index] = Linear.of(open_steps[0]), Linear.of(open_steps[1])
        constraints, unclear = tuple(self._constraints(statement)), frozenset(self._unclear(statement))
        solved = _solution(statement.indices, tuple(given.items()), constraints, unclear)
        self._write(statement, solved)
        return solved

    def _unclear(self, statement: Statement) -> set[str]:
        """Indices in subscripts that are no sums of indices here, from which inference for given sizes may learn."""
        reads = (e for expression in statement.expressions() for e in walk(expression) if isinstance(e, Read))
        subscripts = [s for read in reads if read.boundary is None for s in read.subscripts]
        unclear = [s for s in subscripts if linear(s) is None and not depends_on_data(s)]
        return {e.name for s in unclear for e in walk(s) if isinstance(e, Index)}

    def _open_steps(self, step: Step) -> Span | None:
        """The steps of a block without bounds, as ``steps_of`` has them for given sizes (``steps.py``)."""
        inside = [s for s in self.function.statements if any(other.number == step.number for other in s.steps)]
        written, found = {s.target for s in inside}, list[Span]()
        for statement in inside:
            given, unclear = _given(statement), frozenset(self._unclear(statement))
            reads = tuple(f for f in self._of_reads(statement, written) if step.index in f.indices())
            if given is None or step.index in unclear:
                return None
            if reads:
                own = _solution(statement.indices, tuple(given.items()), reads, unclear).get(step.index)
                if own is None:
                    return None
                found.append(own)
        return (greatest([low for low, _ in found]), least([high for _, high in found])) if found else None

    def _of_reads(self, statement: Statement, beside: Collection[str] = ()) -> Iterator[Linear]:
        """What must be at least 0 for reads of tensors beside some others: the distances from both ends of these."""
        reads = (e for expression in statement.expressions() for e in walk(expression) if isinstance(e, Read))
        for read in reads:
            if read.boundary is None and read.tensor in self.known and read.tensor not in beside:
                for subscript, span in zip(read.subscripts, self.known[read.tensor], strict=True):
                    form = linear(subscript)
                    yield from (f for f in form.within(span) if not f.holds_for_all_remainders()) if form else ()

    def _constraints(self, statement: Statement) -> Iterator[Linear]:
        """What must be at least 0: the distances of subscripts from both ends of what they subscript."""
        yield from self._of_reads(statement)
        if statement.reduction is None or statement.target not in self.known:
            return
        for subscript, span in zip(statement.subscripts, self.known[statement.target], strict=True):
            form = linear(subscript)
            if form and (isinstance(subscript, Index) or not statement.initialise):
                yield from form.within(span)

    def _write(self, statement: Statement, solved: Mapping[str, Span]) -> None:
        target = statement.target
        rebased = rebased_dimensions(self.function, statement)
        known: list[Span] = []
        whole = self.known.get(target) or _declared(self.function.tensors[target])
        for dimension, subscript in enumerate(statement.subscripts):
            if is_indirect(subscript) and whole is not None:
                known.append(whole[dimension])
                rebased[dimension] = True
                continue
            form = linear(subscript)
            span = form.reach(solved) if form else None
            if span is None:
                self.broken.add(target)
                self.known.pop(target, None)
                return
            known.append(span)
        stored = [
            span if own else (least([span[0], Polynomial()]), span[1]) for span, own in zip(known, rebased, strict=True)
        ]
        self.stored[target] = _hull(self.stored.get(target), stored)
        self.rebased[target] = [a and b for a, b in zip(self.rebased.get(target, rebased), rebased, strict=True)]
        if target not in self.broken and not (target in self.function.needs_content and self._is_declared(target)):
            self.known[target] = _hull(self.known.get(target), known)

    def _is_declared(self, name: str) -> bool:
        return self.function.tensors[name].dims is not None

    def _box(self, tensor: Tensor) -> list[Span] | None:
        if tensor.role == "const" or tensor.rank == 0:
            return []
        declared = _declared(tensor)
        if tensor.role == "input" or (declared is not None and tensor.name not in self.stored):
            return declared
        if tensor.name in self.broken or tensor.name not in self.stored:
            return None
        written = self.stored[tensor.name]
        if tensor.dims is None:
            return written
        if declared is None:
            return None
        # A declared dimension that is written from above 0, over its whole extent, starts where it is written.
        return [
            own if rebased and own[1] - own[0] == given[1] and own[0] != given[0] else given
            for own, given, rebased in zip(written, declared, self.rebased[tensor.name], strict=True)
        ]


@dataclass(slots=True)
class _Solver:
    """Rounds of single-variable inequalities, ``where`` ranges first."""

    indices: tuple[str, ...]
    given: Mapping[str, tuple[Linear, Linear]]
    pending: list[Linear]
    unclear: set[str]
    solved: dict[str, Span] = field(default_factory=dict)

    def run(self) -> dict[str, Span]:
        order = dependence_order({name: low.indices() | high.indices() for name, (low, high) in self.given.items()})
        for name in order or ():
            self._substitute({name: self.given[name]})
        while found := self._round():
            self.solved |= found
            self._substitute({name: (Linear.of(low), Linear.of(high)) for name, (low, high) in found.items()})
        for name in reversed(order or ()):
            low, high = (bound.interval(self.solved) for bound in self.given[name])
            if low is not None and high is not None:
                self.solved[name] = low[0], high[1]
        return {name: span for name, span in self.solved.items() if name in self.given or name not in self.unclear}

    def _round(self) -> dict[str, Span]:
        found: dict[str, Span] = {}
        for name in self.indices:
            if name in self.solved or name in self.given:
                continue
            bounds = [form.bound(name) for form in self.pending if form.indices() == {name}]
            lows = [bound.value for bound in bounds if bound is not None and bound.is_lower]
            highs = [bound.value for bound in bounds if bound is not None and not bound.is_lower]
            if lows and highs and None not in bounds:
                found[name] = greatest(lows), least(highs)
        return found

    def _substitute(self, places: Mapping[str, tuple[Linear, Linear]]) -> None:
        """Keep of each inequality what must hold for all values of some indices; drop those of unknown sign."""
        kept: list[Linear] = []
        for form in self.pending:
            worst: Linear | None = form
            for name, bounds in places.items():
                worst = worst.at_worst(name, *bounds) if worst is not None else None
            if worst is not None:
                kept.append(worst)
            else:
                self.unclear |= form.indices()
        self.pending = kept


@functools.lru_cache(maxsize=2000)
def _solution(
    indices: tuple[str, ...],
    given: tuple[tuple[str, tuple[Linear, Linear]], ...],
    constraints: tuple[Linear, ...],
    unclear: frozenset[str],
) -> Mapping[str, Span]:
    """The range of each index.  Derived texts are checked again and again with one statement changed."""
    return _Solver(indices, dict(given), list(constraints), set(unclear)).run()


def _given(statement: Statement) -> dict[str, tuple[Linear, Linear]] | None:
    """The ``where`` ranges, inclusive; None where one is not linear."""
    ranges: dict[str, tuple[Linear, Linear]] = {}
    for given in statement.ranges:
        low, high = linear(given.lower), linear(given.upper)
        if low is None or high is None:
            return None
        if given.index in statement.indices:
            ranges[given.index] = low, high + Linear.of(Polynomial.of(-1))
    return ranges


def _declared(tensor: Tensor) -> list[Span] | None:
    """The box of the written extents; None where there are none, or they are not polynomials."""
    if tensor.dims is None:
        return None
    extents = [linear(expr) for expr in tensor.dims]
    if not all(extent is not None and not extent.indices() for extent in extents):
        return None
    return [(Polynomial(), extent.constant - 1) for extent in extents if extent is not None]


def _hull(previous: list[Span] | None, new: list[Span]) -> list[Span]:
    if previous is None:
        return new
    return [(least([a[0], b[0]]), greatest([a[1], b[1]])) for a, b in zip(previous, new, strict=True)]
