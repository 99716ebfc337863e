"""What is doubtful: integers that do not fit, and ranges that end at a read whose guard would have kept it inside.

Index arithmetic that leaves 64 bits is refused, values of sizes that wrap are told.  Index arithmetic is proved in
unbounded integers and done in 64 bits.  Values are computed in their type, which is ``int32`` for sizes and indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import islpy as isl

from tcomp.errors import Diagnostic, Span
from tcomp.grammar.ranges.accesses import Access, accesses
from tcomp.grammar.ranges.affine import to_val, where_may_hold
from tcomp.grammar.ranges.domains import Box, StatementDomain
from tcomp.grammar.ranges.products import bounds_of
from tcomp.grammar.ranges.sizes import LARGEST
from tcomp.grammar.ranges.wording import text_of
from tcomp.grammar.tree.forms import Interval, interval, variables
from tcomp.grammar.tree.function import (
    Binary,
    Cast,
    Constant,
    Expr,
    Function,
    Index,
    Read,
    Size,
    Statement,
    children,
    walk,
)

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def overflows(
    function: Function, sizes: Mapping[str, int], domains: tuple[StatementDomain, ...]
) -> Iterator[Diagnostic]:
    """Indices that reach ``LARGEST``, and parts of subscripts and conditions that leave 64 bits."""
    for statement, domain in zip(function.statements, domains, strict=True):
        if domain.is_empty:
            continue
        for name, (low, high) in domain.hull.items():
            if min(low, high) <= -LARGEST or max(low, high) >= LARGEST:
                message = f"index {name} goes from {low} to {high}, which is too far for 64-bit indices"
                yield Diagnostic(message, function.source, statement.span)
        for expr in _index_arithmetic(statement):
            reach = _reach(expr, sizes, domain)
            if reach is not None and (reach[0] < _LOWEST or reach[1] > _HIGHEST):
                text = text_of(function, expr.span)
                message = f"{text} goes from {reach[0]} to {reach[1]}, but indices are computed in 64 bits"
                yield Diagnostic(message, function.source, expr.span)
                break


def _index_arithmetic(statement: Statement) -> Iterator[Expr]:
    """Subscripts, operands of integer comparisons, and all parts of these."""
    roots = list(statement.subscripts)
    for expr in statement.expressions():
        for node in walk(expr):
            if isinstance(node, Read):
                roots += node.subscripts
            elif isinstance(node, Binary) and node.dtype.kind == "bool" and node.lhs.dtype.is_integer:
                roots += (node.lhs, node.rhs)
    for root in roots:
        yield from walk(root)


def _reach(expr: Expr, sizes: Mapping[str, int], domain: StatementDomain) -> Interval | None:
    if isinstance(expr, (Index, Constant)) or not expr.dtype.is_integer:
        return None
    return bounds_of(expr, sizes, domain.hull)


def wrapped(
    function: Function, sizes: Mapping[str, int], domains: tuple[StatementDomain, ...]
) -> Iterator[Diagnostic]:  # fmt: skip
    """Warnings of sums, differences and products of sizes and indices, as values, that leave their type."""
    told: set[Span] = set()
    for statement, domain in zip(function.statements, domains, strict=True):
        if domain.is_empty:
            continue
        for expr in _sized_values(statement.value):
            reach = bounds_of(expr, sizes, domain.hull)
            if reach is None or any(expr.span.start <= t.start and t.end <= expr.span.end for t in told):
                continue
            if reach[0] < expr.dtype.lowest or reach[1] > expr.dtype.highest:
                told.add(expr.span)
                text, far = text_of(function, expr.span), reach[1] if reach[1] > expr.dtype.highest else reach[0]
                message = f"{text} reaches {far}, which {expr.dtype} cannot hold, so that it wraps"
                first = text_of(function, expr.lhs.span)
                hint = f"convert an operand, as in `int64({first.strip('`')})` or `float(...)`"
                yield Diagnostic(message, function.source, expr.span, hint, "warning")


def _sized_values(value: Expr) -> Iterator[Binary]:
    """Sums and products of sizes of an integer type, innermost first, outside of subscripts and conditions."""
    match value:
        case Read():
            return
        case Binary(op="+" | "-" | "*") if value.dtype.kind == "int" and _is_sized(value):
            yield from _sized_values(value.lhs)
            yield from _sized_values(value.rhs)
            yield value
        case Binary() if value.dtype.kind == "bool":
            return
        case _:
            for child in children(value):
                yield from _sized_values(child)


def _is_sized(expr: Expr) -> bool:
    """Whether an expression is made of sizes, indices and numbers, some of them no numbers."""
    parts = list(walk(expr))
    return all(isinstance(e, (Binary, Cast, Constant, Index, Size)) for e in parts) and any(
        isinstance(e, (Index, Size)) for e in parts
    )


_FARTHEST = 64
"""Elements that a hint looks for beyond the end of a range."""


def narrowed(
    function: Function, sizes: Mapping[str, int], boxes: Mapping[str, Box], domains: tuple[StatementDomain, ...]
) -> Iterator[Diagnostic]:
    """Warnings of ranges that end where a guarded read would leave its tensor, so that its guard leaves nothing out.

    Guards take no part in inference: in ``t > 0 ? X(t-1) : 0.0`` the read begins the range at 1.
    """
    for statement, domain in zip(function.statements, domains, strict=True):
        target = function.tensors.get(statement.target)
        if domain.is_empty or not domain.rectangular or (target is not None and target.dims is not None):
            continue
        found = [a for a in accesses(statement, sizes) if a.emitted and None not in a.forms]
        if not any(a.guards for a in found):
            continue
        given = {one.index for one in statement.ranges}
        for name, (low, high) in domain.hull.items():
            if name in given:
                continue
            ends = _Ends(found, domain, sizes, boxes, name)
            for edge, step in ((low - 1, -1), (high + 1, 1)):
                if (told := ends.guarded_beyond(edge)) is None:
                    continue
                far = edge
                while abs(far - edge) < _FARTHEST and ends.guarded_beyond(far + step) is not None:
                    far += step
                text = text_of(function, told.read.span)
                message = (
                    f"{text} ends the range of {name} ({low}:{high + 1}), so that its condition leaves nothing out"
                )
                wider = f"`where {name} in {min(low, far)}:{max(high, far) + 1}`"
                hint = f"conditions make no range wider; say it, as in {wider}"
                yield Diagnostic(message, function.source, told.read.span, hint, "warning")


class _Ends:
    """What the reads of a statement would do beyond the range of an index."""

    def __init__(
        self,
        found: Sequence[Access],
        domain: StatementDomain,
        sizes: Mapping[str, int],
        boxes: Mapping[str, Box],
        name: str,
    ) -> None:
        self.found, self.domain, self.sizes, self.boxes, self.name = found, domain, sizes, boxes, name

    def guarded_beyond(self, edge: int) -> Access | None:
        """A read outside its tensor there, if all such are guarded there, and nowhere within; others must be inside."""
        hull = {**self.domain.hull, self.name: (edge, edge)}
        mine = [a for a in self.found if any(self.name in variables(form) for form in a.forms if form is not None)]
        beyond = [a for a in mine if self._leaves(a, hull)]
        if not beyond or len(beyond) == len(mine) or not all(a.guards for a in beyond):
            return None
        space = self.domain.domain.get_space()
        points = isl.Set.universe(space)
        for position, index in enumerate(self.domain.indices):
            low, high = hull[index]
            points = points.lower_bound_val(isl.dim_type.set, position, to_val(low, space))
            points = points.upper_bound_val(isl.dim_type.set, position, to_val(high, space))
        for access in beyond:
            taken = isl.Set.universe(space)
            for condition, truth in access.guards:
                taken = taken.intersect(where_may_hold(condition, truth, space, self.sizes))
            if not points.intersect(taken).is_empty() or not self.domain.domain.is_subset(taken):
                return None
        return beyond[0]

    def _leaves(self, access: Access, hull: Mapping[str, Interval]) -> bool:
        if access.read.boundary is not None:
            return False
        box = self.boxes[access.read.tensor]
        for dimension, form in enumerate(access.forms):
            assert form is not None
            low, high = interval(form, hull)
            first, last = box.interval(dimension)
            if low < first or high > last:
                return True
        return False
