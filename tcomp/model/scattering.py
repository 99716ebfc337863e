"""Reductions whose points are spread over elements, ``Y(f, 2*x+k) +=! I(c,x) * W(c,f,k)``, in two steps.

Such a reduction has no index for an element, so nothing of it could run in parallel or in vectors.  What each point
contributes is reduced first, over all indices that do not say where it goes: ``P(f,k,x) +=! I(c,x) * W(c,f,k)``, a
plain contraction.  Each element, ``2*q + a``, then gathers its points, ``Y(f, 2*q+a) +=! P(f, a+2*u, q-u)``; those that
are not there give the neutral element.  This reassociates the reduction, as every schedule may.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.errors import Span
from tcomp.grammar.ranges.domains import StatementDomain
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index, Statement
from tcomp.values.operators import INT64

LEAST_STEPS = 4
"""Steps that are reduced for each point from which on it pays to keep what they give."""


@dataclass(frozen=True, slots=True)
class Side:
    """A dimension of the elements: ``step * far + near + offset``, or ``far`` alone where there is no ``near``.

    The indices run from their ``lows``, ``far`` first, over their ``extents``.
    """

    far: str
    near: str | None
    step: int
    offset: int
    lows: tuple[int, int]
    extents: tuple[int, int]

    @property
    def extent(self) -> int:
        """Elements from the first to the last."""
        return self.step * (self.extents[0] - 1) + self.extents[1]

    @property
    def steps(self) -> int:
        """Points that an element may have along the dimension."""
        return -(-self.extents[1] // self.step)

    @property
    def groups(self) -> int:
        """How many times ``step`` elements there are."""
        return -(-self.extent // self.step)


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a reduction, which ``sides`` spread over elements; ``steps`` are the indices reduced for each.

    ``bounds`` gives the first value and the extent of every index.
    """

    sides: tuple[Side, ...]
    steps: tuple[str, ...]
    bounds: Mapping[str, tuple[int, int]]

    @property
    def indices(self) -> tuple[str, ...]:
        """The indices of a point, those innermost along which elements are far apart, but operands close together."""
        alone = [s.far for s in self.sides if s.near is None]
        spread = [s for s in self.sides if s.near is not None]
        return (*alone, *(s.near for s in spread if s.near is not None), *(s.far for s in spread))

    @property
    def meet(self) -> bool:
        """Whether an element may have several points."""
        return any(s.steps > 1 for s in self.sides)

    def box(self, indices: tuple[str, ...]) -> isl.Set:
        """The values of some indices."""
        return _box([self.bounds[i] for i in indices])


def points_of(statement: Statement, instances: StatementDomain, sizes: Mapping[str, int]) -> Points | None:
    """The points of a reduction; None where elements have indices of their own, or points meet beside elements that
    have none, or elements have points without a step."""
    domain = instances.domain
    if statement.reduction is None or domain.is_empty():
        return None
    bounds: dict[str, tuple[int, int]] = {}
    for d, index in enumerate(statement.indices):
        low, high = (end.to_python() for end in (domain.dim_min_val(d), domain.dim_max_val(d)))
        bounds[index] = (low, high - low + 1)
    among_elements = statement.indices[: instances.lhs.dim(isl.dim_type.set)]
    if not (_is_box(domain, [*bounds.values()]) and _is_box(instances.lhs, [bounds[i] for i in among_elements])):
        return None
    sides = [_side(subscript, bounds, sizes) for subscript in statement.subscripts]
    known = tuple(s for s in sides if s is not None)
    named = [i for s in known for i in (s.far, s.near) if i is not None]
    if len(known) < len(sides) or len({*named}) < len(named) or all(s.near is None for s in known):
        return None
    steps = tuple(i for i in statement.indices if i not in named)
    if math.prod(bounds[i][1] for i in steps) < LEAST_STEPS:
        return None
    points = Points(known, steps, bounds)
    return None if points.meet and any(s.extents[1] < s.step for s in known) else points


