"""Rules for PyTorch's images of three axes, and for reading images between their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import elements, windows
from tcomp.networks.texts.sampling import grid_sample
from tcomp.networks.texts.windows import Windows

Triple = Sequence[int] | int


def _triple(given: Triple) -> tuple[int, int, int]:
    each = [given] if isinstance(given, int) else list(given)
    return (each[0], each[0], each[0]) if len(each) == 1 else (each[0], each[1], each[2])


def _batched(n: Node, x: Value) -> None:
    if len(x.shape) != 5:
        raise n.refuse(f"takes an image of {len(x.shape)} axes", "add a batch of one image")


@rule("aten.conv3d.default")
def conv3d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Triple,
    padding: Triple,
    dilation: Triple,
    groups: int,
) -> Value:
    _batched(n, x)
    p, kernel = _triple(padding), _triple(weight.shape[2:])
    window = Windows(kernel, _triple(stride), _triple(dilation), p, p)
    kind = "one" if groups == 1 else "depthwise" if groups == x.shape[1] == weight.shape[0] else "grouped"
    constants = {"G": groups} if kind == "grouped" else {}
    constants |= window.numbers("SDP") | window.extents(x.shape[2:])
    return b.call(n, windows.convolution(3, kind, bias is not None), [x, weight, bias], **constants)


@rule("aten.conv_transpose3d.input")
def conv_transpose3d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Triple,
    padding: Triple,
    output_padding: Triple,
    groups: int,
    dilation: Triple,
) -> Value:
    _batched(n, x)
    s, d, p, more = (_triple(one) for one in (stride, dilation, padding, output_padding))
    kernel = _triple(weight.shape[2:])
    window = Windows(kernel, s, d, p, p)
    constants = {"G": groups} | window.numbers("SDP")
    for k, axis in enumerate("DHW"):
        constants[f"T{axis}"] = (x.shape[2 + k] - 1) * s[k] + d[k] * (kernel[k] - 1) + 1 + more[k]
        constants[f"O{axis}"] = n.shape[2 + k]
    return b.call(n, windows.transposed(3, bias is not None), [x, weight, bias], **constants)


@rule("aten.max_pool3d.default")
def max_pool3d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    kernel_size: Triple,
    stride: Triple,
    padding: Triple,
    dilation: Triple,
    ceil_mode: bool,
) -> Value:
    _batched(n, x)
    p = _triple(padding)
    window = Windows(_triple(kernel_size), _triple(stride or kernel_size), _triple(dilation), p, p)
    extents = dict(zip(("OD", "OH", "OW"), n.shape[2:], strict=True))
    dilated = window.dilated or ceil_mode
    return b.call(n, windows.max_pool(3, dilated, x.dtype), [x], **window.numbers("KSDP"), **extents)


@rule("aten.avg_pool3d.default")
def avg_pool3d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    kernel_size: Triple,
    stride: Triple,
    padding: Triple,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    _batched(n, x)
    p = _triple(padding)
    window = Windows(_triple(kernel_size), _triple(stride or kernel_size), (1, 1, 1), p, p)
    each = window.counts(x.shape[2:], n.shape[2:], count_include_pad)
    counts = each[0][:, None, None] * each[1][:, None] * each[2]
    if divisor_override is not None:
        counts = np.full_like(counts, divisor_override)
    count = b.weight(f"{n.name}_count", counts.astype(np.float32))
    return b.call(n, windows.average_pool(3, True), [x, count], **window.numbers("KSDP"))


@rule("aten.adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(b: Builder, n: Node, *, x: Value, output_size: Sequence[int]) -> Value:
    _batched(n, x)
    if any(before % after for before, after in zip(x.shape[2:], n.shape[2:], strict=True)):
        raise n.refuse("has windows of several sizes")
    if n.shape[2:] == (1, 1, 1):
        return b.call(n, elements.mean(5, [2, 3, 4], True), [x])
    size = [before // after for before, after in zip(x.shape[2:], n.shape[2:], strict=True)]
    rest: dict[str, Any] = {"ceil_mode": False, "count_include_pad": True, "divisor_override": None}
    return avg_pool3d(b, n, x=x, kernel_size=size, stride=size, padding=0, **rest)


@rule("aten.grid_sampler.default", "aten.grid_sampler_2d.default")
def grid_sampler(
    b: Builder, n: Node, *, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    if len(x.shape) != 4 or interpolation_mode > 1 or padding_mode > 1:
        raise n.refuse("reads volumes, by cubes, or mirrored", "bilinear and nearest, zeros and border are known")
    made = grid_sample(interpolation_mode == 1, padding_mode == 1, bool(align_corners))
    return b.call(n, made, [x, grid])
