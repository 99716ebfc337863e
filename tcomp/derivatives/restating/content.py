"""A def that adds to what the caller passes as ``out=``, as one that takes this content as an input, ``O_in``."""

from __future__ import annotations

from dataclasses import replace

from tcomp.derivatives.derivation import spelling, statement_of
from tcomp.derivatives.steps.intervals import interval
from tcomp.derivatives.text import element, name, range_text
from tcomp.errors import Diagnostic, UnsaidError
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span, symbolic_ranges
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function, Tensor


def with_content_as_inputs(function: Function) -> str:
    """The text of the def in which each output that needs content begins as a copy of an input behind the others.

    Raises DerivativeError where the extents of such an output cannot be said for all sizes.
    """
    boxes = symbolic_ranges(function).boxes
    taken = {*function.tensors, *function.sizes, *(i for s in function.statements for i in s.indices)}
    parameters: list[syntax.Parameter] = []
    copies: list[syntax.Statement] = []
    for given in function.needs_content:
        tensor = function.tensors[given]
        box = boxes.get(given)
        box = _declared(tensor) if box is None else box
        if box is None:
            message = f"{given} is read before it is written, and its extents cannot be said for all sizes"
            hint = f"declare them, such as `float(N) {given}`"
            raise UnsaidError(Diagnostic(message, function.source, tensor.span, hint))
        own = f"{given}_in"
        while own in taken:
            own += "_"
        taken.add(own)
        letters = [letter for letter in "ijklmnopqrstuvw" if letter not in function.tensors][: len(box)]
        indices = tuple(map(name, letters))
        dims = tuple((last - first + 1).syntax() for first, last in box)
        places = tuple(
            index if not first.terms else syntax.Binary("-", index, first.syntax())
            for index, (first, _) in zip(indices, box, strict=True)
        )
        parameters.append(syntax.Parameter(name(own), spelling(tensor), dims or None))
        ranges = tuple(range_text(letter, span) for letter, span in zip(letters, box, strict=True))
        copies.append(statement_of(given, indices, "=", element(own, places), ranges))
    definition = function.definition
    body = (*copies, *definition.body)
    return f"{replace(definition, inputs=(*definition.inputs, *parameters), body=body)}\n"


def _declared(tensor: Tensor) -> tuple[Span, ...] | None:
    """The box of declared extents, where no formula says what statements write.

    One that began elsewhere would be refused with the sizes at hand: it had more elements than are declared.
    """
    ends = [interval(dim, {}) for dim in tensor.dims or ()]
    return tuple((Polynomial(), end[1] - 1) for end in ends if end is not None) if None not in ends and ends else None
