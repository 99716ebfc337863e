"""Sums over what reads an element: a scatter ``d_I(h+kh) += s`` as a gather, ``d_I(h) += s`` at ``h-kh``.

Source of the idea: Li, Gharbi, Adams, Durand, Ragan-Kelley, "Differentiable Programming for Image Processing and Deep
Learning in Halide" (2018).  A subscript that holds an index with coefficient 1 or -1 is solved for it; subscripts that
cannot be solved stay as they are, and their sum is a scatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.text import ZERO, Expr, linear_text, name, substitute
from tcomp.grammar.ranges.linear import Linear, linear
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import syntax

_MINUS_ONE = Polynomial.of(-1)


@dataclass(frozen=True, slots=True)
class Contribution:
    """``subscripts`` of the adjoint get ``value`` summed over all indices but those that the subscripts name."""

    subscripts: tuple[Expr, ...]
    value: Expr
    ranges: tuple[syntax.Range, ...]
    gathered: bool

    @property
    def indices(self) -> tuple[str, ...]:
        """The bare indices of a gather."""
        return tuple(s.name for s in self.subscripts if isinstance(s, syntax.Name))

    @property
    def is_pointwise(self) -> bool:
        return self.gathered and {r.index.name for r in self.ranges} == set(self.indices)

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
    indices bound.  ``seed_box`` is that of the seed's tensor.
    """

    indices: tuple[str, ...]
    outer: frozenset[str]
    ranges: Mapping[str, Span]
    dependent: Mapping[str, tuple[Linear, Linear]]
    seed: Expr
    seed_box: tuple[Span, ...]


def contribution(adjoint: Adjoint, place: Place, box: tuple[Span, ...], taken: frozenset[str]) -> Contribution:
    """What one read adds to the adjoint of the tensor that it reads, whose box is given."""
    solved = _solve(adjoint, place, taken)
    if solved is None:
        return _scatter(adjoint, place)
    ranges = [_range(index, box[d]) for d, index in enumerate(solved.subscripts)]
    places = {index: linear_text(form) for index, form in solved.places.items()}
    for index in place.indices:
        if index not in solved.places:
            ranges.append(range_of(index, place, places))
    value = substitute(adjoint.value, places)
    conditions = [substitute(condition, places) for condition in (*solved.equalities, *adjoint.guards)]
    tests = {index: _tests(index, solved, place, box, places) for index in solved.places}
    inside = [test for found in tests.values() for test in found]
    if inside and not conditions:
        outside = _exterior(value, [index for index, found in tests.items() if found], place, places)
        if outside is not None:
            value, inside = outside, []
    for condition in reversed(conditions):
        value = syntax.Conditional(condition, value, ZERO)
    if inside:
        value = syntax.Conditional(_all(inside), value, ZERO)
    return Contribution(tuple(map(name, solved.subscripts)), value, tuple(ranges), gathered=True)


@dataclass(frozen=True, slots=True)
class _Solved:
    """New index names by dimension, old indices as forms of the new ones, and equalities that must hold."""

    subscripts: tuple[str, ...]
    places: Mapping[str, Linear]
    equalities: tuple[Expr, ...]


def _solve(adjoint: Adjoint, place: Place, taken: frozenset[str]) -> _Solved | None:
    """Indices solved for, bare ones first; None where a subscript cannot be solved.

    Where no scatter would do, since a subscript is data or leads outside, all elements are compared with it.
    """
    forms = [linear(subscript) for subscript in adjoint.read.subscripts]
    order = sorted(range(len(forms)), key=lambda d: not _is_bare(forms[d]))
    names: dict[int, str] = {}
    places: dict[str, Linear] = {}
    moved: set[str] = set()
    equalities: list[Expr] = []
    for dimension in order:
        form = forms[dimension]
        index = None if form is None else _solvable(form, place, places, moved)
        if form is None or (index is None and adjoint.read.boundary is not None):
            fresh = _fresh("e", taken | set(place.indices) | set(names.values()))
            names[dimension] = fresh
            equalities.append(syntax.Binary("==", adjoint.subscripts[dimension], name(fresh)))
            continue
        if index is None:
            return None
        coefficient = dict(form.terms)[index]
        rest = Linear(tuple((t, c) for t, c in form.terms if t != index), form.constant)
        own = Linear(((index, Polynomial.of(1)),), Polynomial())
        moved |= rest.indices()
        places[index] = (own + rest.scaled(_MINUS_ONE)).scaled(coefficient)
        names[dimension] = index
    return _Solved(tuple(names[d] for d in range(len(forms))), places, tuple(equalities))


def _solvable(form: Linear, place: Place, places: Mapping[str, Linear], moved: set[str]) -> str | None:
    """An index of coefficient 1 or -1 that no other subscript has taken, one of the left-hand side if there is one."""
    shifted = {index for index, at in places.items() if at.terms != ((index, Polynomial.of(1)),) or at.constant.terms}
    candidates = [
        term
        for term, coefficient in form.terms
        if isinstance(term, str) and coefficient.constant in (1, -1) and term not in places and term not in moved
    ]
    for index in sorted(candidates, key=lambda index: index not in place.outer):
        rest = Linear(tuple((t, c) for t, c in form.terms if t != index), form.constant).indices()
        if index not in rest and not rest & shifted:
            return index
    return None


