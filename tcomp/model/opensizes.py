"""Programs some of whose sizes are left open: domains with these sizes as parameters, and what has to hold for that.

Inference is for given sizes.  ``symbolic.py`` has the same ranges as formulas, of which the domains are made here; that
they are those of inference is tried for the least and the largest sizes when a kernel is made, and for each new size
when it is first called (``OpenSizes.check``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NoReturn

import islpy as isl

from tcomp.errors import CompileError, Diagnostic, ShapeError, Span
from tcomp.grammar.ranges.affine import form_to_pw_aff, step_parameter, to_pw_aff
from tcomp.grammar.ranges.polynomials import Atom, Polynomial, Quotient
from tcomp.grammar.ranges.ranges import Ranges, StatementDomain, infer
from tcomp.grammar.ranges.symbolic import Symbolic, symbolic_ranges
from tcomp.grammar.tree.forms import index_form, to_form
from tcomp.grammar.tree.function import (
    Expr,
    Function,
    Index,
    Read,
    Size,
    Statement,
    Within,
    depends_on_data,
    map_children,
    walk,
)
from tcomp.model.accesses import Frame, element_map, elements_of, guarded_reads
from tcomp.model.around import Around
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.sizes import Sizes
from tcomp.model.terms.storages import OpenBox
from tcomp.values.operators import INT32

_SET, _PARAM = isl.dim_type.set, isl.dim_type.param


@dataclass(frozen=True, slots=True)
class OpenProgram:
    """A function whose open sizes are parameters: its statements, their domains, and the boxes at the largest sizes."""

    function: Function
    ranges: Ranges
    around: Around
    boxes: Mapping[str, OpenBox]
    """Those of each tensor that callers have."""


def check_sizes_of(function: Function, symbolic: Symbolic, values: Mapping[str, int]) -> Ranges:
    """What inference finds for given sizes, which is what the formulas say.

    Raises ShapeError and CompileError as inference does, and CompileError where it is something else.
    """
    ranges = infer(function, values)
    if not symbolic.agrees(ranges):
        sizes = ", ".join(f"{name}={value}" for name, value in values.items())
        _refuse(function, f"the ranges of {function.name} at {sizes} are not those of one formula for all sizes")
    return ranges


def open_program(function: Function, sizes: Sizes) -> OpenProgram:
    """A function with the sizes in ``sizes.open`` as parameters.

    Raises CompileError with the reason where that cannot be, and what inference raises for the least and the largest
    sizes.
    """
    symbolic = symbolic_ranges(function)
    largest = check_sizes_of(function, symbolic, sizes.values)
    for values in _corners(sizes):
        try:
            check_sizes_of(function, symbolic, values)
        except (ShapeError, CompileError) as error:
            raise type(error)(*(_with_size(diagnostic, sizes) for diagnostic in error.diagnostics)) from None
    parameters = _Parameters(sizes)
    boxes = _boxes(function, symbolic, parameters)
    _check_accesses(function, boxes, parameters)
    domains = []
    statements = []
    for number, statement in enumerate(function.statements):
        found = largest.domains[number]
        if found.is_empty or set(symbolic.ranges[number]) != set(statement.indices):
            _refuse(function, "the ranges of this statement are no formulas of sizes", statement.span)
        opened = _opened(statement, sizes)
        statements.append(opened)
        domain = parameters.domain(number, opened, found, symbolic)
        if domain is None:
            names = " and ".join(sizes.open)
            _refuse(function, f"the ranges of this statement are not linear in {names}", statement.span)
        domains.append(domain)
        for subscript in opened.subscripts:
            if not depends_on_data(subscript) and to_pw_aff(subscript, domain.domain.get_space(), sizes.values) is None:
                names = " and ".join(sizes.open)
                _refuse(function, f"this subscript is not linear in the indices and {names}", subscript.span)
    changed = replace(function, statements=tuple(statements))
    ranges = Ranges(largest.sizes, largest.boxes, tuple(domains), largest.warnings)
    around = Around(tuple(sizes.open), parameters.values.params(), open=True)
    return OpenProgram(changed, ranges, around, boxes)


def prove_inside(function: Function, scop: Scop) -> None:
    """Prove that whatever the open sizes, no instance leaves a tensor of the caller, or the room of a temporary.

    Raises CompileError.
    """
    found = access_outside(scop)
    if found is not None:
        statement, name, outside = found
        span = function.statements[statement.origin].span
        _refuse(function, f"this statement leaves {name} for some sizes, such as {outside}", span)


def access_outside(scop: Scop) -> tuple[ScopStatement, str, isl.Point] | None:
    """A statement that leaves a storage for some open sizes, that storage, and where; None if no statement does.

    What data choose is checked when the kernel runs.
    """
    boxes = {s.name: s.box for s in scop.storages.values()}
    for statement in scop.statements:
        domain = statement.domain
        for d, index in enumerate(statement.indices):
            domain = domain.set_dim_name(_SET, d, index)
        frame = Frame(domain, scop.sizes, boxes)
        accesses = [(statement.target, statement.subscripts, frame)]
        for expr in (statement.value, *statement.subscripts):
            reads = guarded_reads(frame, expr)
            accesses += [(read.tensor, read.subscripts, where) for read, where in reads if read.boundary is None]
        for name, subscripts, where in accesses:
            touched, there = element_map(where, name, subscripts).range(), elements_of(scop.storages[name])
            for d in reversed([d for d, s in enumerate(subscripts) if depends_on_data(s)]):
                touched, there = (s.project_out(_SET, d, 1).set_tuple_name(name) for s in (touched, there))
            if not touched.is_subset(there):
                return statement, name, touched.subtract(there).sample_point()
    return None


def _with_size(diagnostic: Diagnostic, sizes: Sizes) -> Diagnostic:
    """What is wrong with the least or the largest sizes, which are in its text."""
    values = " and ".join(f"{name} may be {own}" for name, own in sizes.open.items())
    hint = f"{values} here; leave open what the program is made for, by tcomp.range(first, last)"
    return replace(diagnostic, hint=hint)


def _corners(sizes: Sizes) -> Iterator[dict[str, int]]:
    """The least and the largest values of all open sizes, in all combinations of up to four of them."""
    names = list(sizes.open)[:4]
    for chosen in product(*((sizes.open[n].first, sizes.open[n].last) for n in names)):
        low = {name: sizes.open[name].first for name in sizes.open}
        yield {**sizes.values, **low, **dict(zip(names, chosen, strict=True))}


def _refuse(function: Function, why: str, span: Span | None = None) -> NoReturn:
    names = function.definition.name.span if span is None else span
    hint = "leave fewer sizes open: those that are numbers get a kernel for each"
    raise CompileError(Diagnostic(why, function.source, names, hint))


def _boxes(function: Function, symbolic: Symbolic, parameters: _Parameters) -> dict[str, OpenBox]:
    """The boxes of tensors, those of temporaries where they are known.

    Refuse arrays of callers that begin elsewhere for other sizes, or are not in C order and have open sizes inside.
    """
    sizes = parameters.sizes
    found: dict[str, OpenBox] = {}
    for tensor in function.tensors.values():
        if tensor.role == "const" or not tensor.rank:
            continue
        if tensor in function.temporaries:
            elements = parameters.box(tensor.name, symbolic) if tensor.name in symbolic.boxes else None
            own = symbolic.boxes.get(tensor.name, ())
            if elements is not None and not any(_names(first) & set(sizes.open) for first, _ in own):
                extents = [last - first + 1 if _names(last) & set(sizes.open) else None for first, last in own]
                found[tensor.name] = OpenBox(tuple(extents), elements)
            continue
        if tensor.name not in symbolic.boxes:
            _refuse(function, f"the extents of {tensor.name} are no formulas of sizes", tensor.span)
        extents = []
        for first, last in symbolic.boxes[tensor.name]:
            if _names(first) & set(sizes.open):
                name = min(_names(first) & set(sizes.open))
                _refuse(function, f"{tensor.name} begins at {first}, which changes with {name}", tensor.span)
            extents.append(last - first + 1 if _names(last) & set(sizes.open) else None)
        if any(extents[1:]) and tensor.name in sizes.strides:
            why = f"{tensor.name} is not in C order, and has an open size behind its first dimension"
            raise ShapeError(Diagnostic(why, function.source, tensor.span, "pass a copy in C order"))
        elements = parameters.box(tensor.name, symbolic)
        if elements is None:
            _refuse(function, f"the extents of {tensor.name} are not linear in {' and '.join(sizes.open)}")
        found[tensor.name] = OpenBox(tuple(extents), elements)
    used = {name.name for p in function.inputs for e in p.dims or () for name in walk(e) if isinstance(name, Size)}
    for name in sizes.open:
        if name not in used:
            raise ShapeError(f"{function.name}: {name} is no size of an array")
    return found


def _check_accesses(function: Function, boxes: Mapping[str, OpenBox], parameters: _Parameters) -> None:
    """Refuse what needs an extent as a number, and elements that data choose where there may be none."""
    for statement in function.statements:
        if any(isinstance(node, Within) for expression in statement.expressions() for node in walk(expression)):
            _refuse(function, "this range comes from data, whose ends are checked for numbers", statement.span)
        reads = [node for e in statement.expressions() for node in walk(e) if isinstance(node, Read)]
        accesses = [(read.tensor, read.subscripts, read.span) for read in reads]
        for tensor, subscripts, span in (*accesses, (statement.target, statement.subscripts, statement.span)):
            chosen = [d for d, s in enumerate(subscripts) if depends_on_data(s)]
            box = boxes.get(tensor)
            if box is None and chosen and function.tensors[tensor].role != "const":
                _refuse(function, f"data choose an element of {tensor}, whose extents are no formulas of sizes", span)
            if box is None or not any(box.extents[d] is not None for d in chosen):
                continue
            if not parameters.values.params().is_subset(box.elements.params()):
                _refuse(function, f"data choose an element of {tensor}, which has none for some sizes", span)
        for read in reads:
            _check_boundary(function, read, boxes.get(read.tensor), parameters)


def _check_boundary(function: Function, read: Read, box: OpenBox | None, parameters: _Parameters) -> None:
    """Refuse a read outside a tensor whose end the model of accesses does not know."""
    if read.boundary is None or function.tensors[read.tensor].role == "const":
        return
    if box is None:
        _refuse(function, f"a read outside of {read.tensor} needs to know its extents", read.span)
    if not any(e is not None for e in box.extents) or read.boundary.kind == "constant_exterior":
        return
    if function.tensors[read.tensor].role != "input":
        _refuse(function, f"{read.boundary.kind} of {read.tensor}, which is computed here, has no fixed end", read.span)
    if not parameters.values.params().is_subset(box.elements.params()):
        _refuse(function, f"{read.boundary.kind} of {read.tensor}, which has no elements for some sizes", read.span)


def _names(polynomial: Polynomial) -> set[str]:
    """The sizes in a formula."""
    found: set[str] = set()
    for monomial, _ in polynomial.terms:
        for atom in monomial:
            match atom:
                case str():
                    found.add(atom)
                case Quotient():
                    found |= _names(atom.numerator) | _names(atom.divisor)
                case _:
                    found |= {name for operand in atom.operands for name in _names(operand)}
    return found


def _opened(statement: Statement, sizes: Sizes) -> Statement:
    """A statement in which open sizes are what steps around it would be."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Size) and expr.name in sizes.open:
            return Index(expr.name, INT32, expr.span)
        return map_children(expr, change)

    return replace(
        statement,
        value=change(statement.value),
        subscripts=tuple(map(change, statement.subscripts)),
        ranges=tuple(replace(r, lower=change(r.lower), upper=change(r.upper)) for r in statement.ranges),
    )


