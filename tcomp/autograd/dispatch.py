"""What a call with torch tensors needs: nothing, a record of autograd, or torch's dispatcher."""

from __future__ import annotations

from typing import Any

import torch

from tcomp.autograd.backward import Derivable
from tcomp.autograd.eager import recorded
from tcomp.autograd.entry import is_watched
from tcomp.autograd.operators import as_tensors, operator_of
from tcomp.autograd.recording import Recorded
from tcomp.autograd.registration import Choices
from tcomp.errors import Diagnostic, ShapeError
from tcomp.mapping.options.options import MappingOptions


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
        _check_out(operation, arguments, out)
        return NotImplemented
    if not tensors or any(t.layout is not torch.strided or t.is_nested for t in tensors):
        return NotImplemented  # there is nothing to do, or the call that follows says what is wrong
    given = as_tensors(operation.function, arguments)
    if operation.registration.autocast is not None and torch.is_autocast_enabled(tensors[0].device.type):
        # Not by the rule of the operator, which comes too late for what transforms a call.
        device, dtype = tensors[0].device.type, getattr(torch, operation.registration.autocast)
        given = torch.amp.autocast_mode._cast(given, device, dtype)
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
        wrt = operator.backward.check([isinstance(a, torch.Tensor) and a.requires_grad for a in given])
        if not transformed and operation.registration.backward is None:
            return recorded(operator, wrt, given)
    return Recorded.apply(operator, *given)  # type: ignore[no-untyped-call]


def traced(operation: Derivable, arguments: tuple[Any, ...], out: Any, choices: Choices) -> Any:
    """The same while torch compiles or exports: a node of its graph.  Raises ShapeError for ``out``."""
    if out is not None:
        raise ShapeError("out= is not possible inside torch.compile or torch.export; use the result")
    namespace, name = _qualified(operation, choices.target, choices.options, choices.unchecked).split("::")
    return getattr(getattr(torch.ops, namespace), name).default(*as_tensors(operation.function, arguments))


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _qualified(operation: Derivable, target: str | None, options: Any, unchecked: bool) -> str:
    checked = None if options is None else MappingOptions.of(options)
    return operator_of(operation, Choices(target, checked, bool(unchecked))).qualified


def _check_out(operation: Derivable, arguments: tuple[Any, ...], out: Any) -> None:
    """Autograd does not follow what is written to an array that was given, so nothing in the call may need it."""
    if not torch.is_grad_enabled():
        return
    given = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else (out,)
    named = [(f"input {t.name}", a) for t, a in zip(operation.function.inputs, arguments, strict=False)]
    for what, value in (*named, *((f"output {n}", o) for n, o in enumerate(given))):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            message = f"{what} requires a gradient, which does not go with out="
            raise ShapeError(Diagnostic(message, hint="call without out=, or under torch.no_grad()"))
