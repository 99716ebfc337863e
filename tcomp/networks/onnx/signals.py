"""Rules for transforms of signals, for blocks and regions of images, and for sequences that end at their own places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tcomp.networks.importing import Array, rule
from tcomp.networks.network import Value
from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts import elements, general
from tcomp.networks.texts.elements import at
from tcomp.networks.texts.general import definition, tensor, typed


@rule("onnx.Compress")
def compress(b: OnnxBuilder, n: OnnxNode, *, x: Operand, condition: Operand, axis: int | None) -> Value:
    """Slices, or elements of all, where a row of truth values is true."""
    chosen = n.known(condition, "which elements stay")
    assert chosen is not None
    places = np.flatnonzero(chosen)
    if axis is None:
        flat = (math.prod(x.shape),)
        x, axis = b.make(n, elements.reshape(x.shape, flat), [x], flat), 0
    dim = n.axis(axis, len(x.shape))
    if len(places) == 0 or places[-1] >= x.shape[dim]:
        raise n.refuse(f"takes {len(places)} of {x.shape[dim]} elements")
    letters = elements.indices(len(x.shape))
    read = ["P(" + c + ")" if k == dim else c for k, c in enumerate(letters)]
    extents = ["z" if k == dim else c for k, c in enumerate(letters)]
    name = typed(f"compress_{len(letters)}d_axis{dim}", x.dtype)
    parameters = [f"{tensor(extents, x.dtype)} X", f"{tensor([letters[dim]], 'int64')} P"]
    own = Constant(f"{n.name}_places", places.astype(np.int64))
    made = replace(n, shape=(*x.shape[:dim], len(places), *x.shape[dim + 1 :]))
    return b.call(made, definition(name, parameters, "Y", [f"{at('Y', [*letters])} = {at('X', read)}"]), [x, own])


@rule("onnx.ReverseSequence")
def reverse(
    b: OnnxBuilder, n: OnnxNode, *, x: Operand, sequence_lens: Operand, batch_axis: int, time_axis: int | None
) -> Value:
    """The first elements of each sequence, as many as it has, from the last to the first."""
    letters = elements.indices(len(x.shape))
    of, steps = letters[n.axis(batch_axis, len(letters))], letters[n.axis(time_axis or 0, len(letters))]
    if of == steps:
        raise n.refuse("has one axis for sequences and for their elements")
    place = f"P({of},{steps})"
    lines = [
        f"{place} = {steps} < L({of}) ? int64(L({of})) - 1 - {steps} : int64({steps})",
        f"  where {of} in 0:{of.upper()}, {steps} in 0:{steps.upper()}",
        f"{at('Y', [*letters])} = {at('X', [place if c == steps else c for c in letters])}",
    ]
    name = typed(f"reverse_sequence_{len(letters)}d_{of}{steps}_{sequence_lens.dtype}", x.dtype)
    parameters = [f"{tensor(letters, x.dtype)} X", f"{tensor([of], sequence_lens.dtype)} L"]
    return b.call(n, definition(name, parameters, "Y", lines), [x, sequence_lens])


@rule("onnx.Col2Im")
def blocks(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    x: Operand,
    image_shape: Operand,
    block_shape: Operand,
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
) -> Value:
    """Blocks of an image of any number of axes, added up where they overlap."""
    image, block = n.integers(image_shape, "a shape") or (), n.integers(block_shape, "a block") or ()
    rank = len(image)
    ahead = list(pads)[:rank] if pads else [0] * rank
    behind = list(pads)[rank:] if pads else [0] * rank
    step, apart = list(strides or [1] * rank), list(dilations or [1] * rank)
    axes = range(rank)
    counts = [(image[k] + ahead[k] + behind[k] - apart[k] * (block[k] - 1) - 1) // step[k] + 1 for k in axes]
    if len(block) != rank or math.prod(counts) != x.shape[-1] or x.shape[1] % math.prod(block):
        raise n.refuse(f"puts {x.shape} into {image} by blocks of {block}")
    channel, position = "c", "0"
    for k in axes:
        channel, position = f"({channel})*K{k}+k{k}", f"({position})*N{k}+j{k}" if k else "j0"
    put = [f"S{k}*j{k}+D{k}*k{k}" for k in axes]
    every = "n in 0:N, c in 0:CHANNELS"
    numbers = {"CHANNELS": x.shape[1] // math.prod(block)}
    for k in axes:
        numbers |= {f"H{k}": image[k], f"K{k}": block[k], f"S{k}": step[k], f"D{k}": apart[k], f"N{k}": counts[k]}
        numbers |= {f"P{k}": ahead[k], f"T{k}": image[k] + ahead[k] + behind[k]}
    lines = [
        f"{at('T', ['n', 'c', *(f't{k}' for k in axes)])} = 0.0 where {every}, "
        + ", ".join(f"t{k} in 0:T{k}" for k in axes),
        f"{at('T', ['n', 'c', *put])} += X(n,{channel},{position}) where {every}, "
        + ", ".join(f"k{k} in 0:K{k}, j{k} in 0:N{k}" for k in axes),
        f"{at('Y', ['n', 'c', *(f'h{k}' for k in axes)])} = {at('T', ['n', 'c', *(f'h{k}+P{k}' for k in axes)])}"
        f" where {every}, " + ", ".join(f"h{k} in 0:H{k}" for k in axes),
    ]
    parameters = ["float(N,C,L) X", *(f"const int {name}" for name in numbers)]
    return b.floats(n, definition(f"col2im_{rank}d", parameters, "Y", lines), [x], **numbers)


def _turns(count: int, length: int, given: int, parts: int, inverse: bool) -> Array:
    """What a transform multiplies by, ``[frequency, element, part of it, part of the result]``.

    Elements behind ``length`` are left out; where there are fewer, zeros stand for the rest.
    """
    angles = np.outer(np.arange(count), np.arange(given)) % length * (2 * np.pi / length)
    cosines, sines = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    made = np.zeros((count, given, parts, 2))
    made[:, :, 0, 0], made[:, :, 0, 1] = cosines, sines
    if parts == 2:
        made[:, :, 1, 0], made[:, :, 1, 1] = -sines, cosines
    made[:, length:] = 0
    return made / length if inverse else made


@rule("onnx.DFT")
def transform(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    x: Operand,
    dft_length: Operand | None = None,
    axis: Operand | int | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    """A discrete Fourier transform along an axis; the last one has the parts of complex numbers."""
    default = -2 if n.opset >= 20 else 1
    given = axis if isinstance(axis, int) else (n.integers(axis, "an axis") or (default,))[0]
    dim, rank = n.axis(given, len(x.shape)), len(x.shape)
    halves = bool(inverse and onesided)
    given_length = n.integers(dft_length, "a length")
    length = given_length[0] if given_length else 2 * (x.shape[dim] - 1) if halves else x.shape[dim]
    parts = x.shape[-1]
    if parts not in (1, 2) or dim == rank - 1 or length < 1 or (onesided and parts != (2 if inverse else 1)):
        raise n.refuse(f"takes {x.shape} along axis {dim}, inverse {inverse}, onesided {onesided}")
    count = length // 2 + 1 if onesided and not inverse else length
    turns = _of_halves(length, x.shape[dim]) if halves else _turns(count, length, x.shape[dim], parts, bool(inverse))
    letters = elements.indices(rank)
    c, z = letters[dim], letters[-1]
    text = general.einsum([letters, f"u{c}{z}v"], letters[:-1].replace(c, "u") + "v", True, "float32")
    shape = (*x.shape[:dim], turns.shape[0], *x.shape[dim + 1 : -1], turns.shape[-1])
    return b.floats(replace(n, shape=shape), text, [x, Constant(f"{n.name}_turns", turns.astype(x.dtype))])


def _of_halves(length: int, given: int) -> Array:
    """As ``_turns``, back from the half of a spectrum whose other half has the conjugates: one part results."""
    made = _turns(length, length, given, 2, True)[:, :, :, :1]
    twice = np.where(2 * np.arange(given) % length == 0, 1.0, 2.0)
    twice[length // 2 + 1 :] = 0.0
    return made * twice[None, :, None, None]


@rule("onnx.STFT")
def windows(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    signal: Operand,
    frame_step: Operand,
    window: Operand | None = None,
    frame_length: Operand | None = None,
    onesided: int = 1,
) -> Value:
    """Fourier transforms of windows along a signal ``batch x samples x parts``."""
    weights = n.known(window, "a window")
    step = (n.integers(frame_step, "a step") or (1,))[0]
    length = (n.integers(frame_length, "a length") or (0 if weights is None else len(weights),))[0]
    parts = signal.shape[-1]
    if len(signal.shape) != 3 or parts not in (1, 2) or not 0 < length <= signal.shape[1] or step < 1:
        raise n.refuse(f"takes {signal.shape} by windows of {length} samples, {step} apart")
    count = length // 2 + 1 if onesided and parts == 1 else length
    turns = _turns(count, length, length, parts, False)
    if weights is not None:
        turns *= weights.astype(np.float64)[None, :, None, None]
    frames = (signal.shape[1] - length) // step + 1
    lines = ["O(b,f,k,e) +=! X(b,STEP*f+t,p) * M(k,t,p,e) where f in 0:FRAMES"]
    parameters = ["float(B,L,P) X", "float(K,T,P,E) M", "const int STEP", "const int FRAMES"]
    operands = [signal, Constant(f"{n.name}_turns", turns.astype(signal.dtype))]
    made = replace(n, shape=(signal.shape[0], frames, count, 2))
    return b.floats(made, definition("stft", parameters, "O", lines), operands, STEP=step, FRAMES=frames)


@rule("onnx.RoiAlign")
def regions(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    rois: Operand,
    batch_indices: Operand,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    """Means, or the largest, of points between pixels, in cells of regions of images (Mask R-CNN, He et al., 2017)."""
    if sampling_ratio <= 0:
        raise n.refuse("samples as many points as a region has pixels", "a number that is known is known")
    half = coordinate_transformation_mode == "half_pixel"
    lines = []
    for c, first, cells, pixels in (("y", 1, "PH", "H"), ("x", 0, "PW", "W")):
        side = f"(B(r,{first + 2}) - B(r,{first})) * SCALE"
        extent = side if half else f"max({side}, 1.0)"
        lines += [
            f"{c}(r,p,i) = B(r,{first}) * SCALE - {'0.5' if half else '0.0'} + p * s + (i + 0.5) * s / POINTS",
            f"  where r in 0:R, p in 0:{cells}, i in 0:POINTS, s = {extent} / {cells}",
            f"{c}low(r,p,i) = min(int64(max({c}(r,p,i), 0.0)), {pixels} - 1)",
            f"{c}high(r,p,i) = min({c}low(r,p,i) + 1, {pixels} - 1)",
            f"{c}far(r,p,i) = {c}low(r,p,i) < {pixels} - 1 ? max({c}(r,p,i), 0.0) - {c}low(r,p,i) : 0.0",
            f"{c}in(r,p,i) = {c}(r,p,i) < -1.0 || {c}(r,p,i) > {pixels} ? 0.0 : 1.0",
        ]
    y, x = "(r,p,i)", "(r,q,j)"
    corners = [
        f"({'' if side == 'high' else '1.0 - '}yfar{y}) * ({'' if end == 'high' else '1.0 - '}xfar{x})"
        f" * X(I(r),c,y{side}{y},x{end}{x})"
        for side in ("low", "high")
        for end in ("low", "high")
    ]
    inside = f"yin{y} * xin{x} * "
    if mode == "max":
        upper, lower = (f"max({inside}{one},\n    {inside}{other})" for one, other in (corners[:2], corners[2:]))
        lines.append(f"O(r,c,p,q) max=! max({upper}, {lower})")
    else:
        lines.append(f"O(r,c,p,q) +=! {inside}(" + "\n    + ".join(corners) + ")")
        lines.append("O(r,c,p,q)  =  O(r,c,p,q) / (POINTS * POINTS)")
    parameters = ["float(N,C,H,W) X", "float(R,4) B", f"{tensor(['r'], batch_indices.dtype)} I", "float SCALE"]
    numbers = {"PH": output_height, "PW": output_width, "POINTS": sampling_ratio}
    parameters += [f"const int {name}" for name in numbers]
    name = f"roi_align_{mode}_{'half_pixel' if half else 'corners'}_{batch_indices.dtype}"
    text = definition(name, parameters, "O", lines)
    return b.call(n, text, [X, rois, batch_indices], SCALE=float(spatial_scale), **numbers)
