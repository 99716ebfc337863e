"""What a boundary read outside a tensor adds to elements inside it.

The adjoint is gathered at logical coordinates first, outside the tensor, too.  Then each dimension is folded: what lies
below 0 or behind the end goes to the element that the boundary reads there.  Folds reach one period far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tcomp.derivatives.gathers import Contribution
from tcomp.derivatives.text import Expr, element, name
from tcomp.grammar.ranges.polynomials import Polynomial
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
    "repeat_image": (lambda x, n: syntax.Binary("+", x, n.syntax()), lambda x, n: _minus(x, n.syntax())),
}
"""Below 0, and behind the end."""


def folded(
    kind: str, wide: str, indices: Sequence[str], box: Sequence[Span], dimension: int, inside: Span
) -> list[Contribution]:
    """What the elements of the tensor ``wide`` add to one that in a dimension is only as long as ``inside``."""
    value, (first, last) = element(wide, tuple(map(name, indices))), box[dimension]
    extent = inside[1] + 1
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
