"""The gradients of an operation: which program computes them, and one operator of torch for all of them.

The operator takes what may be needed of inputs and outputs, what else the forward pass has saved, the cotangents, which
inputs need a gradient, and what is saved by name.  It has one name whichever these are, registered with the operation:
compiled graphs that torch keeps on disk hold it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tcomp.autograd.entry import enter_directly
from tcomp.autograd.fake import Fake
from tcomp.autograd.inductor import FakeFor
from tcomp.autograd.registration import Choices, Registration
from tcomp.derivatives.gradient import Gradient, sizes_as_given, sizes_of_arrays
from tcomp.derivatives.saving import CheapToSave, Save
from tcomp.errors import CompileError, DerivativeError, Diagnostic, ShapeError, TcompError, UnsaidError
from tcomp.grammar.tree.function import Function, Size, Tensor
from tcomp.storage.memo import MOST_KEPT, Recent


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


class Once:
    """Values that are made when they are first asked for, by one thread; of those for some numbers the last so many."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._known: dict[object, Any] = {}
        self._for_numbers: Recent[object, Any] = Recent(MOST_KEPT)
        self._sized: set[object] = set()

    def get(self, key: object, make: Callable[[], Any], numbers: Hashable = None) -> Any:
        """What was made for a key, and for numbers if there are some."""
        known, whole = (self._known, key) if numbers is None else (self._for_numbers, (key, numbers))
        found = known.get(whole)
        if found is None:
            with self._lock:
                found = known.get(whole)
                if found is None:
                    found = known[whole] = make()
        return found

    def for_sizes(
        self,
        key: object,
        sizes: Mapping[str, Any],
        make: Callable[[Mapping[str, int] | None], Any],
        suits: Callable[[Any, Mapping[str, int]], bool],
    ) -> Any:
        """What ``make`` derives for all sizes, or for those of a call where no formula says the extents of a def.

        Also where what serves all does not suit those of a call, as far as they are known.
        """
        if key not in self._sized:
            try:
                found = self.get(key, lambda: make(None))
            except UnsaidError:
                self._sized.add(key)
            else:
                if self._suits(key, found, sizes, suits):
                    return found
        own = {name: int(value) for name, value in sizes.items()}
        return self.get(key, lambda: make(own), tuple(sorted(own.items())))

    def _suits(self, key: object, found: Any, sizes: Mapping[str, Any], suits: Callable[..., bool]) -> bool:
        if any(type(value) is not int for value in sizes.values()):
            return True  # what traces leaves some open
        (answer,) = self.get((key, "suits"), lambda: (suits(found, sizes),), tuple(sorted(sizes.items())))
        return bool(answer)


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
    """Derives what computes the gradients of an operation; ``wrt`` names inputs."""

    def __init__(self, operation: Derivable, choices: Choices) -> None:
        self.operation = operation
        self.choices = choices
        self.function = operation.function
        self.outputs = tuple(t.name for t in self.function.outputs)
        self.floats = tuple(t for t in self.function.outputs if t.dtype.is_float)
        self._derived = Once()

    @property
    def _own(self) -> Any:
        """What the user gave to compute gradients."""
        return self.operation.registration.backward

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
        elif hasattr(self._own, "function"):
            read = {t.name for t in self._own.function.inputs}
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
            arguments = [self._named(by_name, t, own.function) for t in own.function.inputs]
            return Call(own, arguments, tuple(t.name.removeprefix("d_") for t in own.function.outputs), [])
        found = own(tuple(inputs), tuple(given.values[len(inputs) :]), tuple(given.cotangents))
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(results) != len(inputs):
            counts = f"{len(results)} gradients for {len(inputs)} inputs"
            raise TcompError(f"the backward function of {self.function.name} gave {counts}")
        names = (t.name for t in self.function.inputs)
        return Call(None, [], (), [r if n in given.wrt else None for n, r in zip(names, results, strict=True)])

    def _named(self, given: dict[str, Any], tensor: Tensor, backward: Function) -> Any:
        if tensor.name in given:
            return given[tensor.name]
        message = f"{tensor.name} is no input, no output and no cotangent of {self.function.name}"
        hint = f"name the cotangents {', '.join(f'd_{t.name}' for t in self.floats)}"
        raise TcompError(Diagnostic(message, backward.source, tensor.span, hint))


