"""Operations as operators of torch: with schemas, a fake implementation, derivatives, and what ``torch.func`` does.

``torch.library.Library`` rather than ``custom_op``, which costs more at every call.  Calls that a transformation of
``torch.func`` follows enter as ``Recorded``, before torch takes the transformation off their tensors: so they do inside
compiled graphs, too, which hold calls of operators.  An operator stays for the life of
the process, for graphs may hold it.
"""

from __future__ import annotations

import functools
import hashlib
import keyword
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from tcomp.autograd.backward import Backward, Derivable, Given
from tcomp.autograd.backwardoperator import BackwardOperator, overload_of
from tcomp.autograd.entry import enter, is_watched
from tcomp.autograd.fake import Fake, torch_dtype
from tcomp.autograd.inductor import FakeFor
from tcomp.autograd.kept import Tag, facts_of
from tcomp.autograd.once import Once
from tcomp.autograd.outs import OutOperator
from tcomp.autograd.recording import Recorded
from tcomp.autograd.registration import Choices
from tcomp.autograd.saving import SavingOperator
from tcomp.derivatives.batch import is_batched
from tcomp.derivatives.gradient import is_program_for, sizes_as_given
from tcomp.errors import ArgumentError, Diagnostic, ShapeError, TcompError
from tcomp.grammar.tree.function import Function, Tensor
from tcomp.runtime.arguments import described

_SCHEMAS = 2
"""Counts changes of what operators take: compiled graphs that torch keeps on disk must not find one of another kind."""

_LOCK = threading.RLock()
_REGISTERED: dict[str, tuple[str, Operator]] = {}
"""Operators by qualified name, with what tells them from others."""

_TAG = Tag()
"""Of graphs that torch keeps on disk: for defs with names of their own all that they depend on."""


def operator_of(operation: Derivable, choices: Choices = Choices()) -> Operator:  # noqa: B008  (it cannot change)
    """The operator that runs an operation in one way, made when it is first asked for."""
    found = operation.operators.get(choices)
    if found is None:
        with _LOCK:
            found = operation.operators.get(choices) or _registered(operation, choices)
            operation.operators[choices] = found
    known: Operator = found
    return known


def operation_behind(overload: Any) -> Derivable | None:
    """The operation that an operator of torch runs with default choices; None of operators that are not ours."""
    known = _REGISTERED.get(str(getattr(overload, "_name", "")).removesuffix(".default"))
    return None if known is None or known[1].choices != Choices() else known[1].operation


