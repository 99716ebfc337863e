"""Rules for PyTorch's comparisons, choices and places: what takes or gives truth values and numbers of elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.aten import integers
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Definition, Value, retyped
from tcomp.networks.texts import elements, general, parts
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import pointwise, tensor

_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TOGETHER = {"logical_and": "&&", "logical_or": "||", "bitwise_and": "&&", "bitwise_or": "||"}


@rule(*(f"aten.{name}.{end}" for name in _COMPARED for end in ("Scalar", "Tensor")))
def compare(b: Builder, n: Node, *, x: Value, other: Value | float) -> Value:
    name = n.operator.split(".")[1]
    if isinstance(other, Value):
        made = pointwise(name, f"{{a}} {_COMPARED[name]} {{b}}", _typed(x, other), n.shape, "bool")
        return b.call(n, made, [x, other])
    if isinstance(other, float) and x.dtype != "float32":
        x = promoted(b, replace(n, dtype="float32"), x)
    elif x.dtype == "bool" and not isinstance(other, bool):
        x = promoted(b, replace(n, dtype="int64"), x)
    kind, read, number = general.number("y", other, x.dtype)
    body = f"{{a}} {_COMPARED[name]} {read}"
    return b.call(n, pointwise(f"{name}_number", body, _typed(x), n.shape, "bool", {"y": kind}), [x], y=number)


@rule(*(f"aten.{name}.{'Tensor' if name.startswith('bitwise') else 'default'}" for name in _TOGETHER))
def both(b: Builder, n: Node, *, x: Value, other: Value) -> Value:
    name = n.operator.split(".")[1]
    if name.startswith("bitwise") and "bool" not in (x.dtype, other.dtype):
        return integers.bits(b, n, name.removeprefix("bitwise_"), x, other)
    if (x.dtype, other.dtype) != ("bool", "bool"):
        raise n.refuse(f"takes {x.dtype} and {other.dtype}", "truth values are known")
    return b.call(n, pointwise(name, f"{{a}} {_TOGETHER[name]} {{b}}", _typed(x, other), n.shape, "bool"), [x, other])


@rule("aten.logical_not.default", "aten.bitwise_not.default")
def negated(b: Builder, n: Node, *, x: Value) -> Value:
    if n.operator.startswith("aten.bitwise") and integers.are_integers(x):
        return integers.computed(b, n, "bits_not", "~{a}", [x])
    if x.dtype != "bool":
        raise n.refuse(f"takes {x.dtype}", "truth values are known")
    return b.call(n, pointwise("not", "!{a}", _typed(x), n.shape, "bool"), [x])


@rule("aten.where.self")
def where(b: Builder, n: Node, *, condition: Value, x: Value, other: Value) -> Value:
    made = pointwise("where", "{a} ? {b} : {c}", _typed(condition, x, other), n.shape, n.dtype)
    return b.call(n, made, [condition, x, other])


@rule("aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where_number(b: Builder, n: Node, *, condition: Value, x: Value | float, other: Value | float) -> Value:
    """One or both are numbers."""
    operands, bodies, numbers, kinds = [condition], [], {}, {}
    for name, given in (("y", x), ("z", other)):
        if isinstance(given, Value):
            bodies.append(f"{{{'abc'[len(operands)]}}}")
            operands.append(given)
        else:
            kinds[name], body, numbers[name] = general.number(name, given, n.dtype)
            bodies.append(body)
    body = f"{{a}} ? {bodies[0]} : {bodies[1]}"
    name = "where_" + "_".join(numbers)
    made = pointwise(name, body, _typed(*operands), n.shape, n.dtype, kinds)
    return b.call(n, made, operands, **numbers)


@rule("aten.maximum.default", "aten.minimum.default", "aten.max.other", "aten.min.other")
def extreme(b: Builder, n: Node, *, x: Value, other: Value) -> Value:
    name = n.operator.split(".")[1][:3]
    return b.call(n, pointwise(f"{name}imum", f"{name}({{a}}, {{b}})", _typed(x, other), n.shape, n.dtype), [x, other])


@rule("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device")
def converted(b: Builder, n: Node, *, x: Value, **_: Any) -> Value:
    if x.dtype == n.dtype:
        return x
    return b.call(n, general.conversion(len(x.shape), x.dtype, n.dtype), [x])


@rule("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def extremes(b: Builder, n: Node, *, x: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
    name = n.operator.split(".")[1].removeprefix("a")
    axes = _axes(x, dim)
    check_extents(n, x, axes)
    return b.call(n, general.reduction(name, f"{name}=!", "{x}", "", len(x.shape), axes, keepdim, x.dtype), [x])


def check_extents(n: Node, x: Value, axes: Sequence[int]) -> None:
    """Raises NetworkError for the largest or the smallest of no elements."""
    if any(x.shape[axis] == 0 for axis in axes):
        raise n.refuse(f"chooses among the elements of {x.shape}, of which there are none")


@rule("aten.argmax.default", "aten.argmin.default")
def places(b: Builder, n: Node, *, x: Value, dim: int | None, keepdim: bool) -> Value:
    if dim is None:
        row = _inner(n, "row", (int(np.prod(x.shape)),))
        x, dim = b.call(replace(row, dtype=x.dtype), elements.reshape(x.shape, row.shape), [x]), 0
        if keepdim:
            place = places(b, _inner(n, "place", ()), x=x, dim=0, keepdim=False)
            return b.call(n, elements.reshape((), n.shape), [place])
    name = n.operator.split(".")[1]
    return b.call(n, general.places(name, len(x.shape), dim % len(x.shape), keepdim, False, x.dtype), [x])


@rule("aten.var.correction")
def variance(
    b: Builder, n: Node, *, x: Value, dim: Sequence[int] | None, correction: float | None, keepdim: bool
) -> Value:
    axes, rank = _axes(x, dim), len(x.shape)
    kept = tuple(1 if k in axes else extent for k, extent in enumerate(x.shape))
    middle = b.call(_inner(n, "mean", kept), elements.mean(rank, axes, True), [x])
    apart = b.call(_inner(n, "apart", x.shape), elements.binary("subtract", x.shape, kept), [x, middle])
    squares = b.call(_inner(n, "squares", x.shape), elements.unary("square", rank), [apart])
    total = b.call(_inner(n, "total", n.shape), elements.mean(rank, axes, keepdim, "sum"), [squares])
    count = int(np.prod([x.shape[k] for k in axes])) - (1 if correction is None else correction)
    if count <= 0:
        raise n.refuse("has too few elements")
    return b.call(n, elements.with_number("divide", len(n.shape)), [total], y=float(count))


@rule("aten.var_mean.correction")
def variance_and_mean(
    b: Builder, n: Node, *, x: Value, dim: Sequence[int] | None, correction: float | None, keepdim: bool
) -> list[Value]:
    axes = _axes(x, dim)
    kept = [1 if k in axes else extent for k, extent in enumerate(x.shape) if keepdim or k not in axes]
    each = _inner(n, "variance", kept)
    mean = b.call(_inner(n, "average", kept), elements.mean(len(x.shape), axes, keepdim), [x])
    return [variance(b, each, x=x, dim=axes, correction=correction, keepdim=keepdim), mean]


@rule("aten.linalg_vector_norm.default")
def norm(
    b: Builder, n: Node, *, x: Value, dim: Sequence[int] | None, keepdim: bool, dtype: Any, **order: float
) -> Value:
    if order["ord"] != 2 or dtype is not None:
        raise n.refuse(f"is the norm {order['ord']}", "the norm 2 is known")
    squares = b.call(_inner(n, "squares", x.shape), elements.unary("square", len(x.shape)), [x])
    total = elements.mean(len(x.shape), _axes(x, dim), keepdim, "sum")
    return b.call(n, elements.unary("sqrt", len(n.shape)), [b.call(_inner(n, "total", n.shape), total, [squares])])


@rule("aten.roll.default")
def roll(b: Builder, n: Node, *, x: Value, shifts: Sequence[int], dims: Sequence[int]) -> Value:
    if not dims:
        raise n.refuse("moves elements along all axes as one", "give it axes")
    rank = len(x.shape)
    for step, (shift, dim) in enumerate(zip(shifts, dims, strict=True)):
        axis = dim % rank
        extent = x.shape[axis]
        cut = -shift % extent
        if cut == 0:
            continue
        pieces = []
        for label, first, count in (("tail", cut, extent - cut), ("head", 0, cut)):
            shape = tuple(count if k == axis else e for k, e in enumerate(x.shape))
            made = _inner(n, f"{label}{step}", shape)
            pieces.append(b.call(made, parts.take(rank, axis), [x], FROM=first, COUNT=count, STEP=1))
        x = b.call(_inner(n, f"moved{step}", n.shape), retyped(elements.concat(rank, axis, 2), x.dtype), pieces)
    return x


@rule("aten.repeat.default")
def repeat(b: Builder, n: Node, *, x: Value, repeats: Sequence[int]) -> Value:
    letters = indices(len(n.shape))
    own = letters[len(letters) - len(x.shape) :]
    read = at("X", [f"{c} % {c.upper()}" for c in own])
    ranges = ", ".join(f"{c} in 0:{f'{c.upper()}*' if c in own else ''}COUNT_{c.upper()}" for c in letters)
    counts = {f"COUNT_{c.upper()}": int(k) for c, k in zip(letters, repeats, strict=True)}
    parameters = [f"{tensor(own, x.dtype)} X", *(f"const int {name}" for name in counts)]
    made = general.definition(
        general.typed(f"repeat_{len(x.shape)}d_to_{len(n.shape)}d", x.dtype),
        parameters,
        "Y",
        [f"{at('Y', letters)} = {read} where {ranges}"],
    )
    return b.call(n, made, [x], **counts)


@rule("aten.flip.default")
def flip(b: Builder, n: Node, *, x: Value, dims: Sequence[int]) -> Value:
    letters, axes = indices(len(x.shape)), _axes(x, dims)
    read = at("X", [f"{c.upper()}-1-{c}" if k in axes else c for k, c in enumerate(letters)])
    ranges = ", ".join(f"{c} in 0:{c.upper()}" for c in letters)
    name = general.typed(f"flip_{len(letters)}d_along_{''.join(letters[k] for k in axes)}", x.dtype)
    made = general.definition(
        name, [f"{tensor(letters, x.dtype)} X"], "Y", [f"{at('Y', letters)} = {read} where {ranges}"]
    )
    return b.call(n, made, [x])


@rule("aten.index_select.default")
def index_select(b: Builder, n: Node, *, x: Value, dim: int, index: Value) -> Value:
    return gathered(b, n, x, dim % len(x.shape), index)


@rule("aten.index.Tensor")
def index(b: Builder, n: Node, *, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    if any(one.dtype == "bool" for _, one in given):
        raise n.refuse("takes elements by truth values", "tensors of places are known")
    if len(given) == 1 and len(given[0][1].shape) == 1:
        return gathered(b, n, x, *given[0])
    return _gathered_together(b, n, x, given)


def _gathered_together(b: Builder, n: Node, x: Value, given: Sequence[tuple[int, Value]]) -> Value:
    """Elements at places that several tensors, or one of several axes, say together."""
    axes = [axis for axis, _ in given]
    together = np.broadcast_shapes(*(one.shape for _, one in given))
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    whole = [*indices(len(n.shape))]
    inner = whole[first : first + len(together)]
    rest = iter([*whole[:first], *whole[first + len(together) :]])
    extents, subscripts, operands, parameters = [], [], [x], []
    for axis in range(len(x.shape)):
        if axis not in axes:
            extents.append(next(rest))
            subscripts.append(extents[-1])
            continue
        places = from_the_start(b, n, given[axes.index(axis)][1], axis, x.shape[axis])
        own = inner[len(inner) - len(places.shape) :]
        lengths = together[len(together) - len(places.shape) :]
        apart = ["1" if e == 1 != length else c for c, e, length in zip(own, places.shape, lengths, strict=True)]
        extents.append(f"X{axis}")
        subscripts.append(at(f"P{axis}", ["0" if c == "1" else c for c in apart]))
        operands.append(places)
        parameters.append((f"{tensor(apart, places.dtype)} P{axis}", "".join(apart).replace("1", "o") or "s"))
    told = "_".join(
        f"{axis}by_{letters}_{one.dtype}" for (axis, one), (_, letters) in zip(given, parameters, strict=True)
    )
    name = general.typed(f"gather_{len(x.shape)}d_{told}", x.dtype)
    every = [f"{tensor(extents, x.dtype)} X", *(parameter for parameter, _ in parameters)]
    made = general.definition(name, every, "Y", [f"{at('Y', whole)} = {at('X', subscripts)}"])
    return b.call(n, made, operands)


def from_the_start(b: Builder, n: Node, places: Value, axis: int, extent: int) -> Value:
    """Places that are known, counted from the start.  Raises NetworkError where they are outside."""
    if (known := b.known(places)) is None:
        return places
    outside = known[(known < -extent) | (known >= extent)]
    if outside.size:
        raise n.refuse(f"takes the place {outside.flat[0]} of {extent} along axis {axis}")
    return b.weight(f"{n.name}_places{axis}", np.mod(known, extent).astype(np.int64))


def gathered(b: Builder, n: Node, x: Value, axis: int, places: Value) -> Value:
    """Slices in the order that a row of places says; those that are known may count from the end."""
    places = from_the_start(b, n, places, axis, x.shape[axis])
    letters = indices(len(x.shape))
    read = at("X", [f"P({c})" if k == axis else c for k, c in enumerate(letters)])
    name = general.typed(f"gather_{len(letters)}d_axis{axis}_{places.dtype}", x.dtype)
    extents = ["R" if k == axis else c for k, c in enumerate(letters)]
    head = f"def {name}({tensor(extents, x.dtype)} X, {places.dtype}({letters[axis].upper()}) P) -> (Y)"
    return b.call(n, Definition(name, f"{head} {{ {at('Y', letters)} = {read} }}"), [x, places])


@rule("aten.log_softmax.int")
def log_softmax(b: Builder, n: Node, *, x: Value, dim: int, dtype: Any) -> Value:
    if dtype is not None and str(dtype) != f"torch.{x.dtype}":
        raise n.refuse("changes the element type")
    return b.call(n, general.log_softmax(len(x.shape), dim % len(x.shape)), [x])


@rule("aten.cumsum.default")
def cumsum(b: Builder, n: Node, *, x: Value, dim: int, dtype: Any) -> Value:
    return running(b, n, x, dim, "+")


def running(b: Builder, n: Node, x: Value, dim: int, symbol: str) -> Value:
    """Sums or products of all elements up to each, which are converted to the type of the result first."""
    rank = len(x.shape)
    return b.call(n, general.running(rank, dim % rank, symbol, False, False, n.dtype), [promoted(b, n, x)])


def promoted(b: Builder, n: Node, x: Value) -> Value:
    """Elements as those of the type of a node's result: integers and truth values are added up in 64 bits."""
    if x.dtype == n.dtype:
        return x
    inner = replace(n, name=f"{n.name}_{n.dtype}", shape=x.shape)
    return b.call(inner, general.conversion(len(x.shape), x.dtype, n.dtype), [x])


_PLAIN = ("ceil", "floor", "tan", "atan", "asin", "acos", "sinh", "cosh", "log1p", "expm1", "sign")


@rule(*(f"aten.{name}.default" for name in _PLAIN))
def function(b: Builder, n: Node, *, x: Value) -> Value:
    name = n.operator.split(".")[1]
    return b.call(n, pointwise(name, f"{name}({{a}})", _typed(x), n.shape, n.dtype), [x])


def _typed(*values: Value) -> list[tuple[Sequence[int], str]]:
    return [(value.shape, value.dtype) for value in values]


def _axes(x: Value, dim: Sequence[int] | None) -> list[int]:
    rank = len(x.shape)
    return sorted({axis % rank for axis in dim}) if dim else list(range(rank))


def _inner(n: Node, label: str, shape: Sequence[int]) -> Node:
    return replace(n, name=f"{n.name}_{label}", shape=tuple(shape))
