"""Rules for PyTorch's transposed convolutions of signals and of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import elements, layers, windows
from tcomp.networks.texts.windows import Windows


@rule("aten.conv_transpose2d.input")
def conv_transpose2d(
    b: Builder,
    n: Node,
    *,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Value:
    if len(x.shape) != 4:
        raise n.refuse(f"takes an image of {len(x.shape)} axes", "add a batch of one image")
    s, p, more, d = ((one[0], one[-1]) for one in (stride, padding, output_padding, dilation))
    if groups == 1 and more == (0, 0) and d == (1, 1):
        constants = {f"{c}{axis}": pair[k] for c, pair in zip("SP", (s, p), strict=True) for k, axis in enumerate("HW")}
        return b.call(n, layers.conv_transpose2d(bias is not None), [x, weight, bias], **constants)
    kernel = (weight.shape[2], weight.shape[3])
    constants = {"G": groups} | Windows(kernel, s, d, p, p).numbers("SDP")
    for k, axis in enumerate("HW"):
        constants[f"T{axis}"] = (x.shape[2 + k] - 1) * s[k] + d[k] * (kernel[k] - 1) + 1 + more[k]
        constants[f"O{axis}"] = n.shape[2 + k]
    return b.call(n, windows.transposed(2, bias is not None), [x, weight, bias], **constants)


@rule("aten.conv_transpose1d.default")
def conv_transpose1d(
    b: Builder, n: Node, *, x: Value, weight: Value, bias: Value | None, groups: int, **given: Sequence[int]
) -> Value:
    """A transposed convolution of an image of one row."""
    if len(x.shape) != 3:
        raise n.refuse(f"takes a signal of {len(x.shape)} axes", "add a batch of one signal")

    def shaped(value: Value, shape: tuple[int, ...], name: str) -> Value:
        return b.call(replace(n, name=name, shape=shape), elements.reshape(value.shape, shape), [value])

    image, kernel = (shaped(v, (*v.shape[:2], 1, v.shape[2]), f"{v.name}_row") for v in (x, weight))
    inner = replace(n, name=f"{n.name}_row", shape=(*n.shape[:2], 1, n.shape[2]))
    first = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1}
    pairs = {name: (one, given[name][0]) for name, one in first.items()}
    row = conv_transpose2d(b, inner, x=image, weight=kernel, bias=bias, groups=groups, **pairs)
    return shaped(row, n.shape, n.name)
