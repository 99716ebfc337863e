"""The pass that computes layers of signs in bits: 64 products are one exclusive or, whose bits are counted.

It holds where a kernel has one size of numbers in each filter and no zero, and its image only numbers of one size, or
0 as well.  Sums of 1 and -1 are integers that float32 has, so where the sizes are powers of two results are the same to
the bit.  What is NaN in an image of signs counts as 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Definition, Network, Number, Value
from tcomp.networks.precision.integers import is_convolution, is_product
from tcomp.networks.precision.signs import Elements
from tcomp.networks.texts import onebit
from tcomp.networks.texts.general import pointwise

Array = np.ndarray[Any, np.dtype[Any]]

_LOOK = 64
"""Elements of a weight that are looked at first."""

_LARGEST_SUM = 2**24
"""Integers up to this one are all numbers of float32."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer of signs: the ``size`` of elements of its image, which has ``zeros`` or not, and that of each filter.

    ``kernel`` has the filters along its first axis, and what each adds up along the others.
    """

    call: Call
    kernel: Array
    size: float
    sizes: Array
    zeros: bool

    @property
    def bias(self) -> str | None:
        return self.call.arguments[2] if len(self.call.arguments) > 2 else None


def one_bit(network: Network, *, exact: bool = False) -> Network:
    """Layers whose operands are signs become sums of bits; with ``exact`` those alone that give the same to the bit."""
    elements, values = Elements(network), dict(network.by_name)
    layers = {call.results[0]: found for call in network.calls if (found := _layer(network, call, elements, exact))}
    if not layers:
        return network
    parts = Parts(network)
    for call in network.calls:
        layer = layers.get(call.results[0])
        if layer is None:
            parts.calls.append(call)
        elif is_convolution(call):
            _convolution(parts, layer, values)
        else:
            _product(parts, layer, values)
    return parts.network()


def _layer(network: Network, call: Call, elements: Elements, exact: bool) -> _Layer | None:
    """The layer of signs that a call is; None if it is another."""
    if not (is_convolution(call) or is_product(call)) or any(n not in network.weights for n in call.arguments[1:]):
        return None
    kernel, image = network.weights[call.arguments[1]], network.by_name[call.arguments[0]]
    if kernel.dtype != np.float32 or image.dtype != "float32" or image.name in network.weights:
        return None
    if kernel.ndim < 2 or len(image.shape) < 2 or not kernel.size or kernel.size // len(kernel) > _LARGEST_SUM:
        return None
    if call.function.startswith("matmul"):
        kernel = kernel.T
        if kernel.ndim != 2:
            return None
    if not _looks_signed(kernel):
        return None
    kernel = np.ascontiguousarray(kernel)
    sizes = np.abs(kernel).reshape(len(kernel), -1)
    if not (sizes == sizes[:, :1]).all() or not sizes.all() or not np.isfinite(sizes).all():
        return None
    found = elements.of(image.name)
    if found is None or (found.nan and exact):
        return None
    most = {abs(x) for x in found.elements} - {0.0}
    if len(most) != 1:
        return None
    (size,) = most
    factors = size * sizes[:, 0].astype(np.float64)
    if exact and not all(math.frexp(x)[0] == 0.5 for x in (size, *factors)):
        return None
    return _Layer(call, kernel, size, sizes[:, 0], found.nan or 0.0 in found.elements)


def _looks_signed(filters: Array) -> bool:
    """Whether the first elements of the first filter are as it needs: those of most kernels are not."""
    first = np.abs(filters[0].reshape(-1)[:_LOOK])
    return bool(first.all() and (first == first[0]).all())


def _convolution(parts: Parts, layer: _Layer, values: dict[str, Value]) -> None:
    call, numbers = layer.call, {name: int(number) for name, number in layer.call.constants}
    image, result = values[call.arguments[0]], values[call.results[0]]
    pads = numbers.get("PH", 0), numbers.get("PW", 0)
    padded = pads != (0, 0)
    count, channels, height, width = image.shape
    words = -(-channels // onebit.WORD)
    packing = onebit.packed_images(padded=padded, zeros=layer.zeros)
    border = tuple(zip(("PH", "PW"), pads, strict=True)) if padded else ()
    shape = (count, words, height + 2 * pads[0], width + 2 * pads[1])
    planes = _packed(parts, image, packing, border, shape, layer.zeros, f"bits_{pads[0]}_{pads[1]}")
    kernel = parts.weight(f"{call.arguments[1]}_bits", lambda: packed(layer.kernel, 1))
    arguments, own = [*planes, kernel], {"strided": "S", "dilated": "D"}
    flags = {name: any(numbers.get(f"{c}{axis}", 1) != 1 for axis in "HW") for name, c in own.items()}
    text = onebit.conv2d(padded=padded, zeros=layer.zeros, **flags)
    if padded and not layer.zeros:
        arguments.append(parts.weight(f"{call.results[0]}_most", lambda: _most(layer, numbers, image, result)))
    constants: list[tuple[str, Number]] = [] if padded or layer.zeros else [("C", channels)]
    constants += [(f"{c}{axis}", numbers.get(f"{c}{axis}", 1)) for n, c in own.items() if flags[n] for axis in "HW"]
    sums = parts.temporary(f"{call.results[0]}_sums", "int32", result.shape)
    parts.call(text, Call(text.name, tuple(arguments), tuple(constants), (sums,), call.place))
    _scaled(parts, layer, sums, result, (1, len(layer.kernel), 1, 1))


def _product(parts: Parts, layer: _Layer, values: dict[str, Value]) -> None:
    call = layer.call
    image, result = values[call.arguments[0]], values[call.results[0]]
    rank, length = len(image.shape), image.shape[-1]
    packing = onebit.packed_rows(rank, layer.zeros)
    shape = (*image.shape[:-1], -(-length // onebit.WORD))
    planes = _packed(parts, image, packing, (), shape, layer.zeros, "bits_of_rows")
    turned = "_turned" if call.function.startswith("matmul") else ""
    kernel = parts.weight(f"{call.arguments[1]}{turned}_bits", lambda: packed(layer.kernel, 1))
    text = onebit.linear(rank, layer.zeros)
    constants: tuple[tuple[str, Number], ...] = () if layer.zeros else (("L", length),)
    sums = parts.temporary(f"{call.results[0]}_sums", "int32", result.shape)
    parts.call(text, Call(text.name, (*planes, kernel), constants, (sums,), call.place))
    _scaled(parts, layer, sums, result, (*(1,) * (rank - 1), len(layer.kernel)))


def _packed(
    parts: Parts,
    image: Value,
    packing: Definition,
    border: Sequence[tuple[str, Number]],
    shape: Sequence[int],
    zeros: bool,
    form: str,
) -> list[str]:
    """The names of an image's words of signs, and of those that say what is not 0; the same for all who read a form."""
    names = [f"{image.name}_{form}"] + ([f"{image.name}_others_in_{form}"] if zeros else [])
    if names[0] not in parts.values:
        for name in names:
            parts.values[name] = Value(name, "uint64", tuple(shape), "temporary")
        parts.call(packing, Call(packing.name, (image.name,), tuple(border), tuple(names)))
    return names