def _is_bare(form: Linear | None) -> bool:
    return form is not None and len(form.terms) == 1 and not form.constant.terms


def _tests(index: str, solved: _Solved, place: Place, box: tuple[Span, ...], places: Mapping[str, Expr]) -> list[Expr]:
    """What must hold for an index to lie in its range, without what does for all sizes."""
    spans = dict(place.ranges) | {new: box[d] for d, new in enumerate(solved.subscripts)}
    reached = solved.places[index].interval(spans)
    at = places[index]
    if index in place.dependent:
        low, high = (substitute(linear_text(bound), places) for bound in place.dependent[index])
        return [syntax.Binary("<=", low, at), syntax.Binary("<=", at, high)]
    first, last = place.ranges[index]
    tests: list[Expr] = []
    if reached is None or not (reached[0] - first).is_nonnegative():
        tests.append(syntax.Binary("<=", first.syntax(), at))
    if reached is None or not (last - reached[1]).is_nonnegative():
        tests.append(syntax.Binary("<", at, (last + 1).syntax()))
    return tests


def _exterior(value: Expr, moved: Sequence[str], place: Place, places: Mapping[str, Expr]) -> Expr | None:
    """A product with the seed, read as 0 outside its tensor, which leaves the tests out; None where that says less.

    ``moved`` are the indices that may lie outside their ranges.
    """
    if not isinstance(place.seed, syntax.Apply):
        return None
    for index in moved:
        where = [d for d, s in enumerate(place.seed.arguments) if s == name(index)]
        if index in place.dependent or len(where) != 1 or place.seed_box[where[0]] != place.ranges[index]:
            return None
    shifted = tuple(substitute(s, places) for s in place.seed.arguments)
    seed = syntax.Apply(place.seed.function, shifted)
    others, found = _without_factor(value, seed)
    if not found or any(_reads_at(other, places, moved) for other in others):
        return None
    read = syntax.Boundary(name("constant_exterior"), (place.seed.function, ZERO), shifted)
    return _replaced(value, seed, read)


def _without_factor(value: Expr, seed: Expr) -> tuple[list[Expr], bool]:
    """The factors and divisors of a product beside the seed, and whether the seed is a factor."""
    match value:
        case syntax.Unary(op="-"):
            return _without_factor(value.operand, seed)
        case syntax.Binary(op="*"):
            left, in_left = _without_factor(value.lhs, seed)
            right, in_right = _without_factor(value.rhs, seed)
            return left + right, in_left or in_right
        case syntax.Binary(op="/"):
            left, found = _without_factor(value.lhs, seed)
            return [*left, value.rhs], found
        case _:
            return ([], True) if value == seed else ([value], False)


def _reads_at(expr: Expr, places: Mapping[str, Expr], moved: Sequence[str]) -> bool:
    """Whether an expression reads anything where a moved index would lead out of its range."""
    texts = {places[index] for index in moved}
    if isinstance(expr, syntax.Apply | syntax.Boundary):
        return any(_mentions(child, texts) for child in syntax.children(expr))
    if isinstance(expr, syntax.Binary) and expr.op in ("/", "%"):
        return True
    return any(_reads_at(child, places, moved) for child in syntax.children(expr))


def _mentions(expr: Expr, parts: set[Expr]) -> bool:
    return expr in parts or any(_mentions(child, parts) for child in syntax.children(expr))


def _replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    if expr == old:
        return new
    match expr:
        case syntax.Unary():
            return replace(expr, operand=_replaced(expr.operand, old, new))
        case syntax.Binary():
            return replace(expr, lhs=_replaced(expr.lhs, old, new), rhs=_replaced(expr.rhs, old, new))
        case _:
            return expr


def _scatter(adjoint: Adjoint, place: Place) -> Contribution:
    value = adjoint.value
    for guard in reversed(adjoint.guards):
        value = syntax.Conditional(guard, value, ZERO)
    ranges = tuple(range_of(index, place, {}) for index in place.indices)
    subscripts = tuple(_written(subscript, place) for subscript in adjoint.subscripts)
    return Contribution(subscripts, value, ranges, gathered=False)


def _written(subscript: Expr, place: Place) -> Expr:
    """A subscript on the left-hand side, where a bare name would be an index even if it is a size's."""
    if isinstance(subscript, syntax.Name) and subscript.name not in place.indices:
        return syntax.Binary("+", subscript, syntax.Number("0"))
    return subscript


def range_of(index: str, place: Place, places: Mapping[str, Expr]) -> syntax.Range:
    """The range of an index, where others have moved to ``places``."""
    if index not in place.dependent:
        return _range(index, place.ranges[index])
    low, high = place.dependent[index]
    upper = high + Linear.of(Polynomial.of(1))
    return syntax.Range(name(index), substitute(linear_text(low), places), substitute(linear_text(upper), places))


def _range(index: str, span: Span) -> syntax.Range:
    return syntax.Range(name(index), span[0].syntax(), (span[1] + 1).syntax())


def _all(tests: Sequence[Expr]) -> Expr:
    first, *others = tests
    for other in others:
        first = syntax.Binary("&&", first, other)
    return first


def _fresh(wanted: str, taken: frozenset[str] | set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted
