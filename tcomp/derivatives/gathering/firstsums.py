"""Sums that come before a gather, where nothing that is multiplied is the same at several places.

A locally connected layer has a filter for each place: ``O(h) +=! I(h+k) * K(h,c,k)``.  In the gather for ``d_I(h)`` all
factors are read at ``h - k``, so that it is no product of matrices.  What each place adds is: it is summed first, over
what the read of ``I`` does not name, and then gathered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.gathering.gathers import Place, factors_of
from tcomp.derivatives.text import Expr, element, name, names_in
from tcomp.grammar.ranges.linear import Linear, linear
from tcomp.grammar.tree import syntax


@dataclass(frozen=True, slots=True)
class FirstSum:
    """An element for each value of ``indices``, the sum over all others of what an adjoint adds."""

    indices: tuple[str, ...]

    def adjoint(self, adjoint: Adjoint, own: str) -> Adjoint:
        """What is left to add: the elements of the sum, which is called ``own``."""
        return replace(adjoint, value=element(own, tuple(map(name, self.indices))))

    def place(self, place: Place, own: str) -> Place:
        """Where that comes from."""
        ranges = {index: place.ranges[index] for index in self.indices}
        boxes = {**place.boxes, own: tuple(ranges.values())}
        kept = tuple(index for index in place.indices if index in ranges)
        return replace(place, indices=kept, outer=place.outer & {*kept}, ranges=ranges, boxes=boxes)


def first_sum(adjoint: Adjoint, place: Place) -> FirstSum | None:
    """The sum that comes first, if what an adjoint adds is a product of which every factor moves with the read."""
    if adjoint.guards or adjoint.read.boundary is not None or place.dependent:
        return None
    named = [i for i in place.indices if any(i in names_in(s) for s in adjoint.subscripts)]
    moved = _moved([linear(s) for s in adjoint.read.subscripts], place.outer)
    factors, divisors = factors_of(adjoint.value)
    read = [f for f in factors if isinstance(f, syntax.Apply) and f.function.name in place.boxes]
    if not moved or len(named) == len(place.indices) or divisors or len(read) < 2 or len(read) < len(factors):
        return None
    if not all(moved <= {s.name for s in factor.arguments if isinstance(s, syntax.Name)} for factor in read):
        return None
    return FirstSum(_order(named, [factor.arguments for factor in read]))


def _moved(forms: Sequence[Linear | None], outer: frozenset[str]) -> frozenset[str]:
    """The indices of elements that a subscript adds to another index."""
    found: set[str] = set()
    for form in forms:
        if form is None or not all(isinstance(term, str) for term, _ in form.terms):
            return frozenset()
        if len(form.terms) > 1:
            found |= {term for term, _ in form.terms if isinstance(term, str) and term in outer}
    return frozenset(found)


def _order(named: Sequence[str], accesses: Sequence[Sequence[Expr]]) -> tuple[str, ...]:
    """Indices in the order of the factor that has most of them; what it lacks stands behind those that all have."""
    spelled = [[s.name for s in access if isinstance(s, syntax.Name) and s.name in named] for access in accesses]
    longest = max(spelled, key=len)
    common = [i for i in longest if all(i in other for other in spelled)]
    places: Mapping[str, int] = {i: n for n, i in enumerate(longest)}
    lacking = [i for i in named if i not in places]
    behind = [i for i in longest if i not in common]
    return (*common, *lacking, *behind)
