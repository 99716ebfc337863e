"""Subscripts solved for the indices in them: ``y = S*h + kh`` as ``h = y/S - u`` and ``kh = y%S + S*u``.

Each subscript of a read gets a name, that of an index of the read where one goes away for it.  The indices that go
away are told as forms of those names; where a new sum is needed, its index is, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import gcd

from tcomp.derivatives.text import Expr, linear_text, name
from tcomp.grammar.ranges.linear import Linear, Rounded
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import syntax

_ONE, _MINUS_ONE = Polynomial.of(1), Polynomial.of(-1)


@dataclass(frozen=True, slots=True)
class Solved:
    """Names of the subscripts, forms of the indices that went away, new indices, and what must hold beside ranges.

    ``comparisons`` are still in terms of the old indices, ``divisions`` of the new.  ``positive`` are sizes and
    constants that the forms take for at least 1.
    """

    subscripts: tuple[str, ...]
    places: Mapping[str, Linear]
    sums: Mapping[str, Span]
    comparisons: tuple[Expr, ...]
    divisions: tuple[Expr, ...]
    positive: frozenset[str]


@dataclass(frozen=True, slots=True)
class Indices:
    """The indices of a statement: those of its left-hand side, the spans, which bound which others, and which stay."""

    outer: frozenset[str]
    ranges: Mapping[str, Span]
    dependent: Mapping[str, frozenset[str]]
    rigid: frozenset[str] = frozenset()


@dataclass(slots=True)
class Solver:
    """Solves one read.  ``box`` is that of its tensor; names in ``taken`` are not given to new indices.

    ``compares`` says that what cannot be solved is compared with every element; otherwise there is no solution then.
    """

    forms: Sequence[Linear | None]
    texts: Sequence[Expr]
    indices: Indices
    box: Sequence[Span]
    taken: set[str]
    compares: bool
    names: dict[int, str] = field(default_factory=dict)
    places: dict[str, Linear] = field(default_factory=dict)
    sums: dict[str, Span] = field(default_factory=dict)
    rounded: dict[tuple[Linear, Polynomial], str] = field(default_factory=dict)
    comparisons: list[Expr] = field(default_factory=list)
    divisions: list[Expr] = field(default_factory=list)
    positive: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)

    def run(self) -> Solved | None:
        for dimension in sorted(range(len(self.forms)), key=self._rank):
            form = self.forms[dimension]
            solved = form is not None and (
                self._rest_of(dimension, form)
                or self._polyphase(dimension, form)
                or self._unit(dimension, form)
                or self._residues(dimension, form)
                or self._quotient(dimension, form)
                or self._remainder(dimension, form)
                or self._divided(dimension, form)
            )
            if solved:
                continue
            if form is not None and not self.compares:
                return None
            self.names[dimension] = self._fresh("e")
            self.comparisons.append(syntax.Binary("==", self.texts[dimension], name(self.names[dimension])))
        names = tuple(self.names[d] for d in range(len(self.forms)))
        conditions = tuple(self.comparisons), tuple(self.divisions)
        return Solved(names, self.places, self.sums, *conditions, frozenset(self.positive))

    def _rank(self, dimension: int) -> int:
        """Bare indices first, for they must stay; remainders last, after the quotients that belong to them."""
        form = self.forms[dimension]
        if form is None:
            return 4
        if len(form.terms) == 1 and not form.constant.terms and isinstance(form.terms[0][0], str):
            return 0
        return 2 if any(isinstance(t, Rounded) and t.remainder for t, _ in form.terms) else 1

    def _unit(self, dimension: int, form: Linear) -> bool:
        """Solve for an index of coefficient 1 or -1, one of the left-hand side if there is one."""
        candidates = [t for t, c in form.terms if isinstance(t, str) and c.constant in (1, -1) and self._is_free(t)]
        for index in sorted(candidates, key=lambda index: index not in self.indices.outer):
            coefficient, rest = dict(form.terms)[index], _without(form, index)
            if index in rest.indices() or rest.indices() & self._shifted() or self._bounds_any(index, rest.indices()):
                continue
            if index in self.indices.rigid and (rest.terms or rest.constant.terms or coefficient.constant != 1):
                continue
            self.moved |= rest.indices()
            own = Linear(((index, _ONE),), Polynomial())
            self._name(dimension, index, (own + rest.scaled(_MINUS_ONE)).scaled(coefficient))
            return True
        return False

    def _polyphase(self, dimension: int, form: Linear) -> bool:
        """``S*h + kh + c`` with ``kh`` from 0: ``h = (y-c)/S - u`` and ``kh = (y-c)%S + S*u``.

        No step of the sum over ``u`` is in vain.  Not for a sum over ``h``, where ``kh = y - S*h`` is as good.
        """
        if len(form.terms) != 2 or not all(isinstance(term, str) and self._is_free(term) for term, _ in form.terms):
            return False
        for (far, stride), (near, step) in (form.terms, form.terms[::-1]):
            assert isinstance(far, str) and isinstance(near, str)
            if step.constant != 1 or not _is_stride(stride) or {far, near} & self._bound():
                continue
            if near in self.indices.outer and far not in self.indices.outer:
                continue
            first, last = self.indices.ranges[near]
            y = Linear(((far, _ONE),), -(form.constant + first))
            quotient, rest = Linear(((Rounded(y, stride), _ONE),), Polynomial()), Rounded(y, stride, remainder=True)
            remainder = Linear(((rest, _ONE),), first)
            extent = last - first + 1
            if not (stride - extent).is_nonnegative():
                u = self._fresh("u")
                self.sums[u] = Polynomial(), (extent - 1) // stride
                quotient += Linear(((u, _MINUS_ONE),), Polynomial())
                remainder += Linear(((u, stride),), Polynomial())
            self._require(stride)
            self.places[near] = remainder
            self._name(dimension, far, quotient)
            return True
        return False

    def _residues(self, dimension: int, form: Linear) -> bool:
        """``S*h + D*k + c`` with numbers ``S`` and ``D``: ``k = (E*y)%S + S*u`` and ``h = (y - D*((E*y)%S))/S - D*u``.

        ``y`` counts from ``c``; ``E`` is the inverse of ``D`` modulo ``S``, once both are divided by what they share,
        which must divide ``y``.
        """
        if len(form.terms) != 2 or not all(isinstance(term, str) and self._is_free(term) for term, _ in form.terms):
            return False
        for (far, stride), (near, dilation) in (form.terms, form.terms[::-1]):
            assert isinstance(far, str) and isinstance(near, str)
            by_far, by_near = stride.constant, dilation.constant
            if by_far is None or by_near is None or min(by_far, by_near) < 2 or {far, near} & self._bound():
                continue
            if near in self.indices.outer and far not in self.indices.outer:
                continue
            shared = gcd(by_far, by_near)
            s, d = by_far // shared, by_near // shared
            first, last = self.indices.ranges[near]
            start = form.constant if s == 1 else form.constant + first * by_near
            y = Linear(((far, _ONE),), -start)
            if shared > 1:
                whole = Polynomial.of(shared)
                left = linear_text(Linear(((Rounded(y, whole, remainder=True), _ONE),), Polynomial()))
                self.divisions.append(syntax.Binary("==", left, syntax.Number("0")))
                y = Linear(((Rounded(y, whole), _ONE),), Polynomial())
            if s == 1:
                self.moved.add(near)
                self._name(dimension, far, y + Linear(((near, Polynomial.of(-d)),), Polynomial()))
                return True
            residue = Rounded(y.scaled(Polynomial.of(pow(d, -1, s))), Polynomial.of(s), remainder=True)
            rest = y if d == 1 else y + Linear(((residue, Polynomial.of(-d)),), Polynomial())
            place, u = Linear(((Rounded(rest, Polynomial.of(s)), _ONE),), Polynomial()), self._fresh("u")
            self.sums[u] = Polynomial(), (last - first) // Polynomial.of(s)
            self.places[near] = Linear(((residue, _ONE), (u, Polynomial.of(s))), first)
            self._name(dimension, far, place + Linear(((u, Polynomial.of(-d)),), Polynomial()))
            return True
        return False

    def _quotient(self, dimension: int, form: Linear) -> bool:
        """``(h+k)/c``: ``h = c*y + r - k``, summed over ``r in 0:c``."""
        found = self._single(form, remainder=False)
        if found is None:
            return False
        index, shift, rounded = found
        r = self._fresh("r")
        self.sums[r] = Polynomial(), rounded.divisor - 1
        self.rounded[rounded.operand, rounded.divisor] = r
        self._require(rounded.divisor)
        y = Linear(((index, rounded.divisor), (r, _ONE)), -form.constant * rounded.divisor - shift)
        self._name(dimension, index, y)
        return True

    def _rest_of(self, dimension: int, form: Linear) -> bool:
        """``(h+k)%c`` beside ``(h+k)/c``, which are told apart by these two."""
        match form.terms:
            case ((Rounded(remainder=True) as rounded, coefficient),) if coefficient.constant == 1:
                r = self.rounded.get((rounded.operand, rounded.divisor))
                whole = Polynomial(), rounded.divisor - 1
                if r is None or r not in self.sums or form.constant.terms or self.box[dimension] != whole:
                    return False
                del self.sums[r]
                self.names[dimension] = r
                return True
        return False

    def _remainder(self, dimension: int, form: Linear) -> bool:
        """``(h+k)%c`` alone: ``h = c*q + y - k``, summed over ``q``."""
        found = self._single(form, remainder=True)
        if found is None or form.constant.terms or found[2].divisor != self.box[dimension][1] + 1:
            return False
        index, shift, rounded = found
        first, last = self.indices.ranges[index]
        q = self._fresh("q")
        self.sums[q] = (first + shift) // rounded.divisor, (last + shift) // rounded.divisor
        self._require(rounded.divisor)
        self._name(dimension, index, Linear(((q, rounded.divisor), (index, _ONE)), -shift))
        return True

    def _single(self, form: Linear, *, remainder: bool) -> tuple[str, Polynomial, Rounded] | None:
        """The index and shift of a form that is one rounded ``index + shift``."""
        match form.terms:
            case ((Rounded(operand=Linear(terms=((str() as index, step),))) as rounded, coefficient),):
                if rounded.remainder is not remainder or coefficient.constant != 1 or step.constant != 1:
                    return None
                free = self._is_free(index) and index not in self._bound()
                return (index, rounded.operand.constant, rounded) if free else None
        return None

    def _divided(self, dimension: int, form: Linear) -> bool:
        """``S*h + rest``: ``h = (y-rest)/S`` where that leaves nothing."""
        candidates = [t for t, c in form.terms if isinstance(t, str) and _is_stride(c) and self._is_free(t)]
        for index in sorted(candidates, key=lambda index: index not in self.indices.outer):
            stride, rest = dict(form.terms)[index], _without(form, index)
            if index in rest.indices() or rest.indices() & self._shifted() or index in self._bound():
                continue
            if self._bounds_any(index, rest.indices()):
                continue
            self.moved |= rest.indices()
            y = Linear(((index, _ONE),), Polynomial()) + rest.scaled(_MINUS_ONE)
            left = linear_text(Linear(((Rounded(y, stride, remainder=True), _ONE),), Polynomial()))
            self.divisions.append(syntax.Binary("==", left, syntax.Number("0")))
            self._name(dimension, index, Linear(((Rounded(y, stride), _ONE),), Polynomial()))
            return True
        return False

    def _name(self, dimension: int, index: str, place: Linear) -> None:
        """A subscript takes the name of the index that it determines."""
        self.names[dimension] = index
        self.places[index] = place

    def _is_free(self, index: str) -> bool:
        return index not in self.places and index not in self.moved

    def _bound(self) -> frozenset[str]:
        return self.indices.rigid.union(self.indices.dependent)

    def _bounds_any(self, index: str, others: Set[str]) -> bool:
        """Whether the range of one of ``others`` depends on an index, which then cannot be told by it."""
        return any(index in self.indices.dependent.get(other, ()) for other in others)

    def _shifted(self) -> set[str]:
        return {index for index, at in self.places.items() if at.terms != ((index, _ONE),) or at.constant.terms}

    def _require(self, stride: Polynomial) -> None:
        self.positive |= {atom for monomial, _ in stride.terms for atom in monomial if isinstance(atom, str)}

    def _fresh(self, wanted: str) -> str:
        wanted = next((letter for letter in _LETTERS.get(wanted, wanted) if letter not in self.taken), wanted)
        while wanted in self.taken:
            wanted += "_"
        self.taken.add(wanted)
        return wanted


_LETTERS = {"u": "uvstp", "e": "eopqr"}
"""What stands for a letter that is taken."""


def _without(form: Linear, index: str) -> Linear:
    return Linear(tuple((t, c) for t, c in form.terms if t != index), form.constant)


def _is_stride(coefficient: Polynomial) -> bool:
    """Whether a coefficient is at least 2, or may be."""
    known = coefficient.constant
    return known >= 2 if known is not None else coefficient.is_nonnegative()
