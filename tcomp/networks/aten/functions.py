"""More rules for PyTorch's functions of elements, sums over axes, and elements that a tensor of places chooses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tcomp.networks.aten import integers
from tcomp.networks.aten.choosing import promoted
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import general
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, pointwise, tensor


@rule("aten.round.default")
def rounded(b: Builder, n: Node, *, x: Value) -> Value:
    """To the nearest whole number, halves to the even one."""
    body, lets = general.ROUNDED, general.ROUNDING.format(x="{a}")
    return b.call(n, pointwise("round", body, [(x.shape, x.dtype)], n.shape, n.dtype, None, lets), [x])


@rule("aten.round.decimals")
def rounded_to(b: Builder, n: Node, *, x: Value, decimals: int) -> Value:
    """To so many digits behind the point, or, for a negative number, in front of it."""
    first, last = ("*", "/") if decimals > 0 else ("/", "*")
    lets = general.ROUNDING.format(x=f"({{a}} {first} power)")
    body = f"({general.ROUNDED}) {last} power"
    made = pointwise(
        f"round_{'to' if decimals > 0 else 'before'}_digit",
        body,
        [(x.shape, x.dtype)],
        n.shape,
        n.dtype,
        {"power": "float32"},
        lets,
    )
    return b.call(n, made, [x], power=10.0 ** abs(decimals))


@rule("aten.rrelu.default")
def rrelu(b: Builder, n: Node, *, x: Value, lower: float, upper: float, training: bool, **_: Any) -> Value:
    """With the mean of the slopes that are drawn in training."""
    if training:
        raise n.refuse("draws slopes")
    body = "{a} >= 0 ? {a} : slope * {a}"
    made = pointwise("rrelu", body, [(x.shape, x.dtype)], n.shape, n.dtype, {"slope": "float32"})
    return b.call(n, made, [x], slope=(lower + upper) / 2)


@rule("aten.atan2.default")
def atan2(b: Builder, n: Node, *, x: Value, other: Value) -> Value:
    return _two(b, n, "atan2", "atan2({a}, {b})", x, other)


@rule("aten.fmax.default", "aten.fmin.default", "aten.copysign.Tensor", "aten.copysign.Scalar")
def intrinsic(b: Builder, n: Node, *, x: Value, other: Value | float) -> Value:
    """What the language calls so, too."""
    name = n.operator.split(".")[1]
    return _two(b, n, name, f"{name}({{a}}, {{b}})", x, other)


@rule("aten.remainder.Scalar", "aten.remainder.Tensor", "aten.fmod.Scalar", "aten.fmod.Tensor")
def remainder(b: Builder, n: Node, *, x: Value, other: Value | float) -> Value:
    """What is left of a division that is rounded down, or, for ``fmod``, towards 0."""
    if integers.are_integers(x, other):
        return integers.remainder(b, n, x, other, n.operator.startswith("aten.fmod"))
    if n.operator.startswith("aten.fmod"):
        return _two(b, n, "fmod", "fmod({a}, {b})", x, other)
    # The sign is the divisor's, as in Python.
    body = "r != 0 && (r < 0) != ({b} < 0) ? r + {b} : r"
    return _two(b, n, "remainder", body, x, other, "r = fmod({a}, {b})")


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide.default", "aten.floor_divide.Scalar")
def divided(b: Builder, n: Node, *, x: Value, other: Value | float, rounding_mode: str | None = "floor") -> Value:
    if rounding_mode is not None and integers.are_integers(x, other):
        body, lets = integers.QUOTIENTS[rounding_mode]
        return integers.computed(b, n, f"divide_{rounding_mode}_of_integers", body, [x, other], lets)
    if rounding_mode == "floor":
        return _two(b, n, "divide_floor", _FLOORED, x, other, _FLOORING)
    body = {None: "{a} / {b}", "trunc": "trunc({a} / {b})"}[rounding_mode]
    return _two(b, n, f"divide_{rounding_mode or 'plain'}", body, x, other)


_FLOORING = "r = fmod({a}, {b}), q = ({a} - r) / {b} - (r != 0 && (r < 0) != ({b} < 0) ? 1.0 : 0.0), low = floor(q)"
_FLOORED = "{b} == 0 ? {a} / {b} : q - low > 0.5 ? low + 1.0 : low"
"""Rounded down as Python does, from the remainder: `1.0 // 0.1` is 9, though the quotient rounds to 10."""


def _two(b: Builder, n: Node, name: str, body: str, x: Value, other: Value | float, lets: str = "") -> Value:
    """A function of an element and another one, or a number."""
    if x.dtype != "float32" or (isinstance(other, Value) and other.dtype != "float32"):
        raise n.refuse(f"takes {x.dtype}", "float32 is known")
    if isinstance(other, Value):
        kinds = [(x.shape, x.dtype), (other.shape, other.dtype)]
        return b.call(n, pointwise(name, body, kinds, n.shape, n.dtype, None, lets), [x, other])
    body, lets = (text.replace("{b}", "y") for text in (body, lets))
    made = pointwise(f"{name}_number", body, [(x.shape, x.dtype)], n.shape, n.dtype, {"y": x.dtype}, lets)
    return b.call(n, made, [x], y=float(other))


@rule("aten.prod.dim_int", "aten.prod.default")
def product(b: Builder, n: Node, *, x: Value, dim: int | None = None, keepdim: bool = False, dtype: Any) -> Value:
    rank = len(x.shape)
    axes = [dim % rank] if dim is not None else list(range(rank))
    definition = general.reduction("prod", "*=!", "{x}", "", rank, axes, keepdim, n.dtype)
    return b.call(n, definition, [promoted(b, n, x)])


@rule("aten.logsumexp.default")
def logsumexp(b: Builder, n: Node, *, x: Value, dim: Sequence[int], keepdim: bool = False) -> Value:
    """Shifted by the largest element, so that nothing overflows."""
    x, rank = promoted(b, n, x), len(x.shape)
    axes = sorted({axis % rank for axis in dim}) if dim else list(range(rank))
    symbol, body, after, first = general.LOG_SUM_EXP
    return b.call(n, general.reduction("log_sum_exp", symbol, body, after, rank, axes, keepdim, x.dtype, first), [x])


@rule("aten.gather.default")
def gather(b: Builder, n: Node, *, x: Value, dim: int, index: Value, **_: Any) -> Value:
    """``Y(i,j) = X(P(i,j),j)`` along the axis ``dim``."""
    letters = indices(len(x.shape))
    axis = dim % len(letters)
    kind, place = index.dtype, at("P", [*letters])
    extents = ["Z" if k == axis else f"X{k}" for k in range(len(letters))]
    read = at("X", [place if k == axis else c for k, c in enumerate(letters)])
    parameters = [f"{tensor(extents, x.dtype)} X", f"{tensor(letters, kind)} P"]
    made = definition(
        general.typed(f"gather_elements_{len(letters)}d_axis{axis}_{kind}", x.dtype),
        parameters,
        "Y",
        [f"{at('Y', [*letters])} = {read}"],
    )
    return b.call(n, made, [x, index])


_NORMS = {
    0.0: ("+=!", "({d} == 0 ? 0.0 : {d} == {d} ? 1.0 : {d})", ""),
    1.0: ("+=!", "abs({d})", ""),
    2.0: ("+=!", "{d} * {d}", "sqrt({y})"),
    math.inf: ("max=!", "abs({d})", "max({y}, 0.0)"),
}
"""How differences are combined, what of each, and what is done to the result."""


@rule("aten.cdist.default")
def cdist(b: Builder, n: Node, *, x1: Value, x2: Value, p: float = 2.0, **_: Any) -> Value:
    """The distance of each row of one tensor from each row of another, from their differences."""
    rank = len(x1.shape)
    if p not in _NORMS or rank != len(x2.shape) or x1.shape[:-2] != x2.shape[:-2]:
        raise n.refuse(
            f"takes {x1.shape} and {x2.shape} by the norm {p:g}", "known are 0, 1, 2 and inf, for equal batches"
        )
    batch = [*indices(rank - 2)]
    difference = f"({at('X', [*batch, 'm', 'k'])} - {at('V', [*batch, 'n', 'k'])})"
    result = at("Y", [*batch, "m", "n"])
    parameters = [f"{tensor([*batch, 'm', 'k'])} X", f"{tensor([*batch, 'n', 'k'])} V"]
    symbol, body, after = _NORMS[p]
    lines = [f"{result} {symbol} {body.format(d=difference)}"]
    lines += [f"{result}  =  {after.format(y=result)}"] * bool(after)
    name = f"cdist_{rank}d" if p == 2 else f"cdist_{rank}d_norm_{p:g}"
    return b.call(n, definition(name, parameters, "Y", lines), [x1, x2])
