"""Which program computes the gradients of an operation, what it reads, and what calls of it take."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tcomp.autograd.once import Once
from tcomp.autograd.registration import Choices, Registration
from tcomp.derivatives.gradient import Gradient, sizes_as_given, sizes_of_arrays
from tcomp.derivatives.saving import CheapToSave, Save
from tcomp.errors import DerivativeError, Diagnostic, TcompError
from tcomp.grammar.tree.function import Function, Size


class Derivable(Protocol):
    """What is asked of an operation here."""

    @property
    def function(self) -> Function: ...
    @property
    def registration(self) -> Registration: ...
    @property
    def operators(self) -> dict[Choices, Any]: ...
    def run(self, arguments: tuple[Any, ...], out: Any, choices: Choices) -> Any: ...
    def call_again(self, arguments: tuple[Any, ...], choices: Choices) -> Any: ...
    def run_again(self, arguments: tuple[Any, ...], choices: Choices) -> Any: ...
    def quick_run(
        self, arguments: tuple[Any, ...], choices: Choices, *, recorded: bool, originals: tuple[Any, ...] | None = ...
    ) -> Any: ...
    def remember(self, choices: Choices, direct: Callable[[tuple[Any, ...], Any], Any]) -> None: ...
    def gradient(
        self,
        wrt: Sequence[str] | None = None,
        save: Save = ...,
        ties: str = ...,
        *,
        sizes: Mapping[str, int] | None = ...,
    ) -> Gradient: ...
    def tangent(
        self, wrt: Sequence[str] | None = None, ties: str = ..., *, sizes: Mapping[str, int] | None = ...
    ) -> Any: ...
    def batched(self, axes: Sequence[int | None]) -> Any: ...
    def __call__(self, *arguments: Any, **choices: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Given:
    """What a backward pass is given: inputs and outputs of the operation in order, those that are read; the values that
    ``names`` has besides outputs, in its order; a cotangent for each output of floats; and which inputs need a
    gradient.
    """

    values: Sequence[Any]
    saved: Sequence[Any]
    cotangents: Sequence[Any]
    wrt: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """``operation(*arguments)`` gives the gradients of ``names``; without an operation ``gradients`` are there."""

    operation: Any
    arguments: list[Any]
    names: tuple[str, ...]
    gradients: list[Any]


class Backward:
    """Derives what computes the gradients of an operation; ``wrt`` names inputs.

    Raises TcompError where a def that the user gave for that takes or gives what has no meaning here.
    """

    def __init__(self, operation: Derivable, choices: Choices) -> None:
        self.operation = operation
        self.choices = choices
        self.function = operation.function
        self.outputs = tuple(t.name for t in self.function.outputs)
        self.floats = tuple(t for t in self.function.outputs if t.dtype.is_float)
        self._derived = Once()
        if (own := self._own_function) is not None:
            self._check_names(own)

    def _check_names(self, own: Function) -> None:
        """What a backward def takes are inputs, outputs and cotangents, and what it gives are gradients of inputs."""
        name = self.function.name
        cotangents = [f"d_{t.name}" for t in self.floats]
        gradients = [f"d_{t.name}" for t in self.function.inputs if t.dtype.is_float]
        known = {t.name for t in (*self.function.inputs, *self.function.outputs)}.union(cotangents)
        for tensor in own.inputs:
            if tensor.name not in known:
                message = f"{tensor.name} is no input, no output and no cotangent of {name}"
                hint = f"name the cotangents {', '.join(cotangents)}"
                raise TcompError(Diagnostic(message, own.source, tensor.span, hint))
        for tensor in own.outputs:
            if tensor.name not in gradients:
                message = f"{tensor.name} is no gradient of {name}"
                hint = f"name the results {', '.join(gradients)}"
                raise TcompError(Diagnostic(message, own.source, tensor.span, hint))
            of = self.function.tensors[tensor.name.removeprefix("d_")]
            if tensor.rank != of.rank:
                message = f"{tensor.name} has {tensor.rank} dimensions, but {of.name} has {of.rank}"
                raise TcompError(Diagnostic(message, own.source, tensor.span))

    @property
    def _own(self) -> Any:
        """What the user gave to compute gradients."""
        return self.operation.registration.backward

    @property
    def _own_function(self) -> Function | None:
        """That of the def which the user gave for it, if it is one and no function of Python."""
        function: Function | None = getattr(self._own, "function", None)
        return function

    def derived(
        self, wrt: tuple[str, ...], save: Save, inputs: Sequence[Any], others: Mapping[str, Any] | None = None
    ) -> Gradient:
        """Derived once for each subset of inputs that occurs, and for what is saved; ``others`` are sizes, too."""
        sizes = {**(others or {}), **sizes_as_given(self.function, inputs)}
        found = self._at_any_strides(wrt, save, sizes)
        numbers = tuple([sizes.get(name) for name in found.derivative.strides])
        if not numbers or any(type(number) is not int for number in numbers):
            return found
        strided: Gradient = self._derived.get((wrt, save), lambda: found.at_strides(sizes), numbers)
        return strided

    def strides(self, wrt: tuple[str, ...], save: Save, inputs: Sequence[Any]) -> tuple[str, ...]:
        """The constants for whose numbers a gradient is derived anew."""
        return self._at_any_strides(wrt, save, sizes_as_given(self.function, inputs)).derivative.strides

    def _at_any_strides(self, wrt: tuple[str, ...], save: Save, sizes: Mapping[str, Any]) -> Gradient:
        ties = self.operation.registration.ties
        found: Gradient = self._derived.for_sizes(
            (wrt, save),
            sizes,
            lambda sizes: self.operation.gradient(wrt, save, ties, sizes=sizes),
            Gradient.suits,
        )
        return found

    @functools.cached_property
    def _cheap(self) -> CheapToSave:
        return CheapToSave(self.function)

    def choice(self, inputs: Sequence[Any]) -> Save:
        """What calls with inputs like these save.

        Extents that torch leaves open count as those with which it traces: no graph depends on them for that.
        """
        save = self.operation.registration.save
        if save != "auto":
            return save
        sizes = {name: _hint(value) for name, value in sizes_as_given(self.function, inputs).items()}
        known = {name: value for name, value in sizes.items() if value is not None}
        return self._cheap.names(known) if len(known) == len(sizes) else "statistics"

    def saved_besides(self, wrt: tuple[str, ...], inputs: Sequence[Any]) -> tuple[str, ...]:
        """The names of all that the backward pass of such a call takes of the forward pass; none if it is outputs."""
        if not wrt or self._own is not None:
            return ()
        saved = self.derived(wrt, self.choice(inputs), inputs).saved
        return saved if self.others(saved) else ()

    def others(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of some names that are no outputs."""
        return tuple(name for name in names if name not in self.outputs)

    def check(self, needed: Sequence[bool], inputs: Sequence[Any]) -> tuple[str, ...]:
        """The inputs of floats for which a gradient is needed.

        Raises DerivativeError where there is none: before anything is computed.
        """
        pairs = zip(self.function.inputs, needed, strict=True)
        wrt = tuple(tensor.name for tensor, need in pairs if need and tensor.dtype.is_float)
        if wrt and not self.operation.registration.differentiable:
            hint = f"pass {wrt[0]}.detach(), or call under torch.no_grad()"
            raise DerivativeError(Diagnostic(f"{self.function.name} was defined as not differentiable", hint=hint))
        if wrt and self._own is None:
            self.derived(wrt, self.choice(inputs), inputs)
        elif wrt and (own := self._own_function) is not None:
            given = {tensor.name for tensor in own.outputs}
            for name in (name for name in wrt if f"d_{name}" not in given):
                message = f"{own.name} gives no gradient of {self.function.name} by {name}"
                hint = f"let it give d_{name}, or pass {name}.detach()"
                raise DerivativeError(Diagnostic(message, hint=hint))
        return wrt

    def reads(self, wrt: tuple[str, ...], inputs: Sequence[Any]) -> tuple[bool, ...]:
        """For each input, and each output after those, whether the backward pass reads it."""
        names = [t.name for t in (*self.function.inputs, *self.function.outputs)]
        if not wrt:
            return (False,) * len(names)
        if self._own is None:
            gradient = self.derived(wrt, self.outputs, inputs)
            if gradient.only:
                return (True,) * len(names)  # all of them tell for which sizes it is
            read = {*gradient.inputs, *gradient.saved, *self._that_tell(gradient.sizes)}
        elif (own := self._own_function) is not None:
            read = {t.name for t in own.inputs}
        else:
            return (True,) * len(names)
        return tuple(name in read for name in names)

    def _that_tell(self, sizes: Sequence[str]) -> set[str]:
        """Inputs whose shapes have some sizes."""
        found: dict[str, str] = {}
        for tensor in self.function.inputs:
            for dim in tensor.dims or ():
                if isinstance(dim, Size) and dim.name in sizes:
                    found.setdefault(dim.name, tensor.name)
        return set(found.values())

    def gradients(self, given: Given) -> list[Any]:
        """One gradient, or None, per input."""
        call = self.call(given)
        if call.operation is None:
            return call.gradients
        results = as_tuple(call.operation(*call.arguments, **self.choices.named()))
        by_name = dict(zip(call.names, results, strict=True))
        return [by_name.get(t.name) if t.name in given.wrt else None for t in self.function.inputs]

    def call(self, given: Given) -> Call:
        """The operation that computes the gradients, and what it takes."""
        inputs = given.values[: len(self.function.inputs)]
        by_name = dict(zip((*(t.name for t in self.function.inputs), *self.outputs), given.values, strict=True))
        own = self._own
        if own is None:
            gradient = self.derived(given.wrt, given.names, inputs)
            if gradient.only and any(by_name[name] is None for name in gradient.inputs):
                gradient = self.derived(given.wrt, given.names, ())  # of a graph that was traced for other sizes
            by_name |= zip(self.others(given.names), given.saved, strict=True)
            sizes = sizes_of_arrays(self.function, inputs)
            if not gradient.only:
                taken = gradient.arguments(by_name, sizes, given.cotangents)
                more = sizes_of_arrays(gradient.backward.function, taken)
                if more.keys() - sizes.keys() and {*self.function.sizes} <= {*more, *sizes}:
                    gradient = self.derived(given.wrt, given.names, inputs, more)
            return Call(gradient.backward, gradient.arguments(by_name, sizes, given.cotangents), gradient.wrt, [])
        if hasattr(own, "function"):
            by_name |= {f"d_{t.name}": c for t, c in zip(self.floats, given.cotangents, strict=True)}
            arguments = [by_name[t.name] for t in own.function.inputs]
            return Call(own, arguments, tuple(t.name.removeprefix("d_") for t in own.function.outputs), [])
        found = own(tuple(inputs), tuple(given.values[len(inputs) :]), tuple(given.cotangents))
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(results) != len(inputs):
            counts = f"{len(results)} gradients for {len(inputs)} inputs"
            raise TcompError(f"the backward function of {self.function.name} gave {counts}")
        for tensor, value, result in zip(self.function.inputs, inputs, results, strict=True):
            if hasattr(result, "shape") and hasattr(value, "shape") and result.shape != value.shape:
                given_of = f"a gradient of {tuple(result.shape)} for {tensor.name}, which is {tuple(value.shape)}"
                raise TcompError(f"the backward function of {self.function.name} gave {given_of}")
        names = (t.name for t in self.function.inputs)
        return Call(None, [], (), [r if n in given.wrt else None for n, r in zip(names, results, strict=True)])


def as_tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _hint(value: Any) -> int | None:
    """An extent, or if torch leaves it open, that with which it traces, if it has one."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    return int(value.node.hint) if value.node.has_hint() else None
