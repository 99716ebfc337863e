"""More rules for PyTorch's operators: parts of tensors, what has several results, functions with one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.aten import integers
from tcomp.networks.aten.arithmetic import beside_number
from tcomp.networks.aten.choosing import gathered, promoted
from tcomp.networks.aten.rules import conv2d
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value, retyped
from tcomp.networks.texts import elements, parts
from tcomp.networks.texts.general import pointwise


def _slice(b: Builder, n: Node, x: Value, axis: int, first: int, count: int, step: int = 1) -> Value:
    return b.call(n, parts.take(len(x.shape), axis), [x], FROM=first, COUNT=count, STEP=step)


@rule("aten.slice.Tensor")
def take(b: Builder, n: Node, *, x: Value, dim: int, start: int | None, end: int | None, step: int) -> Value:
    axis = dim % len(x.shape)
    positions = range(x.shape[axis])[start:end:step]
    if len(positions) == x.shape[axis]:
        return x
    if not positions:
        raise n.refuse("takes nothing")
    return _slice(b, n, x, axis, positions.start, len(positions), step)


@rule("aten.select.int")
def select(b: Builder, n: Node, *, x: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.shape)
    return b.call(n, parts.select(len(x.shape), axis), [x], AT=index % x.shape[axis])


@rule("aten.unbind.int")
def unbind(b: Builder, n: Node, *, x: Value, dim: int) -> list[Value]:
    axis = dim % len(x.shape)
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    nodes = [replace(n, name=f"{n.name}_{at}", shape=shape) for at in range(x.shape[axis])]
    return [b.call(node, parts.select(len(x.shape), axis), [x], AT=at) for at, node in enumerate(nodes)]


@rule("aten.split.Tensor")
def split(b: Builder, n: Node, *, x: Value, split_size: int, dim: int) -> list[Value]:
    return _cut(b, n, x, dim, split_size)


@rule("aten.chunk.default")
def chunk(b: Builder, n: Node, *, x: Value, chunks: int, dim: int) -> list[Value]:
    return _cut(b, n, x, dim, -(-x.shape[dim] // chunks))


@rule("aten.split_with_sizes.default")
def split_with_sizes(b: Builder, n: Node, *, x: Value, split_sizes: Sequence[int], dim: int) -> list[Value]:
    return _pieces(b, n, x, dim, split_sizes)


def _cut(b: Builder, n: Node, x: Value, dim: int, size: int) -> list[Value]:
    whole, rest = divmod(x.shape[dim], size)
    return _pieces(b, n, x, dim, [size] * whole + [rest] * (rest > 0))


def _pieces(b: Builder, n: Node, x: Value, dim: int, sizes: Sequence[int]) -> list[Value]:
    axis, first, made = dim % len(x.shape), 0, []
    for number, size in enumerate(sizes):
        if size == 0:
            raise n.refuse("makes a piece of nothing")
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        made.append(_slice(b, replace(n, name=f"{n.name}_{number}", shape=shape), x, axis, first, size))
        first += size
    return made


@rule("aten.expand.default", "aten.expand_as.default")
def expand(b: Builder, n: Node, *, x: Value, **_: Any) -> Value:
    if x.shape == n.shape:
        return x
    definition = retyped(parts.expand(x.shape, n.shape), x.dtype)
    first = len(n.shape) - len(x.shape)
    letters = zip(elements.indices(len(n.shape)), range(len(n.shape)), n.shape, strict=True)
    counts = {f"COUNT_{c.upper()}": count for c, k, count in letters if k < first or x.shape[k - first] != count}
    return b.call(n, definition, [x], **counts)


@rule("aten.pad.default", "aten.constant_pad_nd.default")
def pad(b: Builder, n: Node, *, x: Value, pad: Sequence[int], mode: str = "constant", value: float | None) -> Value:
    pairs = [(pad[k], pad[k + 1]) for k in range(0, len(pad), 2)][::-1]
    amounts = [(0, 0)] * (len(x.shape) - len(pairs)) + pairs
    if mode != "constant":
        return _continued(b, n, x, amounts, mode)
    number = float(value or 0) if x.dtype == "float32" else int(value or 0)
    return b.call(n, retyped(parts.pad(amounts), x.dtype), [x], v=number)


_CONTINUED = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _continued(b: Builder, n: Node, x: Value, amounts: Sequence[tuple[int, int]], mode: str) -> Value:
    """The tensor mirrored or repeated beyond its ends: elements in another order along each axis."""
    for axis, (low, high) in enumerate(amounts):
        if low or high:
            places = np.pad(np.arange(x.shape[axis]), (max(low, 0), max(high, 0)), mode=_CONTINUED[mode])  # type: ignore[call-overload]
            places = places[max(-low, 0) : len(places) - max(-high, 0)]
            shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
            inner = replace(n, name=f"{n.name}_axis{axis}", shape=shape)
            x = gathered(b, inner, x, axis, b.weight(f"{n.name}_places{axis}", places))
    return x


@rule("aten.group_norm.default")
def group_norm(
    b: Builder,
    n: Node,
    *,
    x: Value,
    num_groups: int,
    weight: Value | None,
    bias: Value | None,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    weight, bias = _both(b, n, weight, bias)
    return b.call(n, parts.group_norm(len(x.shape), weight is not None), [x, weight, bias], G=num_groups, eps=eps)


def _both(b: Builder, n: Node, weight: Value | None, bias: Value | None) -> tuple[Value | None, Value | None]:
    """A scale and a shift, of which one alone was given."""
    if weight is not None and bias is None:
        bias = b.weight(f"{n.name}_shift", np.zeros(weight.shape, np.float32))
    elif bias is not None and weight is None:
        weight = b.weight(f"{n.name}_scale", np.ones(bias.shape, np.float32))
    return weight, bias


@rule("aten.conv1d.default", "aten.conv1d.padding")
def conv1d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """A convolution of an image of one row."""
    if isinstance(padding, str):
        more = dilation[0] * (weight.shape[2] - 1) if padding == "same" else 0
        amounts = [(0, 0), (0, 0), (more // 2, more - more // 2)]
        shape = (*x.shape[:2], x.shape[2] + more)
        x = b.call(replace(n, name=f"{n.name}_padded", shape=shape), parts.pad(amounts), [x], v=0.0) if more else x
        padding = [0]
    if len(x.shape) != 3:
        raise n.refuse(f"takes a signal of {len(x.shape)} axes", "add a batch of one signal")
    image, kernel = (_shaped(b, n, v, (*v.shape[:2], 1, v.shape[2]), v.name + "_row") for v in (x, weight))
    inner = replace(n, name=f"{n.name}_row", shape=(*n.shape[:2], 1, n.shape[2]))
    strides, around, apart = [1, stride[0]], [0, padding[0]], [1, dilation[0]]
    row = conv2d(
        b,
        inner,
        x=image,
        weight=kernel,
        bias=bias,
        stride=strides,
        padding=around,
        dilation=apart,
        groups=groups,
    )
    return _shaped(b, n, row, n.shape, n.name)


@rule("aten.pixel_shuffle.default")
def pixel_shuffle(b: Builder, n: Node, *, x: Value, upscale_factor: int) -> Value:
    if len(x.shape) != 4:
        raise n.refuse(f"takes an image of {len(x.shape)} axes", "add a batch of one image")
    (batch, _, height, width), r = x.shape, upscale_factor
    blocks = _shaped(b, n, x, (batch, n.shape[1], r, r, height, width), f"{n.name}_blocks")
    order = (0, 1, 4, 2, 5, 3)
    moved = replace(n, name=f"{n.name}_moved", shape=tuple(blocks.shape[k] for k in order))
    return _shaped(b, n, b.call(moved, elements.permute(order), [blocks]), n.shape, n.name)


def _shaped(b: Builder, n: Node, x: Value, shape: tuple[int, ...], name: str) -> Value:
    return b.call(replace(n, name=name, shape=shape), elements.reshape(x.shape, shape), [x])


_NAMED = ("rsqrt", "sqrt", "neg", "abs", "log", "erf", "reciprocal", "sin", "cos", "mish")


@rule(*(f"aten.{name}{end}.default" for name in _NAMED for end in ("", "_")))
def unary(b: Builder, n: Node, *, x: Value) -> Value:
    name = n.operator.split(".")[1].rstrip("_")
    if name in ("neg", "abs") and integers.are_integers(x):
        return integers.sign_changed(b, n, x, name)
    return b.call(n, elements.unary(name, len(x.shape)), [promoted(b, n, x)])


def _with(b: Builder, n: Node, x: Value, name: str, number: float) -> Value:
    return b.call(n, elements.with_number(name, len(x.shape)), [x], y=float(number))


@rule("aten.pow.Tensor_Scalar")
def power(b: Builder, n: Node, *, x: Value, exponent: float) -> Value:
    if integers.are_integers(x) and n.dtype == x.dtype:
        return integers.power(b, n, x, exponent)
    if exponent == 2:
        return b.call(n, elements.unary("square", len(x.shape)), [x])
    return _with(b, n, x, "power", exponent)


@rule("aten.rsub.Scalar")
def from_number(b: Builder, n: Node, *, x: Value, other: float, alpha: float) -> Value:
    if alpha != 1 or x.dtype != "float32":
        return beside_number(b, n, "sub", other, x, alpha)
    return _with(b, n, x, "from", other)


@rule("aten.leaky_relu.default", "aten.leaky_relu_.default")
def leaky_relu(b: Builder, n: Node, *, x: Value, negative_slope: float) -> Value:
    return _with(b, n, x, "leaky_relu", negative_slope)


@rule("aten.elu.default", "aten.elu_.default")
def elu(b: Builder, n: Node, *, x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    if (scale, input_scale) == (1, 1):
        return _with(b, n, x, "elu", alpha)
    body = "scale * ({a} > 0 ? {a} : alpha * expm1({a} * within))"
    numbers = dict.fromkeys(("alpha", "scale", "within"), "float32")
    made = pointwise("elu_scaled", body, [(x.shape, x.dtype)], n.shape, n.dtype, numbers)
    return b.call(n, made, [x], alpha=float(alpha), scale=float(scale), within=float(input_scale))


@rule("aten.softplus.default")
def softplus(b: Builder, n: Node, *, x: Value, beta: float, threshold: float) -> Value:
    if beta != 1:
        raise n.refuse("has a beta")
    return b.call(n, elements.unary("softplus", len(x.shape)), [x])
