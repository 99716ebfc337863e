"""What a boundary read outside a tensor adds to elements inside it.

The adjoint is gathered at logical coordinates first, outside the tensor, too.  Then each dimension is folded: what lies
before the beginning or behind the end goes to the element that the boundary reads there.  A mirror that is read further
away than a few elements, which may be more than a period, is a sum over periods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tcomp.derivatives.gathering.gathers import Contribution
from tcomp.derivatives.text import ZERO, Expr, conjunction, element, name
from tcomp.grammar.ranges.polynomials import Polynomial, greatest
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import syntax

_Fold = Callable[[Expr, Polynomial], Expr]
"""The element for a coordinate, with the extent."""


def _minus(first: Expr, second: Expr) -> Expr:
    return syntax.Binary("-", first, second)


FOLDS: Mapping[str, tuple[_Fold, _Fold]] = {
    "repeat_edge": (lambda x, n: syntax.Number("0"), lambda x, n: (n - 1).syntax()),
    "mirror_image": (lambda x, n: _minus(syntax.Number("-1"), x), lambda x, n: _minus((n * 2 - 1).syntax(), x)),
    "mirror_interior": (lambda x, n: syntax.Unary("-", x), lambda x, n: _minus((n * 2 - 2).syntax(), x)),
    "repeat_image": (lambda x, n: syntax.Binary("%", x, n.syntax()), lambda x, n: syntax.Binary("%", x, n.syntax())),
}
"""Before the beginning, from which coordinates are counted, and behind the end; mirrors within one period."""


def _plus(expr: Expr, offset: Polynomial) -> Expr:
    return syntax.Binary("+", expr, offset.syntax()) if offset.terms else expr


def read_inside(kind: str, subscript: Expr, inside: Span) -> Expr:
    """The element of a dimension that a boundary reads at a subscript, which may be anything."""
    origin = inside[0]
    return _plus(_counted(kind, _plus(subscript, -origin), inside[1] - origin + 1), origin)


def _counted(kind: str, subscript: Expr, extent: Polynomial) -> Expr:
    """The same where elements are counted from 0."""
    n = extent.syntax()
    if kind == "repeat_edge":
        first = syntax.Apply(name("max"), (subscript, syntax.Number("0")))
        return syntax.Apply(name("min"), (first, (extent - 1).syntax()))
    if kind == "repeat_image":
        return syntax.Binary("%", subscript, n)
    interior = kind == "mirror_interior"
    period = greatest([extent * 2 - 2, Polynomial.of(1)]) if interior else extent * 2
    own = syntax.Binary("%", subscript, period.syntax())
    return syntax.Apply(name("min"), (own, _minus((period if interior else period - 1).syntax(), own)))


_NEAR = 3
"""So far outside, a mirror is taken to be read within its first period: tensors of unknown extents are longer."""


def folded(
    kind: str, wide: str, indices: Sequence[str], box: Sequence[Span], dimension: int, inside: Span
) -> list[Contribution]:
    """What the elements of the tensor ``wide`` add to one that in a dimension is only as long as ``inside``."""
    value, (first, last) = element(wide, tuple(map(name, indices))), box[dimension]
    origin, end = inside[0], inside[1] + 1
    if kind.startswith("mirror") and not _is_near(kind, box[dimension], inside):
        return [_periods(kind, wide, indices, box, dimension, inside)]
    below, behind = FOLDS[kind]
    x = name(indices[dimension])
    counted = _plus(x, -origin)
    parts = [
        (x, inside, True),
        (_plus(below(counted, end - origin), origin), (first, origin - 1), False),
        (_plus(behind(counted, end - origin), origin), (end, last), False),
    ]
    found: list[Contribution] = []
    for place, span, gathered in parts:
        if span in ((origin, origin - 1), (end, end - 1)):
            continue
        spans = [*box[:dimension], span, *box[dimension + 1 :]]
        ranges = tuple(
            syntax.Range(name(i), low.syntax(), (high + 1).syntax())
            for i, (low, high) in zip(indices, spans, strict=True)
        )
        subscripts = tuple(place if d == dimension else name(i) for d, i in enumerate(indices))
        found.append(Contribution(subscripts, value, ranges, gathered))
    return found


def _is_near(kind: str, span: Span, inside: Span) -> bool:
    """Whether a mirror is read within its first period, which is known where the extent is."""
    reaches = (inside[0] - span[0]).constant, (span[1] - inside[1]).constant
    known = (inside[1] + 1 - inside[0]).constant
    most = _NEAR if known is None else min(_NEAR, known - (kind == "mirror_interior"))
    return all(reach is not None and reach <= most for reach in reaches)


def _periods(
    kind: str, wide: str, indices: Sequence[str], box: Sequence[Span], dimension: int, inside: Span
) -> Contribution:
    """An element as the sum over all periods ``p`` of what is read there and, mirrored, in front of there."""
    origin, (first, last) = inside[0], box[dimension]
    extent = inside[1] + 1 - origin
    interior = kind == "mirror_interior"
    period = greatest([extent * 2 - 2, Polynomial.of(1)]) if interior else extent * 2
    own, p = indices[dimension], "p" + "_" * sum(index.rstrip("_") == "p" for index in indices)
    x = name(own)
    step = syntax.Binary("*", period.syntax(), name(p))
    around = _plus(step, origin * 2)
    mirrored = _minus(around, x) if interior else _minus(_minus(around, x), syntax.Number("1"))
    straight, reflected = (
        syntax.Boundary(
            name("constant_exterior"),
            (name(wide), ZERO),
            tuple(place if d == dimension else name(i) for d, i in enumerate(indices)),
        )
        for place in (syntax.Binary("+", x, step), mirrored)
    )
    other: Expr = reflected
    if interior:
        # The ends are mirrored onto themselves.
        between = (
            syntax.Binary("<", origin.syntax(), x),
            syntax.Binary("<", x, inside[1].syntax()),
        )
        other = syntax.Conditional(conjunction(between), reflected, ZERO)
    spans = [*zip(indices, [*box[:dimension], inside, *box[dimension + 1 :]], strict=True)]
    spans.append((p, ((first - origin) // period, (last - origin) // period + 1)))
    ranges = tuple(syntax.Range(name(i), low.syntax(), (high + 1).syntax()) for i, (low, high) in spans)
    return Contribution(tuple(map(name, indices)), syntax.Binary("+", straight, other), ranges, gathered=True)
