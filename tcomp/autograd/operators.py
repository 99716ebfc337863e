"""Operations registered as operators of torch: with a schema, a fake implementation, a derivative and a batch rule.

``torch.library.Library`` rather than ``custom_op``, which costs more at every call.  An operator stays for the life of
the process, for graphs may hold it.
"""

from __future__ import annotations

import functools
import hashlib
import keyword
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from tcomp.autograd.fake import Fake, torch_dtype
from tcomp.autograd.registration import Choices, Registration
from tcomp.derivatives.batch import is_batched
from tcomp.derivatives.gradient import Gradient
from tcomp.errors import DerivativeError, Diagnostic, ShapeError, TcompError
from tcomp.grammar.tree.function import Function, Tensor


class Derivable(Protocol):
    """What is asked of an operation here."""

    @property
    def function(self) -> Function: ...
    @property
    def registration(self) -> Registration: ...
    @property
    def operators(self) -> dict[Choices, Any]: ...
    def run(self, arguments: tuple[Any, ...], out: Any, choices: Choices) -> Any: ...
    def gradient(self, wrt: Sequence[str] | None = None) -> Gradient: ...
    def tangent(self, wrt: Sequence[str] | None = None) -> Any: ...
    def batched(self, axes: Sequence[int | None]) -> Any: ...
    def __call__(self, *arguments: Any, **choices: Any) -> Any: ...


_LOCK = threading.RLock()
_REGISTERED: dict[str, tuple[str, Operator]] = {}
"""Operators by qualified name, with what tells them from others."""


def operator_of(operation: Derivable, choices: Choices = Choices()) -> Operator:  # noqa: B008  (it cannot change)
    """The operator that runs an operation in one way, made when it is first asked for."""
    found = operation.operators.get(choices)
    if found is None:
        with _LOCK:
            found = operation.operators.get(choices) or _registered(operation, choices)
            operation.operators[choices] = found
    known: Operator = found
    return known


def _registered(operation: Derivable, choices: Choices) -> Operator:
    settings, name = operation.registration, operation.function.name
    identity = repr((str(operation.function.definition), choices, settings))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    is_named = settings.namespace is not None and choices == Choices()
    qualified = f"{settings.namespace}::{name}" if is_named else f"tcomp::{name}_{digest}"
    known = _REGISTERED.get(qualified)
    if known is not None:
        if known[0] != identity:
            hint = "choose another namespace, or another name for the def"
            raise TcompError(Diagnostic(f"torch knows another operator {qualified}", hint=hint))
        return known[1]
    operator = Operator(operation, choices, qualified)
    operator.register()
    _REGISTERED[qualified] = identity, operator
    return operator


@functools.cache
def _library(namespace: str) -> Any:
    make: Any = torch.library.Library
    return make(namespace, "FRAGMENT")


