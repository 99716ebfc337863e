"""What is bound: copies of the caller's arrays, checked against the declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.arrays.arrays import kind_of
from tcomp.arrays.devices import MAIN, Place, cupy_module, wait
from tcomp.arrays.kinds import View
from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.tree.function import Function, Tensor
from tcomp.runtime.arguments import constant, is_scalar, misplaced, read_input


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Bound arguments: arrays by name, which nobody else can write, how kernels see them, and constants."""

    arrays: Mapping[str, Any]
    views: Mapping[str, View]
    constants: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """Of everything that is bound, sorted."""
        return tuple(sorted((*self.arrays, *self.constants)))

    @property
    def place(self) -> Place | None:
        """Where the arrays lie; None if there are none."""
        return next((view.place for view in self.views.values()), None)

    @property
    def bytes(self) -> int:
        """The memory of the arrays."""
        return sum(_bytes(view) for view in self.views.values())


NOTHING = Held({}, {}, {})


def hold(function: Function, given: Mapping[str, Any], before: Held = NOTHING) -> Held:
    """Check and copy arguments, beside what is bound already.

    Raises ShapeError with every problem found: a wrong type or rank, arrays in different places, or a tensor of which
    torch would record a gradient.
    """
    problems: list[Diagnostic] = []
    constants, arrays, views = dict(before.constants), dict(before.arrays), dict(before.views)
    read: list[tuple[Tensor, Any, Any, View]] = []
    for name, value in given.items():
        tensor = function.tensors[name]
        try:
            if tensor.role == "const":
                constants[name] = constant(value, tensor, function.source)
            else:
                array, view = read_input(value, tensor, function.source)
                read.append((tensor, value, array, view))
        except ShapeError as error:
            problems += error.diagnostics
    problems += [_no_gradient(tensor, function) for tensor, _, array, _ in read if kind_of(array).records(array)]
    lying = [view.place for _, value, _, view in read if not is_scalar(value)]
    place = before.place or next(iter(lying), MAIN)
    problems += [
        misplaced(array, view, tensor, place, function.source)
        for tensor, value, array, view in read
        if view.place != place and not is_scalar(value)
    ]
    if problems:
        raise ShapeError(*problems)
    for tensor, value, array, view in read:
        kind = kind_of(array)
        own = _moved(array, place) if is_scalar(value) and view.place != place else kind.copy(array)
        if isinstance(own, np.ndarray):
            own.setflags(write=False)
        arrays[tensor.name], views[tensor.name] = own, kind_of(own).view(own)
    wait(place.memory, place.device)  # later calls may use another stream
    return Held(arrays, views, constants)


def _moved(array: Any, place: Place) -> Any:
    with cupy_module().cuda.Device(place.device):
        return cupy_module().asarray(array)


def _bytes(view: View) -> int:
    count = view.dtype.itemsize
    for extent in view.shape:
        count *= extent
    return count


def _no_gradient(tensor: Tensor, function: Function) -> Diagnostic:
    return Diagnostic(
        f"{tensor.name} requires a gradient, and what is bound gets none",
        function.source,
        tensor.span,
        f"bind {tensor.name}.detach(), or bind under torch.no_grad()",
    )
