"""The rules for PyTorch's operators, as ``torch.export`` writes them; torch itself is not needed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.aten.arithmetic import beside_number, bounded, mixed, total
from tcomp.networks.aten.choosing import promoted
from tcomp.networks.aten.images.resizing import adaptive, nearest
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.pieces import behind
from tcomp.networks.texts import elements, layers, parts, windows
from tcomp.networks.texts.windows import Windows

Pair = Sequence[int]


def _pair(given: Pair | int) -> tuple[int, int]:
    pair = [given] if isinstance(given, int) else list(given)
    return pair[0], pair[-1]


def _per_axis(letter: str, given: tuple[int, int]) -> dict[str, int]:
    return {f"{letter}H": given[0], f"{letter}W": given[1]}


def _one_image(b: Builder, n: Node, x: Value, make: Callable[[Node, Value], Value]) -> Value:
    """What a rule for a batch of images makes of one without a batch."""
    if len(x.shape) != 3:
        raise n.refuse(f"takes an image of {len(x.shape)} axes")
    shape = (1, *x.shape)
    image = b.call(replace(n, name=f"{n.name}_image", shape=shape), elements.reshape(x.shape, shape), [x])
    found = make(replace(n, name=f"{n.name}_batch", shape=(1, *n.shape)), image)
    return b.call(n, elements.reshape(found.shape, n.shape), [found])


@rule("aten.conv2d.default", "aten.conv2d.padding")
def conv2d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
) -> Value:
    given: dict[str, Any] = {"weight": weight, "bias": bias, "stride": stride, "dilation": dilation, "groups": groups}
    if len(x.shape) != 4:
        return _one_image(b, n, x, lambda inner, image: conv2d(b, inner, x=image, padding=padding, **given))
    s, d = _pair(stride), _pair(dilation)
    if isinstance(padding, str):
        around = [d[k] * (weight.shape[2 + k] - 1) if padding == "same" else 0 for k in (0, 1)]
        if any(total % 2 for total in around):
            amounts = [(0, 0), (0, 0), *((total // 2, total - total // 2) for total in around)]
            shape = (*x.shape[:2], *(x.shape[2 + k] + around[k] for k in (0, 1)))
            x = b.call(replace(n, name=f"{n.name}_padded", shape=shape), parts.pad(amounts), [x], v=0.0)
            return conv2d(b, n, x=x, padding=(0, 0), **given)
        padding = [total // 2 for total in around]
    p = _pair(padding)
    channels, filters = x.shape[1], weight.shape[0]
    kind = "one" if groups == 1 else "depthwise" if groups == channels == filters else "grouped"
    flags = {"strided": s != (1, 1), "padded": p != (0, 0), "dilated": d != (1, 1)}
    constants = {"G": groups} if kind == "grouped" else {}
    for letter, pair, on in zip("SPD", (s, p, d), flags.values(), strict=True):
        constants |= _per_axis(letter, pair) if on else {}
    definition = layers.conv2d(bias=bias is not None, groups=kind, **flags)
    return b.call(n, definition, [x, weight, bias], **constants)


@rule("aten.linear.default")
def linear(b: Builder, n: Node, *, x: Value, weight: Value, bias: Value | None) -> Value:
    if len(weight.shape) != 2:
        raise n.refuse("has a weight that is no matrix")
    return b.call(n, layers.linear(len(x.shape), bias is not None), [x, weight, bias])


@rule("aten.batch_norm.default")
def batch_norm(
    b: Builder,
    n: Node,
    *,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    if training or running_mean is None or running_var is None:
        raise n.refuse("uses the statistics of the batch", "call module.eval() before")
    definition = layers.batch_norm(len(x.shape), weight is not None, bias is not None)
    return b.call(n, definition, [x, running_mean, running_var, weight, bias], eps=eps)


@rule("aten._native_batch_norm_legit_no_training.default")
def native_batch_norm(b: Builder, n: Node, *, x: Value, **given: Any) -> list[Value]:
    """The first of its three results; the others are those of training."""
    inner = replace(n, shape=x.shape)
    return [batch_norm(b, inner, x=x, training=False, cudnn_enabled=False, **given)]


@rule("aten.instance_norm.default")
def instance_norm(
    b: Builder,
    n: Node,
    *,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    use_input_stats: bool,
    eps: float,
    **_: Any,
) -> Value:
    if not use_input_stats or (weight is None) != (bias is None):
        raise n.refuse("uses given statistics, or has a scale without a shift")
    return b.call(n, parts.group_norm(len(x.shape), weight is not None), [x, weight, bias], G=x.shape[1], eps=eps)


@rule("aten.layer_norm.default")
def layer_norm(
    b: Builder,
    n: Node,
    *,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
    cudnn_enable: bool,
) -> Value:
    definition = layers.layer_norm(len(x.shape), len(normalized_shape), weight is not None, bias is not None)
    return b.call(n, definition, [x, weight, bias], eps=eps)


@rule(
    *(f"aten.{name}{end}.default" for name in ("relu", "silu", "sigmoid", "tanh", "relu6") for end in ("", "_")),
    *(f"aten.{name}{end}.default" for name in ("hardswish", "hardsigmoid") for end in ("", "_")),
    "aten.exp.default",
)
def unary(b: Builder, n: Node, **given: Value) -> Value:
    (x,) = given.values()
    name = n.operator.split(".")[1].rstrip("_")
    if name == "relu" and x.dtype != "float32":
        return bounded(b, n, x, 0, None)
    return b.call(n, elements.unary(name, len(x.shape)), [promoted(b, n, x)])


@rule("aten.gelu.default")
def gelu(b: Builder, n: Node, *, x: Value, approximate: str) -> Value:
    return b.call(n, elements.unary("gelu_tanh" if approximate == "tanh" else "gelu", len(x.shape)), [x])


@rule("aten.hardtanh.default", "aten.hardtanh_.default")
def hardtanh(b: Builder, n: Node, *, x: Value, min_val: float, max_val: float) -> Value:
    return _clip(b, n, x, min_val, max_val)


@rule("aten.clamp.default", "aten.clamp_.default")
def clamp(b: Builder, n: Node, *, x: Value, low: float | None, high: float | None) -> Value:
    if x.dtype != "float32":
        return bounded(b, n, x, low, high)
    if low is None or high is None:
        bound = high if low is None else low
        if bound is None:
            raise n.refuse("has no bound")
        return b.call(
            n, elements.with_number("at_most" if low is None else "at_least", len(x.shape)), [x], y=float(bound)
        )
    return _clip(b, n, x, low, high)


def _clip(b: Builder, n: Node, x: Value, low: float, high: float) -> Value:
    if (low, high) == (0, 6):
        return b.call(n, elements.unary("relu6", len(x.shape)), [x])
    return b.call(n, elements.clip(len(x.shape)), [x], lo=float(low), hi=float(high))


@rule("aten.softmax.int")
def softmax(b: Builder, n: Node, *, x: Value, dim: int, dtype: Any) -> Value:
    if dtype is not None and str(dtype) != f"torch.{x.dtype}":
        raise n.refuse("changes the element type")
    return b.call(n, layers.softmax(len(x.shape), dim % len(x.shape)), [x])


_BINARY = {"add": "add", "mul": "multiply", "sub": "subtract", "div": "divide"}


@rule(*(f"aten.{name}{end}.{kind}" for name in _BINARY for end in ("", "_") for kind in ("Tensor", "Scalar")))
def binary(b: Builder, n: Node, *, x: Value | float, other: Value | float, alpha: float = 1) -> Value:
    name = _BINARY[n.operator.split(".")[1].rstrip("_")]
    if not isinstance(x, Value):
        assert isinstance(other, Value)
        return beside_number(b, n, n.operator.split(".")[1].rstrip("_"), x, other, alpha)
    kinds = {one.dtype for one in (x, other) if isinstance(one, Value)}
    if kinds != {"float32"} or n.dtype != "float32":
        return mixed(b, n, n.operator.split(".")[1].rstrip("_"), x, other, alpha)
    if alpha != 1 and isinstance(other, Value):
        scaled = replace(n, name=f"{n.name}_scaled", shape=other.shape)
        other = b.call(scaled, elements.with_number("multiply", len(other.shape)), [other], y=float(alpha))
    elif not isinstance(other, Value):
        other = alpha * other
    if not isinstance(other, Value):
        return b.call(n, elements.with_number(name, len(x.shape)), [x], y=float(other))
    return b.call(n, elements.binary(name, x.shape, other.shape), [x, other])


@rule("aten.mean.dim", "aten.sum.dim_IntList", "aten.mean.default", "aten.sum.default")
def mean(
    b: Builder, n: Node, *, x: Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: Any
) -> Value:
    changed = dtype is not None and str(dtype) != f"torch.{x.dtype}"
    if changed and not (n.operator.startswith("aten.sum") and x.dtype != "float32"):
        raise n.refuse("changes the element type")
    rank = len(x.shape)
    axes = sorted({axis % rank for axis in dim}) if dim else list(range(rank))
    if x.dtype != "float32" and n.operator.startswith("aten.sum"):
        return total(b, n, x, axes, keepdim)
    return b.call(n, elements.mean(rank, axes, keepdim, n.operator.split(".")[1]), [x])


@rule("aten.max_pool2d.default")
def max_pool2d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    ceil_mode: bool,
) -> Value:
    if len(x.shape) != 4:
        given: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
        return _one_image(b, n, x, lambda m, image: max_pool2d(b, m, x=image, kernel_size=kernel_size, **given))
    if _pair(dilation) != (1, 1) or ceil_mode:
        k, p = _pair(kernel_size), _pair(padding)
        window = Windows(k, _pair(stride or kernel_size), _pair(dilation), p, p)
        extents = {f"O{c}": extent for c, extent in zip("HW", n.shape[2:], strict=True)}
        return b.call(n, windows.max_pool(2, window.dilated, x.dtype), [x], **window.numbers("KSDP"), **extents)
    return _pool(b, n, "max", x, kernel_size, stride, padding)


@rule("aten.avg_pool2d.default")
def avg_pool2d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    if len(x.shape) != 4:
        given: dict[str, Any] = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode}
        given |= {"count_include_pad": count_include_pad, "divisor_override": divisor_override}
        return _one_image(b, n, x, lambda m, image: avg_pool2d(b, m, x=image, kernel_size=kernel_size, **given))
    if ceil_mode or divisor_override is not None:
        k, p = _pair(kernel_size), _pair(padding)
        window = Windows(k, _pair(stride or kernel_size), (1, 1), p, p)
        each = window.counts(x.shape[2:], n.shape[2:], count_include_pad)
        counts = each[0][:, None] * each[1]
        if divisor_override is not None:
            counts = np.full_like(counts, divisor_override)
        count = b.weight(f"{n.name}_count", counts.astype(np.float32))
        return b.call(n, windows.average_pool(2, True), [x, count], **window.numbers("KSDP"))
    inside = any(_pair(padding)) and not count_include_pad
    return _pool(b, n, "avg_inside" if inside else "avg", x, kernel_size, stride, padding)


def _pool(b: Builder, n: Node, what: str, x: Value, kernel: Pair, stride: Pair, padding: Pair) -> Value:
    if len(x.shape) != 4:
        raise n.refuse(f"takes an image of {len(x.shape)} axes", "add a batch of one image")
    k, s, p = _pair(kernel), _pair(stride or kernel), _pair(padding)
    constants = _per_axis("K", k) | _per_axis("S", s) | _per_axis("P", p)
    return b.call(n, layers.pool2d(what), [x], **constants)


@rule("aten.adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(b: Builder, n: Node, *, x: Value, output_size: Pair) -> Value:
    if tuple(output_size) == (1, 1):
        rank = len(x.shape)
        return b.call(n, elements.mean(rank, [rank - 2, rank - 1], True), [x])
    if len(x.shape) != 4:
        raise n.refuse(f"takes an image of {len(x.shape)} axes", "add a batch of one image")
    if any(e % o for e, o in zip(x.shape[2:], output_size, strict=True)):
        return adaptive(b, n, x)
    window = [e // o for e, o in zip(x.shape[2:], output_size, strict=True)]
    return _pool(b, n, "avg", x, window, window, (0, 0))


@rule("aten.upsample_nearest2d.vec")
def upsample_nearest2d(b: Builder, n: Node, *, x: Value, output_size: Any, scale_factors: Any) -> Value:
    blocks = [after // before for after, before in zip(n.shape[2:], x.shape[2:], strict=True)]
    if any(s * e != o for s, e, o in zip(blocks, x.shape[2:], n.shape[2:], strict=True)):
        return nearest(b, n, x, scale_factors)
    return b.call(n, elements.upsample_nearest2d(), [x], SH=blocks[0], SW=blocks[1])


@rule("aten.cat.default")
def cat(b: Builder, n: Node, *, tensors: Sequence[Value], dim: int) -> Value:
    parts = [value for value in tensors if 0 not in value.shape]
    return behind(b, n, [promoted(b, n, one) for one in parts], dim % len(parts[0].shape))


@rule(
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze.default",
)
def reshape(b: Builder, n: Node, *, x: Value, **_: Any) -> Value:
    if x.shape == n.shape:
        return x
    return b.call(n, elements.reshape(x.shape, n.shape), [x])


@rule("aten.permute.default")
def permute(b: Builder, n: Node, *, x: Value, dims: Sequence[int]) -> Value:
    return b.call(n, elements.permute([axis % len(dims) for axis in dims]), [x])


@rule("aten.transpose.int")
def transpose(b: Builder, n: Node, *, x: Value, dim0: int, dim1: int) -> Value:
    order = list(range(len(x.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return b.call(n, elements.permute(order), [x])


@rule("aten.t.default", "aten.numpy_T.default")
def t(b: Builder, n: Node, *, x: Value) -> Value:
    return b.call(n, elements.permute(range(len(x.shape))[::-1]), [x])


@rule(*(f"aten.{name}.default" for name in ("matmul", "bmm", "mm", "mv", "dot")))
def matmul(b: Builder, n: Node, **given: Value) -> Value:
    left, right = given.values()
    if min(len(left.shape), len(right.shape)) < 2:
        return _times_vector(b, n, left, right)
    return b.call(n, layers.matmul(left.shape, right.shape), [left, right])


def _times_vector(b: Builder, n: Node, left: Value, right: Value) -> Value:
    """A product with vectors: they get an axis of one element, which the result then loses."""
    shapes = (
        left.shape if len(left.shape) > 1 else (1, *left.shape),
        right.shape if len(right.shape) > 1 else (*right.shape, 1),
    )
    one, two = (
        x
        if x.shape == shape
        else b.call(replace(n, name=f"{n.name}_{k}", shape=shape), elements.reshape(x.shape, shape), [x])
        for k, (x, shape) in enumerate(zip((left, right), shapes, strict=True))
    )
    whole = (*np.broadcast_shapes(one.shape[:-2], two.shape[:-2]), one.shape[-2], two.shape[-1])
    inner = replace(n, name=f"{n.name}_matrix", shape=whole)
    return b.call(n, elements.reshape(whole, n.shape), [b.call(inner, layers.matmul(one.shape, two.shape), [one, two])])


@rule("aten.embedding.default")
def embedding(b: Builder, n: Node, *, weight: Value, indices: Value, **_: Any) -> Value:
    return b.call(n, layers.embedding(len(indices.shape), indices.dtype), [weight, indices])


@rule("aten.dropout.default", "aten.dropout_.default", "aten.feature_dropout.default")
def dropout(b: Builder, n: Node, *, x: Value, p: float, train: bool) -> Value:
    if train and p:
        raise n.refuse("drops elements", "call module.eval() before")
    return x


@rule(
    "aten.contiguous.default", "aten.clone.default", "aten.detach.default", "aten.detach_.default", "aten.alias.default"
)
def same(b: Builder, n: Node, *, x: Value, **_: Any) -> Value:
    return x
