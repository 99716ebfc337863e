"""Recorded calls in graphs, which save statistics: ``f.saving(.., bool[] wrt, str[] names) -> Tensor[]``.

The operator gives the outputs, and behind them what else the backward pass takes of the forward pass.  All of them are
outputs of autograd's node, so that the derivative of a backward pass reaches them.  Like the backward operator it is
one for each def, whatever needs a gradient, for compiled graphs that torch keeps on disk hold its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcomp.autograd.backward import Backward, Given, as_tuple
from tcomp.autograd.backwardoperator import BackwardOperator, as_list
from tcomp.autograd.entry import enter_directly
from tcomp.autograd.fake import Fake
from tcomp.autograd.inductor import FakeFor


class SavingOperator:
    """The overload ``saving`` of an operator; ``operator_of`` finds that of another operation."""

    def __init__(
        self, backward: Backward, backward_operator: BackwardOperator, operator_of: Callable[[Any, Any], Any]
    ) -> None:
        self.backward = backward
        self.backward_operator = backward_operator
        self.operator_of = operator_of
        self.function = backward.function
        self._known: dict[tuple[Any, ...], Any] = {}
        """Forward passes for all sizes, by what needs a gradient and what is saved."""
        self.qualified = f"{backward_operator.qualified.removesuffix('_backward')}.saving"

    def register(self, library: Any, parameters: str) -> None:
        """``parameters`` are those of the inputs, as a schema has them."""
        name = self.qualified.partition("::")[2]
        library.define(f"{name}({', '.join([*filter(None, [parameters]), 'bool[] wrt', 'str[] names'])}) -> Tensor[]")
        library.impl(name, self._run, "CompositeExplicitAutograd")
        FakeFor(library, self.qualified, self._fake, self._run)
        enter_directly(library, name, lambda: self.overload, self._run, (self._pull_back, self._setup))

    @functools.cached_property
    def overload(self) -> Any:
        namespace, name = self.qualified.removesuffix(".saving").split("::")
        return getattr(getattr(torch.ops, namespace), name).saving

    def outputs(self, arguments: Sequence[Any]) -> Any:
        """The outputs of a call that autograd records, if it saves more than these; else None."""
        if not torch.is_grad_enabled():
            return None
        needed = [isinstance(a, torch.Tensor) and a.requires_grad for a in arguments]
        wrt = self.backward.check(needed, arguments)
        names = self.backward.saved_besides(wrt, arguments)
        if not names:
            return None
        results = self.overload(*arguments, needed, list(names))[: len(self.function.outputs)]
        return results[0] if len(results) == 1 else tuple(results)

    def _parted(self, arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
        """The inputs, the names of those that need a gradient, and of what is saved."""
        *inputs, mask, names = arguments
        pairs = zip(self.function.inputs, mask, strict=True)
        wrt = tuple(t.name for t, wanted in pairs if wanted and t.dtype.is_float)
        return tuple(inputs), wrt, tuple(names)

    def _forward(self, inputs: Sequence[Any], wrt: tuple[str, ...], names: tuple[str, ...]) -> Any:
        """The operation that hands out what is saved."""
        return self.backward.derived(wrt, names, inputs).forward

    def _run(self, *arguments: Any) -> list[Any]:
        *inputs, mask, names = arguments
        key, choices = (*mask, *names), self.backward.choices
        forward = self._known.get(key)
        if forward is None:
            gradient = self.backward.derived(self._parted(arguments)[1], tuple(names), inputs)
            forward = gradient.forward
            if not gradient.only:
                self._known[key] = forward
        results = forward.run_again(tuple(inputs), choices)
        if results is None:
            with torch.no_grad():
                results = forward.run(tuple(inputs), None, choices)
        return list(as_tuple(results))

    def _fake(self, *arguments: Any) -> list[Any]:
        inputs, wrt, names = self._parted(arguments)
        return list(as_tuple(Fake(self._forward(inputs, wrt, names).function)(*inputs)))

    def _setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        arguments, ctx.wrt, ctx.names = self._parted(inputs)
        ctx.set_materialize_grads(False)
        ctx.is_tensor = [isinstance(a, torch.Tensor) for a in arguments]
        ctx.numbers = [a for a, is_one in zip(arguments, ctx.is_tensor, strict=True) if not is_one]
        ctx.save_for_backward(*(a for a in arguments if isinstance(a, torch.Tensor)), *output)

    def _pull_back(self, ctx: Any, *cotangents: Any) -> Any:
        tensors, numbers = iter(ctx.saved_tensors), iter(ctx.numbers)
        inputs = [next(tensors) if is_one else next(numbers) for is_one in ctx.is_tensor]
        results, count = list(tensors), len(self.function.outputs)
        moved = as_list(cotangents)
        given = [
            torch.zeros_like(r, memory_format=torch.contiguous_format) if c is None else c.contiguous()
            for r, c in zip(results, moved, strict=True)
            if r.is_floating_point()
        ]
        unread: list[Any] = [None] * len(inputs)
        if all(c is None for c in moved):
            gradients = unread
        elif all(c is None for c in moved[count:]):
            values = [*inputs, *results[:count]]
            own = Given(values, results[count:], given[: len(self.backward.floats)], ctx.wrt, ctx.names)
            gradients = self.backward_operator.gradients(own)
        else:
            # Something depends on what was saved: the gradient of all that the forward pass hands out.
            operator = self.operator_of(self._forward(inputs, ctx.wrt, ctx.names), self.backward.choices)
            every = Given([*inputs, *results], (), given, ctx.wrt, operator.backward.outputs)
            gradients = operator.backward_operator.gradients(every)
        return *gradients, None, None if ctx.names else []