def _side(subscript: Expr, bounds: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> Side | None:
    form = to_form(subscript, sizes)
    if form is None or not all(isinstance(t, str) and c > 0 for t, c in form.terms):
        return None
    terms = sorted(((c, bounds[t][1], t) for t, c in form.terms if isinstance(t, str)), reverse=True)
    if len(terms) == 1 and terms[0][0] == 1 and form.constant == 0:
        (_, extent, far), near, step = terms[0], None, 1
        return Side(far, near, step, 0, (bounds[far][0], 0), (extent, 1))
    if len(terms) != 2 or terms[1][0] != 1:
        return None
    (step, extent, far), (_, length, near) = terms
    return Side(far, near, step, form.constant, (bounds[far][0], bounds[near][0]), (extent, length))


def _is_box(found: isl.Set, bounds: list[tuple[int, int]]) -> bool:
    return bool(found.is_equal(_box(bounds).set_tuple_name(found.get_tuple_name() or "")))


def _box(bounds: list[tuple[int, int]]) -> isl.Set:
    result = isl.Set.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(bounds)))
    for d, (low, extent) in enumerate(bounds):
        result = result.lower_bound_val(isl.dim_type.set, d, isl.Val(low))
        result = result.upper_bound_val(isl.dim_type.set, d, isl.Val(low + extent - 1))
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """How elements find their points.

    ``indices`` name an element, and more where a side is no whole number of steps; ``domain`` are those that there are.
    ``steps`` run over the points of each, ``instances`` are those of both whose point there is.  ``points`` are the
    subscripts of a point, ``elements`` those of an element.
    """

    indices: tuple[str, ...]
    steps: tuple[str, ...]
    extents: tuple[int, ...]
    domain: isl.Set
    instances: isl.Set
    points: tuple[Expr, ...]
    elements: tuple[Expr, ...]

    def every(self, count: int) -> isl.Set:
        """All values of the first so many indices and steps."""
        return _box([(0, extent) for extent in self.extents[:count]])


def gathered(points: Points, span: Span) -> Gathered:
    """How the elements find their points."""
    taken = set(points.bounds)
    alone = [s for s in points.sides if s.near is None]
    spread = [s for s in points.sides if s.near is not None]
    names = {s.far: _fresh(s.far, taken) for s in (*alone, *spread)}
    rests = {s.far: _fresh(f"{s.near}_rest", taken) for s in spread}
    steps = {s.far: _fresh(f"{s.near}_step", taken) for s in spread}
    indices = (*(names[s.far] for s in alone), *(rests[s.far] for s in spread), *(names[s.far] for s in spread))
    extents = [*(s.extents[0] for s in alone), *(s.step for s in spread), *(s.groups for s in spread)]
    extents += [s.steps for s in spread]
    inside = [f"{s.step}*{names[s.far]} + {rests[s.far]} < {s.extent}" for s in spread]
    domain = _box([(0, e) for e in extents[: len(indices)]]).intersect(
        isl.Set(f"{{ [{', '.join(indices)}] : {' and '.join(inside)} }}")
    )

    def at(*parts: tuple[str, int], constant: int) -> Expr:
        return _sum(parts, constant, span)

    elements = {s.far: at((names[s.far], 1), constant=s.lows[0]) for s in alone}
    for s in spread:
        constant = s.step * s.lows[0] + s.lows[1] + s.offset
        elements[s.far] = at((names[s.far], s.step), (rests[s.far], 1), constant=constant)
    subscripts = [at((names[s.far], 1), constant=s.lows[0]) for s in alone]
    subscripts += [at((rests[s.far], 1), (steps[s.far], s.step), constant=s.lows[1]) for s in spread]
    subscripts += [at((names[s.far], 1), (steps[s.far], -1), constant=s.lows[0]) for s in spread]
    order = tuple(elements[s.far] for s in points.sides)
    own = tuple(steps[s.far] for s in spread)
    there = [f"{rests[s.far]} + {s.step}*{steps[s.far]} < {s.extents[1]}" for s in spread]
    there += [f"0 <= {names[s.far]} - {steps[s.far]} < {s.extents[0]}" for s in spread]
    instances = isl.Set(f"{{ [{', '.join((*indices, *own))}] : {' and '.join(there)} }}").intersect(
        _box([(0, e) for e in extents])
    )
    return Gathered(indices, own, tuple(extents), domain, instances, tuple(subscripts), order)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _sum(parts: tuple[tuple[str, int], ...], constant: int, span: Span) -> Expr:
    """The sum of indices, each some number of times, and a constant."""
    terms = list(_terms(parts, constant, span))
    total = terms[0]
    for term in terms[1:]:
        total = Binary("+", total, term, INT64, span)
    return total


def _terms(parts: tuple[tuple[str, int], ...], constant: int, span: Span) -> Iterator[Expr]:
    for name, times in parts:
        index = Index(name, INT64, span)
        yield index if times == 1 else Binary("*", Constant(times, INT64, span), index, INT64, span)
    if constant:
        yield Constant(constant, INT64, span)
