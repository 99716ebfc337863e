"""A network that is written anew, call by call, from another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.network import Call, Definition, Network, Value
from tcomp.networks.weights import Later, Weights

Array = np.ndarray[Any, np.dtype[Any]]

_ROLES = ("input", "weight", "temporary", "output")


class Parts:
    """The values, defs and weights of a network, to which more may be added, and the calls of the new one."""

    def __init__(self, network: Network) -> None:
        self.source = network
        self.values = dict(network.by_name)
        self.definitions = dict(network.definitions)
        self.weights = Weights(network.weights)
        self.calls: list[Call] = []
        self._made: dict[str, str] = {}

    def temporary(self, name: str, dtype: str, shape: Sequence[int]) -> str:
        """A new value; its name."""
        free = self._free(name)
        self.values[free] = Value(free, dtype, tuple(shape), "temporary")
        return free

    def weight(self, name: str, compute: Callable[[], Array]) -> str:
        """A weight, computed the first time that this name is asked for; the name that it got."""
        if name not in self._made:
            array = np.asarray(compute(), order="C")
            free = self._made[name] = self._free(name)
            self.values[free] = Value(free, array.dtype.name, array.shape, "weight")
            self.weights[free] = array
        return self._made[name]

    def another_weight(self, name: str, array: Array) -> str:
        """A weight that was made of the one of this name; the name that it got."""
        free = self._free(f"{name.partition('_folded')[0]}_folded")
        self.values[free] = Value(free, array.dtype.name, array.shape, "weight")
        self.weights[free] = np.asarray(array, order="C")
        return free

    def later(self, name: str, dtype: str, shape: Sequence[int], compute: Callable[[], Array]) -> str:
        """A weight that is computed when it is read; the name that it got, the same for the same ``name``."""
        if name not in self._made:
            free = self._made[name] = self._free(name)
            self.values[free] = Value(free, dtype, tuple(shape), "weight")
            self.weights[free] = Later(compute)
        return self._made[name]

    def call(self, definition: Definition, call: Call) -> None:
        """Add a call of a def, under another name where the network has another def of that name."""
        name, number, text = definition.name, 2, definition.text
        while name in self.definitions and self.definitions[name].text != text:
            name, number = f"{definition.name}_v{number}", number + 1
            text = definition.text.replace(f"def {definition.name}(", f"def {name}(", 1)
        self.definitions[name] = replace(definition, name=name, text=text)
        self.calls.append(replace(call, function=name))

    def network(self) -> Network:
        """The network, without the calls, the values and the weights that no output needs."""
        needed = {value.name for value in self.source.outputs}
        kept: list[Call] = []
        for call in reversed(self.calls):
            if needed.intersection(call.results):
                kept.append(call)
                needed.update(call.arguments, call.results)
        made = {name for call in kept for name in call.results}
        values = [
            value
            for value in self.values.values()
            if value.role in ("input", "output")
            or value.name in made
            or (value.role == "weight" and value.name in needed)
        ]
        values.sort(key=lambda value: _ROLES.index(value.role))
        return replace(
            self.source,
            values=tuple(values),
            calls=tuple(reversed(kept)),
            definitions={call.function: self.definitions[call.function] for call in kept},
            weights=self.weights.only(needed),
        ).checked()

    def _free(self, name: str) -> str:
        free, number = name, 2
        while free in self.values or free in self.definitions:
            free, number = f"{name}_{number}", number + 1
        return free
