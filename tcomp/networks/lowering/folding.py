"""What depends on weights alone is computed when a network is loaded."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.network import Call, Network, Value
from tcomp.networks.weights import Later, Weights

Array = np.ndarray[Any, np.dtype[Any]]


def fold_norms(network: Network) -> Network:
    """Batch norms go into the kernel and the bias of the convolution before them, where nothing else reads that."""
    readers: dict[str, list[Call]] = {}
    for call in network.calls:
        for name in call.arguments:
            readers.setdefault(name, []).append(call)
    makers = {call.results[0]: call for call in network.calls}
    known = network.by_name
    weights, definitions = Weights(network.weights), dict(network.definitions)
    values, calls = {value.name: value for value in network.values}, list(network.calls)
    for norm in network.calls:
        before = makers.get(norm.arguments[0]) if norm.function.startswith("batch_norm") else None
        if before is None or not _is_convolution(before.function):
            continue
        biased = network.definitions[before.function].biased
        if biased is None and len(before.arguments) == 2:
            continue
        made = before.results[0]
        if len(readers[made]) != 1 or known[made].role != "temporary":
            continue
        if not all(name in network.weights for name in (*before.arguments[1:], *norm.arguments[1:])):
            continue
        factor, shift = _factors(network, before, norm)
        plain = known[before.arguments[1]]
        dtype = np.dtype(plain.dtype)
        names = [_free(f"{plain.name}_{label}_folded", values) for label in ("kernel", "bias")]
        values |= {names[0]: replace(plain, name=names[0])}
        values |= {names[1]: Value(names[1], plain.dtype, shift.shape, "weight")}
        weights[names[0]] = Later(functools.partial(_scaled, network.weights, plain.name, factor))
        weights[names[1]] = shift.astype(dtype)
        function = before.function
        if biased is not None:
            function, definitions[biased.name] = biased.name, biased
        arguments = (before.arguments[0], *names)
        folded = replace(before, function=function, arguments=arguments, results=norm.results)
        calls[calls.index(norm)] = folded
        calls.remove(before)
        del values[made]
    read = {name for call in calls for name in call.arguments}
    kept = tuple(value for value in values.values() if value.role != "weight" or value.name in read)
    return Network(network.name, kept, tuple(calls), definitions, weights.only(read)).checked()


def _is_convolution(function: str) -> bool:
    return function.startswith("conv") and not function.startswith("conv_transpose")


def _free(name: str, taken: Container[str]) -> str:
    """The name, or a longer one that is not taken."""
    while name in taken:
        name += "_2"
    return name


def _factors(network: Network, convolution: Call, norm: Call) -> tuple[Array, Array]:
    """What each filter is multiplied by, and the bias of both together, in float64."""
    before = network.weights[convolution.arguments[2]].astype(np.float64) if len(convolution.arguments) > 2 else 0.0
    mean, variance, *rest = (network.weights[name].astype(np.float64) for name in norm.arguments[1:])
    scaled, shifted = "_unscaled" not in norm.function, "_unshifted" not in norm.function
    factor = (rest[0] if scaled else 1.0) / np.sqrt(variance + dict(norm.constants)["eps"])
    return factor, (before - mean) * factor + (rest[-1] if shifted else 0.0)


def _scaled(weights: Mapping[str, Array], name: str, factor: Array) -> Array:
    """A kernel with each filter multiplied, in float64."""
    kernel = weights[name]
    # NumPy converts pieces that stay in a cache: a copy of the kernel in float64 takes twice as long.
    made = np.empty(kernel.shape, kernel.dtype)
    np.multiply(kernel, factor.reshape(-1, *(1,) * (kernel.ndim - 1)), out=made, casting="same_kind")
    return made
