"""Rules for parts of tensors that are written anew, axes that are moved, and where extrema of windows stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.aten.choosing import gathered
from tcomp.networks.aten.rules import binary, matmul, max_pool2d
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import elements, general
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, tensor


@rule("aten.slice_scatter.default")
def slice_scatter(
    b: Builder, n: Node, *, x: Value, src: Value, dim: int, start: int | None, end: int | None, step: int
) -> Value:
    axis = dim % len(x.shape)
    places = range(x.shape[axis])[start:end:step]
    if not places:
        return x
    return _written(b, n, x, src, axis, "FROM+STEP*{c}", FROM=places.start, STEP=step)


@rule("aten.select_scatter.default")
def select_scatter(b: Builder, n: Node, *, x: Value, src: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.shape)
    return _written(b, n, x, src, axis, "AT", AT=index % x.shape[axis])


def _written(b: Builder, n: Node, x: Value, src: Value, axis: int, place: str, **numbers: int) -> Value:
    """A tensor with slices along an axis replaced."""
    letters = [*indices(len(x.shape))]
    whole = place == "AT"
    put = [place.format(c=c) if k == axis else c for k, c in enumerate(letters)]
    own = [c for k, c in enumerate(letters) if not (whole and k == axis)]
    extents = [("U" if k == axis else c) for k, c in enumerate(letters) if not (whole and k == axis)]
    lines = [f"{at('Y', letters)} = {at('X', letters)}", f"{at('Y', put)} = {at('V', own)}"]
    parameters = [f"{tensor(letters, x.dtype)} X", f"{tensor(extents, src.dtype)} V"]
    parameters += [f"const int {name}" for name in numbers]
    name = general.typed(f"put_{'one' if whole else 'slice'}_{len(letters)}d_axis{axis}", x.dtype)
    return b.call(n, definition(name, parameters, "Y", lines), [x, src], **numbers)


@rule("aten.diagonal.default")
def diagonal(b: Builder, n: Node, *, x: Value, offset: int, dim1: int, dim2: int) -> Value:
    """Elements whose places along two axes are alike, along a new last one."""
    letters = [*indices(len(x.shape))]
    first, second = dim1 % len(letters), dim2 % len(letters)
    if 0 in n.shape:
        raise n.refuse("takes nothing")
    moved = {first: f"z+{max(-offset, 0)}", second: f"z+{max(offset, 0)}"}
    read = at("X", [moved.get(k, c) for k, c in enumerate(letters)])
    rest = [c for k, c in enumerate(letters) if k not in moved]
    line = f"{at('Y', [*rest, 'z'])} = {read} where z in 0:COUNT"
    name = general.typed(f"diagonal_{len(letters)}d_{first}_{second}_from_{offset}".replace("-", "m"), x.dtype)
    made = definition(name, [f"{tensor(letters, x.dtype)} X", "const int COUNT"], "Y", [line])
    return b.call(n, made, [x], COUNT=n.shape[-1])


@rule("aten.movedim.int", "aten.movedim.intlist", "aten.moveaxis.int", "aten.moveaxis.intlist")
def movedim(b: Builder, n: Node, *, x: Value, source: int | Sequence[int], destination: int | Sequence[int]) -> Value:
    rank = len(x.shape)
    ends = [[given] if isinstance(given, int) else list(given) for given in (source, destination)]
    moved = {to % rank: start % rank for start, to in zip(*ends, strict=True)}
    rest = iter(k for k in range(rank) if k not in moved.values())
    order = [moved[k] if k in moved else next(rest) for k in range(rank)]
    return b.call(n, elements.permute(order), [x])


@rule("aten.swapaxes.default", "aten.swapdims.default")
def swapaxes(b: Builder, n: Node, *, x: Value, **axes: int) -> Value:
    order, (one, other) = list(range(len(x.shape))), axes.values()
    order[one], order[other] = order[other], order[one]
    return b.call(n, elements.permute(order), [x])


@rule("aten.addmm.default")
def addmm(b: Builder, n: Node, *, x: Value, mat1: Value, mat2: Value, beta: float, alpha: float) -> Value:
    inner = n if beta == 0 and alpha == 1 else replace(n, name=f"{n.name}_product")
    product = matmul(b, inner, left=mat1, right=mat2)
    if alpha != 1:
        inner = n if beta == 0 else replace(n, name=f"{n.name}_scaled")
        product = b.call(inner, elements.with_number("multiply", 2), [product], y=float(alpha))
    if beta == 0:
        return product  # whatever the other is, NaN included
    return binary(b, replace(n, operator="aten.add.Tensor"), x=product, other=x, alpha=beta)


@rule("aten.max_pool2d_with_indices.default")
def max_pool_with_places(
    b: Builder,
    n: Node,
    *,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[Value]:
    """The largest elements of windows, and which of the image's elements they are."""
    pairs = [(int(p[0]), int(p[-1])) for p in (kernel_size, stride or kernel_size, padding, dilation)]
    if len(x.shape) != 4 or ceil_mode:
        raise n.refuse("has windows that leave the image, or no batch", "ceil_mode=False is known")
    k, s, p, d = pairs
    shape = (*x.shape[:2], *((x.shape[2 + i] + 2 * p[i] - d[i] * (k[i] - 1) - 1) // s[i] + 1 for i in (0, 1)))
    inner = replace(n, name=f"{n.name}_values", shape=shape)
    values = max_pool2d(b, inner, x=x, kernel_size=k, stride=s, padding=p, dilation=d, ceil_mode=False)
    subscripts = ",".join(f"S{c}*{c.lower()}+D{c}*k{c.lower()}-P{c}" for c in "HW")
    at_place = {c: f"S{c}*{c.lower()} + D{c}*p{c.lower()}(n,c,h,w) - P{c}" for c in "HW"}
    lines = [
        f"ph, pw(n,c,h,w) argmax=! constant_exterior(I, -1.0 / 0.0)(n,c,{subscripts})",
        "  where n in 0:N, c in 0:C, h in 0:OH, w in 0:OW, kh in 0:KH, kw in 0:KW",
        # A pad is chosen before elements that are all -inf; then the window's first element inside is meant.
        "O(n,c,h,w) = int64((row < 0 ? row % DH : row)*W + (column < 0 ? column % DW : column))",
        f"  where row = {at_place['H']}, column = {at_place['W']}",
    ]
    numbers = {f"{c}{a}": pair[i] for c, pair in zip("KSPD", pairs, strict=True) for i, a in enumerate("HW")}
    numbers |= {f"O{a}": shape[2 + i] for i, a in enumerate("HW")}
    parameters = ["float(N,C,H,W) I", *(f"const int {name}" for name in numbers)]
    made = definition("max_pool2d_places", parameters, "O", lines)
    places = b.call(replace(n, name=f"{n.name}_places", shape=shape, dtype="int64"), made, [x], **numbers)
    return [values, places]


@rule("aten.adaptive_max_pool2d.default")
def adaptive_max_pool2d(b: Builder, n: Node, *, x: Value, output_size: Sequence[int]) -> list[Value]:
    if len(x.shape) == 4 and any(extent % size for extent, size in zip(x.shape[2:], output_size, strict=True)):
        return _of_uneven_windows(b, n, x, output_size)
    window = [extent // size for extent, size in zip(x.shape[-2:], output_size, strict=True)]
    return max_pool_with_places(
        b, n, x=x, kernel_size=window, stride=window, padding=(0, 0), dilation=(1, 1), ceil_mode=False
    )


def _of_uneven_windows(b: Builder, n: Node, x: Value, counts: Sequence[int]) -> list[Value]:
    """Windows that differ by one in length: shorter ones have their last row twice, which changes no maximum."""
    width, window, chosen = x.shape[3], [], []
    for axis, count in zip((2, 3), counts, strict=True):
        places, longest = _rows_of_windows(x.shape[axis], count)
        shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
        x = gathered(
            b, replace(n, name=f"{n.name}_axis{axis}", shape=shape), x, axis, b.weight(f"{n.name}_at{axis}", places)
        )
        window.append(longest)
        chosen.append(places)
    values, places = max_pool_with_places(
        b, replace(n, name=f"{n.name}_even"), x=x, kernel_size=window, stride=window, padding=(0, 0), dilation=(1, 1),
        ceil_mode=False,
    )  # fmt: skip
    known = b.weight(f"{n.name}_elements", (chosen[0][:, None] * width + chosen[1]).ravel())
    letters = indices(len(places.shape))
    made = definition(
        f"looked_up_{len(letters)}d", ["int64(L) V", f"{tensor(letters, 'int64')} P"], "O",
        [f"{at('O', letters)} = V({at('P', letters)})"],
    )  # fmt: skip
    return [
        values,
        b.call(replace(n, name=f"{n.name}_elements", shape=places.shape, dtype="int64"), made, [known, places]),
    ]


def _rows_of_windows(extent: int, count: int) -> tuple[Any, int]:
    """Which rows windows have, one window behind the other and all of them as long as the longest; its length."""
    bounds = [(k * extent // count, -(-(k + 1) * extent // count)) for k in range(count)]
    longest = max(end - first for first, end in bounds)
    rows = [min(first + k, end - 1) for first, end in bounds for k in range(longest)]
    return np.array(rows, np.int64), longest
