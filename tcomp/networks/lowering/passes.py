"""The passes from network to network, in their order; what each leaves prints as a program."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.engine import define
from tcomp.mapping.machines.fitted.networks import POINTS
from tcomp.networks.algorithms.choosing import Choice, choose
from tcomp.networks.algorithms.pruned import has_pruned_weights
from tcomp.networks.lowering.folding import fold_norms
from tcomp.networks.network import Call, Network, Value
from tcomp.networks.options import NetworkOptions
from tcomp.networks.precision.integers import integer_layers
from tcomp.networks.precision.onebit import one_bit
from tcomp.networks.rewriting.applying import Rewrite, rewrite
from tcomp.networks.rewriting.table import VIEWS
from tcomp.networks.texts import layers
from tcomp.networks.views import applied
from tcomp.networks.weights import Weights

Array = np.ndarray[Any, np.dtype[Any]]


def share_calls(network: Network) -> Network:
    """Of equal calls with equal arguments one is kept, and no call whose result nobody wants."""
    stands: dict[str, str] = {}
    made: dict[tuple[Any, ...], tuple[str, ...]] = {}
    outputs = {value.name for value in network.outputs}
    calls: list[Call] = []
    for call in network.calls:
        arguments = tuple(stands.get(name, name) for name in call.arguments)
        key = (call.function, arguments, call.constants)
        if key in made and not outputs.intersection(call.results):
            stands.update(zip(call.results, made[key], strict=True))
            continue
        made.setdefault(key, call.results)
        calls.append(replace(call, arguments=arguments))
    return _with_calls(network, calls, Weights(network.weights))


def fold_weights(network: Network) -> Network:
    """Calls that read nothing but weights are made now, and their results are weights."""
    weights = Weights(network.weights)
    values = dict(network.by_name)
    calls: list[Call] = []
    for call in network.calls:
        known = all(name in weights for name in call.arguments)
        if not known or any(values[name].role == "output" for name in call.results):
            calls.append(call)
            continue
        found = _computed(network, call, weights)
        for name, array in zip(call.results, found, strict=True):
            weights[name] = array
            values[name] = replace(values[name], role="weight")
    return _with_calls(replace(network, values=tuple(values.values())), calls, weights)


def _computed(network: Network, call: Call, weights: Mapping[str, Array]) -> tuple[Array, ...]:
    """The results of a call of which all arguments are known."""
    definition, values = network.definitions[call.function], network.by_name
    if definition.outside is not None:
        return tuple(np.asarray(array) for array in definition.outside(*(weights[name] for name in call.arguments)))
    if definition.view:
        seen = applied(definition.view, weights[call.arguments[0]], dict(call.constants), values[call.results[0]].shape)
        if seen is not None:
            return (np.ascontiguousarray(seen).reshape(values[call.results[0]].shape),)
    names = dict(zip(dict.fromkeys(call.arguments), (f"x{k}" for k in itertools.count()), strict=False))
    results = {name: f"y{k}" for k, name in enumerate(call.results)}
    inputs = [replace(values[name], name=inner, role="input") for name, inner in names.items()]
    outputs = [replace(values[name], name=inner, role="output") for name, inner in results.items()]
    arguments = tuple(names[name] for name in call.arguments)
    inner = replace(call, arguments=arguments, results=tuple(results.values()))
    alone = Network("folded", (*inputs, *outputs), (inner,), {call.function: definition})
    found = define(str(alone), network.name)["folded"](*(weights[name] for name in names), target="cpu")
    return found if isinstance(found, tuple) else (found,)


def point_convolutions(network: Network) -> Network:
    """Convolutions by kernels of one pixel become products, where their rows are long or few."""
    values, definitions = network.by_name, dict(network.definitions)
    calls = []
    for call in network.calls:
        words = call.function.split("_")
        plain = words[0] == "conv2d" and not {*words[1:]} - {"strided", "bias"}
        kernel = values[call.arguments[1]].shape if plain else ()
        pixels = math.prod(values[call.results[0]].shape[2:])
        if kernel[2:] == (1, 1) and (pixels <= POINTS.most_pixels or kernel[1] >= POINTS.least_channels):
            made = layers.point_conv2d(bias="bias" in words, strided="strided" in words)
            definitions[made.name] = made
            call = replace(call, function=made.name)
        calls.append(call)
    return replace(network, calls=tuple(calls), definitions=definitions).checked()


def _with_calls(network: Network, calls: list[Call], weights: Weights) -> Network:
    """A network with other calls: without those that no output needs, and without values that nobody reads."""
    needed = {value.name for value in network.outputs}
    kept: list[Call] = []
    for call in reversed(calls):
        if needed.intersection(call.results):
            kept.append(call)
            needed.update(call.arguments, call.results)
    values: tuple[Value, ...] = tuple(v for v in network.values if v.name in needed or v.role == "input")
    made = {name for call in kept for name in call.results}
    values = tuple(v for v in values if v.role in ("input", "weight") or v.name in made)
    order = ("input", "weight", "temporary", "output")
    return replace(
        network,
        values=tuple(sorted(values, key=lambda v: order.index(v.role))),
        calls=tuple(reversed(kept)),
        weights=weights.only(needed),
    ).checked()


PASSES: Mapping[str, Callable[[Network], Network]] = {
    "share_calls": share_calls,
    "integer_layers": integer_layers,
    "fold_weights": fold_weights,
    "one_bit": one_bit,
    "fold_norms": fold_norms,
}
"""The first passes by the names that they have in ``NetworkOptions``."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """The network after each pass that is on, by its name, first it as it was, as ``source``; what passes decided."""

    stages: dict[str, Network]
    choices: tuple[Choice, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()


def lower(network: Network, options: NetworkOptions) -> Lowered:
    """All passes that are on.  Raises NetworkError."""
    stages = {"source": network.checked()}
    for name, run in PASSES.items():
        if getattr(options, name):
            made = functools.partial(one_bit, exact=options.exact) if run is one_bit else run
            network = stages[name] = made(network)
    rewrites: tuple[Rewrite, ...] = ()
    if options.rewrite:
        network, rewrites = rewrite(network, leave=options.leave_rules, exact=options.exact)
        stages["rewrite"] = network
    if options.point_convolutions:
        network = stages["point_convolutions"] = point_convolutions(network)
    choices: tuple[Choice, ...] = ()
    skip_zeros = options.skip_zeros and not options.exact and has_pruned_weights(stages["source"])
    if options.choose_algorithms or options.choose_layouts or skip_zeros:
        name = "choose_algorithms" if options.choose_algorithms else "choose_layouts"
        name = name if options.choose_algorithms or options.choose_layouts else "skip_zeros"
        chosen, choices = choose(
            network,
            options.accuracy,
            options.algorithms,
            algorithms=options.choose_algorithms,
            innermost=options.choose_layouts,
            skip_zeros=skip_zeros,
        )
        stages[name] = chosen
        if options.rewrite:  # what is turned for a layer may be turned back behind it
            stages[name], turned = rewrite(chosen, leave=options.leave_rules, rules=VIEWS)
            rewrites += turned
    return Lowered(stages, choices, rewrites)
