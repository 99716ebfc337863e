"""Recorded calls of plain tensors: one node of autograd's graph, with as little around the kernels as there can be.

The forward pass hands out what the backward pass takes, which are outputs of the node, too: the derivative of a
backward pass reaches them.  What ``torch.func`` transforms, and forward mode, go through ``recording``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcomp.autograd.operators import Operator
from tcomp.derivatives.gradient import Gradient, sizes_of_arrays
from tcomp.derivatives.saving import CheapToSave, Save


class Plan:
    """How to record calls of an operator in which some inputs need a gradient."""

    def __init__(self, operator: Operator, wrt: tuple[str, ...], save: Save) -> None:
        function = operator.function
        self.operator = operator
        self.choices = operator.choices.named()
        self.gradient: Gradient = operator.operation.gradient(wrt, save, operator.operation.registration.ties)
        self.forward = self.gradient.forward
        self.outputs = len(function.outputs)
        names = [t.name for t in (*function.inputs, *self.forward.function.outputs)]
        self.kept = tuple(names.index(n) for n in (*self.gradient.inputs, *self.gradient.saved))
        self.taken_count = len(self.kept)
        if self.forward is not operator.operation:
            # What is handed out besides depends on any input, and so may what somebody does with the gradient.
            self.kept += tuple(range(len(function.inputs)))
        self.floats = tuple(t.dtype.is_float for t in self.forward.function.outputs)
        self.all_floats = all(self.floats)
        self.numbers = {place for place, tensor in enumerate(function.inputs) if tensor.role == "const"}
        self.tensors = tuple(place for place in self.kept if place not in self.numbers)
        self.has_numbers = len(self.tensors) < len(self.kept)
        by_name = {name: place for place, name in enumerate(self.gradient.wrt)}
        self.places = tuple(by_name.get(t.name) for t in function.inputs)
        self.needs_sizes = bool(self.gradient.sizes)
        self.positive = bool(self.gradient.derivative.positive)

    def taken(self, kept: Sequence[Any], sizes: dict[str, int], cotangents: Sequence[Any]) -> list[Any]:
        """The arguments of the backward pass."""
        if not self.needs_sizes and not self.positive:
            return [*kept[: self.taken_count], *cotangents]
        given = dict(zip((*self.gradient.inputs, *self.gradient.saved), kept, strict=False))
        return self.gradient.arguments(given, sizes, cotangents)

    def everything(self, wrt: tuple[str, ...]) -> Gradient:
        """The gradient of the forward pass by all that it hands out."""
        found: Gradient = self.forward.gradient(wrt, save=())
        return found


class Eager(torch.autograd.Function):
    """``Eager.apply(plan, run, *arguments)`` gives the outputs, and behind them what else the forward pass hands out.

    ``run`` is called without arguments where it is not None.
    """

    @staticmethod
    def forward(ctx: Any, plan: Plan, run: Callable[[], Any] | None, *arguments: Any) -> Any:
        results = plan.forward.run(arguments, None, plan.operator.choices) if run is None else run()
        outputs = results if type(results) is tuple else (results,)
        values = (*arguments, *outputs)
        ctx.plan = plan
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*[values[place] for place in plan.tensors])
        if plan.has_numbers:
            ctx.numbers = [values[place] if place in plan.numbers else None for place in plan.kept]
        ctx.sizes = sizes_of_arrays(plan.operator.function, arguments) if plan.needs_sizes else None
        if not plan.all_floats:
            ctx.mark_non_differentiable(*[o for o, is_float in zip(outputs, plan.floats, strict=True) if not is_float])
        ctx.results = [(o.shape, o.dtype, o.device) for o in outputs] if len(outputs) > 1 else None
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        plan: Plan = ctx.plan
        kept = ctx.saved_tensors
        if plan.has_numbers:
            tensors = iter(kept)
            kept = [next(tensors) if number is None else number for number in ctx.numbers]
        if len(cotangents) > plan.outputs and any(c is not None for c in cotangents[plan.outputs :]):
            return _through_everything(plan, kept[plan.taken_count :], cotangents, ctx.results)
        if not any(c is not None for c in cotangents):
            return (None,) * (2 + len(plan.places))
        if ctx.results is None:
            given = [_spread(cotangents[0])]
        else:
            given = [_made(*pair) for pair in zip(cotangents[: plan.outputs], ctx.results, strict=False)]
            given = [c for c, is_float in zip(given, plan.floats, strict=False) if is_float]
        results = plan.gradient.backward(*plan.taken(kept, ctx.sizes, given), **plan.choices)
        if type(results) is not tuple:
            results = (results,)
        return None, None, *[None if place is None else results[place] for place in plan.places]


_apply: Any = super(torch.autograd.Function, Eager).apply
"""Without what ``Function.apply`` does for transformed tensors, which no quick call has."""


def recorded(operator: Operator, wrt: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
    """Run and record a call; calls like it are quick from then on."""
    save = operator.operation.registration.save
    if save == "auto":
        cheap: CheapToSave = operator.once("save", lambda: CheapToSave(operator.function))
        save = cheap.names(sizes_of_arrays(operator.function, arguments) | _constants(operator, arguments))
    plan: Plan = operator.once(("plan", wrt, save), lambda: Plan(operator, wrt, save))
    results = Eager.apply(plan, None, *arguments)  # type: ignore[no-untyped-call]
    _remember(plan, arguments)
    return _outputs(plan, results)


def _constants(operator: Operator, arguments: tuple[Any, ...]) -> dict[str, int]:
    pairs = zip(operator.function.inputs, arguments, strict=True)
    return {tensor.name: value for tensor, value in pairs if tensor.role == "const"}


def _outputs(plan: Plan, results: Any) -> Any:
    if plan.forward is plan.operator.operation:
        return results
    return results[0] if plan.outputs == 1 else results[: plan.outputs]


def _remember(plan: Plan, arguments: tuple[Any, ...]) -> None:
    with torch.no_grad():
        quick = plan.forward.recorded_run(arguments, plan.operator.choices)
    if quick is None:
        return
    match, run = quick.match, quick.run
    whole = plan.forward is plan.operator.operation

    def call(arguments: tuple[Any, ...], out: Any) -> Any:
        addresses = match(arguments) if out is None else None
        if addresses is None:
            return None
        results = _apply(plan, functools.partial(run, addresses), *arguments)
        return results if whole else _outputs(plan, results)

    plan.operator.operation.remember(plan.operator.choices, call)


def _through_everything(plan: Plan, inputs: Sequence[Any], cotangents: tuple[Any, ...], shapes: Sequence[Any]) -> Any:
    """The backward pass where something depends on what the forward pass has handed out beside its outputs."""
    given = [_made(*pair) for pair in zip(cotangents, shapes, strict=True)]
    floats = [c for c, is_float in zip(given, plan.floats, strict=True) if is_float]
    gradient = plan.everything(plan.gradient.wrt)
    results = gradient(*inputs, *floats, **plan.choices)
    results = results if type(results) is tuple else (results,)
    return None, None, *[None if place is None else results[place] for place in plan.places]


def _made(cotangent: Any, result: tuple[Any, Any, Any]) -> Any:
    """A cotangent; zeros where there is none."""
    shape, dtype, device = result
    return torch.zeros(shape, dtype=dtype, device=device) if cotangent is None else _spread(cotangent)


def _spread(cotangent: Any) -> Any:
    """A cotangent whose elements are all in memory: that of a sum is one element, which would need its own kernel."""
    if cotangent.is_contiguous():
        return cotangent
    if any(s == 0 and n > 1 for s, n in zip(cotangent.stride(), cotangent.shape, strict=True)):
        return cotangent.contiguous()
    return cotangent
