"""The pass that computes convolutions and products of matrices between rounded tensors in integers.

An image of 8 bits that is made floats (``dequantize``) and convolved with a kernel of 8 bits that is made floats is a
sum of products of integers, times both scales.  The kernel's scale may differ for each filter.  So it is with rows that
are multiplied by a weight, and with two tensors that are both rounded.  What is done with each
sum follows it as a function of elements, and so joins its kernel: nothing of 32 bits goes to memory.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Definition, Network, Value
from tcomp.networks.texts import layers
from tcomp.networks.texts.general import pointwise

Array = np.ndarray[Any, np.dtype[Any]]

BYTES = ("int8", "uint8")
_FLAGS = {"strided", "padded", "dilated", "bias", "point"}
FEWEST_ROWS = 8
"""Rows from which a product of matrices is computed in integers: with fewer it waits for its weights either way.

On two cores of an Emerald Rapids, 768 by 768, beside other work: 0.058 ms for 1 row (floats 0.023), 0.061 for 128
(0.53).
"""


@dataclass(frozen=True, slots=True)
class Rounded:
    """A tensor of 8 bits whose elements, less ``zero`` and times ``scale``, are those of a tensor of floats."""

    name: str
    scale: Array
    zero: Array


def integer_layers(network: Network) -> Network:
    """Layers of rounded tensors become sums of products of integers, each with its factor."""
    makers = {name: call for call in network.calls for name in call.results}
    readers = Counter(name for call in network.calls for name in dict.fromkeys(call.arguments))
    values, parts = network.by_name, Parts(network)
    for call in network.calls:
        layer = _layer(network, call, makers, values)
        if layer is not None:
            _written(parts, call, *layer)
        elif network.definitions[call.function].pointwise:
            parts.calls.append(_with_own_copies(parts, call, makers, readers, values))
        else:
            parts.calls.append(call)
    return parts.network()


def rounded(network: Network, name: str, makers: Mapping[str, Call], values: Mapping[str, Value]) -> Rounded | None:
    """What a tensor of floats was made of, if that are 8 bits with a scale that is known."""
    call = makers.get(name)
    if call is None or not call.function.startswith("dequantize") or values[call.arguments[0]].dtype not in BYTES:
        return None
    if values[name].dtype != "float32" or not all(n in network.weights for n in call.arguments[1:]):
        return None
    scale, *rest = (network.weights[n] for n in call.arguments[1:])
    return Rounded(call.arguments[0], scale, rest[0] if rest else np.zeros((), np.int32))


def is_convolution(call: Call) -> bool:
    """Whether a call is a convolution of images in one group."""
    words = call.function.split("_")
    return words[0] == "conv2d" and set(words[1:]) <= _FLAGS


def is_product(call: Call) -> bool:
    """Whether a call is a product of matrices, perhaps with a bias."""
    return call.function.startswith(("linear_", "matmul_"))


@dataclass(frozen=True, slots=True)
class _Operands:
    """The axis of the kernel along which filters lie, and that of the result; names in the def's text."""

    names: tuple[str, str]
    kernel: int
    result: int


def _operands(call: Call) -> _Operands | None:
    if is_convolution(call):
        return _Operands(("I", "K"), 0, 1)
    if call.function.startswith("linear_"):
        return _Operands(("X", "W"), 0, -1)
    return _Operands(("X", "Y"), -1, -1) if is_product(call) else None


def _layer(
    network: Network, call: Call, makers: Mapping[str, Call], values: Mapping[str, Value]
) -> tuple[Rounded, Rounded, Array] | None:
    """The image, the kernel and the bias of a layer that can be computed in integers."""
    kind = _operands(call)
    if kind is None or (is_product(call) and math.prod(values[call.results[0]].shape[:-1]) < FEWEST_ROWS):
        return None
    image, kernel = (rounded(network, name, makers, values) for name in call.arguments[:2])
    if image is None or kernel is None or image.scale.size != 1 or image.zero.size != 1 or kernel.zero.any():
        return None
    shape = values[kernel.name].shape
    known = kernel.name in network.weights
    if not known and (is_convolution(call) or image.zero.any() or kernel.scale.size != 1):
        return None
    if is_product(call) and image.zero.any() and len(shape) > 2:
        return None  # what the zero point adds would differ from product to product
    if not _by_filter(kernel.scale, shape, kind.kernel):
        return None
    bias = np.zeros(shape[kind.kernel] if known else 1)
    for name in call.arguments[2:]:
        array = _known(network, name, makers)
        if array is None:
            return None
        bias = array.astype(np.float64)
    return image, kernel, bias


def _by_filter(scale: Array, shape: tuple[int, ...], axis: int) -> bool:
    """Whether there is one scale, or one for each filter: along another dimension there may be as many."""
    if scale.size == 1:
        return True
    extents = (1,) * (len(shape) - scale.ndim) + scale.shape
    return len(extents) == len(shape) and extents[axis] == scale.size == shape[axis]


