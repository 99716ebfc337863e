"""What a call with torch tensors needs: nothing, a record of autograd, or torch's dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tcomp.autograd.backward import Derivable
from tcomp.autograd.eager import recorded
from tcomp.autograd.entry import is_watched
from tcomp.autograd.operators import as_tensors, operator_of
from tcomp.autograd.outs import check_out, outs_of
from tcomp.autograd.recording import Recorded
from tcomp.autograd.registration import Choices
from tcomp.mapping.options.options import MappingOptions

_OPERATORS = torch.ops
"""Graphs check that all ways to one object lead there: what is traced has one of its own to this, and to ``Tensor``."""


def call(operation: Derivable, arguments: tuple[Any, ...], out: Any, choices: Choices) -> Any:
    """The result of a call that torch must know of; NotImplemented for all others.

    Raises:
        DerivativeError: an input requires a gradient that cannot be derived.
        ShapeError: ``out`` or an input requires a gradient in a call with ``out``.
    """
    alive = torch._functorch.utils.unwrap_dead_wrappers(arguments)
    if any(a is not b for a, b in zip(alive, arguments, strict=True)):
        # What a transformation of torch.func has left behind, in a pullback say.
        return operation(*alive, out=out, **choices.named())
    if any(isinstance(a, torch.fx.Proxy) for a in arguments):
        return operator_of(operation, choices).overload(*arguments)
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    if out is not None:
        check_out(operation.function, arguments, out)
        return NotImplemented
    if not tensors or any(t.layout is not torch.strided or t.is_nested for t in tensors):
        return NotImplemented  # there is nothing to do, or the call that follows says what is wrong
    given = as_tensors(operation.function, arguments)
    wanted, device = operation.registration.autocast, tensors[0].device.type
    if wanted is not None and torch.is_autocast_enabled(device):
        # Not by the rule of the operator, which comes too late for what transforms a call.
        given = autocast(given, wanted)
        with torch.autocast(device, enabled=False):
            return operation(*given, **choices.named())
    # In forward mode what a tensor is of it cannot be asked inside a batch.
    transformed = torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
    if not transformed and is_watched(given):
        return operator_of(operation, choices).overload(*given)
    recording = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if not transformed and not recording:
        return NotImplemented
    operator = operator_of(operation, choices)
    if recording:
        wrt = operator.backward.check([isinstance(a, torch.Tensor) and a.requires_grad for a in given], given)
        if not transformed and operation.registration.backward is None:
            return recorded(operation, operator, wrt, given)
    return Recorded.apply(operator, *given)  # type: ignore[no-untyped-call]


def autocast(arguments: tuple[Any, ...], dtype: str) -> tuple[Any, ...]:
    """Arguments as ``torch.autocast`` converts them where it is on for the device of the first tensor."""
    device = next((a.device.type for a in arguments if isinstance(a, torch.Tensor)), None)
    if device is None or not torch.is_autocast_enabled(device):
        return arguments
    return tuple(torch.amp.autocast_mode._cast(arguments, device, getattr(torch, dtype)))


def traced(
    operation: Derivable, arguments: tuple[Any, ...], out: Any, target: str | None, options: Any, unchecked: bool
) -> Any:
    """The same while torch compiles or exports: a node of its graph.

    Whatever is looked at here torch looks at before each call of what it compiled: for tensors that is little.
    Raises ShapeError for an ``out`` that autograd would have to follow, or that leaves outputs out.
    """
    namespace, name, takes = _named(operation, target, options, unchecked, len(arguments))
    packet = getattr(getattr(_OPERATORS, namespace), name)
    given: Sequence[Any] = arguments
    if not takes or not all(isinstance(a, Tensor) for a in arguments):
        given = as_tensors(operation.function, operation.function.completed(arguments))
    if out is None:
        return packet.default(*given)
    outs = outs_of(operation.function, out)
    check_out(operation.function, given, outs)
    packet.out(*given, *outs)
    return outs[0] if len(outs) == 1 else outs


class _Choosing(Protocol):
    def choose(self, types: tuple[Any, ...]) -> None: ...


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def choose(operation: _Choosing, types: tuple[Any, ...]) -> None:
    """Make an operation for the types of tensors while a call is traced: a compiler does not go through that."""
    operation.choose(types)


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _named(
    operation: Derivable, target: str | None, options: Any, unchecked: bool, count: int
) -> tuple[str, str, bool]:
    """The operator's name, and whether it has so many inputs, none of them a number that is part of the kernel."""
    checked = None if options is None else MappingOptions.of(options)
    namespace, name = operator_of(operation, Choices(target, checked, bool(unchecked))).qualified.split("::")
    inputs = operation.function.inputs
    takes = len(inputs) == count and all(tensor.role != "const" for tensor in inputs)
    return namespace, name, takes
