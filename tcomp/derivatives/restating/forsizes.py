"""A def for some sizes alone, where no formula says its extents for all: numbers in place of sizes and of ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcomp.derivatives.derivation import spelling
from tcomp.derivatives.text import integer, is_double_as_text, name, target_subscripts, to_syntax
from tcomp.derivatives.versions import depends_on_indices
from tcomp.grammar.ranges.ranges import Box, infer
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.forms import Interval
from tcomp.grammar.tree.function import (
    Constant,
    Expr,
    Function,
    Index,
    Size,
    Statement,
    map_children,
)


def for_sizes(function: Function, sizes: Mapping[str, int]) -> str:
    """The text of a def with numbers in place of ``sizes`` and of all that they lead to.

    Every index has its range, and what begins at 0 its extents.  The def has no blocks of steps.

    Raises:
        ShapeError: the sizes do not suit the def.
    """
    found = infer(function, sizes)
    body: list[syntax.Statement] = []
    seen: set[str] = set()
    for statement, written, domain in zip(
        function.statements, syntax.statements(function.definition.body), found.domains, strict=True
    ):
        tensor, box = function.tensors[statement.target], found.boxes[statement.target]
        has_type = tensor.role == "output" and not any(box.origin)
        declared = None if written.declared is None or has_type else syntax.Declared(written.declared.type)
        if tensor.role == "temporary" and tensor.name not in seen and tensor.rank and not any(box.origin):
            declared = syntax.Declared(spelling(tensor), _dims(box))
        seen.add(tensor.name)
        body.append(_written(_with_numbers(statement, sizes), written, declared, domain.hull))
    inputs, outputs = (
        tuple(_parameter(p, function, found.boxes) for p in parameters)
        for parameters in (function.definition.inputs, function.definition.outputs)
    )
    return f"{replace(function.definition, inputs=inputs, outputs=outputs, body=tuple(body))}\n"


def _parameter(parameter: syntax.Parameter, function: Function, boxes: Mapping[str, Box]) -> syntax.Parameter:
    """With its extents as numbers; those of an output that does not begin at 0 follow from its statements."""
    tensor = function.tensors[parameter.name.name]
    if tensor.role == "const":
        return parameter
    box = boxes[tensor.name]
    if any(box.origin):
        return replace(parameter, type=None, dims=None)
    return replace(parameter, type=spelling(tensor), dims=_dims(box) or None)


def _dims(box: Box) -> tuple[syntax.Expr, ...]:
    return tuple(syntax.Number(str(extent)) for extent in box.extent)


def _with_numbers(statement: Statement, sizes: Mapping[str, int]) -> Statement:
    def known(expr: Expr) -> Expr:
        return (
            Constant(sizes[expr.name], expr.dtype, expr.span) if isinstance(expr, Size) else map_children(expr, known)
        )

    ranges = tuple(replace(r, lower=known(r.lower), upper=known(r.upper)) for r in statement.ranges)
    return replace(
        statement, subscripts=tuple(map(known, statement.subscripts)), value=known(statement.value), ranges=ranges
    )


def _written(
    statement: Statement,
    before: syntax.Statement,
    declared: syntax.Declared | None,
    hull: Mapping[str, Interval],
) -> syntax.Statement:
    """A checked statement as text, with a range for each of its indices."""
    given = {
        r.index: (to_syntax(r.lower, {}), to_syntax(r.upper, {})) for r in statement.ranges if depends_on_indices(r)
    }
    from_data = tuple(
        syntax.Range(name(within.index.name), to_syntax(within.lower, {}), to_syntax(within.upper, {}))
        for within in ranges_of(statement.value)
        if isinstance(within.index, Index)
    )
    for index in statement.indices:
        low, high = hull[index]
        given.setdefault(index, (integer(low), integer(high + 1)))
    computed = inside_ranges(statement.value)
    value = to_syntax(computed, {})
    if computed.dtype.name == "float64" and not is_double_as_text(computed):
        value = syntax.Cast("double", value)
    subscripts = target_subscripts(statement, {}) or None
    clauses = tuple(syntax.Range(name(index), *bounds) for index, bounds in given.items())
    return replace(before, subscripts=subscripts, value=value, clauses=(*from_data, *clauses), declared=declared)
