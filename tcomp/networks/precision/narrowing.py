"""Weights in 16 bits: products of matrices by weights that are kept so and made float32 where they are read.

With few rows such a product takes as long as its weights take to come from memory, so half the bytes are half the time.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tcomp.errors import NetworkError
from tcomp.model.evaluation import numpy_dtype
from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import SPELLED, Call, Definition, Network
from tcomp.values.operators import BFLOAT16, FLOAT16

_TYPES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
_KINDS = ("linear", "matmul")
_PARAMETER = re.compile(r"float\([^)]*\) (\w+)")


def narrow_weights(network: Network, kind: str = "float16") -> Network:
    """The network with the weights of its products of matrices in 16 bits, but for those that the type does not hold.

    Sums are those of float32, so what differs is the rounding of weights: 2^-11 of each in ``float16``, and 2^-25 where
    that is more; 2^-8 of each in ``bfloat16``, which holds all sizes of numbers.

    Raises:
        NetworkError: the type is another.
        MissingPackageError: ``bfloat16`` needs ``ml_dtypes``.
    """
    if kind not in _TYPES:
        raise NetworkError(f"weights are kept in {' or '.join(_TYPES)}, not in {kind}")
    parts = Parts(network)
    for call in network.calls:
        made = _narrowed(network, parts, call, kind)
        if made is None:
            parts.calls.append(call)
        else:
            parts.call(*made)
    return parts.network()


def _narrowed(network: Network, parts: Parts, call: Call, kind: str) -> tuple[Definition, Call] | None:
    """The def for weights of 16 bits, and its call; None where there are no such weights."""
    if not call.function.startswith(_KINDS) or len(call.arguments) < 2 or call.arguments[1] not in network.weights:
        return None
    name, definition = call.arguments[1], network.definitions[call.function]
    array = network.weights[name]
    parameters = _PARAMETER.findall(definition.text.partition("->")[0])
    if array.dtype != np.float32 or array.ndim < 2 or len(parameters) < 2:
        return None
    with np.errstate(over="ignore"):
        narrowed = array.astype(numpy_dtype(_TYPES[kind]))
    if not np.isfinite(narrowed.astype(np.float32)).all():
        return None
    read = re.compile(rf"(?<![\w]){parameters[1]}(\([^()]*\))")
    head, arrow, body = definition.text.partition("->")
    if len(read.findall(body)) != 1:
        return None
    made = f"{definition.name}_by_{'halves' if kind == 'float16' else kind}"
    head = head.replace(f"def {definition.name}(", f"def {made}(", 1)
    head = re.sub(rf"float(\([^)]*\) {parameters[1]}\b)", rf"{SPELLED.get(kind, kind)}\1", head)
    text = head + arrow + read.sub(rf"float({parameters[1]}\1)", body)
    narrow = parts.weight(f"{name}_{'half' if kind == 'float16' else kind}", lambda: narrowed)
    arguments = (call.arguments[0], narrow, *call.arguments[2:])
    return Definition(made, text), replace(call, function=made, arguments=arguments)
