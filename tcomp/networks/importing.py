"""From the nodes of another program's graph to the calls of a network: one rule an operator, in one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tcomp.errors import Diagnostic, NetworkError
from tcomp.grammar.checking.names import is_function
from tcomp.grammar.parsing.lexer import KEYWORDS
from tcomp.networks.network import SPELLED, Call, Definition, Network, Number, Role, Value, retyped

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Node:
    """One operator of a graph: its arguments by name, those that are results of others as ``Value``."""

    name: str
    operator: str
    arguments: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: str
    place: str = ""

    def refuse(self, why: str, hint: str | None = None) -> NetworkError:
        """What to raise for a node that has a rule, but not for such arguments."""
        return NetworkError(Diagnostic(f"{self.operator} {why} ({self.where})", hint=hint))

    @property
    def where(self) -> str:
        """The node and the module that it comes from."""
        return f"node {self.name} of {self.place}" if self.place else f"node {self.name}"


_PLAIN = {"input": "x", "self": "x", "min": "low", "max": "high", "b": "right"}
"""What rules call arguments whose names are taken, in Python or by the builder."""

_ROLES = ("input", "weight", "temporary", "output")

Rule = Callable[..., Any]
Made = TypeVar("Made", bound=Rule)
RULES: dict[str, Rule] = {}
"""What makes calls of a node, by its operator."""


def rule(*operators: str) -> Callable[[Made], Made]:
    """Enter a function into the table; it takes the builder, the node, and the operator's arguments by name."""

    def enter(function: Made) -> Made:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return enter


