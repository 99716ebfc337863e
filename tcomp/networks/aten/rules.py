"""The rules for PyTorch's operators, as ``torch.export`` writes them; torch itself is not needed here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.aten.resizing import adaptive
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import elements, layers, parts, windows
from tcomp.networks.texts.general import pointwise
from tcomp.networks.texts.windows import Windows

Pair = Sequence[int]


def _pair(given: Pair | int) -> tuple[int, int]:
    pair = [given] if isinstance(given, int) else list(given)
    return pair[0], pair[-1]


def _per_axis(letter: str, given: tuple[int, int]) -> dict[str, int]:
    return {f"{letter}H": given[0], f"{letter}W": given[1]}


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
    if len(x.shape) != 4:
        raise n.refuse(f"takes an image of {len(x.shape)} axes", "add a batch of one image")
    s, d = _pair(stride), _pair(dilation)
    if isinstance(padding, str):
        around = [d[k] * (weight.shape[2 + k] - 1) if padding == "same" else 0 for k in (0, 1)]
        if any(total % 2 for total in around):
            raise n.refuse("pads one side more than the other")
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


@rule("aten.conv_transpose2d.input")
def conv_transpose2d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Pair,
    padding: Pair,
    output_padding: Pair,
    groups: int,
    dilation: Pair,
) -> Value:
    if groups != 1 or _pair(output_padding) != (0, 0) or _pair(dilation) != (1, 1) or len(x.shape) != 4:
        raise n.refuse("has groups, output padding or dilation")
    constants = _per_axis("S", _pair(stride)) | _per_axis("P", _pair(padding))
    return b.call(n, layers.conv_transpose2d(bias is not None), [x, weight, bias], **constants)


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
    return b.call(n, elements.unary(name, len(x.shape)), [x])


@rule("aten.gelu.default")
def gelu(b: Builder, n: Node, *, x: Value, approximate: str) -> Value:
    return b.call(n, elements.unary("gelu_tanh" if approximate == "tanh" else "gelu", len(x.shape)), [x])


@rule("aten.hardtanh.default", "aten.hardtanh_.default")
def hardtanh(b: Builder, n: Node, *, x: Value, min_val: float, max_val: float) -> Value:
    return _clip(b, n, x, min_val, max_val)


@rule("aten.clamp.default", "aten.clamp_.default")
def clamp(b: Builder, n: Node, *, x: Value, low: float | None, high: float | None) -> Value:
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
    if dtype is not None:
        raise n.refuse("changes the element type")
    return b.call(n, layers.softmax(len(x.shape), dim % len(x.shape)), [x])


@rule("aten.scaled_dot_product_attention.default")
def attention(
    b: Builder,
    n: Node,
    *,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Value:
    rows = {operand.shape[:-2] for operand in (query, key, value)}
    if dropout_p or enable_gqa or len(rows) > 1:
        raise n.refuse("has dropout, or heads that are shared")
    if attn_mask is not None and attn_mask.dtype == "bool":
        added = pointwise(
            "added_to_scores", "{a} ? 0.0 : -3.4028234e38", [(attn_mask.shape, "bool")], attn_mask.shape, "float32"
        )
        attn_mask = b.call(replace(n, name=f"{n.name}_mask", shape=attn_mask.shape), added, [attn_mask])
    mask = None if attn_mask is None else attn_mask.shape
    lengths = (*query.shape[:-1], key.shape[-2])
    definition = layers.attention(len(query.shape), is_causal, mask, lengths)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return b.call(n, definition, [query, key, value, attn_mask], scale=factor)


_BINARY = {"add": "add", "mul": "multiply", "sub": "subtract", "div": "divide"}


@rule(*(f"aten.{name}{end}.{kind}" for name in _BINARY for end in ("", "_") for kind in ("Tensor", "Scalar")))
def binary(b: Builder, n: Node, *, x: Value | float, other: Value | float, alpha: float = 1) -> Value:
    name = _BINARY[n.operator.split(".")[1].rstrip("_")]
    if not isinstance(x, Value):
        raise n.refuse("has a number on its left")
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
    if dtype is not None:
        raise n.refuse("changes the element type")
    rank = len(x.shape)
    axes = sorted({axis % rank for axis in dim}) if dim else list(range(rank))
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
    if divisor_override is not None:
        raise n.refuse("has divisor_override")
    if ceil_mode:
        k, p = _pair(kernel_size), _pair(padding)
        window = Windows(k, _pair(stride or kernel_size), (1, 1), p, p)
        counts = window.counts(x.shape[2:], n.shape[2:], count_include_pad)
        count = b.weight(f"{n.name}_count", (counts[0][:, None] * counts[1]).astype(np.float32))
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
        raise n.refuse("enlarges by no whole number")
    return b.call(n, elements.upsample_nearest2d(), [x], SH=blocks[0], SW=blocks[1])


@rule("aten.cat.default")
def cat(b: Builder, n: Node, *, tensors: Sequence[Value], dim: int) -> Value:
    parts = [value for value in tensors if value.shape != (0,)]
    rank = len(parts[0].shape)
    return b.call(n, elements.concat(rank, dim % rank, len(parts)), parts)


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


@rule("aten.t.default")
def t(b: Builder, n: Node, *, x: Value) -> Value:
    return b.call(n, elements.permute(range(len(x.shape))[::-1]), [x])


@rule("aten.matmul.default", "aten.bmm.default", "aten.mm.default")
def matmul(b: Builder, n: Node, **given: Value) -> Value:
    left, right = given.values()
    if min(len(left.shape), len(right.shape)) < 2:
        raise n.refuse("multiplies by a vector", "give it an axis of one element")
    return b.call(n, layers.matmul(left.shape, right.shape), [left, right])


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
