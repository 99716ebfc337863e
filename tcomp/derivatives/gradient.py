"""A derived gradient as something to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tcomp.derivatives.derivation import Derivative
from tcomp.derivatives.wish import Wish
from tcomp.errors import ArgumentError, CompileError, Diagnostic, ShapeError, TcompError
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Constant, Function, Size
from tcomp.storage.forks import ISL


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradients of a def with respect to some of its inputs, as program text and as operations.

    ``text`` is the def ``NAME_grad`` and, where values are saved that the def does not hand out, ``NAME_saving``.
    ``backward`` is the operation of the one.  It takes the inputs in ``inputs``, those of the def that it reads; the
    ``sizes`` that no array tells, as constants; the values in ``saved``; and one cotangent for each output of floats.
    ``forward`` is the operation of the other, or the def's own if it hands out all that is saved.  ``only`` has the
    sizes for which alone it was derived, if not for all; ``wish`` is what was asked of ``operation``.  ``without``
    derives it anew for outputs on which nothing depends, ``for_sizes`` for some sizes alone, ``with_numbers`` for some
    values of constants, which calls of it have.
    """

    function: Function
    derivative: Derivative
    operation: Any
    forward: Any
    backward: Any
    only: Mapping[str, int]
    without: Callable[[frozenset[str]], Gradient]
    for_sizes: Callable[[Mapping[str, int]], Gradient]
    with_numbers: Callable[[Mapping[str, int]], Gradient]
    wish: Wish

    @property
    def text(self) -> str:
        return self.derivative.text

    @property
    def wrt(self) -> tuple[str, ...]:
        return self.derivative.wrt

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.derivative.inputs

    @property
    def sizes(self) -> tuple[str, ...]:
        return self.derivative.sizes

    @property
    def saved(self) -> tuple[str, ...]:
        return self.derivative.saved

    def __reduce__(self) -> tuple[Callable[..., Gradient], tuple[Any, ...]]:
        return _derived_again, (self.operation, self.wish, dict(self.only))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<gradient of {self.function.name} by {', '.join(self.wrt)}>"

    def __call__(self, *arguments: Any, **choices: Any) -> Any:
        """One gradient per name in ``wrt``, of all inputs of the def and one cotangent for each output of floats.

        They go in order or by name; inputs with a default may be left out by name, or behind all others.  Runs the
        forward pass first if the backward pass takes values of it.  A cotangent that is None is that of an output on
        which nothing depends: the text without what needs it runs.

        Returns:
            An array shaped like the input, or a tuple of several.

        Raises:
            ShapeError: as a call of the def, and where the arguments are too many or too few.
        """
        inputs, cotangents, choices = self.in_order(arguments, choices)
        self = self.at_strides(dict(zip([t.name for t in self.function.inputs], inputs, strict=True)))
        if any(cotangent is None for cotangent in cotangents):
            given = tuple(cotangent for cotangent in cotangents if cotangent is not None)
            return self._without_missing(cotangents)(*inputs, *given, **choices)
        values = self._forward(inputs, choices) if self.saved else {}
        return self._backward(inputs, values, cotangents, choices)

    def with_value(self, *arguments: Any, cotangents: Any = None, **choices: Any) -> tuple[Any, Any]:
        """What the def gives, and its gradients, in one forward and one backward pass.

        Args:
            arguments, choices: the inputs of the def, in order or by name, and what a call of it takes besides.
            cotangents: one for each output of floats, or what there is if that is one; None for a def whose only
                output of floats has no dimensions, a loss, which has 1.

        Raises:
            ShapeError: as a call of the def, and where ``cotangents`` are missing.
        """
        arguments, choices = self.inputs_in_order(arguments, choices)
        names = [t.name for t in self.function.inputs]
        if len(arguments) != len(names):
            message = (
                f"{self.function.name}: expected {len(names)} inputs, {', '.join(names)}, but got {len(arguments)}"
            )
            raise ShapeError(message)
        self = self.at_strides(dict(zip(names, arguments, strict=True)))
        values = self._forward(arguments, choices)
        outputs = tuple(values[tensor.name] for tensor in self.function.outputs)
        floats = [tensor for tensor in self.function.outputs if tensor.dtype.is_float]
        if cotangents is None:
            if len(floats) != 1 or floats[0].rank:
                raise ShapeError(f"{self.function.name} is no loss, one number; pass a cotangent for each output")
            cotangents = (1.0,)
        elif not isinstance(cotangents, (tuple, list)):
            cotangents = (cotangents,)
        if len(cotangents) != len(self.derivative.cotangents):
            takes = ", ".join(self.derivative.cotangents)
            raise ShapeError(f"{self.derivative.name}: expected {takes} as cotangents, but got {len(cotangents)}")
        gradient = self
        if any(cotangent is None for cotangent in cotangents):
            gradient = self._without_missing(cotangents)
            cotangents = [cotangent for cotangent in cotangents if cotangent is not None]
            values |= gradient._forward(arguments, choices) if set(gradient.saved) - set(values) else {}
        gradients = gradient._backward(arguments, values, cotangents, choices)
        return outputs[0] if len(outputs) == 1 else outputs, gradients

    def in_order(
        self, arguments: Sequence[Any], given: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """The inputs of the def and the cotangents of a call, in order, and what it says besides.

        Raises ShapeError, and ArgumentError where a name is that of nothing, given twice, or missing.
        """
        inputs = [tensor.name for tensor in self.function.inputs]
        names, defaults = (*inputs, *self.derivative.cotangents), self.function.defaults
        named = {n: value for n, value in given.items() if n in names}
        missing = len(names) - len(arguments)
        left_out = inputs[max(0, len(inputs) - missing) :]
        if not named and missing > 0 and all(n in defaults for n in left_out) and missing <= len(inputs):
            count = len(inputs) - missing
            arguments = (*arguments[:count], *(defaults[n] for n in left_out), *arguments[count:])
        if len(arguments) > len(names) or (not named and len(arguments) < len(names)):
            takes = ", ".join(names)
            raise ShapeError(
                f"{self.derivative.name}: expected {len(names)} arguments, {takes}, but got {len(arguments)}"
            )
        values = _by_name(self.derivative.name, names, arguments, named, defaults)
        choices = {n: value for n, value in given.items() if n not in names}
        return values[: len(inputs)], values[len(inputs) :], choices

    def inputs_in_order(
        self, arguments: Sequence[Any], given: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same of the inputs alone."""
        names = [tensor.name for tensor in self.function.inputs]
        named = {n: value for n, value in given.items() if n in names}
        choices = {n: value for n, value in given.items() if n not in names}
        if not named:
            return self.function.completed(arguments), choices
        return _by_name(self.function.name, names, arguments, named, self.function.defaults), choices

    def _without_missing(self, cotangents: Sequence[Any]) -> Gradient:
        floats = (tensor.name for tensor in self.function.outputs if tensor.dtype.is_float)
        return self.without(frozenset(n for n, c in zip(floats, cotangents, strict=True) if c is None))

    def _forward(self, inputs: Sequence[Any], choices: Mapping[str, Any]) -> dict[str, Any]:
        self._check_numbers(dict(zip([t.name for t in self.function.inputs], inputs, strict=True)))
        results = self.forward(*inputs, **choices)
        outputs = [tensor.name for tensor in self.forward.function.outputs]
        return dict(zip(outputs, results if isinstance(results, tuple) else (results,), strict=True))

    def _backward(
        self,
        inputs: Sequence[Any],
        values: Mapping[str, Any],
        cotangents: Sequence[Any],
        choices: Mapping[str, Any],
    ) -> Any:
        given = dict(zip([tensor.name for tensor in self.function.inputs], inputs, strict=True)) | dict(values)
        self._check_cotangents(inputs, cotangents)
        taken = self.arguments(given, sizes_of_arrays(self.function, inputs), cotangents)
        if not cotangents:
            choices = {**self.operation.results_like([given[name] for name in self.wrt]), **choices}
        try:
            return self.backward(*taken, **choices)
        except (ShapeError, CompileError):
            other = self._for_these(inputs)
            if other is None:
                raise
            return other(*inputs, *cotangents, **choices)

    def _check_cotangents(self, inputs: Sequence[Any], cotangents: Sequence[Any]) -> None:
        """Raises ShapeError where a dimension of one is not as long as that of an input which has the same size."""
        sizes, taken = sizes_of_arrays(self.function, inputs), self.backward.function.inputs
        for tensor, cotangent in zip(taken[len(taken) - len(cotangents) :], cotangents, strict=True):
            for dim, extent in zip(tensor.dims or (), getattr(cotangent, "shape", ()), strict=False):
                if isinstance(dim, Size) and sizes.get(dim.name, extent) != extent:
                    shape = tuple(cotangent.shape)
                    message = (
                        f"{self.derivative.name}: {tensor.name} has shape {shape}, but {dim.name} is {sizes[dim.name]}"
                    )
                    raise ShapeError(message)

    def _for_these(self, inputs: Sequence[Any]) -> Gradient | None:
        """The gradient for the sizes of some inputs alone, where the one for all does not suit them."""
        if self.only:
            return None
        sizes = sizes_of_call(self.function, inputs)
        try:
            return None if self.suits(sizes) else self.for_sizes(sizes)
        except TcompError:
            return None

    def at_strides(self, given: Mapping[str, Any]) -> Gradient:
        """The gradient whose text has the numbers that are given for strides and dilations; itself without any.

        With numbers a strided and dilated read is gathered without a step in vain; other names tell nothing.
        """
        numbers = {n: given[n] for n in self.derivative.strides if type(given.get(n)) is int}
        if not numbers or len(numbers) < len(self.derivative.strides):
            return self
        self._check_numbers(given)
        return replace(self.with_numbers(numbers), only=self.only)

    def suits(self, sizes: Mapping[str, int]) -> bool:
        """Whether the text is a program for some sizes: few elements may be fewer than a boundary goes beyond."""
        return is_program_for(self.backward.function, sizes)

    def arguments(self, given: Mapping[str, Any], sizes: Mapping[str, int], cotangents: Sequence[Any]) -> list[Any]:
        """What ``backward`` takes, out of inputs and saved values by name.

        Raises ShapeError for strides below 1, which the derivation takes for at least that.
        """
        self._check_numbers(given)
        for name in self.derivative.positive:
            if isinstance(given[name], int) and given[name] < 1:
                message = f"{self.derivative.name} takes {name}, which is {given[name]}, for at least 1"
                raise ShapeError(Diagnostic(message, hint=f"write the number into the text in place of {name}"))
        values = [given[name] for name in (*self.inputs, *self.saved)]
        count = len(self.inputs)
        return [*values[:count], *(sizes[name] for name in self.sizes), *values[count:], *cotangents]

    def _check_numbers(self, given: Mapping[str, Any]) -> None:
        """Raises ShapeError for other sizes than those for which alone it was derived."""
        if not self.only:
            return
        for name, value in self.only.items():
            if isinstance(given.get(name), int) and given[name] != value:
                raise ShapeError(f"{self.derivative.name} was derived for {name}={value} alone, not for {given[name]}")
        for tensor in self.function.inputs:
            shape = tuple(getattr(given.get(tensor.name), "shape", ()))
            known = tuple(d.value if isinstance(d, Constant) else None for d in tensor.dims or ())
            if len(shape) == len(known) and any(
                k not in (None, extent) for k, extent in zip(known, shape, strict=True)
            ):
                raise ShapeError(f"{self.derivative.name} was derived for {tensor.name} of {known} alone, not {shape}")

    def explain(self) -> str:
        """What the backward pass takes from the forward pass, and what that costs in memory."""
        if not self.saved:
            return f"{self.derivative.name} takes nothing of the forward pass but inputs: {', '.join(self.inputs)}\n"
        tensors = {tensor.name: tensor for tensor in self.backward.function.inputs}
        lines = [f"{self.derivative.name} takes of the forward pass:"]
        for name in self.saved:
            dims = self.backward.function.definition.inputs
            shape = next(p for p in dims if p.name.name == name)
            count = " * ".join(f"({dim})" for dim in shape.dims or ()) or "1"
            kind = "output" if name in {t.name for t in self.function.outputs} else "temporary"
            lines.append(f"  {shape}: {kind}, {tensors[name].dtype.itemsize} * {count} bytes")
        return "\n".join(lines) + "\n"

    def gradient(self, wrt: str | Sequence[str] | None = None) -> Gradient:
        """The gradient of the gradient: of the text that takes nothing of the forward pass, and so has all paths."""
        closed = self if not self.saved else self.operation.gradient(self.wrt, save=())
        result: Gradient = closed.backward.gradient(wrt)
        return result


def _derived_again(operation: Any, wish: Wish, only: Mapping[str, int]) -> Gradient:
    """A copy of a gradient, in another process, say."""
    result: Gradient = operation.gradient_for_all(wish)
    return replace(result, only=only)


def _by_name(
    what: str,
    names: Sequence[str],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> tuple[Any, ...]:
    """Arguments in the order of their names.  Raises ArgumentError with every problem found."""
    placed = dict(zip(names, arguments, strict=False))
    values = {**defaults, **placed, **named}
    problems = [f"{what}: {n} is given by position and by name" for n in named if n in placed]
    problems += [f"{what}: there is no argument for {n}" for n in names if n not in values]
    if problems:
        raise ArgumentError(*map(Diagnostic, problems))
    return tuple(values[n] for n in names)


def is_program_for(function: Function, sizes: Mapping[str, int]) -> bool:
    """Whether a derived def has no fault with sizes of which it may not mention all; True where one is missing."""
    names = [*function.sizes, *(t.name for t in function.inputs if t.role == "const")]
    if not all(type(sizes.get(name)) is int for name in names):
        return True
    try:
        with ISL.value:
            infer(function, {name: sizes[name] for name in names})
    except (ShapeError, CompileError):
        return False
    return True


def sizes_of_call(function: Function, inputs: Sequence[Any]) -> dict[str, int]:
    """The value of every size symbol and ``const`` parameter that the inputs of a call tell."""
    return {name: int(value) for name, value in sizes_as_given(function, inputs).items()}


def sizes_as_given(function: Function, inputs: Sequence[Any]) -> dict[str, Any]:
    """The same, of whatever type they are: what traces calls has symbols for some."""
    constants = {t.name: v for t, v in zip(function.inputs, inputs, strict=False) if t.role == "const"}
    return sizes_of_arrays(function, inputs) | constants


def sizes_of_arrays(function: Function, inputs: Sequence[Any]) -> dict[str, Any]:
    """The sizes that are a dimension of some input, from the shapes of arrays."""
    found: dict[str, Any] = {}
    for tensor, value in zip(function.inputs, inputs, strict=False):
        shape = getattr(value, "shape", ())
        for dim, extent in zip(tensor.dims or (), shape, strict=False):
            if isinstance(dim, Size):
                found.setdefault(dim.name, extent)
    return found
