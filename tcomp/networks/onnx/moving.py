"""Rules for what moves elements, repeats them or takes some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcomp.networks.importing import rule
from tcomp.networks.network import Value, retyped
from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand, empty
from tcomp.networks.pieces import behind
from tcomp.networks.texts import elements, parts
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, spelled, tensor, typed

Axes = Operand | Sequence[int] | None


@rule("onnx.Reshape", "onnx.Flatten", "onnx.Squeeze", "onnx.Unsqueeze")
def reshape(b: OnnxBuilder, n: OnnxNode, **given: Any) -> Value | list[Operand]:
    x: Operand = next(iter(given.values()))
    return shaped(b, n, x, n.shape)


def shaped(b: OnnxBuilder, n: OnnxNode, x: Operand, shape: tuple[int, ...], name: str = "") -> Value | list[Operand]:
    """The same elements under other extents."""
    if x.shape == shape:
        return [x]
    if 0 in shape:
        raise n.refuse("gives a tensor without elements")
    if min(shape, default=0) < 0:
        raise n.refuse("has a shape that depends on an input", "sizes must be fixed")
    if math.prod(x.shape) != math.prod(shape):
        raise n.refuse(f"makes {shape} of {x.shape}")
    made = retyped(elements.reshape(x.shape, shape), x.dtype)
    return b.make(n, made, [x], shape, name) if name else b.call(n, made, [x])


@rule("onnx.Transpose")
def transpose(b: OnnxBuilder, n: OnnxNode, *, data: Operand, perm: Sequence[int] | None) -> Value:
    order = list(perm) if perm is not None else list(range(len(data.shape)))[::-1]
    return b.call(n, retyped(elements.permute(order), data.dtype), [data])


@rule("onnx.Expand")
def expand(b: OnnxBuilder, n: OnnxNode, *, x: Operand, shape: Operand) -> Value | list[Operand]:
    n.known(shape, "a shape")
    if x.shape == n.shape:
        return [x]
    first = len(n.shape) - len(x.shape)
    letters = zip(indices(len(n.shape)), range(len(n.shape)), n.shape, strict=True)
    counts = {f"COUNT_{c.upper()}": count for c, k, count in letters if k < first or x.shape[k - first] != count}
    return b.call(n, retyped(parts.expand(x.shape, n.shape), x.dtype), [x], **counts)


@rule("onnx.Tile")
def tile(b: OnnxBuilder, n: OnnxNode, *, x: Operand, repeats: Operand) -> Value | list[Operand]:
    counts = n.integers(repeats, "repeats") or ()
    if all(count == 1 for count in counts):
        return [x]
    i = indices(len(x.shape))
    numbers = {f"R{c.upper()}": count for c, count in zip(i, counts, strict=True) if count != 1}
    name = typed(f"tile_{len(i)}d_{''.join(c for c in i if f'R{c.upper()}' in numbers)}", x.dtype)
    source = [f"{c}%{c.upper()}" if f"R{c.upper()}" in numbers else c for c in i]
    ranges = ", ".join(f"{c} in 0:R{c.upper()}*{c.upper()}" for c in i if f"R{c.upper()}" in numbers)
    parameters = [f"{tensor(i, x.dtype)} X", *(f"const int {number}" for number in numbers)]
    line = f"{at('Y', [*i])} = {at('X', source)} where {ranges}"
    return b.call(n, definition(name, parameters, "Y", [line]), [x], **numbers)


@rule("onnx.Concat")
def concat(b: OnnxBuilder, n: OnnxNode, *, inputs: Sequence[Operand], axis: int) -> Value | list[Operand]:
    given = [x for x in inputs if 0 not in x.shape]
    if len(given) < 2:
        return given or [empty(n)]
    return behind(b, n, [b.value(x) for x in given], n.axis(axis, len(n.shape)))


@rule("onnx.Split")
def split(
    b: OnnxBuilder, n: OnnxNode, *, x: Operand, split: Axes, axis: int, num_outputs: int | None = None
) -> list[Operand]:
    dim = n.axis(axis, len(x.shape))
    lengths = n.integers(split, "lengths")
    if lengths is None:
        count = num_outputs or len(n.results)
        step = -(-x.shape[dim] // count)
        lengths = tuple(min(step, x.shape[dim] - step * k) for k in range(count))
    if sum(lengths) != x.shape[dim] or len(lengths) != len(n.results):
        raise n.refuse(f"cuts {x.shape[dim]} into {', '.join(map(str, lengths))}")
    made: list[Operand] = []
    first = 0
    for result, length in zip(n.results, lengths, strict=True):
        if length == 0:
            made.append(empty(result))
            continue
        taken = retyped(parts.take(len(x.shape), dim), x.dtype)
        made.append(b.call(result, taken, [x], FROM=first, COUNT=length, STEP=1))
        first += length
    return made


@rule("onnx.Slice")
def take(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    data: Operand,
    starts: Operand,
    ends: Operand,
    axes: Operand | None = None,
    steps: Operand | None = None,
) -> Operand:
    first, last = n.integers(starts, "starts") or (), n.integers(ends, "ends") or ()
    dims = n.integers(axes, "axes") or tuple(range(len(first)))
    strides = n.integers(steps, "steps") or (1,) * len(first)
    made: Operand = data
    for number, (start, end, dim, step) in enumerate(zip(first, last, dims, strides, strict=True)):
        axis = n.axis(dim, len(data.shape))
        extent = data.shape[axis]
        if step == 0:
            raise n.refuse("has a step of 0")
        positions = range(extent)[slice(start, None if step < 0 and end < -extent else end, step)]
        if len(positions) == extent and step == 1:
            continue
        shape = (*made.shape[:axis], len(positions), *made.shape[axis + 1 :])
        taken = retyped(parts.take(len(shape), axis), data.dtype)
        numbers = {"FROM": positions.start, "COUNT": len(positions), "STEP": positions.step}
        made = b.make(n, taken, [made], shape, str(number), **numbers)
    return [made]  # type: ignore[return-value]


_MODES = {"reflect": "mirror_interior", "edge": "repeat_edge", "wrap": "repeat_image"}


@rule("onnx.Pad")
def pad(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    data: Operand,
    pads: Operand,
    constant_value: Operand | None = None,
    axes: Operand | None = None,
    mode: str,
) -> Value | list[Operand]:
    rank = len(data.shape)
    around = n.integers(pads, "amounts") or ()
    dims = [n.axis(k, rank) for k in n.integers(axes, "axes") or range(rank)]
    amounts = [(0, 0)] * rank
    for position, dim in enumerate(dims):
        amounts[dim] = (around[position], around[position + len(dims)])
    if not any(low or high for low, high in amounts):
        return [data]
    if mode == "constant":
        value = n.known(constant_value, "a value")
        fill = 0 if value is None or not value.size else np.ravel(value)[0].item()
        if not np.isfinite(fill):
            raise n.refuse(f"pads with {fill}")
        number = float(fill) if data.dtype.startswith("float") else int(fill)
        return b.call(n, retyped(parts.pad(amounts), data.dtype), [data], v=number)
    if mode not in _MODES:
        raise n.refuse(f"continues the tensor by {mode}")
    i = indices(rank)
    told = "_".join(f"{low}_{high}" for low, high in amounts).replace("-", "m")
    source = [c if low == 0 else f"{c}{-low:+d}" for c, (low, _) in zip(i, amounts, strict=True)]
    ranges = ", ".join(f"{c} in 0:{c.upper()}{low + high:+d}" for c, (low, high) in zip(i, amounts, strict=True))
    line = f"{at('Y', [*i])} = {at(f'{_MODES[mode]}(X)', source)} where {ranges}"
    made = definition(typed(f"pad_{mode}_{told}", data.dtype), [f"{tensor(i, data.dtype)} X"], "Y", [line])
    return b.call(n, made, [data])


@rule("onnx.Gather")
def gather(b: OnnxBuilder, n: OnnxNode, *, data: Operand, indices: Operand, axis: int) -> Value:
    dim, extent = n.axis(axis, len(data.shape)), data.shape[n.axis(axis, len(data.shape))]
    if isinstance(indices, Constant):
        chosen = np.where(indices.array < 0, indices.array + extent, indices.array)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= extent):
            raise n.refuse(f"takes element {int(indices.array.min())} to {int(indices.array.max())} of {extent}")
        if chosen.ndim == 0:
            return b.call(n, retyped(parts.select(len(data.shape), dim), data.dtype), [data], AT=int(chosen))
        indices = Constant(indices.name, chosen)
    whole = elements.indices(len(n.shape))
    before, inner, after = whole[:dim], whole[dim : dim + len(indices.shape)], whole[dim + len(indices.shape) :]
    kind, index = indices.dtype, at("I", [*inner])
    letters = [*before, "z", *after]
    name = f"gather_{len(data.shape)}d_axis{dim}_by_{len(inner)}d_{kind}"
    parameters = [f"{tensor(letters, data.dtype)} X", f"{tensor(inner, kind)} I"]
    lines = []
    if not isinstance(indices, Constant):
        lines.append(f"{at('p', [*inner])} = {spelled(kind)}({index} < 0 ? {index} + Z : {index})")
        index = at("p", [*inner])
    lines.append(f"{at('Y', [*whole])} = {at('X', [*before, index, *after])}")
    name = name if len(lines) == 1 else f"{name}_signed"
    return b.call(n, definition(typed(name, data.dtype), parameters, "Y", lines), [data, indices])


@rule("onnx.GatherElements")
def gather_elements(b: OnnxBuilder, n: OnnxNode, *, data: Operand, indices: Operand, axis: int) -> Value:
    rank = len(data.shape)
    dim = n.axis(axis, rank)
    i = elements.indices(rank)
    kind = indices.dtype
    # Every extent of the indices is that of their own; that of the data may be larger.
    own = [f"I{c}" for c in i]
    index = at("I", [*i])
    place = at("p", [*i])
    ranges = ", ".join(f"{c} in 0:I{c.upper()}" for c in i)
    lines = [
        f"{place} = {spelled(kind)}({index} < 0 ? {index} + {i[dim].upper()} : {index})",
        f"{at('Y', [*i])} = {at('X', [place if k == dim else c for k, c in enumerate(i)])} where {ranges}",
    ]
    name = typed(f"gather_elements_{rank}d_axis{dim}_{kind}", data.dtype)
    parameters = [f"{tensor(i, data.dtype)} X", f"{tensor(own, kind)} I"]
    return b.call(n, definition(name, parameters, "Y", lines), [data, indices])


@rule("onnx.GatherND")
def gather_nd(b: OnnxBuilder, n: OnnxNode, *, data: Operand, indices: Operand, batch_dims: int) -> Value:
    count = indices.shape[-1]
    whole = elements.indices(len(n.shape))
    batch, inner = whole[:batch_dims], whole[batch_dims : len(indices.shape) - 1]
    after = whole[len(indices.shape) - 1 :]
    sought = "stuvw"[:count]
    kind = indices.dtype
    lines = []
    subscripts = [*batch]
    for k, c in enumerate(sought):
        index = at("I", [*batch, *inner, str(k)])
        place = at(f"p{k}", [*batch, *inner])
        lines.append(f"{place} = {spelled(kind)}({index} < 0 ? {index} + {c.upper()} : {index})")
        subscripts.append(place)
    lines.append(f"{at('Y', [*whole])} = {at('X', [*subscripts, *after])}")
    parameters = [
        f"{tensor([*batch, *sought, *after], data.dtype)} X",
        f"{tensor([*batch, *inner, str(count)], kind)} I",
    ]
    name = typed(f"gather_nd_{len(data.shape)}d_batch{batch_dims}_by_{len(indices.shape)}d_{count}_{kind}", data.dtype)
    return b.call(n, definition(name, parameters, "Y", lines), [data, indices])


@rule("onnx.DepthToSpace")
def depth_to_space(b: OnnxBuilder, n: OnnxNode, *, x: Operand, blocksize: int, mode: str) -> Value:
    inner = "(h%B)*B + w%B"
    channel = f"c*B*B + {inner}" if mode == "CRD" else f"({inner})*(C/B/B) + c"
    line = f"Y(n,c,h,w) = X(n, {channel}, h/B, w/B) where c in 0:C/B/B, h in 0:H*B, w in 0:W*B"
    name = typed(f"depth_to_space_{mode.lower()}", x.dtype)
    parameters = [f"{tensor('nchw', x.dtype)} X", "const int B"]
    return b.call(n, definition(name, parameters, "Y", [line]), [x], B=blocksize)


@rule("onnx.SpaceToDepth")
def space_to_depth(b: OnnxBuilder, n: OnnxNode, *, x: Operand, blocksize: int, mode: str = "DCR") -> Value:
    if mode == "CRD":
        raise n.refuse("orders the channels by CRD")
    line = "Y(n,c,h,w) = X(n, c%C, h*B + c/C/B, w*B + c/C%B) where c in 0:C*B*B, h in 0:H/B, w in 0:W/B"
    parameters = [f"{tensor('nchw', x.dtype)} X", "const int B"]
    return b.call(n, definition(typed("space_to_depth", x.dtype), parameters, "Y", [line]), [x], B=blocksize)


@rule("onnx.Trilu")
def triangle(b: OnnxBuilder, n: OnnxNode, *, x: Operand, k: Operand | None, upper: int) -> Value:
    shift = (n.integers(k, "a diagonal") or (0,))[0]
    i = indices(len(x.shape))
    row, column = i[-2], i[-1]
    zero = "false" if x.dtype == "bool" else f"{spelled(x.dtype)}(0)"
    kept = f"{column} {'>=' if upper else '<='} {row}+K"
    name = typed(f"{'upper' if upper else 'lower'}_triangle_{len(i)}d", x.dtype)
    line = f"{at('Y', [*i])} = {kept} ? {at('X', [*i])} : {zero}"
    return b.call(n, definition(name, [f"{tensor(i, x.dtype)} X", "const int K"], "Y", [line]), [x], K=shift)


@rule("onnx.OneHot")
def one_hot(b: OnnxBuilder, n: OnnxNode, *, indices: Operand, depth: Operand, values: Operand, axis: int) -> Value:
    count = int((n.integers(depth, "a depth") or (0,))[0])
    dim = n.axis(axis, len(n.shape))
    i = elements.indices(len(n.shape))
    rest = [c for k, c in enumerate(i) if k != dim]
    kind = indices.dtype
    if kind.startswith("float"):
        raise n.refuse(f"has indices of {kind}")
    index, k = at("I", rest), i[dim]
    name = f"one_hot_{len(i)}d_axis{dim}_{kind}"
    parameters = [f"{tensor(rest, kind)} I", f"{tensor('2', values.dtype)} V", "const int COUNT"]
    line = f"{at('Y', [*i])} = ({index} < 0 ? {index} + COUNT : {index}) == {k} ? V(1) : V(0) where {k} in 0:COUNT"
    return b.call(n, definition(typed(name, values.dtype), parameters, "Y", [line]), [indices, values], COUNT=count)