def _scaled(parts: Parts, layer: _Layer, sums: str, result: Value, shape: tuple[int, ...]) -> None:
    """Write what makes floats of the sums: their factors, where these are not 1, and the bias."""
    name, place = layer.call.results[0], layer.call.place
    factors = (layer.size * layer.sizes.astype(np.float64)).astype(np.float32)
    body, operands, arguments = "float({a})", [(result.shape, "int32")], [sums]
    if (factors != 1).any():
        body += " * {b}"
        operands.append((shape, "float32"))
        arguments.append(parts.weight(f"{name}_factor", lambda: factors.reshape(shape)))
    if layer.bias is not None:
        body += f" + {{{'abc'[len(operands)]}}}"
        bias = parts.weights[layer.bias]
        operands.append((shape, "float32"))
        arguments.append(parts.weight(f"{name}_shift", lambda: bias.reshape(shape)))
    scaled = pointwise("counted" if len(operands) == 1 else "scaled", body, operands, result.shape, "float32")
    parts.call(scaled, Call(scaled.name, tuple(arguments), (), (name,), place))


def packed(kernel: Array, axis: int) -> Array:
    """The signs of an array along an axis, 64 in a word; those behind the last are 0."""
    bits = np.moveaxis(kernel > 0, axis, -1)
    whole = np.zeros((*bits.shape[:-1], -(-bits.shape[-1] // onebit.WORD) * onebit.WORD), bool)
    whole[..., : bits.shape[-1]] = bits
    words = np.packbits(whole, axis=-1, bitorder="little").view("<u8").astype(np.uint64)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


def _most(layer: _Layer, numbers: dict[str, int], image: Value, result: Value) -> Array:
    """What each sum of a convolution with a border is if no factors differ: zero bits stand in the border.

    There they differ from a filter's positive numbers, which must count for nothing.
    """
    filters, channels, *window = layer.kernel.shape
    positive = (layer.kernel > 0).sum(1)  # filters x window
    inside = []
    for axis, extent in enumerate(image.shape[2:]):
        letter = "HW"[axis]
        first = np.arange(result.shape[2 + axis])[:, None] * numbers.get(f"S{letter}", 1) - numbers.get(f"P{letter}", 0)
        at = first + np.arange(window[axis])[None, :] * numbers.get(f"D{letter}", 1)
        inside.append((at >= 0) & (at < extent))
    seen = np.einsum("hk,wl->hwkl", *(one.astype(np.int64) for one in inside))
    most = channels * seen.sum((2, 3))[None] + 2 * np.einsum("hwkl,fkl->fhw", 1 - seen, positive)
    return np.asarray(most, np.int32).reshape(filters, *result.shape[2:])