class BackwardOperator:
    """``Backward`` as an operator of torch; ``operator_of`` finds that of another operation."""

    def __init__(self, backward: Backward, qualified: str, operator_of: Callable[[Any], Any]) -> None:
        self.backward = backward
        self.function = backward.function
        self.qualified = qualified
        self.operator_of = operator_of
        self._strides: dict[tuple[Any, ...], list[int]] = {}
        """Places of the constants that a gradient depends on, by what needs one and what is saved."""
        self._known: Recent[tuple[Any, ...], Callable[[Sequence[Any]], list[Any]]] = Recent(MOST_KEPT)
        """What runs backward passes, by what needs a gradient, what is saved and those constants."""

    def register(self, library: Any) -> None:
        name = self.qualified.partition("::")[2]
        library.define(f"{name}{self._schema()}")
        library.impl(name, self._run, "CompositeExplicitAutograd")
        FakeFor(library, self.qualified, self._fake, self._run)
        enter_directly(library, name, lambda: self.overload, self._run, (self._second, self._setup))

    @functools.cached_property
    def overload(self) -> Any:
        return overload_of(self.qualified)

    def gradients(self, given: Given) -> list[Any]:
        """One gradient, or None, per input, through torch's dispatcher."""
        mask = [t.name in given.wrt for t in self.function.inputs]
        arguments = (*given.values, *given.cotangents, list(given.saved), mask, list(given.names))
        found = iter(self.overload(*arguments))
        return [next(found) if wanted else None for wanted in mask]

    def _schema(self) -> str:
        inputs = [f"{'int' if t.role == 'const' else 'Tensor?'} a{n}" for n, t in enumerate(self.function.inputs)]
        outputs = [f"Tensor? y{n}" for n, _ in enumerate(self.function.outputs)]
        cotangents = [f"Tensor d{n}" for n, _ in enumerate(self.backward.floats)]
        others = "Tensor[] saved, bool[] wrt, str[] names"
        return f"({', '.join([*inputs, *outputs, *cotangents, others])}) -> Tensor[]"

    def _parted(self, arguments: Sequence[Any]) -> Given:
        *others, saved, mask, names = arguments
        count = len(self.function.inputs) + len(self.function.outputs)
        wrt = tuple(t.name for t, wanted in zip(self.function.inputs, mask, strict=True) if wanted)
        return Given(others[:count], saved, others[count:], wrt, tuple(names))

    def _run(self, *arguments: Any) -> list[Any]:
        *others, saved, mask, names = arguments
        chosen = (*mask, *names)
        known = self._known.get((*chosen, *[others[place] for place in self._strides.get(chosen, ())]))
        if known is not None:
            try:
                return known((*others, *saved))
            except (ShapeError, CompileError):
                pass  # what follows says so, or knows better for these sizes
        self._learn(self._parted(arguments), chosen)
        with torch.no_grad():
            return [r for r in self.backward.gradients(self._parted(arguments)) if r is not None]

    def _learn(self, given: Given, chosen: tuple[Any, ...]) -> None:
        """Remember how to run backward passes like one, unless that depends on sizes."""
        backward = self.backward
        if backward.operation.registration.backward is not None:
            return
        inputs = given.values[: len(self.function.inputs)]
        gradient = backward.derived(given.wrt, given.names, inputs)
        if gradient.only or gradient.sizes or gradient.derivative.positive or gradient.wrt != given.wrt:
            return
        names = [*(t.name for t in self.function.inputs), *backward.outputs]
        cotangents = len(names)
        names += [""] * len(backward.floats) + list(backward.others(given.names))
        places = [names.index(n) for n in (*gradient.inputs, *gradient.saved)]
        places += range(cotangents, cotangents + len(backward.floats))
        operation, choices = gradient.backward, backward.choices

        def run(values: Sequence[Any]) -> list[Any]:
            arguments = tuple([values[place] for place in places])
            results = operation.run_again(arguments, choices)
            if results is None:
                with torch.no_grad():
                    results = operation.run(arguments, None, choices)
            return list(as_tuple(results))

        strides = backward.strides(given.wrt, given.names, inputs)
        places_of_strides = [place for place, t in enumerate(self.function.inputs) if t.name in strides]
        self._strides[chosen] = places_of_strides
        self._known[(*chosen, *[inputs[place] for place in places_of_strides])] = run

    def _fake(self, *arguments: Any) -> list[Any]:
        given = self._parted(arguments)
        own = self.backward.operation.registration.backward
        if own is not None and not hasattr(own, "function"):
            inputs = dict(zip([t.name for t in self.function.inputs], given.values, strict=False))
            return [torch.empty_like(inputs[n], memory_format=torch.contiguous_format) for n in given.wrt]
        call = self.backward.call(given)
        results = dict(zip(call.names, as_tuple(Fake(call.operation.function)(*call.arguments)), strict=True))
        return [results[n] for n in given.wrt]

    def _setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *others, saved, mask, names = inputs
        ctx.is_tensor = [isinstance(v, torch.Tensor) for v in others]
        ctx.others = [None if is_one else v for v, is_one in zip(others, ctx.is_tensor, strict=True)]
        ctx.chosen = mask, names
        ctx.save_for_backward(*(v for v, is_one in zip(others, ctx.is_tensor, strict=True) if is_one), *saved)

    def _second(self, ctx: Any, *cotangents: Any) -> Any:
        """The derivative of the backward pass: that of the operation which it calls."""
        tensors, (mask, names) = iter(ctx.saved_tensors), ctx.chosen
        pairs = zip(ctx.is_tensor, ctx.others, strict=True)
        others = _apart([next(tensors) if is_one else other for is_one, other in pairs])
        saved = list(tensors)
        given = self._parted((*others, saved, mask, names))
        call = self.backward.call(given)
        if call.operation is None:
            raise DerivativeError(f"the backward function of {self.function.name} has no derivative here")
        operator = self.operator_of(call.operation)
        results = as_tuple(operator.overload(*call.arguments))
        by_name = dict(zip(given.wrt, as_list(cotangents), strict=True))
        moved = [
            torch.zeros_like(r) if by_name.get(n) is None else by_name[n].contiguous()
            for n, r in zip(call.names, results, strict=True)
        ]
        inputs = operator.function.inputs
        second = tuple(t.name for t in inputs if t.role != "const" and t.dtype.is_float)
        outputs = operator.backward.outputs
        found = operator.backward_operator.gradients(Given([*call.arguments, *results], (), moved, second, outputs))
        by_identity = {id(v): g for v, g in zip(call.arguments, found, strict=True) if g is not None}
        moves = [by_identity.get(id(v)) for v in (*others, *saved)]
        return *moves[: len(others)], moves[len(others) :], None, None if names else []


def overload_of(qualified: str) -> Any:
    """An operator of torch that is registered."""
    namespace, name = qualified.split("::")
    return getattr(getattr(torch.ops, namespace), name).default


def as_tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def as_list(cotangents: tuple[Any, ...]) -> Sequence[Any]:
    """Cotangents of an operator that gives a list, or several results."""
    return cotangents[0] if len(cotangents) == 1 and isinstance(cotangents[0], (tuple, list)) else cotangents


def _hint(value: Any) -> int | None:
    """An extent, or if torch leaves it open, that with which it traces, if it has one."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    return int(value.node.hint) if value.node.has_hint() else None


def _apart(values: Sequence[Any]) -> list[Any]:
    """Values that are told apart by identity: what was passed twice has two gradients."""
    found: list[Any] = []
    for value in values:
        is_again = isinstance(value, torch.Tensor) and any(value is other for other in found)
        found.append(value.view_as(value) if is_again else value)
    return found
