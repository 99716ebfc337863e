"""Range inference: the extents of every tensor and the iteration domain of every statement, for given sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import islpy as isl

from tcomp.errors import CompileError, Diagnostic, ShapeError
from tcomp.grammar.ranges.bounds import Program, prove
from tcomp.grammar.ranges.domains import Box, StatementDomain, statement_domain
from tcomp.grammar.ranges.doubts import narrowed, overflows, wrapped
from tcomp.grammar.ranges.inference import Inference
from tcomp.grammar.ranges.sizes import bind_sizes, check_sizes, extents
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Function

__all__ = ["Box", "Ranges", "StatementDomain", "bind_sizes", "infer", "solvable"]

_OPERATIONS, _EACH, _MOST_OPERATIONS = 200_000, 12_000, 800_000
"""What isl may take for a function, so much more for each statement, as derived texts have many, and at most: 3 s."""

_MOST_WAYS = 3
"""Ways by which calls lead to one place that an error names."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """What inference finds: the sizes it was given, a box per tensor, a domain per statement, what is suspicious."""

    sizes: dict[str, int]
    boxes: dict[str, Box]
    domains: tuple[StatementDomain, ...]
    warnings: tuple[Diagnostic, ...] = ()


def infer(function: Function, sizes: Mapping[str, int]) -> Ranges:
    """Find the extents of every tensor and the domain of every statement, and prove every access inside its tensor.

    Args:
        function: a checked program.
        sizes: the value of every size symbol and const parameter; those with a default may be left out.

    Returns:
        The ranges.  Logical coordinates stay as written: a box says where each tensor starts.

    Raises:
        ShapeError: an access outside its tensor, an empty range, extents that contradict an annotation, a size that
            is missing, index arithmetic that leaves 64 bits, or index expressions too complex to analyse.
        CompileError: an element is read before it is written or handed out unwritten, or ``=`` writes one twice.
    """
    check_sizes(function, sizes)
    sizes = {**function.defaults, **sizes}
    declared = {t.name: extents(function, t, sizes) for t in function.tensors.values() if t.dims is not None}
    try:
        with _bounded(function):
            return _infer(function, {name: int(value) for name, value in sizes.items()}, declared)
    except (ShapeError, CompileError) as error:
        raise type(error)(*(_with_calls(diagnostic, function) for diagnostic in error.diagnostics)) from None


def _infer(function: Function, sizes: dict[str, int], declared: Mapping[str, tuple[int, ...]]) -> Ranges:
    inference = Inference(function, sizes, declared)
    inference.run()
    boxes = inference.boxes()
    if inference.problems:
        raise ShapeError(*inference.problems)
    domains = tuple(
        statement_domain(number, statement, solved.hull, solved.dependent)
        for number, (statement, solved) in enumerate(zip(function.statements, inference.solved, strict=True))
        if solved is not None
    )
    too_far = tuple(overflows(function, sizes, domains))
    if too_far:
        raise ShapeError(*too_far)
    misfits, mistakes = prove(Program(function, sizes, boxes, domains, tuple(s.reads for s in inference.solved if s)))
    if misfits:
        raise ShapeError(*misfits)
    if mistakes:
        raise CompileError(*mistakes)
    doubts = (*wrapped(function, sizes, domains), *narrowed(function, sizes, boxes, domains))
    told = (*inference.warnings, *doubts)
    return Ranges(sizes, boxes, domains, told)


def _with_calls(diagnostic: Diagnostic, function: Function) -> Diagnostic:
    """A finding in an inlined statement, with the calls that may have brought it here."""
    span = diagnostic.span
    if span is None or not function.inlined:
        return diagnostic
    ways = islice((way for call in function.inlined for way in call.leading_to(span)), _MOST_WAYS)
    calls = dict.fromkeys(call for way in ways for call in way)
    notes = (Diagnostic(f"{c.name} is called here", function.source, c.span, severity="note") for c in calls)
    return replace(diagnostic, notes=(*diagnostic.notes, *notes))


def solvable(function: Function) -> tuple[Diagnostic, ...]:
    """What inference cannot solve whatever the sizes: variables without a range.

    The solver runs with large distinct values in place of the sizes; only which variables it bounds counts.
    """
    sizes = {name: 1_000_003 + 10_007 * number for number, name in enumerate(function.sizes)}
    constants = [tensor.name for tensor in function.inputs if tensor.role == "const"]
    sizes |= {name: 2 + number for number, name in enumerate(constants)}
    declared: dict[str, tuple[int, ...]] = {}
    for tensor in function.tensors.values():
        if tensor.dims is not None:
            values = [to_form(expr, sizes) for expr in tensor.dims]
            declared[tensor.name] = tuple(1_000_003 if v is None or v.constant < 1 else v.constant for v in values)
    inference = Inference(function, sizes, declared)
    try:
        with _bounded(function):
            inference.run()
    except ShapeError as error:
        return error.diagnostics
    return tuple(inference.unsolved)


@contextmanager
def _bounded(function: Function) -> Iterator[None]:
    """Bound isl's work, so that a hostile program ends in an error and not in a hang."""
    context = isl.DEFAULT_CONTEXT
    previous = context.get_max_operations()
    context.reset_operations()
    context.set_max_operations(min(_OPERATIONS + _EACH * len(function.statements), _MOST_OPERATIONS))
    try:
        yield
    except isl.Error as error:
        message = "the index expressions are too complex to analyse"
        raise ShapeError(Diagnostic(message, function.source, function.definition.name.span)) from error
    finally:
        context.set_max_operations(previous)
        context.reset_operations()
