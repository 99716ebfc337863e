"""Weights in 16 bits: products of matrices by weights that are kept as float16 and made float32 where they are read.

With few rows such a product takes as long as its weights take to come from memory, so half the bytes are half the time.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Definition, Network

_KINDS = ("linear", "matmul")
_PARAMETER = re.compile(r"float\([^)]*\) (\w+)")


def narrow_weights(network: Network) -> Network:
    """The network with the weights of its products of matrices in float16, but for those that it does not hold.

    Sums are those of float32, so what differs is the rounding of weights: 2^-11 of each, and 2^-25 where that is more.
    """
    parts = Parts(network)
    for call in network.calls:
        made = _narrowed(network, parts, call)
        if made is None:
            parts.calls.append(call)
        else:
            parts.call(*made)
    return parts.network()


def _narrowed(network: Network, parts: Parts, call: Call) -> tuple[Definition, Call] | None:
    """The def for weights of 16 bits, and its call; None where there are no such weights."""
    if not call.function.startswith(_KINDS) or len(call.arguments) < 2 or call.arguments[1] not in network.weights:
        return None
    name, definition = call.arguments[1], network.definitions[call.function]
    array = network.weights[name]
    parameters = _PARAMETER.findall(definition.text.partition("->")[0])
    if array.dtype != np.float32 or array.ndim < 2 or len(parameters) < 2:
        return None
    if not (np.abs(array) <= np.finfo(np.float16).max).all():
        return None
    read = re.compile(rf"(?<![\w]){parameters[1]}(\([^()]*\))")
    head, arrow, body = definition.text.partition("->")
    if len(read.findall(body)) != 1:
        return None
    made = f"{definition.name}_by_halves"
    head = head.replace(f"def {definition.name}(", f"def {made}(", 1)
    head = re.sub(rf"float(\([^)]*\) {parameters[1]}\b)", r"half\1", head)
    text = head + arrow + read.sub(rf"float({parameters[1]}\1)", body)
    narrow = parts.weight(f"{name}_half", lambda: array.astype(np.float16))
    arguments = (call.arguments[0], narrow, *call.arguments[2:])
    return Definition(made, text), replace(call, function=made, arguments=arguments)
