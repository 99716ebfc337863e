"""One call of a program: its arguments checked against the declaration."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.arguments import constant, read_input, read_output
from tcomp.arrays import View, layout_of, like
from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.function import Function, Tensor

Outputs = tuple[Any, ...]


def layouts_of(arguments: tuple[Any, ...], out: Any) -> tuple[Hashable, ...]:
    """What decides, besides addresses and content, whether two calls are alike.

    It holds None if an argument is not read in place; then it decides nothing.
    """
    if out is None:
        return False, *[layout_of(a) for a in arguments]
    given = out if type(out) is tuple else (out,)
    return True, *[layout_of(a) for a in arguments], *[layout_of(a) for a in given]


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call after the checks.

    ``arrays`` are the arguments as arrays to read in place (integers for ``const`` parameters), ``views`` how kernels
    see the inputs and the given outputs, by name.  ``outputs`` has None for outputs to be made, as arrays like
    ``example``; ``results`` is what the caller gave for them.
    """

    function: Function
    arrays: tuple[Any, ...]
    constants: dict[str, int]
    views: dict[str, View]
    outputs: Outputs
    results: Outputs
    example: Any
    in_place: bool
    """Whether every argument and every output is given as an array that kernels read or write themselves."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every input array, by name."""
        return {t.name: self.views[t.name].shape for t in self.function.inputs if t.role != "const"}

    def finish(self, made: Outputs) -> Any:
        """What the caller gets: the arrays that were given, and the others as the same kind as the inputs."""
        results = tuple(
            given if given is not None else like(self.example, array) if isinstance(array, np.ndarray) else array
            for given, array in zip(self.results, made, strict=True)
        )
        return results[0] if len(results) == 1 else results


def check_call(function: Function, arguments: Sequence[Any], out: Any, *, runs: bool = True) -> Call:
    """Check arguments and ``out=`` against a declaration: number, kind, type, rank.

    ``out`` is the array for a single output, a tuple of one per output (None where one is to be made), or a mapping by
    name.  Unless the program ``runs``, outputs whose content it reads may be absent.  Raises ShapeError with every
    problem found.
    """
    _check_count(function, arguments)
    problems: list[Diagnostic] = []
    arrays: list[Any] = []
    constants: dict[str, int] = {}
    views: dict[str, View] = {}
    for tensor, value in zip(function.inputs, arguments, strict=True):
        try:
            if tensor.role == "const":
                constants[tensor.name] = constant(value, tensor, function.source)
                arrays.append(constants[tensor.name])
            else:
                array, views[tensor.name] = read_input(value, tensor, function.source)
                arrays.append(array)
        except ShapeError as error:
            problems += error.diagnostics
    results = _outputs_of(function, out, runs)
    outputs: list[Any] = []
    for tensor, value in zip(function.outputs, results, strict=True):
        try:
            if value is None:
                outputs.append(None)
            else:
                array, views[tensor.name] = read_output(value, tensor, function.source)
                outputs.append(array)
        except ShapeError as error:
            problems += error.diagnostics
    if problems:
        raise ShapeError(*problems)
    in_place = all(a is b for a, b in zip((*arrays, *outputs), (*arguments, *results), strict=True))
    example = next(filter(_is_array, (*_tensors_of(function, arguments), *results)), None)
    return Call(function, tuple(arrays), constants, views, tuple(outputs), results, example, in_place)


def _check_count(function: Function, arguments: Sequence[Any]) -> None:
    count = len(function.inputs)
    if len(arguments) != count:
        names = ", ".join(t.name for t in function.inputs)
        message = f"{function.name}: expected {count} input{'s' * (count != 1)} but found {len(arguments)}"
        raise ShapeError(Diagnostic(message, hint=f"its inputs are ({names})"))


def _tensors_of(function: Function, arguments: Sequence[Any]) -> list[Any]:
    return [a for tensor, a in zip(function.inputs, arguments, strict=True) if tensor.role != "const"]


def _is_array(value: Any) -> bool:
    return value is not None and not isinstance(value, (bool, int, float, np.generic))


def _outputs_of(function: Function, out: Any, runs: bool) -> Outputs:
    """One entry per output: the array given for it, or None."""
    names = [t.name for t in function.outputs]
    if out is None:
        given: Outputs = (None,) * len(names)
    elif isinstance(out, Mapping):
        if not set(out) <= set(names):
            unknown = ", ".join(str(name) for name in out if name not in names)
            raise ShapeError(f"{function.name}: out= names {unknown}, but its outputs are {', '.join(names)}")
        given = tuple(out.get(name) for name in names)
    else:
        given = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if len(given) != len(names):
        message = f"{function.name}: out= has {len(given)} array{'s' * (len(given) != 1)} for {len(names)} outputs"
        raise ShapeError(Diagnostic(message, hint=f"its outputs are ({', '.join(names)})"))
    absent = (t for t, array in zip(function.outputs, given, strict=True) if array is None)
    missing = [t for t in absent if t.name in function.needs_content]
    if missing and runs:
        raise ShapeError(*(_needs_content(function, tensor) for tensor in missing))
    return given


def _needs_content(function: Function, tensor: Tensor) -> Diagnostic:
    return Diagnostic(
        f"{function.name} reads the previous content of {tensor.name}, which no array holds",
        function.source,
        tensor.span,
        f"pass it as out=, or initialise {tensor.name} first, say with the ! form of the reduction",
    )
