"""Rules for PyTorch's operators that order elements, and for those that put elements at places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tcomp.networks.aten.choosing import check_extents, from_the_start
from tcomp.networks.aten.parts import expand
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import elements, general
from tcomp.networks.texts.elements import at
from tcomp.networks.texts.general import definition, tensor
from tcomp.networks.texts.ordering import in_order


def _ordered(
    b: Builder,
    n: Node,
    x: Value,
    dim: int,
    first: int,
    count: int,
    *,
    largest: bool,
    keep: bool = True,
    unordered: bool = False,
) -> list[Value]:
    """Elements in their order, and where they stand; without the axis, which then has one element, if not kept.

    With ``unordered`` it is NaN for a row that has one.
    """
    rank = len(x.shape)
    if not rank:
        raise n.refuse("takes a single number")
    axis = dim % rank
    if not 0 < count <= x.shape[axis] - first:
        raise n.refuse(f"takes {count} of {x.shape[axis]} elements")
    kept = tuple(count if k == axis else extent for k, extent in enumerate(x.shape))
    made = []
    for label, dtype in (("values", x.dtype), ("places", "int64")):
        text = in_order(rank, axis, largest, label == "places", x.dtype, unordered=unordered)
        inner = replace(n, name=f"{n.name}_{label}", shape=kept, dtype=dtype)
        found = b.call(inner, text, [x], FROM=first, COUNT=count)
        if not keep:
            shape = kept[:axis] + kept[axis + 1 :]
            found = b.call(
                replace(inner, name=f"{inner.name}_alone", shape=shape), elements.reshape(kept, shape), [found]
            )
        made.append(found)
    return made


@rule("aten.topk.default")
def topk(b: Builder, n: Node, *, x: Value, k: int, dim: int, largest: bool, **_: bool) -> list[Value]:
    return _ordered(b, n, x, dim, 0, k, largest=largest)


@rule("aten.sort.default", "aten.sort.stable")
def sort(b: Builder, n: Node, *, x: Value, dim: int, descending: bool, stable: bool | None = None) -> list[Value]:
    return _ordered(b, n, x, dim, 0, x.shape[dim], largest=descending)


@rule("aten.argsort.default", "aten.argsort.stable")
def argsort(b: Builder, n: Node, *, x: Value, dim: int, descending: bool, stable: bool = False) -> Value:
    return _ordered(b, n, x, dim, 0, x.shape[dim], largest=descending)[1]


@rule("aten.kthvalue.default")
def kth(b: Builder, n: Node, *, x: Value, k: int, dim: int, keepdim: bool) -> list[Value]:
    return _ordered(b, n, x, dim, k - 1, 1, largest=False, keep=keepdim)


@rule("aten.median.dim")
def median(b: Builder, n: Node, *, x: Value, dim: int, keepdim: bool) -> list[Value]:
    """The lower of two in the middle, or NaN where there is one."""
    return _ordered(b, n, x, dim, (x.shape[dim] - 1) // 2, 1, largest=False, keep=keepdim, unordered=True)


@rule("aten.median.default")
def median_of_all(b: Builder, n: Node, *, x: Value) -> Value:
    count = math.prod(x.shape)
    flat = b.call(replace(n, name=f"{n.name}_flat", shape=(count,)), elements.reshape(x.shape, (count,)), [x])
    return _ordered(b, n, flat, 0, (count - 1) // 2, 1, largest=False, keep=False, unordered=True)[0]


@rule("aten.max.dim", "aten.min.dim")
def extreme(b: Builder, n: Node, *, x: Value, dim: int, keepdim: bool) -> list[Value]:
    """The largest or the smallest elements along an axis, and where the first of them stand."""
    name, rank = n.operator.split(".")[1], len(x.shape)
    axis = dim % rank
    check_extents(n, x, [axis])
    shape = tuple(1 if k == axis else extent for k, extent in enumerate(x.shape) if keepdim or k != axis)
    values = general.reduction(name, f"{name}=!", "{x}", "", rank, [axis], keepdim, x.dtype)
    places = general.places(f"arg{name}", rank, axis, keepdim, False, x.dtype)
    made = (("values", x.dtype, values), ("places", "int64", places))
    return [b.call(replace(n, name=f"{n.name}_{label}", shape=shape, dtype=dtype), d, [x]) for label, dtype, d in made]


@rule("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    b: Builder, n: Node, *, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """Elements of a copy of ``x`` replaced, or added to; of several for one place the last one counts."""
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    if any(one.dtype == "bool" for _, one in given):
        return _where(b, n, x, given, values, accumulate)
    axes = [axis for axis, _ in given]
    together = np.broadcast_shapes(*(one.shape for _, one in given))
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    whole = [*elements.indices(len(x.shape) - len(axes) + len(together))]
    inner, rest = whole[first : first + len(together)], whole[:first] + whole[first + len(together) :]
    lengths = dict(zip(inner, together, strict=True))
    left = iter(rest)
    extents, put, operands, parameters = [], [], [x], []
    for axis, extent in enumerate(x.shape):
        if axis not in axes:
            extents.append(next(left))
            put.append(extents[-1])
            lengths[extents[-1]] = extent
            continue
        places = from_the_start(b, n, dict(given)[axis], axis, extent)
        own = _apart(inner, places.shape, lengths)
        extents.append(f"X{axis}")
        put.append(at(f"P{axis}", [c.replace("1", "0") for c in own]))
        parameters.append(f"{tensor(own, places.dtype)} P{axis}")
        operands.append(places)
    own = _apart(whole, values.shape, lengths)
    ranges = [f"{c} in 0:{c.upper()}" for c in rest] + [f"{c} in 0:{lengths[c]}" for c in inner]
    last = [] if accumulate else [f"last {c}" for c in inner]
    copy = [*elements.indices(len(x.shape))]
    value = at("V", [c.replace("1", "0") for c in own])
    where = ", ".join([*ranges, *last])
    lines = [
        f"{at('Y', copy)} = {at('X', copy)}",
        f"{at('Y', put)} {'+=' if accumulate else '='} {value}{' where ' if where else ''}{where}",
    ]
    name = general.typed(
        "_".join(["add_at" if accumulate else "put_at", *map(str, axes), *map(str, together)]), x.dtype
    )
    every = [f"{tensor(extents, x.dtype)} X", *parameters, f"{tensor(own, values.dtype)} V"]
    return b.call(n, definition(name, every, "Y", lines), [*operands, values])


def _apart(letters: Sequence[str], shape: Sequence[int], lengths: dict[str, int]) -> list[str]:
    """The indices of an operand; ``1`` where it is repeated."""
    own = letters[len(letters) - len(shape) :]
    return ["1" if extent == 1 != lengths[c] else c for c, extent in zip(own, shape, strict=True)]


def _where(b: Builder, n: Node, x: Value, given: Sequence[tuple[int, Value]], values: Value, accumulate: bool) -> Value:
    """A number where a tensor of truth values says so."""
    if len(given) != 1 or math.prod(values.shape) != 1 or accumulate or given[0][0]:
        raise n.refuse("puts several elements at places that truth values choose", "one number is known")
    mask, shape = given[0][1], (*given[0][1].shape, *(1,) * (len(x.shape) - len(given[0][1].shape)))
    if shape != mask.shape:
        mask = b.call(
            replace(n, name=f"{n.name}_mask", shape=shape, dtype="bool"), elements.reshape(mask.shape, shape), [mask]
        )
    kinds = [(mask.shape, "bool"), (x.shape, x.dtype), (values.shape, values.dtype)]
    return b.call(n, general.pointwise("put_where", "{a} ? {c} : {b}", kinds, n.shape, n.dtype), [mask, x, values])


_REDUCED = {"sum": "+=", "prod": "*=", "amax": "max=", "amin": "min=", "mean": "+="}


@rule("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default", "aten.scatter_reduce.two")
def scatter(
    b: Builder,
    n: Node,
    *,
    x: Value,
    dim: int,
    index: Value,
    src: Value | None = None,
    value: float | None = None,
    reduce: str = "",
    include_self: bool = True,
) -> Value:
    """``Y(P(i,j),j) = V(i,j)`` along the axis ``dim``, on a copy of ``X``; of several for one place the last counts."""
    letters = [*elements.indices(len(x.shape))]
    if not letters or (reduce and reduce not in _REDUCED) or (reduce == "mean" and x.dtype != "float32"):
        raise n.refuse(f"reduces by {reduce or 'nothing'} what has {len(letters)} axes")
    axis = dim % len(letters)
    if any(k != axis and extent > x.shape[k] for k, extent in enumerate(index.shape)):
        raise n.refuse(f"puts by {index.shape} into {x.shape}")
    symbol = "+=" if n.operator.startswith("aten.scatter_add") else _REDUCED.get(reduce, "=")
    own = ["u" if k == axis else c for k, c in enumerate(letters)]
    put = [at("P", own) if k == axis else c for k, c in enumerate(letters)]
    clauses = [f"{c} in 0:P{k}" for k, c in enumerate(own)] + ["last u"] * (symbol == "=")
    kind, read, number = general.number("v", value or 0, x.dtype)
    given = read if src is None else at("V", own)
    lines = [f"{at('Y', letters)} = {at('X', letters)}", f"{at('Y', put)} {symbol} {given} where {', '.join(clauses)}"]
    what = {"=": "put", "+=": "add", "*=": "multiply", "max=": "maximum", "min=": "minimum"}[symbol]
    name = general.typed(f"{what}_along_{len(letters)}d_axis{axis}{'_number' * (src is None)}_{index.dtype}", x.dtype)
    if reduce == "mean" or (reduce and not include_self):
        lines = _counted(letters, put, given, clauses, reduce, include_self, x.dtype)
        name = f"{name}_{reduce}{'' if include_self else '_alone'}"
    parameters = [f"{tensor(letters, x.dtype)} X", f"{tensor([f'P{k}' for k in range(len(own))], index.dtype)} P"]
    if src is None:
        made = definition(name, [*parameters, f"{general.spelled(kind)} v"], "Y", lines)
        return b.call(n, made, [x, index], v=number)
    parameters.append(f"{tensor([f'V{k}' for k in range(len(own))], src.dtype)} V")
    return b.call(n, definition(name, parameters, "Y", lines), [x, index, src])


def _counted(
    letters: Sequence[str], put: Sequence[str], given: str, clauses: Sequence[str], reduce: str, own: bool, dtype: str
) -> list[str]:
    """A reduction into elements that counts what each takes: for means, or where what was there does not take part."""
    total, count, result, before = (at(name, letters) for name in ("T", "C", "Y", "X"))
    starts = {"amax": general.lowest(dtype), "amin": general.highest(dtype), "prod": "1"}
    start = before if own else starts.get(reduce, "0")
    every = f" where {', '.join(f'{c} in 0:{c.upper()}' for c in letters)}"
    where = f" where {', '.join(clauses)}"
    mean = f"{total} / {count}" if reduce == "mean" else total
    return [
        f"{count} = {'1.0' if own else '0.0'}{every}",
        f"{total} = {general.spelled(dtype)}({start}){every}",
        f"{at('C', put)} += 1.0{where}",
        f"{at('T', put)} {_REDUCED[reduce]} {given}{where}",
        f"{result} = {count} > 0 ? {mean} : {before}",
    ]


@rule("aten.copy.default")
def copied(b: Builder, n: Node, *, x: Value, src: Value, non_blocking: bool) -> Value:
    """What is written over a whole tensor, repeated where it is smaller."""
    if src.dtype != x.dtype:
        src = b.call(
            replace(n, name=f"{n.name}_as", shape=src.shape),
            general.conversion(len(src.shape), src.dtype, x.dtype),
            [src],
        )
    return expand(b, n, x=src)


@rule("aten.unfold.default")
def windows(b: Builder, n: Node, *, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows along an axis, each along a new last one."""
    letters = [*elements.indices(len(x.shape))]
    axis = dimension % len(letters)
    c = letters[axis]
    read = [f"STEP*{c}+z" if k == axis else other for k, other in enumerate(letters)]
    where = f"{c} in 0:({c.upper()}-SIZE)/STEP+1, z in 0:SIZE"
    lines = [f"{at('Y', [*letters, 'z'])} = {at('X', read)} where {where}"]
    parameters = [f"{tensor(letters, x.dtype)} X", "const int SIZE", "const int STEP"]
    made = definition(general.typed(f"windows_{len(letters)}d_axis{axis}", x.dtype), parameters, "Y", lines)
    return b.call(n, made, [x], SIZE=size, STEP=step)


