"""Layers of whose weights most are zero: what they cost if only the others are multiplied, and what writes that."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.networks import LAYERS
from tcomp.networks.algorithms import costs
from tcomp.networks.algorithms.convolutions import Convolution
from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Network, Value
from tcomp.networks.texts import elements, pruned

Array = np.ndarray[Any, np.dtype[Any]]

NAME, TURNED = "pruned", "pruned, turned"
BLOCKS = (16, 32)
"""Rows of a weight that may be left out together: their elements are those of vectors."""


@dataclass(frozen=True, slots=True)
class Product:
    """Rows times a transposed weight, which is one of the network's."""

    call: Call
    operand: Value
    weight: Value
    biased: bool

    @property
    def rows(self) -> int:
        return math.prod(self.operand.shape[:-1])


def product(network: Network, call: Call, values: Mapping[str, Value]) -> Product | None:
    """What a call is as a product by a transposed weight; None if it is another."""
    words = call.function.split("_")
    if (
        words[0] != "linear"
        or words[2:] not in ([], ["bias"])
        or any(n not in network.weights for n in call.arguments[1:])
    ):
        return None
    operand, weight = (values[name] for name in call.arguments[:2])
    if (operand.dtype, weight.dtype) != ("float32", "float32") or operand.name in network.weights:
        return None
    return Product(call, operand, weight, words[2:] == ["bias"])


def has_pruned_weights(network: Network) -> bool:
    """Whether a weight of a network has many zeros, as far as a few of its elements tell."""
    arrays = (network.weights[value.name] for value in network.of_role("weight") if len(value.shape) > 1)
    return any(_looks_pruned(array) for array in arrays)


def _looks_pruned(array: Array) -> bool:
    if not array.size or array.dtype != np.float32:
        return False
    at = (_drawn() * array.size).astype(np.int64)
    return bool(np.mean(array.reshape(-1)[at] == 0) > LAYERS.least_zeros / 2)


@functools.cache
def _drawn() -> Array:
    """Places between 0 and 1, 1 left out: multiples of the golden ratio, which fall evenly whatever has a period.

    To import NumPy's random numbers takes 8 ms.
    """
    return np.arange(LAYERS.looked_at) * ((math.sqrt(5.0) - 1.0) / 2.0) % 1.0


def entries(network: Network, weight: Value) -> int | None:
    """How many elements of a weight are not zero; None where it is hardly worth counting, for most are."""
    array = network.weights[weight.name]
    if not _looks_pruned(array):
        return None
    count = int(np.count_nonzero(array))
    return count if 0 < count <= (1 - LAYERS.least_zeros) * array.size else None


def rows_of(array: Array) -> tuple[Array, Array, Array]:
    """Where the entries of each row begin, at which place of the row each stands, and its value."""
    rows, places = np.nonzero(array)
    begins = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(array)))])
    return begins.astype(np.int32), places.astype(np.int32), array[rows, places]


def blocks_of(array: Array, height: int) -> tuple[Array, Array, Array]:
    """The same of blocks of so many neighbouring rows, one place each: values are blocks."""
    blocks = array.reshape(-1, height, array.shape[1]).transpose(0, 2, 1)
    begins, places, _ = rows_of(np.asarray(blocks.any(2)))
    rows = np.repeat(np.arange(len(blocks)), np.diff(begins))
    return begins, places, np.ascontiguousarray(blocks[rows, places])


def _weights(parts: Parts, weight: Value, what: str, count: int, height: int = 0) -> list[str]:
    """The names of what is kept of a weight: beginnings of rows, places, and values."""

    def made(number: int) -> Array:
        array = parts.weights[weight.name].reshape(weight.shape[0], -1)
        return (blocks_of(array, height) if height else rows_of(array))[number]

    rows = weight.shape[0] // max(1, height)
    values = (count, height) if height else (count,)
    facts = (("rows", "int32", (rows + 1,)), (what, "int32", (count,)), ("entries", "float32", values))
    return [
        parts.later(f"{weight.name}_{label}{height or ''}", dtype, shape, functools.partial(made, number))
        for number, (label, dtype, shape) in enumerate(facts)
    ]


Written = Callable[[Parts, Call], None]


def convolution(layer: Convolution, count: int, machine: Machine) -> tuple[float, Written]:
    """What a convolution with so many entries costs, and what writes it."""

    def write(parts: Parts, call: Call) -> None:
        image = _unfolded(parts, layer, call.arguments[0]) if is_unfolded(layer) else call.arguments[0]
        made, names = pruned.conv2d(layer.bias is not None), _weights(parts, layer.kernel, "planes", count)
        arguments = (image, *names, *([layer.bias] if layer.bias is not None else []))
        parts.call(made, replace(call, function=made.name, arguments=arguments, constants=()))

    return costs.pruned(layer, count, machine, is_unfolded(layer)), write


