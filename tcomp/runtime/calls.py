"""One call of a program: its arguments checked against the declaration."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.arrays.arrays import default_kind, kind_of, layout_of, like
from tcomp.arrays.devices import MAIN, Memory, Place, current_place
from tcomp.arrays.kinds import ArrayKind, View
from tcomp.errors import ArgumentError, Diagnostic, ShapeError
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.grammar.tree.function import Function, Tensor
from tcomp.runtime.arguments import constant, is_scalar, misplaced, read_input, read_output
from tcomp.storage.memo import Recent

Outputs = tuple[Any, ...]

MOST_ORDERS = 100
"""Ways to give arguments by name that an operation remembers."""


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
    see the inputs and the given outputs, by name.  ``outputs`` has None for outputs to be made, as arrays of ``kind``;
    ``results`` is what the caller gave for them.  All arrays lie at ``place``.  ``example`` is the first array that the
    caller gave, ``kind`` the library that reads it in place.  ``numbers`` are the tensors for which a device got copies
    of Python numbers.
    """

    function: Function
    arrays: tuple[Any, ...]
    constants: dict[str, int]
    views: dict[str, View]
    outputs: Outputs
    results: Outputs
    example: Any
    kind: ArrayKind
    place: Place
    in_place: bool
    """Whether every argument and every output is given as an array that kernels read or write themselves."""
    numbers: tuple[str, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every input array, by name."""
        return {t.name: self.views[t.name].shape for t in self.function.inputs if t.role != "const"}

    def finish(self, made: Outputs) -> Any:
        """What the caller gets: the arrays that were given, and the others as the same kind as the inputs."""
        results = tuple(
            given if given is not None else like(self.example, array, self.place)
            for given, array in zip(self.results, made, strict=True)
        )
        return results[0] if len(results) == 1 else results


def check_call(
    function: Function, arguments: Sequence[Any], out: Any, *, runs: bool = True, memory: Memory | None = None
) -> Call:
    """Check arguments and ``out=`` against a declaration: number, kind, type, rank, and where they lie.

    ``out`` is the array for a single output, a tuple of one per output (None where one is to be made), or a mapping by
    name.  All arrays must be in ``memory``; None stands for wherever the first one is.  Unless the program ``runs``,
    arrays may lie anywhere, and outputs whose content it reads may be absent.  Raises ShapeError with every problem
    found, and TargetError if there is no array and no device on which to make one.
    """
    arguments = function.completed(arguments)
    _check_count(function, arguments)
    results = _outputs_of(function, out, runs)
    given, constants = _read(function, arguments, results)
    arrays = [g for g in given if not is_scalar(g.value)]
    recorded = [g for g in arrays if kind_of(g.array).records(g.array)]
    if runs and recorded:
        raise ShapeError(*(_no_gradient(g, function) for g in recorded))
    place = _place_of(arrays, memory)
    wrong = [g for g in arrays if g.view.place != place]
    if runs and wrong:
        raise ShapeError(*(misplaced(g.array, g.view, g.tensor, place, function.source) for g in wrong))
    kind = kind_of(arrays[0].array) if arrays else default_kind(place)
    numbers = tuple(g.tensor.name for g in given if is_scalar(g.value)) if runs and place != MAIN else ()
    given = [_moved(g, kind, place) if g.tensor.name in numbers else g for g in given]
    held = {g.tensor.name: g.array for g in given} | constants
    inputs = tuple(held[t.name] for t in function.inputs)
    outputs = tuple(held.get(t.name) for t in function.outputs)
    in_place = all(a is b for a, b in zip((*inputs, *outputs), (*arguments, *results), strict=True))
    views = {g.tensor.name: g.view for g in given}
    example = arrays[0].value if arrays else None
    return Call(function, inputs, constants, views, outputs, results, example, kind, place, in_place, numbers)


@dataclass(frozen=True, slots=True)
class _Given:
    """What was passed for a tensor, the array that kernels read or write in place of it, and how they see that."""

    tensor: Tensor
    value: Any
    array: Any
    view: View


def _read(function: Function, arguments: Sequence[Any], results: Outputs) -> tuple[list[_Given], dict[str, int]]:
    """The arrays of a call, inputs first, and the values of its constants.  Raises ShapeError."""
    problems: list[Diagnostic] = []
    given: list[_Given] = []
    constants: dict[str, int] = {}
    tensors = (*function.inputs, *function.outputs)
    for tensor, value in zip(tensors, (*arguments, *results), strict=True):
        try:
            if tensor.role == "const":
                constants[tensor.name] = constant(value, tensor, function.source)
            elif tensor.role != "output":
                given.append(_Given(tensor, value, *read_input(value, tensor, function.source)))
            elif value is not None:
                given.append(_Given(tensor, value, *read_output(value, tensor, function.source)))
        except ShapeError as error:
            problems += error.diagnostics
    if problems:
        raise ShapeError(*problems)
    return given, constants


def _place_of(arrays: Sequence[_Given], memory: Memory | None) -> Place:
    """Where the arrays of a call have to lie: at the first one, or the first that is in ``memory``."""
    places = [g.view.place for g in arrays]
    if memory is None:
        return places[0] if places else MAIN
    found = next((place for place in places if place.memory is memory), None)
    if found is not None:
        return found
    return MAIN if memory is Memory.MAIN else current_place()


def _moved(given: _Given, kind: ArrayKind, place: Place) -> _Given:
    """What stands for a Python number, copied to a device."""
    array = kind.from_numpy(given.array, place)
    return _Given(given.tensor, given.value, array, kind.view(array))


def ordered(function: Function, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Arguments in the order of the parameters, of which some were given by position, the others by name.

    Raises ArgumentError, which is a TypeError as Python raises it, with every problem found.
    """
    names = [t.name for t in function.inputs]
    if len(arguments) > len(names):
        _check_count(function, (*arguments, *named.values()))
    given = dict(zip(names, arguments, strict=False))
    unknown = [_unknown_parameter(function, name) for name in named if name not in names]
    twice = [Diagnostic(f"{function.name}: {name} is given by position and by name") for name in named if name in given]
    given = {**function.defaults, **given, **named}
    if unknown or twice:
        raise ArgumentError(*unknown, *twice)
    missing = [Diagnostic(f"{function.name}: there is no argument for {name}") for name in names if name not in given]
    if missing:
        raise ArgumentError(*missing)
    return tuple(given[name] for name in names)


class ArgumentOrder:
    """``ordered`` for one function, which remembers where names go: calls are made with the same ones again."""

    __slots__ = ("_function", "_known")

    def __init__(self, function: Function) -> None:
        self._function = function
        self._known: Recent[tuple[object, ...], tuple[str, ...]] = Recent(MOST_ORDERS)

    def __call__(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments in the order of the parameters; defaults may be missing at the end.  Raises ArgumentError."""
        key = (len(arguments), *named)
        order = self._known.get(key)
        if order is None:
            names = [t.name for t in self._function.inputs]
            order = tuple(names[len(arguments) : len(arguments) + len(named)])
            if {*order} != {*named} or self._function.inputs[len(arguments) + len(named) :]:
                return ordered(self._function, arguments, named)
            self._known[key] = order
        return (*arguments, *[named[name] for name in order])


def check_names(function: Function, named: Mapping[str, Any], bound: Sequence[str]) -> None:
    """Raises ArgumentError if arguments that are to be bound have names of no parameters, or are ``bound`` already."""
    names = [t.name for t in function.inputs]
    unknown = [_unknown_parameter(function, name) for name in named if name not in names]
    twice = [Diagnostic(f"{function.name}: {name} is bound already") for name in named if name in bound]
    if unknown or twice:
        raise ArgumentError(*unknown, *twice)


def _unknown_parameter(function: Function, name: str) -> Diagnostic:
    names = [t.name for t in function.inputs]
    hint = did_you_mean(name, names) or f"its inputs are ({', '.join(names)})"
    if name in function.sizes:
        hint = f"it is a size, which follows from the arrays; without any write compile(sizes={{{name!r}: ...}})"
    elif name in (t.name for t in function.outputs):
        hint = f"it is an output: write out={{{name!r}: ...}}"
    return Diagnostic(f"{function.name} has no parameter {name}", hint=hint)


def _no_gradient(given: _Given, function: Function) -> Diagnostic:
    tensor = given.tensor
    return Diagnostic(
        f"{'output' if tensor.role == 'output' else 'input'} {tensor.name} requires a gradient, and results carry none",
        function.source,
        tensor.span,
        f"call under torch.no_grad(), or pass {tensor.name}.detach()",
    )


def _check_count(function: Function, arguments: Sequence[Any]) -> None:
    count = len(function.inputs)
    if len(arguments) != count:
        names = ", ".join(t.name for t in function.inputs)
        message = f"{function.name}: expected {count} input{'s' * (count != 1)} but found {len(arguments)}"
        raise ArgumentError(Diagnostic(message, hint=f"its inputs are ({names})"))


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
