"""Scales by example: a network whose layers take images and kernels that are rounded to 8 bits.

What comes out is a network as those of ONNX with ``QuantizeLinear`` are, and runs in integers by the same pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.errors import Diagnostic, NetworkError
from tcomp.networks.lowering.folding import fold_norms
from tcomp.networks.lowering.passes import fold_weights, share_calls
from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Definition, Network, Value
from tcomp.networks.precision.agreement import as_inputs
from tcomp.networks.precision.integers import FEWEST_ROWS, is_convolution, is_product
from tcomp.networks.precision.layerwise import LAYERS, results_of, shown
from tcomp.networks.texts.general import pointwise

Array = np.ndarray[Any, np.dtype[Any]]
Range = tuple[float, float]


def quantize(
    network: Network,
    data: Iterable[Any],
    *,
    per_channel: bool = True,
    percentile: float = 100.0,
    keep: Iterable[str] = (),
    ends: bool = False,
) -> Network:
    """A network whose layers are computed in integers of 8 bits, with scales that fit some inputs.

    Tensors that are never negative are rounded to ``uint8``, others to ``int8``, kernels to ``int8``; zero stays zero.
    Convolutions of each channel by itself, products of few rows, and what is no layer, stay in floats.

    Args:
        network: any; batch norms are folded first.
        data: inputs, each as for a call: an array, or a tuple of several.
        per_channel: whether each filter has a scale of its own.
        percentile: of the elements of an image, for each input, that its range should hold.
        keep: layers that stay in floats, by the names of what they make.
        ends: whether the first and the last layer are computed in integers, too.

    Raises:
        NetworkError: there are no inputs, or some make elements that are not finite; ``keep`` names no layer, or
            ``percentile`` is none.
        ShapeError: an input does not fit.
    """
    if not 50.0 < percentile <= 100.0:
        raise NetworkError(f"percentile is {percentile:g}; it must be above 50 and at most 100")
    network = folded(network)
    chosen, kept = _layers(network, ends), set(keep)
    unknown = kept - {name for call in network.calls for name in call.results}
    if unknown:
        raise NetworkError(f"nothing makes {min(unknown)}, so it cannot stay in floats")
    chosen = [call for call in chosen if call.results[0] not in kept]
    read = [name for call in chosen for name in call.arguments[:2] if name not in network.weights]
    ranges = _observed(network, list(dict.fromkeys(read)), data, percentile)
    parts, values = Parts(network), network.by_name
    floats: dict[str, str] = {}
    kernels = {call.results[0] for call in chosen}
    for value in network.inputs:
        if value.name in ranges:
            floats[value.name] = _rounded(parts, value, ranges[value.name])
    for call in network.calls:
        arguments = [floats.get(name, name) for name in call.arguments]
        if call.results[0] in kernels and call.arguments[1] in network.weights:
            axis = len(values[call.arguments[1]].shape) - 1 if call.function.startswith("matmul") else 0
            arguments[1] = _rounded_kernel(parts, values[call.arguments[1]], axis if per_channel else None)
        parts.calls.append(replace(call, arguments=tuple(arguments)))
        for name in call.results:
            if name in ranges:
                floats[name] = _rounded(parts, values[name], ranges[name])
    return parts.network()


def folded(network: Network) -> Network:
    """The network in floats that is compared with the rounded one: batch norms are in the layers before them."""
    return fold_norms(fold_weights(share_calls(network)))


def _layers(network: Network, ends: bool) -> list[Call]:
    """The layers that may be computed in integers."""
    layers = [c for c in network.calls if c.function.startswith(LAYERS)]
    left = set() if ends or not layers else {layers[0].results[0], layers[-1].results[0]}
    found = []
    for call in layers:
        known = all(name in network.weights for name in call.arguments[1:])
        if is_product(call):
            rows = math.prod(network.by_name[call.results[0]].shape[:-1])
            known = rows >= FEWEST_ROWS and (known or call.function.startswith("matmul_"))
            known = known and call.arguments[0] not in network.weights
        else:
            known = known and is_convolution(call)
        if known and call.results[0] not in left:
            found.append(call)
    return found


def _observed(network: Network, names: Sequence[str], data: Iterable[Any], percentile: float) -> dict[str, Range]:
    """The least and the largest elements that images have for some inputs."""
    if not names:
        return {}
    outputs = [value.name for value in network.outputs]
    made = [name for name in names if network.by_name[name].role == "temporary"]
    seen = shown(network, made)
    found: dict[str, Range] = {}
    count = 0
    for sample in data:
        inputs = as_inputs(sample)
        arrays = results_of(seen, inputs)
        arrays |= dict(zip((value.name for value in network.inputs), inputs, strict=True))
        for name in names:
            low, high = np.percentile(np.asarray(arrays[name]), (100.0 - percentile, percentile))
            if not np.isfinite((low, high)).all():
                raise NetworkError(f"{name} has elements that are not finite for some inputs, by which no scale fits")
            before = found.get(name, (0.0, 0.0))
            found[name] = min(before[0], float(low)), max(before[1], float(high))
        count += 1
    if not count:
        raise NetworkError(
            Diagnostic("there are no inputs to choose scales by", hint=f"results are {', '.join(outputs)}")
        )
    return found


def _rounded(parts: Parts, value: Value, within: Range) -> str:
    """The name of a tensor that is rounded and made floats again."""
    low, high = within
    dtype, limits = ("uint8", (0, 255)) if low >= 0 else ("int8", (-127, 127))
    scale = max(abs(low), abs(high)) / limits[1] or 1.0
    inverse, scales = (np.float32(n) for n in (1.0 / scale, scale))
    body = f"clamp(floor({{a}} * {{b}} + 0.5), {limits[0]:.1f}, {limits[1]:.1f})"
    rounding = pointwise(f"quantize_to_{dtype}", body, [(value.shape, "float32"), ((), "float32")], value.shape, dtype)
    name = parts.temporary(f"{value.name}_{dtype}", dtype, value.shape)
    given = value.name, parts.weight(f"{value.name}_inverse", lambda: np.asarray(inverse))
    parts.call(rounding, Call(rounding.name, given, (), (name,)))
    return _floats(parts, name, f"{value.name}_scale", np.asarray(scales), value.shape, dtype)


def _floats(parts: Parts, name: str, scale: str, scales: Array, shape: Sequence[int], dtype: str) -> str:
    """The name of the floats that integers stand for."""
    widening = dequantizing(shape, scales.shape, dtype)
    floats = parts.temporary(f"{name}_floats", "float32", shape)
    parts.call(widening, Call(widening.name, (name, parts.weight(scale, lambda: scales)), (), (floats,)))
    return floats


def dequantizing(shape: Sequence[int], scales: Sequence[int], dtype: str) -> Definition:
    """Integers times a scale."""
    return pointwise("dequantize", "float({a}) * {b}", [(shape, dtype), (scales, "float32")], shape, "float32")


def _rounded_kernel(parts: Parts, value: Value, axis: int | None) -> str:
    """The name of a kernel that is rounded, each filter by itself along an axis, and made floats again."""
    array = parts.weights[value.name].astype(np.float64)
    axes = None if axis is None else tuple(k for k in range(array.ndim) if k != axis)
    largest = np.abs(array).max() if axes is None else np.abs(array).max(axis=axes, keepdims=True)
    scale = np.asarray(np.where(largest > 0, largest, 127.0) / 127.0)
    name = parts.weight(f"{value.name}_int8", lambda: np.rint(array / scale).astype(np.int8))
    return _floats(parts, name, f"{value.name}_scale", scale.astype(np.float32), value.shape, "int8")
