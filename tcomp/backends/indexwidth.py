"""Whether 32-bit integers hold every index of a program, every subscript on the way to it, and every offset."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tcomp.backends.subscripts import fixed_value
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.function import (
    PROVED,
    Binary,
    Call,
    Cast,
    Expr,
    Index,
    Read,
    Select,
    Unary,
    depends_on_data,
    walk,
)
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement

Range = tuple[int, int]

LIMIT = 2**31 - 2**16
"""Room is left for what loops run past their bounds by: tiles and grids."""


def index_type(plan: Plan) -> str:
    """The C type in which indices and offsets are computed: ``int`` wherever it suffices, else ``long long``."""
    return "int" if _largest(plan) < LIMIT else "long long"


def _largest(plan: Plan) -> int:
    largest = 0
    for storage in plan.scop.storages.values():
        span = sum(abs(s) * max(0, e - 1) for s, e in zip(storage.strides, storage.box.extent, strict=True))
        largest = max(
            largest, span + sum(abs(o) * abs(s) for o, s in zip(storage.box.origin, storage.strides, strict=True))
        )
        # Extents are named by themselves where subscripts are checked or folded, whatever the strides.
        largest = max([largest, *(abs(o) + e for o, e in zip(storage.box.origin, storage.box.extent, strict=True))])
    for buffer in plan.buffers.values():
        largest = max(largest, buffer.bytes // buffer.dtype.itemsize)
    steps = steps_between(plan)
    for statement in plan.scop.statements:
        ranges = {**steps, **_index_ranges(statement)}
        largest = max([largest, *(_period(e, plan) for e in walk(statement.value) if isinstance(e, Read))])
        integers = [e for e in walk(statement.value) if e.dtype.is_integer and not depends_on_data(e)]
        exprs = [*statement.subscripts, *integers]
        for low, high in [*ranges.values(), *(r for e in exprs for r in _within(e, ranges, plan.scop.sizes))]:
            largest = max(largest, abs(low), abs(high))
    return largest


def steps_between(plan: Plan) -> dict[str, Range]:
    """The least and the largest value of each of the steps around a plan."""
    around = plan.scop.around
    found: dict[str, Range] = {}
    for step in () if around is None else around.steps:
        position = around.values.find_dim_by_name(isl.dim_type.param, step_parameter(step)) if around else -1
        own = around.values.move_dims(isl.dim_type.set, 0, isl.dim_type.param, position, 1) if around else None
        assert own is not None and position >= 0, "steps are parameters"
        found[step] = (own.dim_min_val(0).to_python(), own.dim_max_val(0).to_python())
    return found


def _period(read: Read, plan: Plan) -> int:
    """After how many elements what a mirror shows comes again; 0 if there is none."""
    mirrored = read.boundary is not None and read.boundary.kind.startswith("mirror")
    return 2 * max(plan.scop.storages[read.tensor].box.extent, default=0) if mirrored else 0


def _index_ranges(statement: ScopStatement) -> dict[str, Range]:
    domain: isl.Set = statement.domain
    return {
        index: (domain.dim_min_val(d).to_python(), domain.dim_max_val(d).to_python())
        for d, index in enumerate(statement.indices)
    }


def _within(expr: Expr, ranges: Mapping[str, Range], sizes: Mapping[str, int]) -> list[Range]:
    """The ranges of an affine expression and of everything in it, its own first; empty where it depends on data."""
    number = fixed_value(expr, sizes)
    if number is not None:
        return [(number, number)]
    if depends_on_data(expr):
        return []
    match expr:
        case Index():
            return [ranges[expr.name]]
        case Call(intrinsic=intrinsic, arguments=(argument,)) if intrinsic in PROVED:
            inner = _within(argument, ranges, sizes)
            largest = max(map(abs, inner[0]))
            return [(-largest, largest), *inner]
        case Unary() | Cast():
            inner = _within(expr.operand, ranges, sizes)
            return [(-inner[0][1], -inner[0][0]), *inner] if isinstance(expr, Unary) else inner
        case Select():
            then, otherwise = _within(expr.then, ranges, sizes), _within(expr.otherwise, ranges, sizes)
            union = (min(then[0][0], otherwise[0][0]), max(then[0][1], otherwise[0][1]))
            return [union, *then, *otherwise]
        case Binary():
            a, b = _within(expr.lhs, ranges, sizes), _within(expr.rhs, ranges, sizes)
            return [_combined(expr.op, a[0], b[0]), *a, *b]
        case _:
            return [(-LIMIT, LIMIT)]


def _combined(operator: str, a: Range, b: Range) -> Range:
    match operator:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case _:
            # Quotients, remainders, extrema and comparisons are no larger than what they are made of.
            largest = max(map(abs, (*a, *b)))
            return -largest, largest
