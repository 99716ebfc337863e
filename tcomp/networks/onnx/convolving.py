"""Rules for convolutions and pooling, of images of any number of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tcomp.networks.importing import rule
from tcomp.networks.network import Definition, Value
from tcomp.networks.onnx.choosing import pool_places
from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts import layers, windows
from tcomp.networks.texts.elements import at
from tcomp.networks.texts.general import reduction, tensor
from tcomp.networks.texts.windows import Windows

Ints = Sequence[int] | None


def _windows(
    n: OnnxNode, image: Sequence[int], kernel: Sequence[int], strides: Ints, dilations: Ints, pads: Ints, auto_pad: str
) -> Windows:
    """Where windows lie, the numbers that auto_pad stands for worked out.  Raises NetworkError."""
    axes = len(image)
    s, d = list(strides or [1] * axes), list(dilations or [1] * axes)
    around = list(pads or [0] * (2 * axes))
    if not len(s) == len(d) == len(kernel) == axes or len(around) != 2 * axes:
        raise n.refuse(f"has attributes for another number of axes than {axes}")
    if min(*s, *d, *kernel) < 1 or min(around) < 0:
        raise n.refuse("has a stride, a dilation or a kernel below 1, or a negative pad")
    low, high = around[:axes], around[axes:]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for k in range(axes):
            whole = max(0, (-(-image[k] // s[k]) - 1) * s[k] + d[k] * (kernel[k] - 1) + 1 - image[k])
            small, large = whole // 2, whole - whole // 2
            low[k], high[k] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    elif auto_pad == "VALID":
        low, high = [0] * axes, [0] * axes
    elif auto_pad != "NOTSET":
        raise n.refuse(f"has auto_pad {auto_pad}")
    return Windows(tuple(kernel), tuple(s), tuple(d), tuple(low), tuple(high))


def _check_kernel(n: OnnxNode, W: Operand, told: Ints) -> None:
    """Raises NetworkError where a kernel has other sides than the node says, by which its result is shaped."""
    if told and tuple(told) != tuple(W.shape[2:]):
        raise n.refuse(f"has kernel_shape {list(told)}, but a kernel of {W.shape}")


@rule("onnx.Conv")
def conv(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    W: Operand,
    B: Operand | None,
    auto_pad: str,
    dilations: Ints,
    group: int,
    kernel_shape: Ints,
    pads: Ints,
    strides: Ints,
) -> Value:
    axes = len(X.shape) - 2
    if not 1 <= axes <= 3 or len(W.shape) != len(X.shape):
        raise n.refuse(f"takes an image of {len(X.shape)} axes")
    if group < 1 or X.shape[1] != group * W.shape[1] or W.shape[0] % group:
        raise n.refuse(f"has {group} groups, {X.shape[1]} channels, and a kernel of {W.shape}")
    _check_kernel(n, W, kernel_shape)
    window = _windows(n, X.shape[2:], W.shape[2:], strides, dilations, pads, auto_pad)
    kind = "one" if group == 1 else "depthwise" if group == X.shape[1] == W.shape[0] else "grouped"
    constants: dict[str, int] = {"G": group} if kind == "grouped" else {}
    if axes == 2 and window.low == window.high:
        flags = {"strided": window.strided, "padded": window.padded, "dilated": window.dilated}
        made = layers.conv2d(bias=B is not None, groups=kind, **flags)
        told = (("S", window.strides), ("P", window.low), ("D", window.dilations))
        for (letter, numbers), on in zip(told, flags.values(), strict=True):
            constants |= {f"{letter}{axis}": k for axis, k in zip("HW", numbers, strict=True)} if on else {}
    else:
        made = windows.convolution(axes, kind, B is not None)
        constants |= window.numbers("SDP") | window.extents(X.shape[2:])
    return b.numbers(n, made, [X, W, B], **constants)


@rule("onnx.ConvTranspose")
def conv_transpose(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    W: Operand,
    B: Operand | None,
    auto_pad: str,
    dilations: Ints,
    group: int,
    kernel_shape: Ints,
    output_padding: Ints,
    output_shape: Ints,
    pads: Ints,
    strides: Ints,
) -> Value:
    axes = len(X.shape) - 2
    if not 1 <= axes <= 3 or X.shape[1] % group:
        raise n.refuse(f"takes an image of {len(X.shape)} axes in {group} groups")
    _check_kernel(n, W, kernel_shape)
    window = _windows(n, X.shape[2:], W.shape[2:], strides, dilations, pads, "NOTSET")
    after = n.shape[2:]
    reach = [
        s * (e - 1) + d * (k - 1) + 1
        for s, e, d, k in zip(window.strides, X.shape[2:], window.dilations, window.kernel, strict=True)
    ]
    low = list(window.low)
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        extra = output_padding or [0] * axes
        for k in range(axes):
            whole = reach[k] + extra[k] - after[k]
            low[k] = whole // 2 if auto_pad == "SAME_UPPER" else whole - whole // 2
    each = windows.AXES[axes].upper()
    most = [max(r, p + e) for r, p, e in zip(reach, low, after, strict=True)]
    constants = {"G": group} | window.numbers("SD")
    for letter, numbers in (("P", low), ("T", most), ("O", after)):
        constants |= {f"{letter}{c}": k for c, k in zip(each, numbers, strict=True)}
    if min(low) < 0:
        raise n.refuse(f"gives {after}, more than it reaches")
    return b.floats(n, windows.transposed(axes, B is not None), [X, W, B], **constants)


@rule("onnx.MaxPool", "onnx.AveragePool", "onnx.LpPool")
def pool(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    auto_pad: str,
    kernel_shape: Sequence[int],
    pads: Ints,
    strides: Ints,
    ceil_mode: int = 0,
    dilations: Ints = None,
    count_include_pad: int = 0,
    storage_order: int = 0,
    p: int = 2,
) -> Value | list[Operand]:
    axes = len(X.shape) - 2
    if not 1 <= axes <= 3:
        raise n.refuse(f"takes an image of {len(X.shape)} axes")
    window = _windows(n, X.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    what = n.operator.rpartition(".")[2]
    extents = {f"O{c}": e for c, e in zip(windows.AXES[axes].upper(), n.shape[2:], strict=True)}
    constants = window.numbers("KSDP") | extents
    if what == "MaxPool":
        made = windows.max_pool(axes, window.dilated, X.dtype)
        results: list[Operand] = [b.call(n, made, [X], **constants)]
        if n.several:
            places = pool_places(axes, storage_order, X.dtype)
            results.append(b.call(n.results[1], places, [X], **constants))
        return results
    if what == "LpPool":
        return b.floats(n, windows.lp_pool(axes, p), [X], **constants)
    counts = window.counts(X.shape[2:], n.shape[2:], bool(count_include_pad))
    if all((count == k).all() for count, k in zip(counts, window.kernel, strict=True)):
        return b.floats(n, windows.average_pool(axes, False), [X], **constants)
    whole = math.prod(np.ix_(*counts))
    count = Constant(f"{n.name}_count", np.asarray(whole, dtype=X.dtype))
    return b.floats(n, windows.average_pool(axes, True), [X, count], **window.numbers("KSDP"))


@rule("onnx.GlobalAveragePool", "onnx.GlobalMaxPool", "onnx.GlobalLpPool")
def global_pool(b: OnnxBuilder, n: OnnxNode, *, X: Operand, p: int = 2) -> Value:
    rank = len(X.shape)
    axes = list(range(2, rank))
    if n.operator == "onnx.GlobalAveragePool":
        made = reduction("mean", "+=!", "{x}", "{y} / ({count})", rank, axes, True, "float32")
    elif n.operator == "onnx.GlobalMaxPool":
        made = reduction("max", "max=!", "{x}", "", rank, axes, True, "float32")
    else:
        body, after = f"pow(abs({{x}}), {p}.0)", f"pow({{y}}, 1.0 / {p})"
        made = reduction(f"l{p}", "+=!", body, after, rank, axes, True, "float32")
    return b.floats(n, made, [X])


@rule("onnx.LRN")
def local_response(
    b: OnnxBuilder, n: OnnxNode, *, X: Operand, alpha: float, beta: float, bias: float, size: int
) -> Value:
    letters = ["n", "c", *"hwd"[: len(X.shape) - 2]]
    low = (size - 1) // 2
    near = at("constant_exterior(X, 0)", ["n", f"c+k-{low}", *letters[2:]])
    ranges = ", ".join(f"{c} in 0:{c.upper()}" for c in letters)
    lines = [
        f"{at('S', letters)} +=! {near} * {near} where {ranges}, k in 0:{size}",
        f"{at('Y', letters)} = {at('X', letters)} / pow(bias + alpha / {size}.0 * {at('S', letters)}, beta)",
    ]
    head = f"def lrn_{len(letters)}d_{size}({tensor(letters)} X, float alpha, float beta, float bias) -> (Y) {{"
    made = Definition(f"lrn_{len(letters)}d_{size}", "\n".join([head, *(f"  {line}" for line in lines), "}"]))
    return b.floats(n, made, [X], alpha=float(alpha), beta=float(beta), bias=float(bias))
