"""Where torch's dispatcher enters an operator first: the kernel of its key for autograd.

Calls that nobody transforms or traces go straight to the operation, which saves the dispatcher's second round; what
needs a derivative of the operator gets the one that it registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from tcomp.errors import DerivativeError, Diagnostic

_REGISTERED: Any = getattr(torch._library, "autograd", None)
"""What makes torch's own kernel: no documented name.  What is documented instead is slower, and loses tangents."""

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Entered(Protocol):
    """What is asked of an operator here."""

    operation: Any
    choices: Any
    qualified: str
    saving_operator: Any

    @property
    def overload(self) -> Any: ...
    def setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...
    def pull_back(self, ctx: Any, *cotangents: Any) -> Any: ...


def enter(library: Any, operator: Entered) -> None:
    """Register the derivative of an operator that is defined."""
    if _REGISTERED is None:
        torch.library.register_autograd(
            operator.qualified, operator.pull_back, setup_context=operator.setup, lib=library
        )
        return
    info = _REGISTERED.Info(operator.pull_back, operator.setup)
    kernel = _kernel(operator, _REGISTERED.make_autograd_impl(operator.overload, info))
    library.impl(operator.qualified.partition("::")[2], kernel, "Autograd", with_keyset=True)


def enter_directly(
    library: Any, name: str, overload: Callable[[], Any], run: Callable[..., Any], derivative: tuple[Any, Any]
) -> None:
    """Register the derivative of an operator, what pulls back and what sets up for that, which graphs seldom ask for.

    Calls that nobody records, transforms or traces ``run`` at once.
    """
    pull_back, setup = derivative
    if _REGISTERED is None:
        qualified = f"{library.ns}::{name}"
        torch.library.register_autograd(qualified, pull_back, setup_context=setup, lib=library)
        return
    registered = _REGISTERED.make_autograd_impl(overload(), _REGISTERED.Info(pull_back, setup))

    def kernel(keyset: Any, *arguments: Any) -> Any:
        is_recorded = torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments)
        if not is_recorded and not torch._C._are_functorch_transforms_active():
            flat = [v for a in arguments for v in (a if isinstance(a, list) else (a,))]
            if not is_watched(flat):
                return run(*arguments)
        return registered(keyset, *arguments)

    library.impl(name, kernel, "Autograd", with_keyset=True)


def _kernel(operator: Entered, registered: Callable[..., Any]) -> Callable[..., Any]:
    operation, choices, again = operator.operation, operator.choices, operator.operation.call_again

    def kernel(keyset: Any, *arguments: Any) -> Any:
        found = again(arguments, choices)
        if found is not None:
            return found
        if not torch._C._are_functorch_transforms_active() and not is_watched(arguments):
            return operation(*arguments, **choices.named())
        _refuse_tangents(operator.qualified, arguments)
        if not torch._C._are_functorch_transforms_active():
            found = operator.saving_operator.outputs(arguments)
            if found is not None:
                return found
        return registered(keyset, *arguments)

    return kernel


def is_watched(arguments: Sequence[Any]) -> bool:
    """Whether a call is for torch's dispatcher: one that is traced, or of tensors that have no memory."""
    if torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None:
        return True
    return any(_is_foreign(a) for a in arguments if isinstance(a, torch.Tensor))


def _is_foreign(tensor: torch.Tensor) -> bool:
    """Subclasses, tensors without memory, and those that a transformation of a call has wrapped."""
    functorch = torch._C._functorch
    if type(tensor) not in _PLAIN or tensor.is_meta or functorch.is_legacy_batchedtensor(tensor):
        return True
    return bool(functorch.is_functorch_wrapped_tensor(tensor))


def _refuse_tangents(qualified: str, arguments: Sequence[Any]) -> None:
    """Raises DerivativeError in forward mode: the derivative of an operator would lose tangents without a word."""
    level = torch.autograd.forward_ad._current_level
    if level < 0 or not torch._C._is_fwd_grad_enabled():
        return
    tensors = (a for a in arguments if isinstance(a, torch.Tensor) and not torch._C._functorch.is_batchedtensor(a))
    if any(torch._VF._unpack_dual(t, level=level)[1] is not None for t in tensors):
        hint = "call the operation itself, or tcomp.torch.function of it"
        raise DerivativeError(Diagnostic(f"torch.ops cannot differentiate {qualified} in forward mode", hint=hint))