class Builder:
    """A network in the making; what calls may take and give is one of these element types."""

    fallback: frozenset[str] = frozenset()
    """Operators that run outside of tcomp."""
    arguments: tuple[str, ...] = ("float32", "int64", "int32", "bool")
    results: tuple[str, ...] = ("float32", "int64", "int32", "bool")
    converted: tuple[str, ...] = ("uint8", "int8", "int16", "float16", "float64")
    """Types of what conversions alone take, as images in bytes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values: dict[str, Value] = {}
        self._calls: list[Call] = []
        self._definitions: dict[str, Definition] = {}
        self._weights: dict[str, Array] = {}

    def add(self, name: str, dtype: str, shape: Sequence[int], role: Role) -> Value:
        """A new value, whose name is made one that program text may have."""
        value = Value(self._free(name), dtype, tuple(shape), role)
        self._values[value.name] = value
        return value

    def weight(self, name: str, array: Array) -> Value:
        """What is known before any input."""
        value = self.add(name, array.dtype.name, array.shape, "weight")
        self._weights[value.name] = np.array(array, order="C")
        return value

    def known(self, value: Value) -> Array | None:
        """The array of a weight."""
        return self._weights.get(value.name)

    def call(
        self,
        node: Node,
        definition: Definition,
        arguments: Sequence[Value | None],
        **constants: Number,
    ) -> Value:
        """Call a def; operands that are None are left out.  The result has the node's shape."""
        return self.several([node], definition, arguments, **constants)[0]

    def several(
        self,
        nodes: Sequence[Node],
        definition: Definition,
        arguments: Sequence[Value | None],
        **constants: Number,
    ) -> list[Value]:
        """Call a def with several results, of which each has the shape of its node."""
        first = nodes[0]
        given = [value for value in arguments if value is not None]
        if definition.view and given[0].dtype == first.dtype:
            definition = retyped(definition, first.dtype)
        for value in given:
            known = (*self.arguments, *(self.converted if definition.converts else ()))
            fits = value.dtype in known and SPELLED.get(value.dtype, value.dtype) in definition.text
            if not fits:
                raise first.refuse(f"takes {value.name} of {value.dtype}", f"known are {', '.join(self.arguments)}")
        for node in nodes:
            if node.dtype not in self.results:
                raise node.refuse(f"gives {node.dtype}", f"known are {', '.join(self.results)}")
        results = [self.add(node.name, node.dtype, node.shape, "temporary") for node in nodes]
        definition = self._named_apart(definition)
        self._definitions[definition.name] = definition
        names = tuple(value.name for value in given)
        made = tuple(result.name for result in results)
        self._calls.append(Call(definition.name, names, tuple(constants.items()), made, first.place))
        return results

    def outside(
        self, nodes: Sequence[Node], arguments: Sequence[Value], function: Callable[..., Sequence[Any]]
    ) -> list[Value]:
        """Call a function of Python, one result for each node."""
        results = [self.add(node.name, node.dtype, node.shape, "temporary") for node in nodes]
        first = nodes[0]
        name = re.sub(r"\W+", "_", f"{first.operator}_{results[0].name}")
        self._definitions[name] = Definition(name, f"# {name} runs outside of tcomp, and has no text", outside=function)
        names = tuple(value.name for value in arguments)
        self._calls.append(Call(name, names, (), tuple(value.name for value in results), first.place))
        return results

    def _named_apart(self, definition: Definition) -> Definition:
        """The definition under a name that no other text has."""
        name, number, text = definition.name, 2, definition.text
        while name in self._definitions and self._definitions[name].text != text:
            name, number = f"{definition.name}_v{number}", number + 1
            text = definition.text.replace(f"def {definition.name}(", f"def {name}(", 1)
        return replace(definition, name=name, text=text)

    def network(self, outputs: Iterable[Value]) -> Network:
        """What has been built, without the weights and calls that no output needs."""
        wanted = dict.fromkeys(value.name for value in outputs)
        needed = set(wanted)
        calls: list[Call] = []
        for call in reversed(self._calls):
            if needed.intersection(call.results):
                calls.append(call)
                needed.update(call.arguments, call.results)
        calls.reverse()
        values = [
            replace(v, role="output") if v.name in wanted else v
            for v in self._values.values()
            if v.name in needed or v.role == "input"
        ]
        order = {name: position for position, name in enumerate(wanted)}
        values.sort(key=lambda v: (_ROLES.index(v.role), order.get(v.name, 0)))
        definitions = {call.function: self._definitions[call.function] for call in calls}
        weights = {name: array for name, array in self._weights.items() if name in needed}
        renamed = self._renamed(definitions)
        return Network(
            self._name,
            tuple(replace(value, name=renamed[value.name]) for value in values),
            tuple(
                replace(
                    call,
                    arguments=tuple(renamed[name] for name in call.arguments),
                    results=tuple(renamed[name] for name in call.results),
                )
                for call in calls
            ),
            definitions,
            {renamed[name]: array for name, array in weights.items()},
        ).checked()

    def _renamed(self, definitions: Mapping[str, Definition]) -> dict[str, str]:
        """Names of values that no def has: where a tensor has a def's name, the text could not call that."""
        renamed: dict[str, str] = {}
        for name in self._values:
            free = name
            while free in definitions or (free != name and free in self._values):
                free += "_0"
            renamed[name] = free
        return renamed

    def _free(self, name: str) -> str:
        """The name, or one like it that program text may have and no value has."""
        name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "value"
        name = f"v{name}" if name[0].isdigit() else name
        if name in KEYWORDS or is_function(name) or name == self._name:
            name += "_0"
        free, number = name, 2
        while free in self._values:
            free, number = f"{name}_{number}", number + 1
        return free


def no_rule(node: Node) -> NetworkError:
    """What to raise for a node whose operator is not in the table."""
    hint = f"`tcomp network ops` lists the operators; fallback={{{node.operator!r}}} runs it outside of tcomp"
    return NetworkError(Diagnostic(f"{node.operator} has no rule ({node.where})", hint=hint))


def import_node(builder: Builder, node: Node) -> Any:
    """Apply the rule of the node's operator; one with several results gives a list.  Raises NetworkError."""
    found = RULES.get(node.operator)
    if found is None:
        raise no_rule(node)
    return found(builder, node, **{_PLAIN.get(name, name): given for name, given in node.arguments.items()})
