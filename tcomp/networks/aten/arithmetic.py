"""Rules for PyTorch's functions of elements that few networks have, and for arithmetic of integers and truth values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tcomp.networks.aten import integers
from tcomp.networks.aten.choosing import converted, promoted, running
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import general
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, pointwise, spelled, tensor

_SYMBOLS = {"add": "+", "mul": "*", "sub": "-", "div": "/"}

_FUNCTIONS = {
    "exp2": "exp2({a})",
    "log2": "log2({a})",
    "log10": "log10({a})",
    "trunc": "trunc({a})",
    "frac": "{a} - trunc({a})",
    "isnan": "{a} != {a}",
    "isinf": "abs({a}) == 1.0 / 0.0",
    "isfinite": "abs({a}) < 1.0 / 0.0",
    "acosh": "acosh({a})",
    "asinh": "asinh({a})",
    "atanh": "atanh({a})",
    "erfc": "erfc({a})",
    "lgamma": "lgamma({a})",
    "digamma": "digamma({a})",
}


def mixed(b: Builder, n: Node, name: str, x: Value, other: Value | float, alpha: float = 1) -> Value:
    """Arithmetic whose operands are converted to the type of the result first."""
    if n.dtype == "bool":
        raise n.refuse("adds or multiplies truth values", "logical_and and logical_or are known")
    kind, symbol = spelled(n.dtype), _SYMBOLS[name]
    factor = "" if alpha == 1 else f"{kind}({alpha!r}) * "
    if isinstance(other, Value):
        body = f"{kind}({{a}}) {symbol} {factor}{kind}({{b}})"
        operands = [(x.shape, x.dtype), (other.shape, other.dtype)]
        return b.call(n, pointwise(f"{name}_as_{n.dtype}", body, operands, n.shape, n.dtype), [x, other])
    body = f"{kind}({{a}}) {symbol} {factor}y"
    number = float(other) if n.dtype.startswith("float") else int(other)
    made = pointwise(f"{name}_number_as_{n.dtype}", body, [(x.shape, x.dtype)], n.shape, n.dtype, {"y": n.dtype})
    return b.call(n, made, [x], y=number)


def beside_number(b: Builder, n: Node, name: str, number: float, x: Value, alpha: float = 1) -> Value:
    """Arithmetic of a number on the left and elements, which are converted to the type of the result first."""
    if n.dtype == "bool":
        raise n.refuse("adds or multiplies truth values", "logical_and and logical_or are known")
    kind = spelled(n.dtype)
    factor = "" if alpha == 1 else f"{kind}({alpha!r}) * "
    element = "{a}" if x.dtype == n.dtype else f"{kind}({{a}})"
    body, kinds = f"y {_SYMBOLS[name]} {factor}{element}", [(x.shape, x.dtype)]
    made = pointwise(f"{name}_to_number_as_{n.dtype}", body, kinds, n.shape, n.dtype, {"y": n.dtype})
    return b.call(n, made, [x], y=float(number) if n.dtype.startswith("float") else int(number))


def total(b: Builder, n: Node, x: Value, axes: Sequence[int], keep: bool) -> Value:
    """The sum of elements that are converted to the type of the result first."""
    name, body = f"sum_as_{n.dtype}", f"{spelled(n.dtype)}({{x}})"
    return b.call(n, general.reduction(name, "+=!", body, "", len(x.shape), axes, keep, x.dtype), [x])


def bounded(b: Builder, n: Node, x: Value, low: float | None, high: float | None) -> Value:
    """Integers kept between two numbers, of which one may be missing."""
    ends = {name: int(end) for name, end in (("max", low), ("min", high)) if end is not None}
    if (
        n.dtype != x.dtype
        or not ends
        or any(
            end != given for end, given in zip(ends.values(), (g for g in (low, high) if g is not None), strict=True)
        )
    ):
        raise n.refuse(f"takes {x.dtype} and gives {n.dtype}")
    body = "{a}"
    for name in ends:
        body = f"{name}({body}, {'low' if name == 'max' else 'high'})"
    numbers = {"low" if name == "max" else "high": end for name, end in ends.items()}
    kinds = dict.fromkeys(numbers, x.dtype)
    made = pointwise("clamp_" + "_".join(ends), body, [(x.shape, x.dtype)], n.shape, n.dtype, kinds)
    return b.call(n, made, [x], **numbers)


@rule(*(f"aten.{name}.default" for name in _FUNCTIONS))
def function(b: Builder, n: Node, *, x: Value) -> Value:
    name = n.operator.split(".")[1]
    if x.dtype != "float32":
        raise n.refuse(f"takes {x.dtype}", "float32 is known")
    return b.call(n, pointwise(name, _FUNCTIONS[name], [(x.shape, x.dtype)], n.shape, n.dtype), [x])


@rule("aten.pow.Tensor_Tensor", "aten.hypot.default", "aten.xlogy.Tensor")
def two(b: Builder, n: Node, *, x: Value, exponent: Value | None = None, other: Value | None = None) -> Value:
    second = exponent if other is None else other
    assert second is not None
    name = n.operator.split(".")[1]
    body = {"xlogy": "{a} == 0.0 && {b} == {b} ? 0.0 : {a} * log({b})"}.get(name, f"{name}({{a}}, {{b}})")
    return b.call(
        n, pointwise(name, body, [(x.shape, x.dtype), (second.shape, second.dtype)], n.shape, n.dtype), [x, second]
    )


@rule("aten.pow.Scalar")
def power_of_number(b: Builder, n: Node, *, x: float, exponent: Value) -> Value:
    exponent = promoted(b, n, exponent)
    kind, read, number = general.number("y", x, n.dtype)
    body, kinds = f"pow({read}, {{a}})", [(exponent.shape, exponent.dtype)]
    return b.call(n, pointwise("power_of", body, kinds, n.shape, n.dtype, {"y": kind}), [exponent], y=number)


@rule("aten.clamp.Tensor", "aten.clamp_min.Tensor", "aten.clamp_max.Tensor")
def clamp(b: Builder, n: Node, *, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    bounds = [(name, bound) for name, bound in (("max", low), ("min", high)) if bound is not None]
    if not bounds:
        raise n.refuse("has no bound")
    body, letters = "{a}", "bc"
    for (name, _), letter in zip(bounds, letters, strict=False):
        body = f"{name}({body}, {{{letter}}})"
    operands = [x, *(bound for _, bound in bounds)]
    kinds = [(one.shape, one.dtype) for one in operands]
    made = pointwise("clamp_" + "_".join(name for name, _ in bounds), body, kinds, n.shape, n.dtype)
    return b.call(n, made, operands)


@rule("aten.bitwise_xor.Tensor", "aten.logical_xor.default")
def either(b: Builder, n: Node, *, x: Value, other: Value) -> Value:
    if n.operator.startswith("aten.bitwise") and "bool" not in (x.dtype, other.dtype):
        return integers.bits(b, n, "xor", x, other)
    if (x.dtype, other.dtype) != ("bool", "bool"):
        raise n.refuse(f"takes {x.dtype} and {other.dtype}", "truth values are known")
    kinds = [(x.shape, x.dtype), (other.shape, other.dtype)]
    return b.call(n, pointwise("xor", "{a} != {b}", kinds, n.shape, "bool"), [x, other])


@rule("aten.cumprod.default")
def cumprod(b: Builder, n: Node, *, x: Value, dim: int, dtype: Any) -> Value:
    return running(b, n, x, dim, "*")


@rule("aten.any.dim", "aten.any.dims", "aten.any.default", "aten.all.dim", "aten.all.dims", "aten.all.default")
def some(b: Builder, n: Node, *, x: Value, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """Whether some elements along some axes, or all of them, are true; along no axes, whether each one is."""
    if dim == []:
        return converted(b, n, x=x)
    name, rank = n.operator.split(".")[1], len(x.shape)
    given = [dim] if isinstance(dim, int) else list(dim or range(rank))
    axes, true = sorted({axis % rank for axis in given}), "{x}" if x.dtype == "bool" else "({x} != 0)"
    body, after = (true, "") if name == "any" else (f"!{true}", "!{y}")
    return b.call(n, general.reduction(name, "+=!", body, after, rank, axes, keepdim, x.dtype), [x])


@rule("aten.bucketize.Tensor", "aten.searchsorted.Tensor")
def places_among(
    b: Builder,
    n: Node,
    *,
    x: Value | None = None,
    boundaries: Value | None = None,
    sorted_sequence: Value | None = None,
    right: bool,
    **given: Any,
) -> Value:
    """How many numbers of a sorted row are below each element, or not above it."""
    limits, elements = (boundaries, x) if sorted_sequence is None else (sorted_sequence, x)
    rank = len(n.shape)
    if limits is None or elements is None or len(limits.shape) != 1 or given.get("sorter") is not None:
        raise n.refuse("looks for places in several rows", "one row is known")
    if given.get("side") not in (None, "left", "right"):
        raise n.refuse(f"has the side {given['side']}")
    letters, symbol = [*indices(rank)], ">" if right or given.get("side") == "right" else ">="
    # NaN stands behind all numbers, so that no comparison with it may be one that must hold.
    body = f"{n.dtype}(!(limits(k) {symbol} {at('X', letters)}))"
    parameters = [f"{tensor(letters, elements.dtype)} X", f"{tensor(['k'], limits.dtype)} limits"]
    side = "right" if symbol == ">" else "left"
    name = general.typed(f"places_among_{rank}d_{side}{'_int32' * (n.dtype == 'int32')}", elements.dtype)
    return b.call(n, definition(name, parameters, "Y", [f"{at('Y', letters)} +=! {body}"]), [elements, limits])
