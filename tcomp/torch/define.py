"""Defs with names in ``torch.ops``, and what is decided about their gradients."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tcomp import engine
from tcomp.autograd.operators import as_tensors, operator_of
from tcomp.autograd.recording import Recorded
from tcomp.autograd.registration import Registration
from tcomp.derivatives.gradient import Gradient
from tcomp.engine import Module
from tcomp.errors import TcompError
from tcomp.operation import Operation


def define(
    source: str | os.PathLike[str],
    namespace: str | None = None,
    *,
    backward: Mapping[str, str | Callable[..., Any]] | None = None,
    differentiable: bool = True,
    autocast: torch.dtype | None = None,
    save: str | Sequence[str] = "auto",
    ties: str = "even",
    name: str | None = None,
    tune: str | float = "cache",
) -> Module:
    """The defs of a program as operations, registered at once as operators of torch.

    Args:
        source, name, tune: as for ``tcomp.define``.
        namespace: ``torch.ops.NAMESPACE.DEF`` runs a def; None leaves the choice of names to tcomp.
        backward: what computes gradients, by def, instead of what is derived: the name of another def of the same
            text, whose parameters are named as inputs or outputs of this one or ``d_Y`` for the cotangent of ``Y``,
            and whose results are ``d_X``; or a function of the inputs, the outputs and the cotangents, each a tuple,
            that gives one gradient or None per input.
        differentiable: False for defs that must not be called with tensors that require a gradient.
        save: what is kept of the forward pass, as for ``Operation.gradient``; by default decided by sizes.
        ties: who has the gradient of several equal maxima: all evenly, or ``"first"``, as in pooling of torch.
        autocast: what inputs are converted to inside ``torch.autocast``; None leaves them alone, for a def names its
            types.

    Raises:
        CompileError, TcompError: as ``tcomp.define`` does; and where the namespace knows another def of that name, or
            ``backward`` names what does not exist.
    """
    if namespace is not None and not namespace.isidentifier():
        raise TcompError(f"namespace must be a name such as 'mylib', not {namespace!r}")
    module = engine.define(source, name, tune=tune)
    chosen = dict(backward or {})
    for given, computes in chosen.items():
        module[given]
        if not isinstance(computes, str) and not callable(computes):
            raise TcompError(f"backward= for {given} is a def of the text, or a function, not {computes!r}")
    for definition in module:
        own = chosen.get(definition)
        module[definition].registration = Registration(
            namespace=namespace,
            backward=module[own] if isinstance(own, str) else own,
            differentiable=differentiable,
            autocast=None if autocast is None else str(autocast).removeprefix("torch."),
            ties=ties,
            save=save if isinstance(save, str) else tuple(save),
        )
    for definition in module:
        operator_of(module[definition])
    return module


class _Function:
    """A function of tensors for ``torch.func``, which can be copied and pickled as its operation can."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.__name__ = self.__qualname__ = operation.name
        self.__doc__ = str(operation)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Operation]]:
        return function, (self.operation,)

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.operation(*arguments)
        given = as_tensors(self.operation.function, arguments)
        return Recorded.apply(operator_of(self.operation), *given)  # type: ignore[no-untyped-call]


def function(operation: Operation) -> Callable[..., Any]:
    """A function of tensors for ``torch.func``: always recorded by autograd, whatever the tensors are."""
    return _Function(operation)


def gradient(operation: Operation, wrt: str | Sequence[str] | None = None) -> Gradient:
    """The derived gradients of an operation, as text and to call; as ``operation.gradient``."""
    return operation.gradient(wrt)