class Operator:
    """One operation, run in one way, as torch knows it."""

    def __init__(self, operation: Derivable, choices: Choices, qualified: str) -> None:
        self.operation = operation
        self.choices = choices
        self.qualified = qualified
        self.function = operation.function
        self.fake = Fake(self.function)
        self.floats = tuple(t for t in self.function.outputs if t.dtype.is_float)
        self._derived: dict[object, Any] = {}

    def register(self) -> None:
        """Raises TcompError where torch refuses the name."""
        namespace, name = self.qualified.split("::")
        try:
            library = _library(namespace)
            library.define(f"{name}{_schema(self.function)}", tags=(torch.Tag.flexible_layout,))
        except (RuntimeError, ValueError) as error:
            raise TcompError(f"torch cannot register {self.qualified}: {error}") from None
        library.impl(name, self._run_plain, "CompositeExplicitAutograd")
        torch.library.register_fake(self.qualified, self.fake, lib=library)
        torch.library.register_autograd(self.qualified, self._backward, setup_context=self._setup, lib=library)
        torch.library.register_vmap(self.qualified, self._vmap, lib=library)
        if self.operation.registration.autocast is not None:
            dtype = getattr(torch, self.operation.registration.autocast)
            for device in ("cpu", "cuda"):
                torch.library.register_autocast(self.qualified, device, dtype, lib=library)

    @functools.cached_property
    def overload(self) -> Any:
        namespace, name = self.qualified.split("::")
        return getattr(getattr(torch.ops, namespace), name).default

    def run(self, arguments: tuple[Any, ...]) -> Any:
        """Run on tensors with memory, without a record."""
        return self.operation.run(arguments, None, self.choices)

    def _run_plain(self, *arguments: Any) -> Any:
        with torch.no_grad():
            return self.run(arguments)

    def differentiable(self, needed: Sequence[bool]) -> tuple[str, ...]:
        """The inputs of floats for which a gradient is needed.

        Raises DerivativeError where there is none: before anything is computed.
        """
        pairs = zip(self.function.inputs, needed, strict=True)
        wrt = tuple(tensor.name for tensor, need in pairs if need and tensor.dtype.is_float)
        if not wrt:
            return wrt
        if not self.operation.registration.differentiable:
            hint = f"pass {wrt[0]}.detach(), or call under torch.no_grad()"
            raise DerivativeError(Diagnostic(f"{self.function.name} was defined as not differentiable", hint=hint))
        if self.operation.registration.backward is None:
            self.gradient(wrt)
        return wrt

    def gradient(self, wrt: tuple[str, ...]) -> Gradient:
        """Derived once for each subset of inputs that occurs."""
        found: Gradient = self._once(("gradient", wrt), lambda: self.operation.gradient(wrt))
        return found

    def tangent(self, wrt: tuple[str, ...]) -> Any:
        return self._once(("tangent", wrt), lambda: self.operation.tangent(wrt))

    def batched(self, axes: tuple[int | None, ...]) -> Any:
        return self._once(("batched", axes), lambda: self.operation.batched(axes))

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        found = self._derived.get(key)
        if found is None:
            with _LOCK:
                found = self._derived.get(key)
                if found is None:
                    found = self._derived[key] = make()
        return found

    def needs_saved(self, wrt: tuple[str, ...]) -> tuple[bool, ...]:
        """For each input, and each output after those, whether the backward pass reads it."""
        backward = self.operation.registration.backward
        names = [t.name for t in (*self.function.inputs, *self.function.outputs)]
        if not wrt:
            return (False,) * len(names)
        if backward is None:
            read = set(self.gradient(wrt).inputs)
        elif hasattr(backward, "function"):
            read = {t.name for t in backward.function.inputs}
        else:
            return (True,) * len(names)
        return tuple(name in read for name in names)

    def gradients(
        self, wrt: tuple[str, ...], values: Sequence[Any], cotangents: Sequence[Any], *, traced: bool
    ) -> list[Any]:
        """One gradient, or None, per input; ``values`` are inputs and outputs, those that are read.

        ``traced`` calls go through torch's dispatcher.
        """
        inputs = [t.name for t in self.function.inputs]
        given = dict(zip([*inputs, *(t.name for t in self.function.outputs)], values, strict=True))
        backward = self.operation.registration.backward
        if backward is None:
            gradient = self.gradient(wrt)
            gradient.check_constants(given)
            operation, names = gradient.backward, gradient.wrt
            arguments: list[Any] = [*(given[name] for name in gradient.inputs), *cotangents]
        elif hasattr(backward, "function"):
            given |= {f"d_{t.name}": c for t, c in zip(self.floats, cotangents, strict=True)}
            arguments = [self._named(given, t, backward.function) for t in backward.function.inputs]
            operation, names = backward, tuple(t.name.removeprefix("d_") for t in backward.function.outputs)
        else:
            count = len(inputs)
            found = backward(tuple(values[:count]), tuple(values[count:]), tuple(cotangents))
            results = list(found) if isinstance(found, (tuple, list)) else [found]
            if len(results) != count:
                raise TcompError(
                    f"the backward function of {self.function.name} gave {len(results)} gradients for {count} inputs"
                )
            return [r if name in wrt else None for name, r in zip(inputs, results, strict=True)]
        if traced:
            results = operator_of(operation).overload(*arguments)  # type: ignore[arg-type]
        else:
            results = operation(*arguments, **self.choices.named())
        by_name = dict(zip(names, results if isinstance(results, (tuple, list)) else (results,), strict=True))
        return [by_name.get(name) if name in wrt else None for name in inputs]

    def _named(self, given: dict[str, Any], tensor: Tensor, backward: Function) -> Any:
        if tensor.name in given:
            return given[tensor.name]
        message = f"{tensor.name} is no input, no output and no cotangent of {self.function.name}"
        hint = f"name the cotangents {', '.join(f'd_{t.name}' for t in self.floats)}"
        raise TcompError(Diagnostic(message, backward.source, tensor.span, hint))

    def _setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        ctx.wrt = self.differentiable(ctx.needs_input_grad[: len(self.function.inputs)])
        self.save(ctx, (*inputs, *outputs))

    def save(self, ctx: Any, values: tuple[Any, ...]) -> None:
        """Keep what the backward pass reads: tensors by torch, which notices when they change."""
        kept = self.needs_saved(ctx.wrt)
        is_saved = [keep and isinstance(value, torch.Tensor) for keep, value in zip(kept, values, strict=True)]
        ctx.save_for_backward(*(value for value, save in zip(values, is_saved, strict=True) if save))
        ctx.is_saved = is_saved
        ctx.others = [None if isinstance(value, torch.Tensor) else value for value in values]

    def saved(self, ctx: Any) -> list[Any]:
        tensors = iter(ctx.saved_tensors)
        return [next(tensors) if save else other for save, other in zip(ctx.is_saved, ctx.others, strict=True)]

    def _backward(self, ctx: Any, *cotangents: Any) -> Any:
        flat = cotangents[0] if len(cotangents) == 1 and isinstance(cotangents[0], (tuple, list)) else cotangents
        pairs = zip(self.function.outputs, flat, strict=True)
        given = [c.contiguous() for t, c in pairs if t.dtype.is_float]
        results = self.gradients(ctx.wrt, self.saved(ctx), given, traced=True)
        return tuple(results) if len(results) > 1 else results[0]

    def _vmap(self, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        return self.vmap(in_dims, arguments, lambda operation, given: operator_of(operation).overload(*given))

    def vmap(
        self, in_dims: tuple[Any, ...], arguments: Sequence[Any], call: Callable[[Any, tuple[Any, ...]], Any]
    ) -> tuple[Any, Any]:
        """The results of a batch, and where in each the batch is."""
        axes = tuple(None if dim is None else 0 for dim in in_dims)
        moved = tuple(
            value if dim is None else value.movedim(dim, 0) for value, dim in zip(arguments, in_dims, strict=True)
        )
        results = call(self.batched(axes), moved)
        dims = tuple(0 if batch else None for batch in is_batched(self.function, axes))
        return (results, dims[0]) if len(dims) == 1 else (tuple(results), dims)


def as_tensors(function: Function, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments as an operator takes them: numbers for 0-D inputs as tensors, NumPy arrays as tensors.

    Raises ShapeError where the number of arguments is wrong or one is neither.
    """
    if len(arguments) != len(function.inputs):
        names = ", ".join(t.name for t in function.inputs)
        message = f"{function.name}: expected {len(function.inputs)} inputs but found {len(arguments)}"
        raise ShapeError(Diagnostic(message, hint=f"its inputs are ({names})"))
    device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), torch.device("cpu"))
    return tuple(_as_tensor(t, a, device, function) for t, a in zip(function.inputs, arguments, strict=True))


def _as_tensor(tensor: Tensor, value: Any, device: torch.device, function: Function) -> Any:
    if tensor.role == "const" or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (bool, int, float)) and tensor.rank == 0:
        return torch.tensor(value, dtype=torch_dtype(tensor.dtype), device=device)
    try:
        return torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError):
        message = f"input {tensor.name}: expected type {tensor.dtype} but found {type(value).__name__}"
        raise ShapeError(Diagnostic(message, function.source, tensor.span)) from None


def _schema(function: Function) -> str:
    parameters = ", ".join(f"{'int' if t.role == 'const' else 'Tensor'} {_safe(t.name)}" for t in function.inputs)
    results = ", ".join("Tensor" for _ in function.outputs)
    return f"({parameters}) -> {results if len(function.outputs) == 1 else f'({results})'}"


_TAKEN = {"self", "out", "Tensor", "int", "float", "bool", "str", "Scalar", "Generator", "Device"}


def _safe(name: str) -> str:
    """A name that torch takes for a parameter."""
    return f"{name}_" if name in _TAKEN or keyword.iskeyword(name) else name