class _Parameters:
    """Sets with the open sizes as parameters; ``values`` are those that they may have."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.fixed = {name: value for name, value in sizes.values.items() if name not in sizes.open}
        self.head = f"[{', '.join(map(step_parameter, sizes.open))}] -> "
        conditions = [
            f"{own.first} <= {step_parameter(name)} <= {own.last} and {step_parameter(name)} mod {own.multiple} = 0"
            for name, own in sizes.open.items()
        ]
        self.values = isl.Set(f"{self.head}{{ : {' and '.join(conditions)} }}")

    def domain(
        self, number: int, statement: Statement, found: StatementDomain, symbolic: Symbolic
    ) -> StatementDomain | None:  # fmt: skip
        """The domain of a statement; None where it is not linear."""
        outer = statement.indices[: len(statement.indices) - len(statement.reduction_indices)]
        whole = self._points(number, statement, statement.indices, symbolic)
        lhs = whole if len(outer) == len(statement.indices) else self._points(number, statement, outer, symbolic)
        if whole is None or lhs is None:
            return None
        hull = {
            name: (whole.dim_min_val(d).to_python(), whole.dim_max_val(d).to_python())
            for d, name in enumerate(statement.indices)
        }
        return StatementDomain(statement.indices, whole, lhs, hull, found.rectangular)

    def _points(
        self, number: int, statement: Statement, indices: tuple[str, ...], symbolic: Symbolic
    ) -> isl.Set | None:
        dims = [f"i{d}" for d in range(len(indices))]
        given = {r.index: r for r in statement.ranges if _mentions(r.lower, statement) or _mentions(r.upper, statement)}
        conditions = []
        for dim, name in zip(dims, indices, strict=True):
            low, high = (self.text(bound) for bound in symbolic.ranges[number][name])
            if low is None or high is None:
                return None
            conditions.append(f"{low} <= {dim} <= {high}")
        points = isl.Set(f"{self.head}{{ S{number}[{', '.join(dims)}] : {' and '.join(conditions) or 'true'} }}")
        for d, name in enumerate(indices):
            points = points.set_dim_name(_SET, d, name)
        points = points.intersect_params(self.values.params())
        space = points.get_space()
        for name in indices:
            if name not in given:
                continue
            bounds = [to_form(bound, self.fixed) for bound in (given[name].lower, given[name].upper)]
            if bounds[0] is None or bounds[1] is None:
                return None
            own = index_form(name)
            for form in (own.add(bounds[0], -1), bounds[1].add(own, -1).plus(-1)):
                value = form_to_pw_aff(form, space)
                if value is not None:
                    points = points.intersect(value.nonneg_set())
        return points

    def box(self, name: str, symbolic: Symbolic) -> isl.Set | None:
        """The elements of a tensor."""
        dims = [f"i{d}" for d in range(len(symbolic.boxes[name]))]
        conditions = []
        for dim, (first, last) in zip(dims, symbolic.boxes[name], strict=True):
            low, high = self.text(first), self.text(last)
            if low is None or high is None:
                return None
            conditions.append(f"{low} <= {dim} <= {high}")
        points = isl.Set(f"{self.head}{{ [{', '.join(dims)}] : {' and '.join(conditions)} }}")
        return points.set_tuple_name(name)

    def text(self, polynomial: Polynomial) -> str | None:
        """A formula for isl; None where it is not linear in the open sizes."""
        terms = []
        for monomial, coefficient in polynomial.terms:
            factor, parts = coefficient, []
            for atom in monomial:
                known = self._atom(atom)
                if known is None:
                    return None
                if isinstance(known, int):
                    factor *= known
                else:
                    parts.append(known)
            if len(parts) > 1:
                return None
            terms.append(f"{factor} * {parts[0]}" if parts else str(factor))
        return " + ".join(terms) or "0"

    def _atom(self, atom: Atom) -> int | str | None:
        match atom:
            case str():
                return self.fixed[atom] if atom in self.fixed else step_parameter(atom)
            case Quotient():
                divisor, numerator = self.text(atom.divisor), self.text(atom.numerator)
                if divisor is None or numerator is None or _names(atom.divisor) & set(self.sizes.open):
                    return None
                return f"floor(({numerator}) / {atom.divisor.value(self.fixed)})"
            case _:
                operands = [self.text(operand) for operand in atom.operands]
                if None in operands:
                    return None
                text, *others = [f"({operand})" for operand in operands]
                for other in others:
                    text = f"{atom.op}({text}, {other})"
                return text


def _mentions(bound: Expr, statement: Statement) -> bool:
    return any(isinstance(node, Index) and node.name in statement.indices for node in walk(bound))
