"""Convolutions of images among the calls of a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.networks.network import Call, Network, Value

_KNOWN = {"strided", "padded", "bias", "point"}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution in one group, without dilation: ``N x C x H x W`` by ``F x C x KH x KW`` to ``N x F x OH x OW``.

    The kernel and the bias are weights of the network.
    """

    call: Call
    image: Value
    kernel: Value
    result: Value
    strides: tuple[int, int]
    pads: tuple[int, int]

    @property
    def bias(self) -> str | None:
        return self.call.arguments[2] if len(self.call.arguments) == 3 else None

    @property
    def window(self) -> tuple[int, ...]:
        return self.kernel.shape[2:]

    @property
    def channels(self) -> int:
        return self.kernel.shape[1]

    @property
    def filters(self) -> int:
        return self.kernel.shape[0]

    @property
    def pixels(self) -> tuple[int, int]:
        """The extents of the result's images."""
        return self.result.shape[2], self.result.shape[3]

    @property
    def shape(self) -> tuple[int, ...]:
        """All that its time depends on."""
        return (*self.image.shape, *self.kernel.shape, *self.strides, *self.pads, int(self.bias is not None))


@dataclass(frozen=True, slots=True)
class Depthwise:
    """A convolution of each channel by itself, whose kernel and bias are weights of the network."""

    call: Call
    image: Value
    kernel: Value
    result: Value
    strided: bool


def depthwise(network: Network, call: Call, values: Mapping[str, Value]) -> Depthwise | None:
    """What a call of ``network`` is as a convolution of each channel by itself; None if it is another call."""
    words = call.function.split("_")
    if words[0] != "conv2d" or "depthwise" not in words or any(n not in network.weights for n in call.arguments[1:]):
        return None
    image, kernel, result = values[call.arguments[0]], values[call.arguments[1]], values[call.results[0]]
    strided = any(number != 1 for name, number in call.constants if name in ("SH", "SW"))
    return Depthwise(call, image, kernel, result, strided)


def integer_convolution(network: Network, call: Call, values: Mapping[str, Value]) -> Convolution | None:
    """What a call is as a convolution of bytes by a kernel of bytes, with sums of 32 bits; None if it is another."""
    if not call.function.startswith("conv2d") or len(call.arguments) != 2 or call.arguments[1] not in network.weights:
        return None
    image, kernel, result = (values[name] for name in (*call.arguments, call.results[0]))
    if image.dtype not in _BYTES or kernel.dtype not in _BYTES or result.dtype != "int32":
        return None
    return _convolution(call, image, kernel, result)


_BYTES = ("int8", "uint8")


def convolution(network: Network, call: Call, values: Mapping[str, Value]) -> Convolution | None:
    """What a call of ``network``, whose values are given by name, is as a convolution; None if it is another call."""
    words = call.function.split("_")
    if words[0] != "conv2d" or set(words[1:]) - _KNOWN or len(call.arguments) != 2 + ("bias" in words):
        return None
    image, kernel, result = values[call.arguments[0]], values[call.arguments[1]], values[call.results[0]]
    if image.dtype != "float32" or any(name not in network.weights for name in call.arguments[1:]):
        return None
    return _convolution(call, image, kernel, result)


def _convolution(call: Call, image: Value, kernel: Value, result: Value) -> Convolution:
    numbers = {name: int(number) for name, number in call.constants}
    strides, pads = ((numbers.get(f"{c}H", k), numbers.get(f"{c}W", k)) for c, k in (("S", 1), ("P", 0)))
    return Convolution(call, image, kernel, result, strides, pads)
