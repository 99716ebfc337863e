"""How much arithmetic a plan does: floating-point operations, counted from domains and expressions."""

from __future__ import annotations

import math

import islpy as isl

from tcomp.grammar.tree.function import Binary, Call, Expr, Select, children
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import extents

_COUNTED = ("+", "-", "*", "/", "%", "min", "max")

_MOST_ROWS = 2_000_000
"""Rows of a domain that isl may be asked to count: about a second."""


def flops_of(plan: Plan) -> dict[str, int]:
    """Floating-point operations of each statement of the plan, what tiles compute more than once included.

    Exact, but for domains of more than ``_MOST_ROWS`` rows that are not boxes in any of their coordinates: there it is
    the number for the box around the domain.
    """
    return {s.name: flops_per_instance(s) * instances(s.domain) for s in plan.scop.statements}


def flops_per_instance(statement: ScopStatement) -> int:
    """Floating-point operations of one instance.

    ``+ - * / %``, ``min``, ``max`` and every call of a function count one, as does combining a value into the
    accumulator of a reduction; comparisons, conversions and changes of sign count nothing.  Of the branches of a
    condition the longer one counts.
    """
    combine = statement.kind == "update" and statement.value.dtype.is_float
    return _operations(statement.value) + combine


def _operations(expr: Expr) -> int:
    match expr:
        case Select():
            return _operations(expr.condition) + max(_operations(expr.then), _operations(expr.otherwise))
        case Binary():
            own = expr.op in _COUNTED and expr.dtype.is_float
        case Call():
            own = expr.dtype.is_float
        case _:
            own = False
    return own + sum(_operations(child) for child in children(expr))


def instances(domain: isl.Set) -> int:
    """The number of points of a bounded set; where it is neither a box nor small, that of the box around it."""
    if domain.is_empty():
        return 0
    product = 1
    for position in reversed(range(domain.dim(isl.dim_type.set))):
        extent, inside = _without(domain, position)
        if inside is not None:
            product, domain = product * extent, inside
    sizes = extents(domain)
    if not sizes:
        return product
    if math.prod(sizes) // max(sizes) > _MOST_ROWS:
        return product * math.prod(sizes)
    return product * int(domain.count_val().to_python())


def _without(domain: isl.Set, position: int) -> tuple[int, isl.Set | None]:
    """The extent of a coordinate and, if it has the same values whatever the others are, the set of the others."""
    kind = isl.dim_type.set
    low, high = domain.dim_min_val(position), domain.dim_max_val(position)
    extent = high.sub(low).to_python() + 1
    cylinder = domain.eliminate(kind, position, 1).lower_bound_val(kind, position, low)
    if not domain.is_equal(cylinder.upper_bound_val(kind, position, high)):
        return extent, None
    return extent, domain.project_out(kind, position, 1)
