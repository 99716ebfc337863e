"""One operator of torch for all gradients of an operation.

It takes what may be needed of inputs and outputs, what else the forward pass has saved, the cotangents, which
inputs need a gradient, and what is saved by name.  It has one name whichever these are, registered with the operation:
compiled graphs that torch keeps on disk hold it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcomp.autograd.backward import Backward, Given, as_tuple
from tcomp.autograd.entry import enter_directly
from tcomp.autograd.fake import Fake
from tcomp.autograd.inductor import FakeFor
from tcomp.errors import CompileError, DerivativeError, ShapeError
from tcomp.storage.memo import MOST_KEPT, Recent


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


def as_list(cotangents: tuple[Any, ...]) -> Sequence[Any]:
    """Cotangents of an operator that gives a list, or several results."""
    return cotangents[0] if len(cotangents) == 1 and isinstance(cotangents[0], (tuple, list)) else cotangents


def _apart(values: Sequence[Any]) -> list[Any]:
    """Values that are told apart by identity: what was passed twice has two gradients."""
    found: list[Any] = []
    for value in values:
        is_again = isinstance(value, torch.Tensor) and any(value is other for other in found)
        found.append(value.view_as(value) if is_again else value)
    return found
