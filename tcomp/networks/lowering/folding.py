"""What depends on weights alone is computed when a network is loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.network import Call, Network, Value

Array = np.ndarray[Any, np.dtype[Any]]


def fold_norms(network: Network) -> Network:
    """Batch norms go into the kernel and the bias of the convolution before them, where nothing else reads that."""
    readers: dict[str, list[Call]] = {}
    for call in network.calls:
        for name in call.arguments:
            readers.setdefault(name, []).append(call)
    makers = {call.results[0]: call for call in network.calls}
    known = network.by_name
    weights, definitions = dict(network.weights), dict(network.definitions)
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
        kernel, bias = _folded(network, before, norm)
        names = []
        for label, array in (("kernel", kernel), ("bias", bias)):
            name = f"{before.arguments[1]}_{label}_folded"
            while name in values:
                name += "_2"
            values[name], weights[name] = Value(name, array.dtype.name, array.shape, "weight"), array
            names.append(name)
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
    weights = {name: array for name, array in weights.items() if name in read}
    return Network(network.name, kept, tuple(calls), definitions, weights).checked()


def _is_convolution(function: str) -> bool:
    return function.startswith("conv") and not function.startswith("conv_transpose")


def _folded(network: Network, convolution: Call, norm: Call) -> tuple[Array, Array]:
    """The kernel and the bias of both together, computed in float64."""
    kernel, *bias = (network.weights[name] for name in convolution.arguments[1:])
    mean, variance, *rest = (network.weights[name].astype(np.float64) for name in norm.arguments[1:])
    scaled, shifted = "_unscaled" not in norm.function, "_unshifted" not in norm.function
    factor = (rest[0] if scaled else 1.0) / np.sqrt(variance + dict(norm.constants)["eps"])
    before = bias[0].astype(np.float64) if bias else 0.0
    shift = (before - mean) * factor + (rest[-1] if shifted else 0.0)
    # NumPy converts pieces that stay in a cache: a copy of the kernel in float64 takes twice as long.
    made = np.empty(kernel.shape, kernel.dtype)
    np.multiply(kernel, factor.reshape(-1, *(1,) * (kernel.ndim - 1)), out=made, casting="same_kind")
    return made, shift.astype(kernel.dtype)