def _known(network: Network, name: str, makers: Mapping[str, Call]) -> Array | None:
    """A weight, or what one of integers is made: the bias of a network that came rounded."""
    if name in network.weights:
        return network.weights[name]
    call = makers.get(name)
    if (
        call is None
        or not call.function.startswith("dequantize")
        or any(n not in network.weights for n in call.arguments)
    ):
        return None
    array, scale, *zero = (network.weights[n].astype(np.float64) for n in call.arguments)
    return np.asarray((array - (zero[0] if zero else 0.0)) * scale)


def _written(parts: Parts, call: Call, image: Rounded, kernel: Rounded, bias: Array) -> None:
    """Write the sums of products, and the function of elements that makes floats of them."""
    name, place = call.results[0], parts.values[call.results[0]]
    pixels, weight = parts.values[image.name], parts.values[kernel.name]
    kind, zero = _operands(call), int(image.zero.item())
    assert kind is not None
    definition = _of_integers(_plain(parts, call, weight), kind, pixels.dtype, weight.dtype, zero)
    sums = parts.temporary(f"{name}_sums", "int32", place.shape)
    constants = tuple((n, k) for n, k in call.constants if f"const int {n}" in definition.text)
    parts.call(definition, Call(definition.name, (image.name, kernel.name), constants, (sums,), call.place))
    filters = [1] * len(place.shape)
    known = kernel.name in parts.weights
    filters[kind.result] = weight.shape[kind.kernel] if known else 1
    factor = np.broadcast_to(image.scale.astype(np.float64) * kernel.scale.reshape(-1), math.prod(filters))
    arguments = [sums, parts.weight(f"{name}_factor", lambda: factor.astype(np.float32).reshape(filters))]
    arguments.append(parts.weight(f"{name}_shift", lambda: bias.astype(np.float32).reshape(filters)))
    body, shapes = "float({a}) * {b} + {c}", [(place.shape, "int32"), (filters, "float32"), (filters, "float32")]
    if zero:  # what the zero point adds to each sum, taken off where it is exact
        array = parts.weights[kernel.name].astype(np.int64)
        first = kind.kernel % array.ndim
        added = -zero * array.sum(axis=tuple(k for k in range(array.ndim) if k != first))
        arguments.append(parts.weight(f"{name}_less", lambda: added.astype(np.int32).reshape(filters)))
        body, shapes = "float({a} + {d}) * {b} + {c}", [*shapes, (filters, "int32")]
    scaled = pointwise("scaled", body, shapes, place.shape, "float32")
    parts.call(scaled, Call(scaled.name, tuple(arguments), (), (name,), call.place))


def _plain(parts: Parts, call: Call, kernel: Value) -> Definition:
    """The layer without its bias."""
    words = call.function.split("_")
    if is_product(call):
        return layers.linear(int(words[1][0]), False) if words[0] == "linear" else parts.definitions[call.function]
    strided, padded, dilated = (word in words for word in ("strided", "padded", "dilated"))
    if kernel.shape[2:] == (1, 1) and not (padded or dilated):
        return layers.point_conv2d(bias=False, strided=strided)
    return layers.conv2d(bias=False, strided=strided, padded=padded, dilated=dilated)


def _of_integers(definition: Definition, kind: _Operands, image: str, kernel: str, outside: int) -> Definition:
    """The text of a layer for integers of 8 bits, with sums of 32 bits; ``outside`` stands around an image."""
    padded = "constant_exterior(" in definition.text
    name = f"{definition.name}_{image}_{kernel}{f'_{outside}'.replace('-', 'm') if outside and padded else ''}"
    text = definition.text.replace(f"def {definition.name}(", f"def {name}(", 1)
    first, second = kind.names
    text = re.sub(rf"\bfloat(\([^)]*\) {first}\b)", rf"{image}\1", text)
    text = re.sub(rf"\bfloat(\([^)]*\) {second}\b)", rf"{kernel}\1", text)
    text = text.replace(f"constant_exterior({first}, 0)", f"constant_exterior({first}, {image}({outside}))")
    text = re.sub(rf"\+=! (.*\)) \* ({second}\([^)]*\))", r"+=! int32(\1) * int32(\2)", text)
    return Definition(name, text)


def _with_own_copies(
    parts: Parts, call: Call, makers: Mapping[str, Call], readers: Mapping[str, int], values: Mapping[str, Value]
) -> Call:
    """A function of elements that makes floats of bytes itself: what several read would be written as floats."""
    arguments = []
    for name in call.arguments:
        maker = makers.get(name)
        shared = maker is not None and maker.function.startswith("dequantize") and readers[name] > 1
        if shared and maker is not None and values[maker.arguments[0]].dtype in BYTES:
            own = parts.temporary(f"{name}_for_{call.results[0]}", values[name].dtype, values[name].shape)
            parts.calls.append(replace(maker, results=(own,)))
            name = own
        arguments.append(name)
    return replace(call, arguments=tuple(arguments))
