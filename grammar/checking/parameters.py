"""Checking the head of a definition: inputs, ``const`` parameters, sizes, declared outputs."""

from __future__ import annotations

from tcomp.grammar.checking.expressions import ExpressionChecker, Place
from tcomp.grammar.checking.names import Environment, Scope, TensorEntry
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Constant, Expr, Size, Unary
from tcomp.grammar.tree.limits import MAX_INDICES
from tcomp.values.operators import INT32, TYPE_KEYWORDS


def declare_parameters(definition: syntax.Definition, environment: Environment, report: Report) -> None:
    """Enter the inputs, sizes and outputs of a definition into its environment."""
    for parameter in definition.inputs:
        if _is_free(parameter.name, environment, report):
            _enter_input(parameter, environment, report)
    _enter_sizes(definition, environment, report)
    for parameter in definition.inputs:
        entry = environment.tensors.get(parameter.name.name)
        if entry is not None and entry.span == parameter.name.span:
            entry.dims = _dimensions(parameter, environment, report)
    for parameter in definition.outputs:
        if _is_free(parameter.name, environment, report):
            environment.tensors[parameter.name.name] = _output(parameter, environment, report)


def _is_free(name: syntax.Name, environment: Environment, report: Report) -> bool:
    known = environment.kind_of(name.name)
    if known:
        report.error(f"{name} already defined", name.span, f"`{name}` is {known}")
        if name.name in environment.tensors:
            environment.tensors[name.name].failed = True
    return not known


def _rank(parameter: syntax.Parameter, report: Report) -> int:
    rank = len(parameter.dims or ())
    if rank > MAX_INDICES:
        report.error(f"a tensor has at most {MAX_INDICES} dimensions, not {rank}", parameter.span)
    return rank


def _enter_input(parameter: syntax.Parameter, environment: Environment, report: Report) -> None:
    name = parameter.name.name
    assert parameter.type is not None
    dtype = TYPE_KEYWORDS[parameter.type]
    if parameter.const:
        if not dtype.is_integer:
            report.error(f"a compile-time scalar must be an integer, not {dtype}", parameter.span)
            dtype = INT32
        environment.constants[name] = dtype
        if parameter.default is not None:
            _enter_default(parameter.default, name, environment, report)
        return
    environment.tensors[name] = TensorEntry(
        name, "input", parameter.name.span, dtype, _rank(parameter, report), declared=True, written=True
    )


def _enter_default(written: syntax.Expr, name: str, environment: Environment, report: Report) -> None:
    """The default value of a ``const`` parameter, which is an integer made of numbers."""
    before, dtype = len(report.errors), environment.constants[name]
    named = _first_name(written)
    if named is not None:
        report.error(f"the default of {name} is made of numbers only", named.span, "leave it out, and pass the value")
        return
    form = to_form(ExpressionChecker(Environment(), Scope(), report).integer(written, Place.DIMENSION), {})
    if len(report.errors) > before:
        return
    if form is None or form.terms:
        report.error(f"the default of {name} is no integer made of numbers", written.span, "write a number")
    elif not dtype.lowest <= form.constant <= dtype.highest:
        report.error(f"the default of {name} is {form.constant}, which type {dtype} cannot hold", written.span)
    else:
        environment.defaults[name] = form.constant


def _first_name(expr: syntax.Expr) -> syntax.Name | None:
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, syntax.Name):
            return node
        stack += reversed(syntax.children(node))
    return None


def _enter_sizes(definition: syntax.Definition, environment: Environment, report: Report) -> None:
    """Every identifier that is by itself a dimension of an input is a size."""
    for parameter in definition.inputs:
        for dim in parameter.dims or ():
            if not isinstance(dim, syntax.Name) or dim.name in environment.constants:
                continue
            if dim.name in environment.tensors:
                report.error(f"{dim} already defined", dim.span, f"`{dim}` is a tensor, so it cannot name a size")
            environment.sizes.setdefault(dim.name, INT32)


def _dimensions(parameter: syntax.Parameter, environment: Environment, report: Report) -> tuple[Expr, ...]:
    checker = ExpressionChecker(environment, Scope(), report)
    dims = []
    for dim in parameter.dims or ():
        if isinstance(dim, syntax.Name) and dim.name in environment.sizes:
            checked: Expr = Size(dim.name, INT32, dim.span)
        else:
            checked = checker.integer(dim, Place.DIMENSION)
        if isinstance(checked, Unary) and isinstance(checked.operand, Constant):
            report.error("a dimension cannot be negative", dim.span)
        dims.append(checked)
    return tuple(dims)


def declare_in_statement(
    declared: syntax.Declared, entry: TensorEntry, environment: Environment, report: Report
) -> None:
    """Give a tensor the type, and perhaps the extents, that stand before the first statement that writes it."""
    parameter = syntax.Parameter(syntax.Name(entry.name, entry.span), declared.type, declared.dims, span=declared.span)
    entry.dtype, entry.declared = TYPE_KEYWORDS[declared.type], True
    if declared.dims is not None:
        entry.rank = _rank(parameter, report)
        entry.dims = _dimensions(parameter, environment, report)


def _output(parameter: syntax.Parameter, environment: Environment, report: Report) -> TensorEntry:
    name, span = parameter.name.name, parameter.name.span
    if parameter.type is None:
        return TensorEntry(name, "output", span)
    entry = TensorEntry(name, "output", span, TYPE_KEYWORDS[parameter.type], _rank(parameter, report), declared=True)
    known = (*environment.sizes, *environment.constants)
    unknown = [d for d in parameter.dims or () if isinstance(d, syntax.Name) and d.name not in known]
    for dim in unknown:
        report.warn(f"no input has the size {dim}, so the extents of {name} are inferred", dim.span)
    if not unknown:
        entry.dims = _dimensions(parameter, environment, report)
    return entry
