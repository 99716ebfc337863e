"""Sums over what reads an element: a scatter ``d_I(h+kh) += s`` as a gather, ``d_I(h) += s`` at ``h-kh``.

Source of the idea: Li, Gharbi, Adams, Durand, Ragan-Kelley, "Differentiable Programming for Image Processing and Deep
Learning in Halide" (2018).  A subscript that holds an index with coefficient 1 or -1 is solved for it; subscripts that
cannot be solved stay as they are, and their sum is a scatter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.gathering.solutions import Indices, Solved, Solver
from tcomp.derivatives.text import (
    ZERO,
    Expr,
    conjunction,
    linear_text,
    name,
    names_in,
    on_the_left,
    shortest,
    substitute,
    with_children,
)
from tcomp.grammar.ranges.linear import Linear, Rounded, linear
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Index, Read, Statement, depends_on_data, is_indirect, walk
from tcomp.values.operators import INTRINSICS


@dataclass(frozen=True, slots=True)
class Contribution:
    """``subscripts`` of the adjoint get ``value`` summed over all indices but those that the subscripts name.

    ``kept`` are the indices of the forward statement that are here what they are there; the subscript of ``T(4 - i)``
    is called ``i``, too.
    """

    subscripts: tuple[Expr, ...]
    value: Expr
    ranges: tuple[syntax.Range, ...]
    gathered: bool
    positive: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    @property
    def indices(self) -> tuple[str, ...]:
        """The bare indices of a gather."""
        return tuple(s.name for s in self.subscripts if isinstance(s, syntax.Name))

    @property
    def is_pointwise(self) -> bool:
        named = set(self.indices)
        return self.gathered and len(named) == len(self.subscripts) and {r.index.name for r in self.ranges} == named

    def renamed(self, indices: Sequence[str]) -> Contribution:
        """The same of a pointwise gather with other names of its indices."""
        places: dict[str, Expr] = {old: name(new) for old, new in zip(self.indices, indices, strict=True)}
        new_names = dict(zip(self.indices, map(name, indices), strict=True))
        ranges = tuple(replace(r, index=new_names[r.index.name]) for r in self.ranges)
        return replace(self, subscripts=tuple(places.values()), value=substitute(self.value, places), ranges=ranges)


@dataclass(frozen=True, slots=True)
class Place:
    """Where adjoints come from: a statement's indices with their ranges, and the seed as an element of a tensor.

    ``ranges`` has the first and last value of every index, which for some is of the ``dependent`` ones that other
    indices bound.  ``boxes`` are those of tensors by their names in the text, as far as they are known.  ``rigid``
    indices stay as they are.
    """

    indices: tuple[str, ...]
    outer: frozenset[str]
    ranges: Mapping[str, Span]
    dependent: Mapping[str, tuple[Linear, Linear]]
    seed: Expr
    boxes: Mapping[str, tuple[Span, ...]]
    rigid: frozenset[str] = frozenset()


def rigid_indices(statement: Statement) -> frozenset[str]:
    """Indices in subscripts such as ``i*j``, of which only their intervals are known: moved, they may lead outside."""
    reads = (e for expression in statement.expressions() for e in walk(expression) if isinstance(e, Read))
    others = [s for read in reads for s in read.subscripts if linear(s) is None and not depends_on_data(s)]
    return frozenset(e.name for s in others for e in walk(s) if isinstance(e, Index))


def contribution(
    adjoint: Adjoint,
    place: Place,
    box: tuple[Span, ...],
    taken: frozenset[str],
    forms: Sequence[Linear | None] | None = None,
) -> Contribution:
    """What one read adds to the adjoint of the tensor that it reads, whose box is given.

    ``forms`` are those of the subscripts, where they are not those of the read.
    """
    if _is_chosen_by_data(adjoint):
        return _scatter(adjoint, place)
    if forms is None:
        forms = [linear(subscript) for subscript in adjoint.read.subscripts]
    bounded_by = {i: frozenset(low.indices() | high.indices()) for i, (low, high) in place.dependent.items()}
    indices = Indices(place.outer, place.ranges, bounded_by, place.rigid)
    compares = adjoint.read.boundary is not None or None in forms or _may_lead_outside(adjoint, place, forms, box)
    solved = Solver(forms, adjoint.subscripts, indices, box, set(taken) | set(place.indices), compares).run()
    if solved is None:
        return _scatter(adjoint, place)
    gather = _Gather(adjoint, place, box, solved)
    written = None not in forms  # else the left side would have a product of indices
    return _scatter(adjoint, place) if written and gather.widens(place.rigid) else gather.contribution()


def _is_chosen_by_data(adjoint: Adjoint) -> bool:
    """Whether data choose what is read, and always inside: each read then adds to one element, of all that there are.

    Where a boundary or a condition is needed to stay inside, elements are compared instead.
    """
    read = adjoint.read
    return read.boundary is None and not adjoint.guards and any(map(is_indirect, read.subscripts))


def _may_lead_outside(adjoint: Adjoint, place: Place, forms: Sequence[Linear | None], box: tuple[Span, ...]) -> bool:
    """Whether only a condition keeps a read inside its tensor: what is written there has none around it."""
    if not adjoint.guards:
        return False
    for form, (first, last) in zip(forms, box, strict=True):
        span = None if form is None else form.interval(place.ranges)
        if span is None or not (span[0] - first).is_nonnegative() or not (last - span[1]).is_nonnegative():
            return True
    return False


class _Gather:
    """One read whose subscripts are solved."""

    def __init__(self, adjoint: Adjoint, place: Place, box: tuple[Span, ...], solved: Solved) -> None:
        self.adjoint = adjoint
        self.place = place
        self.solved = solved
        self.box = box
        self.places: dict[str, Expr] = {index: linear_text(form) for index, form in solved.places.items()}
        self.spans = dict(place.ranges) | {new: box[d] for d, new in enumerate(solved.subscripts)} | dict(solved.sums)

    def contribution(self) -> Contribution:
        solved, place = self.solved, self.place
        ranges = [_range(index, self.box[d]) for d, index in enumerate(solved.subscripts)]
        ranges += [_range(index, span) for index, span in solved.sums.items()]
        ranges += [range_of(index, place, self.places) for index in place.indices if index not in solved.places]
        value = self._moved(self.adjoint.value)
        compared = [substitute(comparison, self.places) for comparison in solved.comparisons]
        conditions = [*compared, *map(self._moved, self.adjoint.guards)]
        if any(map(is_indirect, self.adjoint.read.subscripts)):  # which conditions may keep inside what they read
            conditions = [*conditions[len(compared) :], *compared]
        tests = {index: self._tests(index) for index in solved.places}
        inside = [test for found in tests.values() for test in found]
        if inside and not conditions:
            outside = self._exterior(value, [index for index, found in tests.items() if found])
            if outside is not None:
                value, inside = outside, []
        for condition in reversed([*solved.divisions, *conditions]):
            value = syntax.Conditional(condition, value, ZERO)
        if inside:
            value = syntax.Conditional(conjunction(inside), value, ZERO)
        names = tuple(map(name, solved.subscripts))
        kept = frozenset(i for i in place.indices if self.places.get(i, name(i)) == name(i))
        return Contribution(names, value, tuple(ranges), gathered=True, positive=solved.positive, kept=kept)

    def widens(self, rigid: Collection[str]) -> bool:
        """Whether one of some indices goes through more values than before, of which conditions leave some out."""
        return any(index in rigid and self._tests(index) for index in self.solved.places)

    def _moved(self, expr: Expr) -> Expr:
        """An expression in terms of the new indices; the subscripts that were solved are these themselves."""
        pairs = zip(self.adjoint.subscripts, self.solved.subscripts, strict=True)
        known: dict[Expr, Expr] = {text: name(new) for text, new in pairs if _combines(text, self.place)}
        return _replaced(expr, known, self.places)

    def _tests(self, index: str) -> list[Expr]:
        """What must hold for an index to lie in its range, without what does for all sizes."""
        reached = self._interval(self.solved.places[index])
        at, place = self.places[index], self.place
        if index in place.dependent:
            low, high = (substitute(linear_text(bound), self.places) for bound in place.dependent[index])
            return [syntax.Binary("<=", low, at), syntax.Binary("<=", at, high)]
        first, last = place.ranges[index]
        match self.solved.places[index]:
            case Linear(terms=((str() as own, coefficient),), constant=offset) if coefficient.constant == 1:
                # `D <= d` says what `0 <= d - D` does.
                at, first, last = name(own), first - offset, last - offset
                reached = None if reached is None else (reached[0] - offset, reached[1] - offset)
        tests: list[Expr] = []
        if reached is None or not (reached[0] - first).is_nonnegative():
            tests.append(syntax.Binary("<=", first.syntax(), at))
        if reached is None or not (last - reached[1]).is_nonnegative():
            tests.append(syntax.Binary("<", at, (last + 1).syntax()))
        return tests

    def _interval(self, form: Linear) -> Span | None:
        """First and last value of a form, in which remainders may be all that they can be."""
        spans = dict(self.spans)
        terms: list[tuple[str | Rounded, Polynomial]] = []
        for number, (term, coefficient) in enumerate(form.terms):
            if isinstance(term, Rounded) and term.remainder:
                spans[f"%{number}"] = Polynomial(), term.divisor - 1
                terms.append((f"%{number}", coefficient))
            else:
                terms.append((term, coefficient))
        return Linear(tuple(terms), form.constant).interval(spans)

    def _exterior(self, value: Expr, outside: Sequence[str]) -> Expr | None:
        """A product whose factors are read as 0 outside their tensors, which leaves the tests out.

        ``outside`` are the indices that may leave their ranges.  None where that says less than the tests do.
        """
        factors, divisors = factors_of(value)
        before, _ = factors_of(self.adjoint.value)
        if len(before) != len(factors):
            return None
        if any(_mentions(divisor, {self.places[i] for i in outside}) for divisor in divisors):
            return None
        changed: dict[Expr, Expr] = {}
        for index in outside:
            at, found = self.places[index], False
            for own, factor in zip(before, factors, strict=True):
                if index not in names_in(own) and not _mentions(factor, {at}):
                    continue
                where = self._at_range(factor, at, index)
                if not where:
                    return None
                found = True
                assert isinstance(factor, syntax.Apply)
                changed[factor] = syntax.Boundary(name("constant_exterior"), (factor.function, ZERO), factor.arguments)
            if not found:
                return None
        return _with_factors(value, changed)

    def _at_range(self, factor: Expr, at: Expr, index: str) -> bool:
        """Whether a factor is an element of a tensor whose extent in one dimension is the range of an index there."""
        if not isinstance(factor, syntax.Apply) or factor.function.name not in self.place.boxes:
            return False
        box = self.place.boxes[factor.function.name]
        where = [d for d, s in enumerate(factor.arguments) if _mentions(s, {at})]
        if len(where) != 1 or factor.arguments[where[0]] != at or index in self.place.dependent:
            return False
        return box[where[0]] == self.place.ranges[index]


def _combines(subscript: Expr, place: Place) -> bool:
    """Whether a subscript is more than an index, and not a number, which may stand for something else elsewhere."""
    return not isinstance(subscript, syntax.Name) and bool(names_in(subscript) & set(place.indices))


def factors_of(value: Expr) -> tuple[list[Expr], list[Expr]]:
    """The factors and the divisors of a product."""
    match value:
        case syntax.Unary(op="-"):
            return factors_of(value.operand)
        case syntax.Binary(op="*"):
            (left, under), (right, below) = factors_of(value.lhs), factors_of(value.rhs)
            return left + right, under + below
        case syntax.Binary(op="/"):
            left, under = factors_of(value.lhs)
            return left, [*under, value.rhs]
        case _:
            return [value], []


def _with_factors(value: Expr, changed: Mapping[Expr, Expr]) -> Expr:
    """A product with other factors."""
    match value:
        case syntax.Unary(op="-"):
            return replace(value, operand=_with_factors(value.operand, changed))
        case syntax.Binary(op="*"):
            return replace(value, lhs=_with_factors(value.lhs, changed), rhs=_with_factors(value.rhs, changed))
        case syntax.Binary(op="/"):
            return replace(value, lhs=_with_factors(value.lhs, changed))
        case _:
            return changed.get(value, value)


def _mentions(expr: Expr, parts: set[Expr]) -> bool:
    return expr in parts or any(_mentions(child, parts) for child in syntax.children(expr))


def _replaced(expr: Expr, known: Mapping[Expr, Expr], places: Mapping[str, Expr]) -> Expr:
    """An expression with others in place of whole parts of it, and of names."""
    if expr in known:
        return known[expr]
    if isinstance(expr, syntax.Name):
        return places.get(expr.name, expr)
    moved = with_children(expr, [_replaced(child, known, places) for child in syntax.children(expr)])
    match moved:
        case syntax.Apply() if moved.function.name not in INTRINSICS:
            return replace(moved, arguments=tuple(map(shortest, moved.arguments)))
        case syntax.Boundary():
            return replace(moved, subscripts=tuple(map(shortest, moved.subscripts)))
        case _:
            return moved


def _scatter(adjoint: Adjoint, place: Place) -> Contribution:
    value = adjoint.value
    for guard in reversed(adjoint.guards):
        value = syntax.Conditional(guard, value, ZERO)
    ranges = tuple(range_of(index, place, {}) for index in place.indices)
    subscripts = tuple(on_the_left(subscript, place.indices) for subscript in adjoint.subscripts)
    return Contribution(subscripts, value, ranges, gathered=False, kept=frozenset(place.indices))


def range_of(index: str, place: Place, places: Mapping[str, Expr]) -> syntax.Range:
    """The range of an index, where others have moved to ``places``."""
    if index not in place.dependent:
        return _range(index, place.ranges[index])
    low, high = place.dependent[index]
    upper = high + Linear.of(Polynomial.of(1))
    return syntax.Range(name(index), substitute(linear_text(low), places), substitute(linear_text(upper), places))


def _range(index: str, span: Span) -> syntax.Range:
    return syntax.Range(name(index), span[0].syntax(), (span[1] + 1).syntax())


def dependent_ranges(statement: Statement) -> Mapping[str, tuple[Linear, Linear]]:
    """The ``where`` ranges that other indices bound, inclusive."""
    found: dict[str, tuple[Linear, Linear]] = {}
    for given in statement.ranges:
        low, high = linear(given.lower), linear(given.upper)
        if low is not None and high is not None and low.indices() | high.indices():
            found[given.index] = low, high + Linear.of(Polynomial.of(-1))
    return found
