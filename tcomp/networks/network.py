"""A network as a value: tensors, and calls of defs that make some of them of others.

Printed, it is program text: the defs that it uses, and one def that calls them.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from tcomp.engine import define
from tcomp.errors import Diagnostic, NetworkError

Role = Literal["input", "weight", "temporary", "output"]
Number = int | float

SPELLED = {"float64": "double", "float32": "float", "float16": "half"}
"""The element types whose name in program text is not NumPy's."""

_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a network; ``dtype`` is the name that NumPy has for its elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role

    @property
    def bytes(self) -> int:
        """What its elements take, one after another."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        extents = f"({','.join(map(str, self.shape))})" if self.shape else ""
        return f"{SPELLED.get(self.dtype, self.dtype)}{extents} {self.name}"


@dataclass(frozen=True, slots=True)
class Definition:
    """The text of a def that calls of a network name.

    A ``view`` moves its argument's elements, or takes some: ``("reshape",)``, ``("permute", 1, 0)``,
    ``("take", axis)``, ``("select", axis)``.  What is ``pointwise`` makes each element of the elements at its own
    place, which operands repeated along an axis have several of.  A convolution takes an image, a kernel whose first
    axis is that of the filters, and perhaps a bias; ``biased`` is the one that does.  What ``converts`` only changes
    the type of elements.  What runs ``outside`` has no text: this function takes arrays and gives the results.
    """

    name: str
    text: str
    view: tuple[str | int, ...] = ()
    pointwise: bool = False
    biased: Definition | None = None
    converts: bool = field(default=False, compare=False)
    outside: Callable[..., Sequence[Any]] | None = field(default=None, compare=False)


def foreign(name: str, text: str) -> Definition:
    """A def of others, under a name that no layer has: passes know layers by their names."""
    made = f"own_{name}"
    return Definition(made, text.replace(f"def {name}(", f"def {made}(", 1))


def retyped(definition: Definition, dtype: str) -> Definition:
    """The same def for elements of another type than float32."""
    if dtype == "float32":
        return definition
    name = f"{definition.name}_{dtype}"
    text = re.sub(r"\bfloat\b(?=[ (])", SPELLED.get(dtype, dtype), definition.text)
    biased = None if definition.biased is None else retyped(definition.biased, dtype)
    return replace(
        definition, name=name, text=text.replace(f"def {definition.name}(", f"def {name}(", 1), biased=biased
    )


def _spelled(number: Number) -> str:
    """A number as program text; infinity and NaN are quotients there."""
    if math.isfinite(number):
        return str(number)
    return f"{'0.0' if math.isnan(number) else '1.0' if number > 0 else '-1.0'} / 0.0"


@dataclass(frozen=True)
class Call:
    """``results = function(arguments, constants)``; ``place`` is the module that it comes from."""

    function: str
    arguments: tuple[str, ...]
    constants: tuple[tuple[str, Number], ...]
    results: tuple[str, ...]
    place: str = field(default="", compare=False)

    def wanting(self, read: Container[str]) -> Call:
        """The call with ``_`` for each of several results that nobody reads."""
        if len(self.results) == 1:
            return self
        return replace(self, results=tuple(name if name in read else "_" for name in self.results))

    def __str__(self) -> str:
        given = [*self.arguments, *(f"{name}={_spelled(value)}" for name, value in self.constants)]
        return f"{', '.join(self.results)} = {self.function}({', '.join(given)})"


@dataclass(frozen=True)
class Network:
    """Calls in an order that computes; ``weights`` holds what is known before any input."""

    name: str
    values: tuple[Value, ...]
    calls: tuple[Call, ...]
    definitions: Mapping[str, Definition]
    weights: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    def of_role(self, *roles: Role) -> tuple[Value, ...]:
        """The values that have one of these roles, in order."""
        return tuple(value for value in self.values if value.role in roles)

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.of_role("input")

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.of_role("output")

    @functools.cached_property
    def by_name(self) -> Mapping[str, Value]:
        return {value.name: value for value in self.values}

    def used_definitions(self) -> tuple[Definition, ...]:
        """The defs that calls name, in the order in which they are first called."""
        return tuple(self.definitions[name] for name in dict.fromkeys(call.function for call in self.calls))

    @property
    def parts(self) -> tuple[str, ...]:
        """What it prints: the defs that it uses, one each, and the def that calls them."""
        parameters = [str(value) for value in self.of_role("input", "weight")]
        outputs = ", ".join(value.name for value in self.outputs)
        line = f"def {self.name}({', '.join(parameters)}) -> ({outputs}) {{"
        if len(line) > _WIDTH:
            line = f"def {self.name}(\n{_filled(parameters)})\n    -> ({outputs}) {{"
        read = {name for call in self.calls for name in call.arguments} | {value.name for value in self.outputs}
        body = "\n".join(f"  {call.wanting(read)}" for call in self.calls)
        return (*(f"{d.text}\n\n" for d in self.used_definitions()), f"{line}\n{body}\n}}\n")

    def __str__(self) -> str:
        return "".join(self.parts)

    def reference(self, *inputs: Any) -> Any:
        """What the printed text computes, by the interpreter: slowly, in float64.

        Returns the output, or a tuple of several.  Raises ShapeError for inputs that do not fit.
        """
        if len(inputs) != len(self.inputs):
            raise NetworkError(f"{self.name} takes {len(self.inputs)} inputs, not {len(inputs)}")
        given = dict(zip((value.name for value in self.inputs), inputs, strict=True))
        if any(definition.outside is not None for definition in self.used_definitions()):
            return self._call_by_call(given)
        operation = define(str(self), self.name)[self.name]
        names = [value.name for value in self.of_role("input", "weight")]
        return operation.reference(*(given[name] if name in given else self.weights[name] for name in names))

    def _call_by_call(self, given: Mapping[str, Any]) -> Any:
        """The results of a network of which a part has no text: each call by itself."""
        arrays: dict[str, Any] = {**self.weights, **given}
        known = self.by_name
        for call in self.calls:
            definition = self.definitions[call.function]
            if definition.outside is not None:
                found = definition.outside(*(np.asarray(arrays[name]) for name in call.arguments))
            else:
                names = dict.fromkeys(call.arguments)
                values = [replace(known[name], role="input") for name in names]
                values += [replace(known[name], role="output") for name in call.results]
                alone = Network("part", tuple(values), (call,), {call.function: definition})
                made = alone.reference(*(arrays[name] for name in names))
                found = made if isinstance(made, tuple) else (made,)
            arrays.update(zip(call.results, found, strict=True))
        results = tuple(arrays[value.name] for value in self.outputs)
        return results[0] if len(results) == 1 else results

    def checked(self) -> Network:
        """This network.  Raises NetworkError if a call names what is not there, or reads what is not made yet."""
        known, made = self.by_name, {value.name for value in self.of_role("input", "weight")}
        if len(known) != len(self.values):
            raise NetworkError(f"two values of {self.name} have one name")
        for call in self.calls:
            if call.function not in self.definitions:
                raise NetworkError(f"{self.name} has no def {call.function}, which `{call}` calls")
            for name in call.arguments:
                if name not in made:
                    hint = "calls stand in an order that computes"
                    raise NetworkError(Diagnostic(f"`{call}` reads {name}, which nothing has made", hint=hint))
            for name in call.results:
                if name in made or name not in known:
                    raise NetworkError(f"`{call}` makes {name}, which is made before it or is no value")
            made.update(call.results)
        missing = [value.name for value in self.outputs if value.name not in made]
        if missing:
            raise NetworkError(f"no call makes the output {missing[0]}")
        return self


def _filled(parameters: Iterable[str]) -> str:
    """Parameters on lines that are not too long."""
    lines, line = [], "   "
    for parameter in parameters:
        if len(line) + len(parameter) + 2 > _WIDTH:
            lines.append(line)
            line = "   "
        line += f" {parameter},"
    return "\n".join([*lines, line])[:-1]
