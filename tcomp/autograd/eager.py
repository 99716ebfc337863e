"""Recorded calls of plain tensors: one node of autograd's graph, with as little around the kernels as there can be.

The forward pass hands out what the backward pass takes, which are outputs of the node, too: the derivative of a
backward pass reaches them.  What ``torch.func`` transforms, and forward mode, go through ``recording``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch

from tcomp.autograd.backward import Derivable
from tcomp.autograd.cotangents import spread
from tcomp.autograd.operators import Operator
from tcomp.autograd.registration import Choices
from tcomp.derivatives.gradient import Gradient, sizes_of_arrays

Run = Callable[[Any], Any]
"""Gives the results of a forward pass, of addresses or arguments."""


class Plan:
    """How to record calls of an operator in which some inputs need a gradient."""

    def __init__(self, operator: Operator, gradient: Gradient) -> None:
        function = operator.function
        self.operator = operator
        self.choices = operator.choices
        self.given_choices = {} if operator.choices == Choices() else operator.choices.named()
        self.gradient = gradient
        self.forward = self.gradient.forward
        self.outputs = len(function.outputs)
        names = [t.name for t in (*function.inputs, *self.forward.function.outputs)]
        self.kept = tuple(names.index(n) for n in (*self.gradient.inputs, *self.gradient.saved))
        self.taken_count = len(self.kept)
        self.whole = len(self.forward.function.outputs) == self.outputs
        if not self.whole:
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
        unusual = self.has_numbers or self.needs_sizes or self.positive or not self.all_floats
        self.is_plain = len(self.floats) == 1 and not unusual
        self.apply = _node(self)

    def taken(
        self, kept: Sequence[Any], sizes: dict[str, int], cotangents: Sequence[Any], other: Gradient | None = None
    ) -> list[Any]:
        """The arguments of the backward pass, or of another that reads no more."""
        if other is None and not self.needs_sizes and not self.positive:
            return [*kept[: self.taken_count], *cotangents]
        given = dict(zip((*self.gradient.inputs, *self.gradient.saved), kept, strict=False))
        return (other or self.gradient).arguments(given, sizes, cotangents)

    def without_missing(self, cotangents: Sequence[Any]) -> Gradient | None:
        """The backward pass without what hangs on outputs that have no cotangent, if it reads nothing more."""
        outputs = zip(self.operator.function.outputs, cotangents, strict=False)
        missing = frozenset(tensor.name for tensor, c in outputs if c is None and tensor.dtype.is_float)
        if not missing:
            return None
        found = self.gradient.without(missing)
        known = {*self.gradient.inputs, *self.gradient.saved}
        return found if {*found.inputs, *found.saved} <= known else None

    def everything(self, wrt: tuple[str, ...]) -> Gradient:
        """The gradient of the forward pass by all that it hands out."""
        found: Gradient = self.forward.gradient(wrt, save=())
        return found


def _node(plan: Plan) -> Any:
    """``apply`` of a ``Function`` for one plan: takes ``run`` and what that takes, then the arguments of the operator.

    It gives the outputs, and behind them what else the forward pass hands out.  Written for the plan, since each
    attribute of a context costs as much as a test.
    """
    members = _single(plan) if plan.is_plain else _general(plan)
    made: Any = type(plan.operator.function.name, (torch.autograd.Function,), members)
    # Without what ``Function.apply`` does for transformed tensors, which no quick call has.
    return super(torch.autograd.Function, made).apply


def _single(plan: Plan) -> dict[str, Any]:
    """One result, of floats, and a backward pass that takes arguments and results as they are."""
    kept = _picked(plan.tensors)
    places = {None: 0} | {n: n + 1 for n in range(len(plan.gradient.wrt))}
    arrange = itemgetter(0, 0, *(places[place] for place in plan.places))
    backward_pass, choices, is_single = plan.gradient.backward, plan.given_choices, len(plan.gradient.wrt) == 1

    def forward(ctx: Any, run: Run, addresses: Any, *arguments: Any) -> Any:
        result = run(addresses)
        ctx.save_for_backward(*kept((*arguments, result)))
        return result

    def backward(ctx: Any, cotangent: Any) -> Any:
        given = cotangent if cotangent.is_contiguous() and not cotangent.is_neg() else spread(cotangent)
        results = backward_pass(*ctx.saved_tensors, given, **choices)
        return arrange((None, results)) if is_single else arrange((None, *results))

    return {"forward": staticmethod(forward), "backward": staticmethod(backward)}


def _picked(places: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What takes elements out of a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return (lambda values: (values[places[0]],)) if places else (lambda values: ())


def _general(plan: Plan) -> dict[str, Any]:
    def forward(ctx: Any, run: Run, addresses: Any, *arguments: Any) -> Any:
        results = run(addresses)
        outputs = results if type(results) is tuple else (results,)
        values = (*arguments, *outputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*[values[place] for place in plan.tensors])
        if plan.has_numbers:
            ctx.numbers = [values[place] if place in plan.numbers else None for place in plan.kept]
        if plan.needs_sizes:
            ctx.sizes = sizes_of_arrays(plan.operator.function, arguments)
        if not plan.all_floats:
            ctx.mark_non_differentiable(*[o for o, is_float in zip(outputs, plan.floats, strict=True) if not is_float])
        if len(outputs) > 1:
            ctx.sizes = sizes_of_arrays(plan.operator.function, arguments)
            ctx.results = [(o.shape, o.dtype, o.device) for o in outputs]
        return results

    def backward(ctx: Any, *cotangents: Any) -> Any:
        kept = ctx.saved_tensors
        if plan.has_numbers:
            tensors = iter(kept)
            kept = [next(tensors) if number is None else number for number in ctx.numbers]
        if len(cotangents) > plan.outputs and any(c is not None for c in cotangents[plan.outputs :]):
            return _through_everything(plan, kept[plan.taken_count :], cotangents, ctx.results)
        if not any(c is not None for c in cotangents):
            return (None,) * (2 + len(plan.places))
        if len(cotangents) == 1:
            given = [spread(cotangents[0])]
        elif (gradient := plan.without_missing(cotangents)) is not None:
            given = [spread(c) for c in cotangents[: plan.outputs] if c is not None]
            results = gradient.backward(*plan.taken(kept, ctx.sizes, given, gradient), **plan.given_choices)
            results = results if type(results) is tuple else (results,)
            return None, None, *[None if place is None else results[place] for place in plan.places]
        else:
            given = [_made(*pair) for pair in zip(cotangents[: plan.outputs], ctx.results, strict=False)]
            given = [c for c, is_float in zip(given, plan.floats, strict=False) if is_float]
        sizes = ctx.sizes if plan.needs_sizes else {}
        results = plan.gradient.backward(*plan.taken(kept, sizes, given), **plan.given_choices)
        if type(results) is not tuple:
            results = (results,)
        return None, None, *[None if place is None else results[place] for place in plan.places]

    return {"forward": staticmethod(forward), "backward": staticmethod(backward)}


def recorded(operation: Derivable, operator: Operator, wrt: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
    """Run and record a call of an operation; calls like it are quick from then on.

    Operations of one text share an ``operator``, and each remembers calls of its own.
    """
    gradient = operator.backward.derived(wrt, operator.backward.choice(arguments), arguments)
    plan: Plan = operator.once(("plan", id(gradient)), lambda: Plan(operator, gradient))
    results = plan.apply(functools.partial(plan.forward.run, out=None, choices=plan.choices), arguments, *arguments)
    _remember(operation, plan, arguments)
    return _outputs(plan, results)


def _outputs(plan: Plan, results: Any) -> Any:
    if plan.whole:
        return results
    return results[0] if plan.outputs == 1 else results[: plan.outputs]


def _remember(operation: Derivable, plan: Plan, arguments: tuple[Any, ...]) -> None:
    with torch.no_grad():
        quick = plan.forward.recorded_run(arguments, plan.choices)
    if quick is None:
        return
    match, run, apply = quick.match, quick.run, plan.apply

    def call(arguments: tuple[Any, ...], out: Any) -> Any:
        addresses = match(arguments) if out is None else None
        if addresses is None:
            return None
        results = apply(run, addresses, *arguments)
        return results if plan.whole else _outputs(plan, results)

    operation.remember(plan.choices, call)


def _through_everything(plan: Plan, inputs: Sequence[Any], cotangents: tuple[Any, ...], shapes: Sequence[Any]) -> Any:
    """The backward pass where something depends on what the forward pass has handed out beside its outputs."""
    given = [_made(*pair) for pair in zip(cotangents, shapes, strict=True)]
    floats = [c for c, is_float in zip(given, plan.floats, strict=True) if is_float]
    gradient = plan.everything(plan.gradient.wrt)
    results = gradient(*inputs, *floats, **plan.given_choices)
    results = results if type(results) is tuple else (results,)
    return None, None, *[None if place is None else results[place] for place in plan.places]


def _made(cotangent: Any, result: tuple[Any, Any, Any]) -> Any:
    """A cotangent; zeros where there is none."""
    shape, dtype, device = result
    return torch.zeros(shape, dtype=dtype, device=device) if cotangent is None else spread(cotangent)
