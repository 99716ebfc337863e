"""Which calls become one kernel: a call and the functions of elements that follow it.

Every group is a small network of its own with names that depend on nothing outside, so equal groups print the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tcomp.networks.network import Call, Network, Value

_LONGEST_CHAIN = 64
"""So many calls join one kernel.  Longer chains become several, often equal ones, and so compile in linear time.

One more pass over memory for 64 functions of elements is not felt.
"""


@dataclass(frozen=True)
class Group:
    """Calls that are one kernel: ``results = network(arguments)``.  A ``view`` needs none."""

    network: Network
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    calls: tuple[Call, ...]
    view: tuple[str | int, ...]

    @property
    def outside(self) -> Callable[..., Sequence[Any]] | None:
        """The function that runs in place of a kernel, if one does."""
        return self.network.definitions[self.calls[0].function].outside if len(self.calls) == 1 else None


def group(network: Network, *, followers: bool = True) -> tuple[Group, ...]:
    """The groups of a network in an order that computes; without ``followers`` each call is one."""
    chains: list[list[Call]] = []
    end_of: dict[str, list[Call]] = {}
    readers = Counter(name for call in network.calls for name in dict.fromkeys(call.arguments))
    known = network.by_name
    position: dict[str, int] = {}
    for number, call in enumerate(network.calls):
        chain = _joined(network, call, known, end_of, readers, position) if followers else None
        before = _widened(network, call, end_of, readers) if followers else []
        if chain is None:
            chain = []
            chains.append(chain)
        else:
            del end_of[chain[-1].results[0]]
        for made in before:
            if made is not chain:
                chains.remove(made)
                del end_of[made[0].results[0]]
                chain += made
        chain.append(call)
        position[call.results[0]] = number
        definition = network.definitions[call.function]
        if len(call.results) == 1 and not definition.view and definition.outside is None:
            end_of[call.results[0]] = chain
    # The whole group runs where its last call stands: all that it reads is made by then.
    chains.sort(key=lambda chain: position[chain[-1].results[0]])
    read = {*readers, *(value.name for value in network.outputs)}
    return tuple(_group(network, known, tuple(chain), read) for chain in chains)


def _widened(
    network: Network, call: Call, end_of: Mapping[str, list[Call]], readers: Mapping[str, int]
) -> list[list[Call]]:
    """What makes floats of bytes for a function of elements alone, which then reads the bytes."""
    if not network.definitions[call.function].pointwise:
        return []
    chains = (end_of.get(name, []) for name in dict.fromkeys(call.arguments) if readers[name] == 1)
    return [chain for chain in chains if len(chain) == 1 and chain[0].function.startswith("dequantize")]


def _joined(
    network: Network,
    call: Call,
    known: Mapping[str, Value],
    end_of: Mapping[str, list[Call]],
    readers: Mapping[str, int],
    position: Mapping[str, int],
) -> list[Call] | None:
    """The chain that a function of elements goes on from: the last made of those whose result only it reads."""
    if not network.definitions[call.function].pointwise:
        return None
    shape = known[call.results[0]].shape
    fitting = [
        end_of[name]
        for name in dict.fromkeys(call.arguments)
        if name in end_of and readers[name] == 1 and known[name].role == "temporary" and known[name].shape == shape
    ]
    fitting = [chain for chain in fitting if len(chain) < _LONGEST_CHAIN]
    return max(fitting, key=lambda chain: position[chain[-1].results[0]], default=None)


def _group(network: Network, known: Mapping[str, Value], calls: tuple[Call, ...], wanted: Container[str]) -> Group:
    """The small network of some calls, without results of the last one that nobody reads."""
    made = {name for call in calls for name in call.results}
    read = [n for n in dict.fromkeys(n for call in calls for n in call.arguments) if n not in made]
    outside = network.definitions[calls[-1].function].outside is not None
    results = tuple(name for name in calls[-1].results if outside or name in wanted)
    names = {name: f"x{k}" for k, name in enumerate(read)}
    names |= {name: f"y{k}" for k, name in enumerate(results)}
    inner = [name for call in calls for name in call.results if name not in results]
    names |= {name: f"t{k}" for k, name in enumerate(inner)}
    values: list[Value] = [replace(known[name], name=names[name], role="input") for name in read]
    values += [replace(known[name], name=names[name], role="temporary") for name in inner]
    values += [replace(known[name], name=names[name], role="output") for name in results]
    renamed = tuple(
        replace(
            call,
            arguments=tuple(names[name] for name in call.arguments),
            results=tuple(names[name] for name in call.results),
        )
        for call in calls
    )
    definitions = {call.function: network.definitions[call.function] for call in calls}
    alone = Network("layer", tuple(values), renamed, definitions).checked()
    view = definitions[calls[0].function].view if len(calls) == 1 else ()
    return Group(alone, tuple(read), results, calls, view)