@rule("aten.col2im.default")
def fold(
    b: Builder,
    n: Node,
    *,
    x: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Blocks of an image added up where they overlap."""
    if len(x.shape) == 2:
        shape = (1, *x.shape)
        one = b.call(replace(n, name=f"{n.name}_image", shape=shape), elements.reshape(x.shape, shape), [x])
        given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
        found = fold(
            b, replace(n, name=f"{n.name}_batch", shape=(1, *n.shape)), x=one, output_size=output_size, **given
        )
        return b.call(n, elements.reshape(found.shape, n.shape), [found])
    lines = [
        "T(n,c,h,w) = 0.0 where n in 0:N, c in 0:C/(KH*KW), h in 0:H+2*PH, w in 0:W+2*PW",
        "T(n,c,SH*i+DH*kh,SW*j+DW*kw) += X(n,(c*KH+kh)*KW+kw,i*((W+2*PW-DW*(KW-1)-1)/SW+1)+j)",
        "  where n in 0:N, c in 0:C/(KH*KW), kh in 0:KH, kw in 0:KW,",
        "    i in 0:(H+2*PH-DH*(KH-1)-1)/SH+1, j in 0:(W+2*PW-DW*(KW-1)-1)/SW+1",
        "O(n,c,h,w) = T(n,c,h+PH,w+PW) where n in 0:N, c in 0:C/(KH*KW), h in 0:H, w in 0:W",
    ]
    numbers = {"": output_size, "K": kernel_size, "S": stride, "P": padding, "D": dilation}
    constants = {f"{c}{axis}": int(pair[k]) for c, pair in numbers.items() for k, axis in enumerate("HW")}
    made = definition("fold", ["float(N,C,L) X", *(f"const int {name}" for name in constants)], "O", lines)
    return b.call(n, made, [x], **constants)
