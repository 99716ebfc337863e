"""One ``def`` with element types as parameters, as something to call: the arrays of a call choose the types."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tcomp.arrays.arrays import in_place, kind_of
from tcomp.arrays.kinds import ArrayError
from tcomp.autograd.registration import UNNAMED, Registration
from tcomp.bound.operation import BoundOperation
from tcomp.derivatives.gradient import Gradient
from tcomp.derivatives.saving import Save
from tcomp.errors import Diagnostic, ShapeError, TcompError
from tcomp.grammar import Generic
from tcomp.grammar.calls.generics import chosen, named_type
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.operation import Operation, is_traced
from tcomp.runtime.arguments import is_scalar
from tcomp.runtime.calls import ordered
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.sparse import has_sparse, with_parts
from tcomp.storage.forks import ISL
from tcomp.storage.memo import MOST_KEPT, Memo
from tcomp.tuner.policy import FROM_CACHE, Policy
from tcomp.values.operators import DTYPES, TYPE_KEYWORDS, DType

if TYPE_CHECKING:
    from tcomp.tuner.report.result import TuningResult

Types = tuple[DType, ...]


class TypedOperation(Operation):
    """One for several element types: a call chooses them, for what is derived of it, too.

    ``_typed`` are the places of the inputs that choose, ``_known`` has the operations by the types of these.
    """

    _typed: Sequence[int]
    _known: dict[tuple[Any, ...], Operation]

    @abstractmethod
    def choose(self, types: tuple[Any, ...]) -> None:
        """Make the operation for the types of what typed parameters are given: dtypes, or Python's of numbers."""

    @abstractmethod
    def chosen(self, arguments: Sequence[Any]) -> Operation:
        """The operation for the types of arguments.  Raises ShapeError where they contradict each other."""

    def gradient(
        self,
        wrt: str | Sequence[str] | None = None,
        save: Save = "statistics",
        ties: str = "even",
        name: str | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> Gradient:
        """As for any operation; calls choose the types, and the text is that for the types of ``function``."""
        told = (wrt, save, ties, name)
        made = super().gradient(*told, sizes=sizes)
        facts = {field.name: getattr(made, field.name) for field in fields(made)}
        return GenericGradient(**facts, typed=_Derived(self, told, sizes))

    def tangent(
        self,
        wrt: str | Sequence[str] | None = None,
        ties: str = "even",
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> Any:
        """As for any operation; calls choose the types, and the text is that for the types of ``function``."""
        made = super().tangent(wrt, ties, sizes=sizes)
        return DerivedOperation(made.function, self, "tangent", (wrt, ties), {"sizes": sizes})

    def batched(self, axes: Sequence[int | None]) -> Any:
        """As for any operation; calls choose the types, and the text is that for the types of ``function``."""
        return DerivedOperation(super().batched(axes).function, self, "batched", (tuple(axes),), {})


class GenericOperation(TypedOperation):
    """A ``def`` with element types as parameters: ``operation(X)`` runs it for the types of the arrays.

    ``with_types`` gives it for types that are named.  Whatever takes no arrays is about the first types for which
    the text is right, those of ``function``: ``float`` where it can be.
    """

    def __init__(self, generic: Generic, policy: Policy = FROM_CACHE, registration: Registration = UNNAMED) -> None:
        super().__init__(generic.function, policy, registration)
        self.generic = generic
        self._known: dict[tuple[Any, ...], Operation] = {}
        self._instances: Memo[Types, Operation] = Memo(MOST_KEPT)
        self._typed = [k for k, p in enumerate(generic.definition.inputs) if p.type in self.types]

    @property
    def types(self) -> tuple[str, ...]:
        """The names of the parameters that stand for element types."""
        return tuple(name.name for name in self.generic.definition.types)

    def __reduce__(self) -> tuple[type[Operation], Any]:
        return GenericOperation, (self.generic, self._policy, self.registration)

    def __str__(self) -> str:
        return str(self.generic.definition)

    def with_types(self, **types: Any) -> Operation:
        """The operation for element types, each given by name: ``ops.softmax.with_types(T="float16")``.

        Raises:
            TcompError: a parameter is missing, is none of the def, or what is given is no type.
            CompileError: the def is wrong for these types.
        """
        return self._instance({name: _dtype(value) for name, value in types.items()})

    def _instance(self, types: Mapping[str, DType]) -> Operation:
        for name in types:
            if name not in self.types:
                hint = did_you_mean(name, self.types) or f"its types are {', '.join(self.types)}"
                raise TcompError(Diagnostic(f"{self.name} has no element type {name}", hint=hint))
        missing = [name for name in self.types if name not in types]
        if missing:
            raise TcompError(f"{self.name}: nothing says which type {missing[0]} is")

        def made() -> Operation:
            with ISL.value:
                operation = self.beside(self.generic.instance(types))
            # Its own name and types: those that autocasting gives are chosen before an instance is.
            operation.registration = replace(self.registration, namespace=None, autocast=None)
            return operation

        return self._instances.get(tuple(types[name] for name in self.types), made)

    def chosen(self, arguments: Sequence[Any]) -> Operation:
        """As above, by the arrays first."""
        inputs = self.generic.definition.inputs
        given = [(p.name.name, a) for p, a in zip(inputs, arguments, strict=False) if not p.const]
        arrays = [(name, _dtype_of(a), name) for name, a in given if not is_scalar(a)]
        found, contradictions = chosen(self.generic.definition, [(n, d, w) for n, d, w in arrays if d is not None])
        if contradictions:
            raise ShapeError(*(self._contradiction(*each) for each in contradictions))
        scalars = [(name, _dtype_of(a), name) for name, a in given if is_scalar(a)]
        by_scalars, _ = chosen(self.generic.definition, [(n, d, w) for n, d, w in scalars if d is not None])
        return self._instance(self.generic.first_types | by_scalars | found)

    def choose(self, types: tuple[Any, ...]) -> None:
        if types not in self._known:
            placeholders: list[Any] = [None] * len(self.generic.definition.inputs)
            for k, found in zip(self._typed, types, strict=True):
                placeholders[k] = found() if found in (bool, int, float) else _Typed(found)
            self._known[types] = self.chosen(placeholders)

    def _contradiction(self, name: str, first: tuple[DType, str], second: tuple[DType, str]) -> Diagnostic:
        parameter = next(p for p in self.generic.definition.inputs if p.name.name == second[1])
        message = f"{self.name}: {name} is {first[0]} by {first[1]}, but {second[0]} by {second[1]}"
        return Diagnostic(message, self.function.source, parameter.span, f"convert one of them to {first[0]}")

    def _of(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Operation:
        if has_sparse(arguments, named):
            arguments, named = with_parts(self.function, arguments, named, self._free)
        return self.chosen(ordered(self.function, arguments, named) if named else arguments)

    @property
    def _free(self) -> frozenset[str]:
        """The parameters whose types are those of what is given."""
        return frozenset(self.generic.definition.inputs[k].name.name for k in self._typed)

    def __call__(
        self,
        *arguments: Any,
        out: Any = None,
        target: str | None = None,
        options: MappingOptions | str | Mapping[str, object] | None = None,
        unchecked: bool = False,
        **named: Any,
    ) -> Any:
        """Run for the types of the arrays; all else is as for any operation.

        Raises:
            ShapeError: as a call of any operation, and where two arrays give different types to one parameter.
            CompileError: the def is wrong for these types.
        """
        if has_sparse(arguments, named):
            arguments, named = with_parts(self.function, arguments, named, self._free)
        if named:
            arguments, named = ordered(self.function, arguments, named), {}
        if self.registration.autocast is not None:
            arguments = _autocast(arguments, self.registration.autocast)
        if "torch" in sys.modules and is_traced():
            traced = _traced(self, self._known, [arguments[k] for k in self._typed])
            return traced(*arguments, out=out, target=target, options=options, unchecked=unchecked)
        try:
            key = tuple([arguments[k].dtype for k in self._typed])
            operation = self._known.get(key)
        except (AttributeError, IndexError, TypeError):
            return self.chosen(arguments)(*arguments, out=out, target=target, options=options, unchecked=unchecked)
        if operation is None:
            operation = self.chosen(arguments)
            if not any(is_scalar(arguments[k]) for k in self._typed):
                self._known[key] = operation
        return operation(*arguments, out=out, target=target, options=options, unchecked=unchecked)

    def compile(self, *arguments: Any, **choices: Any) -> Kernel:
        """As for any operation; ``sizes=`` without arrays compiles for the types of ``function``."""
        named = {n: choices.pop(n) for n in [t.name for t in self.function.inputs] if n in choices}
        if choices.get("sizes") is not None:
            return super().compile(*arguments, **choices, **named)
        return self._of(arguments, named).compile(*arguments, **choices, **named)

    def tune(self, *arguments: Any, **choices: Any) -> TuningResult:
        """As for any operation; ``sizes=`` without arrays tunes for the types of ``function``."""
        named = {n: choices.pop(n) for n in [t.name for t in self.function.inputs] if n in choices}
        if choices.get("sizes") is not None:
            return super().tune(*arguments, **choices, **named)
        return self._of(arguments, named).tune(*arguments, **choices, **named)

    def bind(self, **named: Any) -> BoundOperation:
        """As for any operation; the bound arrays must tell all types."""
        given = [(n, _dtype_of(a), n) for n, a in named.items() if not is_scalar(a)]
        found, contradictions = chosen(self.generic.definition, [(n, d, w) for n, d, w in given if d is not None])
        if contradictions:
            raise ShapeError(*(self._contradiction(*each) for each in contradictions))
        return self._instance(found).bind(**named)

    def reference(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """As for any operation."""
        return self._of(arguments, named).reference(*arguments, out=out, **named)

    def result_types(self, *arguments: Any) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """As for any operation."""
        return self.chosen(arguments).result_types(*arguments)


@dataclass(frozen=True, slots=True)
class _Typed:
    """In the place of an array of which only the type is asked."""

    dtype: Any


class DerivedOperation(TypedOperation):
    """A tangent or a batch of such an operation, whose inputs come first in calls."""

    def __init__(
        self, function: Function, origin: TypedOperation, how: str, told: tuple[Any, ...], named: Mapping[str, Any]
    ) -> None:
        super().__init__(function, origin._policy)
        self._origin = origin
        self._typed = origin._typed
        self._how = how, told, named
        self._known: dict[tuple[Any, ...], Operation] = {}
        self._made: Memo[Operation, Operation] = Memo(MOST_KEPT)

    def __reduce__(self) -> tuple[type[Operation], Any]:
        return DerivedOperation, (self.function, self._origin, *self._how)

    def chosen(self, arguments: Sequence[Any]) -> Operation:
        """As for a def with element types as parameters."""
        return self._like(self._origin.chosen(arguments[: len(self._origin.function.inputs)]))

    def _of(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Operation, tuple[Any, ...]]:
        if named:
            arguments = ordered(self.function, arguments, named)
        return self.chosen(arguments), arguments

    def _like(self, operation: Operation) -> Operation:
        how, told, by_name = self._how
        return self._made.get(operation, lambda: getattr(operation, how)(*told, **by_name))

    def choose(self, types: tuple[Any, ...]) -> None:
        if types not in self._known:
            self._origin.choose(types)
            self._known[types] = self._like(self._origin._known[types])

    def __call__(
        self,
        *arguments: Any,
        out: Any = None,
        target: str | None = None,
        options: MappingOptions | str | Mapping[str, object] | None = None,
        unchecked: bool = False,
        **named: Any,
    ) -> Any:
        """Run for the types of the arrays; all else is as for any operation.  Raises as ``GenericOperation`` does."""
        if "torch" in sys.modules and is_traced():
            arguments = ordered(self.function, arguments, named) if named else arguments
            operation = _traced(self, self._known, [arguments[k] for k in self._typed])
        else:
            operation, arguments = self._of(arguments, named)
        return operation(*arguments, out=out, target=target, options=options, unchecked=unchecked)

    def compile(self, *arguments: Any, **choices: Any) -> Kernel:
        """As for any operation; ``sizes=`` without arrays compiles for the types of ``function``."""
        named = {n: choices.pop(n) for n in [t.name for t in self.function.inputs] if n in choices}
        if choices.get("sizes") is not None:
            return super().compile(*arguments, **choices, **named)
        operation, arguments = self._of(arguments, named)
        return operation.compile(*arguments, **choices)

    def reference(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """As for any operation."""
        operation, arguments = self._of(arguments, named)
        return operation.reference(*arguments, out=out)

    def result_types(self, *arguments: Any) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """As for any operation."""
        return self._of(arguments, {})[0].result_types(*arguments)


class _Derived:
    """The gradients of a def for the types that have been met."""

    def __init__(self, operation: TypedOperation, told: tuple[Any, ...], sizes: Mapping[str, int] | None) -> None:
        self.asked = operation, told, sizes
        self._known: Memo[Operation, Gradient] = Memo(MOST_KEPT)

    def chosen(self, arguments: Sequence[Any]) -> Gradient:
        of, told, sizes = self.asked
        operation = of.chosen(arguments)
        return self._known.get(operation, lambda: operation.gradient(*told, sizes=sizes))


@dataclass(frozen=True, slots=True)
class GenericGradient(Gradient):
    """The gradients of a def with element types as parameters."""

    typed: _Derived

    def __reduce__(self) -> tuple[Callable[..., Gradient], tuple[Any, ...]]:
        return _gradient_again, self.typed.asked

    def __call__(self, *arguments: Any, **choices: Any) -> Any:
        """As for any gradient, for the types of the arrays."""
        inputs, cotangents, choices = self.in_order(arguments, choices)
        return self.typed.chosen(inputs)(*inputs, *cotangents, **choices)

    def with_value(self, *arguments: Any, cotangents: Any = None, **choices: Any) -> tuple[Any, Any]:
        """As for any gradient, for the types of the arrays."""
        arguments, choices = self.inputs_in_order(arguments, choices)
        return self.typed.chosen(arguments).with_value(*arguments, cotangents=cotangents, **choices)


def _gradient_again(operation: GenericOperation, told: tuple[Any, ...], sizes: Mapping[str, int] | None) -> Gradient:
    return operation.gradient(*told, sizes=sizes)


def _traced(operation: TypedOperation, known: Mapping[tuple[Any, ...], Operation], given: Sequence[Any]) -> Operation:
    """The one of the ``known`` operations for what typed parameters are given, where a compiler of torch goes through
    a call."""
    key = tuple([type(a) if type(a) in (bool, int, float) else a.dtype for a in given])
    _choose(operation, key)
    return known[key]


def _choose(operation: TypedOperation, types: tuple[Any, ...]) -> None:
    from tcomp.autograd.dispatch import choose  # noqa: PLC0415  (it imports torch)

    choose(operation, types)


def _dtype(value: Any) -> DType:
    """The type that a user means: a name, or a type of NumPy or torch.  Raises TcompError."""
    text = value if isinstance(value, str) else str(value).removeprefix("torch.")
    known = named_type(text)
    if known is None and not isinstance(value, str):
        try:
            known = named_type(np.dtype(value).name)
        except TypeError:
            known = None
    if known is None:
        hint = did_you_mean(text, TYPE_KEYWORDS) or f"the element types are {', '.join(DTYPES)}"
        raise TcompError(Diagnostic(f"{text} is no element type", hint=hint))
    return known


def _autocast(arguments: tuple[Any, ...], dtype: str) -> tuple[Any, ...]:
    from tcomp.autograd.dispatch import autocast  # noqa: PLC0415  (it imports torch)

    return autocast(arguments, dtype)


def _dtype_of(value: Any) -> DType | None:
    """The type of the elements of an argument; None for what has none of ours."""
    known = DTYPES.get(str(getattr(value, "dtype", "")).removeprefix("torch."))
    if known is not None or is_scalar(value):
        return known
    try:
        array = in_place(value)
        return kind_of(array).view(array).dtype
    except ArrayError:
        return None