def is_unfolded(layer: Convolution) -> bool:
    """Whether an entry's plane is another than a channel."""
    return layer.window != (1, 1) or layer.strides != (1, 1) or any(layer.pads)


def _unfolded(parts: Parts, layer: Convolution, image: str) -> str:
    """The name of the planes that entries multiply."""
    strided, padded = layer.strides != (1, 1), any(layer.pads)
    made, count, channels = pruned.unfolded(strided=strided, padded=padded), layer.image.shape[0], layer.channels
    numbers = [
        ("K", layer.window),
        *([("S", layer.strides)] if strided else []),
        *([("P", layer.pads)] if padded else []),
    ]
    constants = tuple((f"{letter}{axis}", k) for letter, pair in numbers for axis, k in zip("HW", pair, strict=True))
    shape = (count, channels, *layer.window, *layer.pixels)
    name = parts.temporary(f"{layer.call.results[0]}_unfolded", "float32", shape)
    parts.call(made, Call(made.name, (image,), constants, (name,), layer.call.place))
    return _reshaped(parts, name, shape, (count, channels * math.prod(layer.window), *layer.pixels), layer.call)


def _reshaped(parts: Parts, name: str, before: Sequence[int], after: Sequence[int], call: Call, made: str = "") -> str:
    """The name of the same elements under other extents; ``made`` where it is known."""
    if tuple(before) == tuple(after) and not made:
        return name
    view = elements.reshape(before, after)
    made = made or parts.temporary(f"{name}_as_{len(after)}d", "float32", after)
    parts.call(view, Call(view.name, (name,), (), (made,), call.place))
    return made


def products(network: Network, layer: Product, count: int, machine: Machine) -> list[tuple[str, float, Written]]:
    """The ways to compute a product of whose weight so many elements are not zero."""
    filters = layer.weight.shape[0]
    few = layer.rows < LAYERS.turned_rows
    name, write = (NAME, _gathered) if few else (TURNED, _turned)
    cycles = costs.pruned_product(layer.rows, layer.weight.shape, count, machine, not few)
    found: list[tuple[str, float, Written]] = [(name, cycles, functools.partial(write, layer, count))]
    for height in BLOCKS:
        if filters % height == 0:
            blocks = len(blocks_of(network.weights[layer.weight.name], height)[1])
            cycles = costs.pruned_blocks(layer.rows, layer.weight.shape, blocks, height, machine)
            found.append((f"{NAME} by {height}", cycles, functools.partial(_blocks, layer, blocks, height)))
    return found


def _gathered(layer: Product, count: int, parts: Parts, call: Call) -> None:
    made = pruned.linear(len(layer.operand.shape), layer.biased)
    names = _weights(parts, layer.weight, "columns", count)
    parts.call(made, replace(call, function=made.name, arguments=(call.arguments[0], *names, *call.arguments[2:])))


def _turned(layer: Product, count: int, parts: Parts, call: Call) -> None:
    """Columns in place of rows: turned before, and turned back."""
    (filters, length), rows, name = layer.weight.shape, layer.rows, call.results[0]
    turning, made = pruned.turned(), pruned.turned_linear(layer.biased)
    operand = _reshaped(parts, call.arguments[0], layer.operand.shape, (rows, length), call)
    columns = parts.temporary(f"{name}_columns", "float32", (length, rows))
    parts.call(turning, Call(turning.name, (operand,), (), (columns,), call.place))
    products = parts.temporary(f"{name}_turned", "float32", (filters, rows))
    names = _weights(parts, layer.weight, "columns", count)
    parts.call(made, Call(made.name, (columns, *names, *call.arguments[2:]), (), (products,), call.place))
    if len(layer.operand.shape) == 2:
        parts.call(turning, Call(turning.name, (products,), (), (name,), call.place))
        return
    back = parts.temporary(f"{name}_rows", "float32", (rows, filters))
    parts.call(turning, Call(turning.name, (products,), (), (back,), call.place))
    _reshaped(parts, back, (rows, filters), (*layer.operand.shape[:-1], filters), call, name)


def _blocks(layer: Product, count: int, height: int, parts: Parts, call: Call) -> None:
    (filters, length), rows, name = layer.weight.shape, layer.rows, call.results[0]
    operand = _reshaped(parts, call.arguments[0], layer.operand.shape, (rows, length), call)
    shape = (rows, filters // height, height)
    names = _weights(parts, layer.weight, "columns", count, height)
    if layer.biased:
        bias = parts.weights[call.arguments[2]]
        names.append(parts.weight(f"{call.arguments[2]}_by{height}", lambda: bias.reshape(shape[1:])))
    made = pruned.linear_of_blocks(layer.biased)
    products = parts.temporary(f"{name}_blocks", "float32", shape)
    parts.call(made, Call(made.name, (operand, *names), (), (products,), call.place))
    _reshaped(parts, products, shape, (*layer.operand.shape[:-1], filters), call, name)
