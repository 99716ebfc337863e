"""Recorded calls of plain tensors: one node of autograd's graph, with as little around the kernels as there can be.

The forward pass hands out what the backward pass takes, which are outputs of the node, too: the derivative of a
backward pass reaches them.  What ``torch.func`` transforms, and forward mode, go through ``recording``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tcomp.autograd.backward import Derivable
from tcomp.autograd.cotangents import spread
from tcomp.autograd.operators import Operator
from tcomp.autograd.registration import Choices
from tcomp.backends.runtime import Attribute, DirectBinding, Pulled, QuickRun
from tcomp.derivatives.gradient import Gradient, sizes_of_arrays
from tcomp.storage.memo import MOST_KEPT, Memo, Recent

MOST_RECENT = 4
"""Kinds of backward passes that a node tries."""

MOST_TRIED = 100


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
        self.attributes = self._attributes(len(function.inputs))
        self._nodes: Memo[Hashable, Node] = Memo(MOST_KEPT)

    def _attributes(self, inputs: int) -> tuple[Attribute, ...]:
        """What the context of a recorded call is told."""
        found = [Attribute("to_save", places=self.tensors)]
        if not self.is_plain:
            found.append(Attribute("materialize_grads", False))
        if not self.all_floats:
            others = tuple(inputs + n for n, is_float in enumerate(self.floats) if not is_float)
            found.append(Attribute("non_differentiable", places=others))
        return tuple(found)

    def node(self, arguments: tuple[Any, ...]) -> Node:
        """What records calls with the sizes and numbers of these arguments."""
        sizes = sizes_of_arrays(self.operator.function, arguments)
        numbers = [a if place in self.numbers else None for place, a in enumerate(arguments)]
        device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), None)
        key = (*sorted(sizes.items()), *numbers, device)
        return self._nodes.get(key, lambda: Node(self, sizes, numbers))

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


class Node:
    """A node for calls with the same sizes, numbers and device, which are constants of its backward pass."""

    def __init__(self, plan: Plan, sizes: dict[str, int], numbers: Sequence[Any]) -> None:
        self.plan = plan
        self.sizes = sizes
        self.numbers = [numbers[place] if place in plan.numbers else None for place in plan.kept]
        self.results: list[tuple[Any, Any, Any]] = []
        """Shape, type and device of what the forward pass hands out, once it has."""
        self._quick: tuple[Callable[..., Any], ...] = ()
        """Backward passes like those before, the last of them first."""
        self._tried: Recent[Hashable, bool] = Recent(MOST_TRIED)
        self.apply = self._applied(self._forward)

    def quick(self, run: QuickRun) -> DirectBinding:
        """Calls that run and are recorded where arguments are as ``run`` knows them."""
        apply = self._applied(run.forward(self.plan.attributes, self._run))
        return run.recorded(apply, 0 if self.plan.whole else self.plan.outputs)

    def _applied(self, forward: Callable[..., Any]) -> Any:
        """``apply`` of a ``Function``: it gives the outputs, and behind them what else the forward pass hands out."""

        def backward(ctx: Any, *cotangents: Any) -> Any:
            return self._pull(ctx.saved_tensors, cotangents)[0]

        def pull(ctx: Any, *cotangents: Any) -> Any:
            saved = ctx.saved_tensors  # once: checkpoints give them only once
            for quick in self._quick:
                found = quick(saved, *cotangents)
                if found is not None:
                    return found
            return self._pull_and_learn(saved, cotangents)

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        made: Any = type(self.plan.operator.function.name, (torch.autograd.Function,), members)
        # What the engine calls, which looks for ``backward`` otherwise.  What traces a backward pass calls that.
        made._backward_cls.apply = pull
        return _plainly_applied(made)

    def _run(self, *arguments: Any) -> Any:
        return self.plan.forward.run(arguments, None, self.plan.choices)

    def _forward(self, ctx: Any, *arguments: Any) -> Any:
        results = self._run(*arguments)
        outputs = results if type(results) is tuple else (results,)
        self.results = [(o.shape, o.dtype, o.device) for o in outputs]
        values = (*arguments, *outputs)
        for attribute in self.plan.attributes:
            value = attribute.value
            chosen = tuple([values[place] for place in attribute.places]) if value is None else value
            setattr(ctx, attribute.name, chosen)
        return results

    def _pull(self, saved: Sequence[Any], cotangents: tuple[Any, ...]) -> tuple[Any, Taken | None]:
        """The gradients, and what took which values, if one kernel did."""
        plan = self.plan
        kept = self._with_numbers(saved)
        if any(c is not None for c in cotangents[plan.outputs :]):
            return _through_everything(plan, kept[plan.taken_count :], cotangents, self.results), None
        if not any(c is not None for c in cotangents):
            return (None,) * len(plan.places), None
        gradient, places = plan.gradient, [n for n, is_float in enumerate(plan.floats[: plan.outputs]) if is_float]
        if any(cotangents[place] is None for place in places) and (found := plan.without_missing(cotangents)):
            gradient, places = found, [place for place in places if cotangents[place] is not None]
        given = [
            _made(cotangents[n], self.results[n]) if n < len(self.results) else spread(cotangents[n]) for n in places
        ]
        arguments = tuple(plan.taken(kept, self.sizes, given, gradient))
        results = gradient.backward(*arguments, **plan.given_choices)
        taken = Taken(gradient, places, given, arguments, len(saved))
        results = results if type(results) is tuple else (results,)
        return tuple([None if place is None else results[place] for place in plan.places]), taken

    def _with_numbers(self, saved: Sequence[Any]) -> Sequence[Any]:
        """What is kept, in its order."""
        if not self.plan.has_numbers:
            return saved
        tensors = iter(saved)
        return [next(tensors) if number is None else number for number in self.numbers]

    def _pull_and_learn(self, saved: Sequence[Any], cotangents: tuple[Any, ...]) -> Any:
        gradients, taken = self._pull(saved, cotangents)
        if taken is not None and taken.cotangents[0].is_cpu and not torch.is_grad_enabled():
            facts = [None if t is None else (*_facts(t), t.requires_grad) for t in (*saved, *cotangents)]
            if tuple(facts) not in self._tried:
                self._tried[tuple(facts)] = True
                quick = self._learned(taken, cotangents)
                if quick is not None:
                    self._quick = (quick, *self._quick[: MOST_RECENT - 1])
        return gradients

    def _learned(self, taken: Taken, cotangents: Sequence[Any]) -> Callable[..., Any] | None:
        """How to do the same again, where all cotangents were given and are as they are in memory."""
        plan, originals = self.plan, [cotangents[place] for place in taken.places]
        if any(c is None or c.is_neg() for c in originals):
            return None
        numbered = self._with_numbers([(False, n) for n in range(taken.saved)])
        sources = plan.taken(numbered, self.sizes, [(True, place) for place in taken.places], taken.gradient)
        by_copy = {id(copy): original for copy, original in zip(taken.cotangents, originals, strict=True)}
        before = tuple([by_copy.get(id(a), a) for a in taken.arguments])
        run = taken.gradient.backward.quick_run(taken.arguments, plan.choices, recorded=False, originals=before)
        if run is None:
            return None
        used = tuple(c is not None for c in cotangents)
        places = tuple((False, 0) if isinstance(s, int) else s for s in sources)
        found: Callable[..., Any] | None = run.backward(Pulled(taken.saved, used, places, plan.places))
        return found


def _plainly_applied(function: Any) -> Any:
    """``apply`` without what it does for transformed tensors, which no quick call has."""
    return super(torch.autograd.Function, function).apply


@dataclass(frozen=True, slots=True)
class Taken:
    """Which gradient took which arguments: ``cotangents`` of outputs at some places, in C order, and so many saved."""

    gradient: Gradient
    places: Sequence[int]
    cotangents: Sequence[Any]
    arguments: tuple[Any, ...]
    saved: int


def _facts(tensor: Any) -> tuple[Any, ...]:
    return type(tensor), tensor.shape, tensor.stride(), tensor.dtype


def recorded(operation: Derivable, operator: Operator, wrt: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
    """Run and record a call of an operation; calls like it are quick from then on.

    Operations of one text share an ``operator``, and each remembers calls of its own.
    """
    gradient = operator.backward.derived(wrt, operator.backward.choice(arguments), arguments)
    plan: Plan = operator.once(("plan", id(gradient)), lambda: Plan(operator, gradient))
    node = plan.node(arguments)
    results = node.apply(*arguments)
    _remember(operation, node, arguments)
    if plan.whole:
        return results
    return results[0] if plan.outputs == 1 else results[: plan.outputs]


def _remember(operation: Derivable, node: Node, arguments: tuple[Any, ...]) -> None:
    choices = node.plan.choices
    with torch.no_grad():
        quick = node.plan.forward.quick_run(arguments, choices, recorded=True)
    if quick is not None:
        operation.remember(choices, node.quick(quick))


def _through_everything(plan: Plan, inputs: Sequence[Any], cotangents: tuple[Any, ...], shapes: Sequence[Any]) -> Any:
    """The backward pass where something depends on what the forward pass has handed out beside its outputs."""
    given = [_made(*pair) for pair in zip(cotangents, shapes, strict=True)]
    floats = [c for c, is_float in zip(given, plan.floats, strict=True) if is_float]
    gradient = plan.everything(plan.gradient.wrt)
    results = gradient(*inputs, *floats, **plan.given_choices)
    results = results if type(results) is tuple else (results,)
    return tuple([None if place is None else results[place] for place in plan.places])


def _made(cotangent: Any, result: tuple[Any, Any, Any]) -> Any:
    """A cotangent; zeros where there is none."""
    shape, dtype, device = result
    return torch.zeros(shape, dtype=dtype, device=device) if cotangent is None else spread(cotangent)
