"""Rules for results whose places data choose: the largest elements, elements put into others, places of pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.importing import rule
from tcomp.networks.network import Definition
from tcomp.networks.onnx.moving import shaped
from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, lowest, spelled, tensor, typed
from tcomp.networks.texts.ordering import in_order

_COMBINED = {"add": "+=", "mul": "*=", "max": "max=", "min": "min="}


@rule("onnx.TopK")
def top_k(
    b: OnnxBuilder, n: OnnxNode, *, X: Operand, K: Operand, axis: int = -1, largest: int = 1, **_: Any
) -> list[Operand]:
    count = (n.integers(K, "a number of elements") or (0,))[0]
    rank = len(X.shape)
    dim = n.axis(axis, rank)
    made: list[Operand] = []
    for result, places in zip(n.results, (False, True), strict=False):
        text = in_order(rank, dim, bool(largest), places, X.dtype)
        label = "places" if places else "values"
        named = result if result.name else replace(result, name=f"{n.name}_{label}")
        made.append(b.call(named, text, [X], FROM=0, COUNT=count))
    return made


@rule("onnx.ScatterND")
def scatter_nd(
    b: OnnxBuilder, n: OnnxNode, *, data: Operand, indices: Operand, updates: Operand, reduction: str = "none"
) -> Any:
    count = indices.shape[-1]
    rows = math.prod(indices.shape[:-1])
    rest = data.shape[count:]
    places = _one(shaped(b, n, indices, (rows, count), "rows") if indices.shape != (rows, count) else indices)
    parts = _one(shaped(b, n, updates, (rows, *rest), "parts") if updates.shape != (rows, *rest) else updates)
    i = _letters(len(data.shape))
    chosen, others = i[:count], i[count:]
    kind = indices.dtype
    lines = [
        f"p{k}(u) = {spelled(kind)}(I(u,{k}) < 0 ? I(u,{k}) + {c.upper()} : I(u,{k}))" for k, c in enumerate(chosen)
    ]
    at_places = [f"p{k}(u)" for k in range(count)]
    part = at("V", ["u", *others])
    lines += _scattered(i, chosen, others, at_places, part, reduction, "V")
    name = f"scatter_nd_{len(i)}d_{count}_{kind}_{reduction}"
    parameters = [
        f"{tensor(i, data.dtype)} X",
        f"{tensor(['u', str(count)], kind)} I",
        f"{tensor(['u', *others], data.dtype)} V",
    ]
    return b.call(n, definition(typed(name, data.dtype), parameters, "Y", lines), [data, places, parts])


def _scattered(
    i: Sequence[str],
    chosen: Sequence[str],
    others: Sequence[str],
    places: Sequence[str],
    part: str,
    reduction: str,
    name: str,
) -> list[str]:
    """Statements that put parts into ``X``; of several for one element the last one counts, where none are combined."""
    y, x = at("Y", i), at("X", i)
    if reduction in _COMBINED:
        return [f"{y} = {x}", f"{at('Y', [*places, *others])} {_COMBINED[reduction]} {part}"]
    ranges = ", ".join(f"{c} in 0:{c.upper()}" for c in chosen)
    last = at("last", chosen)
    return [
        f"{last} = -1 where {ranges}",
        f"{at('last', places)} max= u where u in 0:U",
        f"at{last[4:]} = max({last}, 0)",
        f"{y} = {last} >= 0 ? {at(name, [f'at{last[4:]}', *others])} : {x}",
    ]


@rule("onnx.ScatterElements")
def scatter_elements(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    data: Operand,
    indices: Operand,
    updates: Operand,
    axis: int = 0,
    reduction: str = "none",
) -> Any:
    rank = len(data.shape)
    dim = n.axis(axis, rank)
    if any(k != dim and e != data.shape[k] for k, e in enumerate(indices.shape)):
        raise n.refuse(f"puts {indices.shape} into {data.shape}")
    i = _letters(rank)
    c, kind = i[dim], indices.dtype
    own = ["u" if k == c else k for k in i]
    index, place = at("I", own), at("p", own)
    lines = [f"{place} = {spelled(kind)}({index} < 0 ? {index} + {c.upper()} : {index})"]
    put = [place if k == c else k for k in i]
    if reduction in _COMBINED:
        lines += [f"{at('Y', i)} = {at('X', i)}", f"{at('Y', put)} {_COMBINED[reduction]} {at('V', own)}"]
    else:
        last, found = at("last", i), at("at", i)
        taken = at("V", [found if k == c else k for k in i])
        ranges = ", ".join(f"{k} in 0:{k.upper()}" for k in i)
        lines += [
            f"{last} = -1 where {ranges}",
            f"{at('last', put)} max= u where {', '.join(f'{k} in 0:{k.upper()}' for k in own)}",
            f"{found} = max({last}, 0)",
            f"{at('Y', i)} = {last} >= 0 ? {taken} : {at('X', i)}",
        ]
    name = f"scatter_elements_{rank}d_axis{dim}_{kind}_{reduction}"
    parameters = [f"{tensor(i, data.dtype)} X", f"{tensor(own, kind)} I", f"{tensor(own, data.dtype)} V"]
    return b.call(n, definition(typed(name, data.dtype), parameters, "Y", lines), [data, indices, updates])


def _letters(rank: int) -> list[str]:
    return [*indices(rank)]


def _one(made: Any) -> Operand:
    return made[0] if isinstance(made, list) else made  # type: ignore[no-any-return]


@rule("onnx.EyeLike")
def eye_like(b: OnnxBuilder, n: OnnxNode, *, x: Operand, dtype: int | None, k: int) -> list[Operand]:
    return [Constant(n.name, np.eye(x.shape[0], x.shape[1], k=k).astype(n.dtype))]


def pool_places(axes: int, storage_order: int, dtype: str) -> Definition:
    """Where the largest element of each window stands among all elements of the image."""
    i = "dhw"[3 - axes :]
    letters = ["n", "c", *i]
    subscripts = ",".join(f"S{c.upper()}*{c}+D{c.upper()}*k{c}-P{c.upper()}" for c in i)
    place = at("", letters)
    windows = ", ".join(f"k{c} in 0:K{c.upper()}" for c in i)
    ranges = ", ".join(f"{c} in 0:O{c.upper()}" for c in i)
    lines = [
        f"{', '.join(f'p{c}' for c in i)}{place} argmax=! constant_exterior(I, {lowest(dtype)})(n,c,{subscripts})",
        f"  where n in 0:N, c in 0:C, {ranges}, {windows}",
    ]
    flat = "n*C + c" if not storage_order else "0"
    found = {c: f"(S{c.upper()}*{c} + D{c.upper()}*p{c}{place} - P{c.upper()})" for c in i}
    for c in i if not storage_order else i[::-1]:
        flat = f"({flat})*{c.upper()} + {found[c]}"
    whole = "*".join(c.upper() for c in i)
    flat = f"(n*C + c)*{whole} + {flat}" if storage_order else flat
    lines.append(f"O{place} = int64({flat})")
    parameters = [f"{tensor(letters, dtype)} I"]
    parameters += [f"const int {c}{axis.upper()}" for c in "KSDPO" for axis in i]
    return definition(
        typed(f"max_pool{axes}d_places{'_columns' if storage_order else ''}", dtype), parameters, "O", lines
    )
