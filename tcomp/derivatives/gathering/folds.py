"""What a boundary read outside a tensor adds to elements inside it.

The adjoint is gathered at logical coordinates first, outside the tensor, too.  Then each dimension is folded: what lies
below 0 or behind the end goes to the element that the boundary reads there.  A mirror that is read further away than a
few elements, which may be more than a period, is a sum over periods.
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
"""Below 0, and behind the end; mirrors within one period."""


def read_inside(kind: str, subscript: Expr, extent: Polynomial) -> Expr:
    """The element that a boundary reads at a subscript, which may be anything."""
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
"""So far outside, a mirror is taken to be read within its first period: tensors are longer."""


def folded(
    kind: str, wide: str, indices: Sequence[str], box: Sequence[Span], dimension: int, inside: Span
) -> list[Contribution]:
    """What the elements of the tensor ``wide`` add to one that in a dimension is only as long as ``inside``."""
    value, (first, last) = element(wide, tuple(map(name, indices))), box[dimension]
    extent = inside[1] + 1
    if kind.startswith("mirror") and not _is_near(box[dimension], extent):
        return [_periods(kind, wide, indices, box, dimension, inside)]
    below, behind = FOLDS[kind]
    x = name(indices[dimension])
    parts = [
        (x, inside, True),
        (below(x, extent), (first, Polynomial.of(-1)), False),
        (behind(x, extent), (extent, last), False),
    ]
    found: list[Contribution] = []
    for place, span, gathered in parts:
        if span in ((Polynomial(), Polynomial.of(-1)), (extent, extent - 1)):
            continue
        spans = [*box[:dimension], span, *box[dimension + 1 :]]
        ranges = tuple(
            syntax.Range(name(i), low.syntax(), (high + 1).syntax())
            for i, (low, high) in zip(indices, spans, strict=True)
        )
        subscripts = tuple(place if d == dimension else name(i) for d, i in enumerate(indices))
        found.append(Contribution(subscripts, value, ranges, gathered))
    return found


def _is_near(span: Span, extent: Polynomial) -> bool:
    reaches = (-span[0]).constant, (span[1] - extent + 1).constant
    return all(reach is not None and reach <= _NEAR for reach in reaches)


def _periods(
    kind: str, wide: str, indices: Sequence[str], box: Sequence[Span], dimension: int, inside: Span
) -> Contribution:
    """An element as the sum over all periods ``p`` of what is read there and, mirrored, in front of there."""
    extent, (first, last) = inside[1] + 1, box[dimension]
    interior = kind == "mirror_interior"
    period = greatest([extent * 2 - 2, Polynomial.of(1)]) if interior else extent * 2
    own, p = indices[dimension], "p" + "_" * sum(index.rstrip("_") == "p" for index in indices)
    x = name(own)
    step = syntax.Binary("*", period.syntax(), name(p))
    mirrored = _minus(step, x) if interior else _minus(_minus(step, x), syntax.Number("1"))
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
            syntax.Binary("<", syntax.Number("0"), x),
            syntax.Binary("<", x, (extent - 1).syntax()),
        )
        other = syntax.Conditional(conjunction(between), reflected, ZERO)
    spans = [*zip(indices, [*box[:dimension], inside, *box[dimension + 1 :]], strict=True)]
    spans.append((p, (first // period, last // period + 1)))
    ranges = tuple(syntax.Range(name(i), low.syntax(), (high + 1).syntax()) for i, (low, high) in spans)
    return Contribution(tuple(map(name, indices)), syntax.Binary("+", straight, other), ranges, gathered=True)