def _registered(operation: Derivable, choices: Choices) -> Operator:
    settings, name = operation.registration, operation.function.name
    own: Any = settings.backward
    told = replace(settings, backward=str(own.function.definition)) if hasattr(own, "function") else settings
    identity = repr((str(operation.function.definition), choices, told, _SCHEMAS))
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
    # Names with a digest tell the def by themselves.
    _TAG.add(*([(qualified, *facts_of(str(operation.function.definition), settings))] if is_named else []))
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
        self.backward = Backward(operation, choices)
        self.backward_operator = BackwardOperator(self.backward, f"{qualified}_backward", operator_of)
        self.saving_operator = SavingOperator(self.backward, self.backward_operator, operator_of)
        self._derived = Once()

    def register(self) -> None:
        """Raises TcompError where torch refuses the name."""
        namespace, name = self.qualified.split("::")
        try:
            library = _library(namespace)
            library.define(f"{name}{_schema(self.function)}", tags=(torch.Tag.flexible_layout,))
        except (RuntimeError, ValueError) as error:
            raise TcompError(f"torch cannot register {self.qualified}: {error}") from None
        library.impl(name, self._run_plain, "CompositeExplicitAutograd")
        FakeFor(library, self.qualified, Fake(self.function), self._run_plain)
        enter(library, self)
        library.impl(name, functools.partial(Recorded.apply, self), "FuncTorchDynamicLayerFrontMode")
        if self.operation.registration.autocast is not None:
            dtype = getattr(torch, self.operation.registration.autocast)
            for device in ("cpu", "cuda"):
                torch.library.register_autocast(self.qualified, device, dtype, lib=library)
        self.backward_operator.register(library)
        self.saving_operator.register(library, _parameters(self.function))
        OutOperator(self.operation, self.choices, self.qualified).register(library, _parameters(self.function))

    @functools.cached_property
    def overload(self) -> Any:
        return overload_of(self.qualified)

    def run(self, arguments: tuple[Any, ...]) -> Any:
        """Run on tensors with memory, without a record."""
        return self.operation.run(arguments, None, self.choices)

    def run_seen(self, arguments: tuple[Any, ...]) -> Any:
        """The same, through torch's dispatcher where somebody is to see it: a tracer, or what tensors stand for."""
        return self.overload(*arguments) if is_watched(arguments) else self.run(arguments)

    def _run_plain(self, *arguments: Any) -> Any:
        found = self.operation.run_again(arguments, self.choices)
        if found is not None:
            return found
        with torch.no_grad():
            return self.run(arguments)

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        """What ``make`` gave when something was first asked for under this key."""
        return self._derived.get(key, make)

    def tangent(self, wrt: tuple[str, ...], inputs: Sequence[Any]) -> Any:
        """Of calls with inputs like these."""
        ties = self.operation.registration.ties
        return self._derived.for_sizes(
            ("tangent", wrt),
            sizes_as_given(self.function, inputs),
            lambda sizes: self.operation.tangent(wrt, ties, sizes=sizes),
            lambda found, sizes: is_program_for(found.function, sizes),
        )

    def batched(self, axes: tuple[int | None, ...]) -> Any:
        return self._derived.get(("batched", axes), lambda: self.operation.batched(axes))

    def save(self, ctx: Any, values: tuple[Any, ...]) -> None:
        """Keep what the backward pass reads: tensors by torch, which notices when they change."""
        kept = self.backward.reads(ctx.wrt, values[: len(self.function.inputs)])
        is_saved = [keep and isinstance(value, torch.Tensor) for keep, value in zip(kept, values, strict=True)]
        ctx.save_for_backward(*(value for value, save in zip(values, is_saved, strict=True) if save))
        ctx.is_saved = is_saved
        ctx.others = [None if isinstance(value, torch.Tensor) else value for value in values]

    def given(self, ctx: Any, cotangents: Sequence[Any]) -> Given:
        """What the backward pass takes, of inputs and outputs alone."""
        tensors = iter(ctx.saved_tensors)
        values = [next(tensors) if save else other for save, other in zip(ctx.is_saved, ctx.others, strict=True)]
        return Given(values, (), cotangents, ctx.wrt, self.backward.outputs)

    def setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        ctx.wrt = self.backward.check(ctx.needs_input_grad[: len(self.function.inputs)], inputs)
        self.save(ctx, (*inputs, *outputs))

    def pull_back(self, ctx: Any, *cotangents: Any) -> Any:
        flat = cotangents[0] if len(cotangents) == 1 and isinstance(cotangents[0], (tuple, list)) else cotangents
        given = [c.contiguous() for t, c in zip(self.function.outputs, flat, strict=True) if t.dtype.is_float]
        results = self.backward_operator.gradients(self.given(ctx, given))
        return tuple(results) if len(results) > 1 else results[0]

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

    Raises ArgumentError where the number of arguments is wrong, ShapeError where one is neither.
    """
    if len(arguments) != len(function.inputs):
        names = ", ".join(t.name for t in function.inputs)
        count = len(function.inputs)
        message = f"{function.name}: expected {count} input{'s' * (count != 1)} but found {len(arguments)}"
        raise ArgumentError(Diagnostic(message, hint=f"its inputs are ({names})"))
    device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), torch.device("cpu"))
    return tuple(_as_tensor(t, a, device, function) for t, a in zip(function.inputs, arguments, strict=True))


def _as_tensor(tensor: Tensor, value: Any, device: torch.device, function: Function) -> Any:
    if tensor.role == "const" or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (bool, int, float)) and tensor.rank == 0:
        try:
            return torch.tensor(value, dtype=torch_dtype(tensor.dtype), device=device)
        except (OverflowError, RuntimeError, ValueError):  # torch raises any of them, by how large a number is
            message = f"input {tensor.name}: expected type {tensor.dtype} but found {described(value)}"
            raise ShapeError(Diagnostic(message, function.source, tensor.span)) from None
    try:
        return torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError):
        message = f"input {tensor.name}: expected type {tensor.dtype} but found {type(value).__name__}"
        raise ShapeError(Diagnostic(message, function.source, tensor.span)) from None


def _schema(function: Function) -> str:
    results = ", ".join("Tensor" for _ in function.outputs)
    return f"({_parameters(function)}) -> {results if len(function.outputs) == 1 else f'({results})'}"


def _parameters(function: Function) -> str:
    return ", ".join(f"{'int' if t.role == 'const' else 'Tensor'} {_safe(t.name)}" for t in function.inputs)


_TAKEN = {"self", "out", "Tensor", "int", "float", "bool", "str", "Scalar", "Generator", "Device"}


def _safe(name: str) -> str:
    """A name that torch takes for a parameter."""
    taken = name in _TAKEN or re.fullmatch(r"out\d+", name) or keyword.iskeyword(name)
    return f"{name}_" if taken else name
