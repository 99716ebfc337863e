"""What is fixed for a kernel by the arguments of a call, or by ``sizes=`` instead of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcomp.arrays.arrays import kind_of
from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.ranges.sizes import bind_sizes, check_sizes
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.grammar.tree.function import Function, depends_on_data
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.arguments import constant
from tcomp.runtime.calls import Call
from tcomp.runtime.specialisation import strides_of
from tcomp.storage.forks import ISL


def sizes_of(call: Call) -> Sizes:
    """What the arrays of a call fix: sizes, and the strides of those that are not in C order."""
    return Sizes(bind_sizes(call.function, call.shapes, call.constants), strides_of(call.views))


def given_sizes(function: Function, sizes: Mapping[str, int]) -> Sizes:
    """The value of every size symbol and ``const`` parameter, checked, for arrays in C order.  Raises ShapeError."""
    if not isinstance(sizes, Mapping):
        raise ShapeError(f"sizes= takes a mapping from names to integers, not {type(sizes).__name__}")
    sizes = {**function.defaults, **sizes}
    constants = {t.name: t for t in function.inputs if t.role == "const"}
    known = (*function.sizes, *constants)
    unknown = [name for name in sizes if name not in known]
    if unknown:
        raise ShapeError(*(_unknown_size(function, name, known) for name in unknown))
    check_sizes(function, sizes)
    for name, tensor in constants.items():
        constant(sizes[name], tensor, function.source)
    return Sizes({name: int(sizes[name]) for name in known})


def result_types(function: Function, arguments: tuple[Any, ...]) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
    """The shape and the type of each output, for arrays or whatever has their ``shape``.  Raises ShapeError."""
    arguments = function.completed(arguments)
    if len(arguments) != len(function.inputs):
        names = ", ".join(t.name for t in function.inputs)
        raise ShapeError(f"{function.name}: expected {len(function.inputs)} inputs, {names}")
    given = dict(zip(function.inputs, arguments, strict=True))
    constants = {t.name: constant(a, t, function.source) for t, a in given.items() if t.role == "const"}
    shapes = {t.name: tuple(getattr(a, "shape", ())) for t, a in given.items() if t.role != "const"}
    with ISL.value:
        boxes = infer(function, bind_sizes(function, shapes, constants)).boxes
    return tuple((boxes[t.name].extent, numpy_dtype(t.dtype)) for t in function.outputs)


def subscripts_of(call: Call) -> tuple[np.ndarray[Any, np.dtype[Any]] | int, ...] | None:
    """The arguments, if what is in them decides which elements a program reads."""
    function = call.function
    if not any(depends_on_data(subscript) for _, _, subscript in function.accesses()):
        return None
    return tuple(a if isinstance(a, int) else kind_of(a).to_numpy(a) for a in call.arrays)


def _unknown_size(function: Function, name: str, known: tuple[str, ...]) -> Diagnostic:
    hint = did_you_mean(str(name), known) or f"its sizes are ({', '.join(known)})"
    return Diagnostic(f"{function.name} has no size {name}", hint=hint)
