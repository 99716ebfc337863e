"""Rules for functions of elements."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcomp.networks.importing import rule
from tcomp.networks.network import Value
from tcomp.networks.onnx.operands import FLOATS, Constant, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts import elements
from tcomp.networks.texts import general as texts
from tcomp.networks.texts.general import ROUNDED, ROUNDING, pointwise

_PLAIN: tuple[str, ...] = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "floor",
    "log",
    "sin",
)
_PLAIN += ("sinh", "sqrt", "tan", "tanh", "sigmoid")

UNARY = {
    **{f"onnx.{name.capitalize()}": f"{name}({{a}})" for name in _PLAIN},
    "onnx.HardSwish": elements.UNARY["hardswish"].format(x="{a}"),
    "onnx.Mish": elements.UNARY["mish"].format(x="{a}"),
    "onnx.Softplus": elements.UNARY["softplus"].format(x="{a}"),
    "onnx.Softsign": "{a} / (1.0 + abs({a}))",
    "onnx.Reciprocal": "1.0 / {a}",
}
"""Functions of floats."""

ANY = {
    "onnx.Abs": "abs({a})",
    "onnx.Neg": "-{a}",
    "onnx.Relu": "relu({a})",
    "onnx.Sign": "sign({a})",
    "onnx.BitwiseNot": "~{a}",
    "onnx.Not": "!{a}",
}
"""Functions of numbers."""

TESTS = {"onnx.IsNaN": "{a} != {a}"}
COMPARISONS = {"Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}
LOGIC = {"And": "&&", "Or": "||", "Xor": "!="}
BITS = {"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^"}
ARITHMETIC = {"Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide"}

WITH_NUMBERS = {
    "Elu": ("{a} > 0 ? {a} : alpha * expm1({a})", ("alpha",)),
    "Celu": ("{a} > 0 ? {a} : alpha * expm1({a} / alpha)", ("alpha",)),
    "Selu": ("{a} > 0 ? gamma_ * {a} : gamma_ * alpha * expm1({a})", ("alpha", "gamma")),
    "LeakyRelu": ("{a} > 0 ? {a} : alpha * {a}", ("alpha",)),
    "ThresholdedRelu": ("{a} > alpha ? {a} : 0.0", ("alpha",)),
    "HardSigmoid": ("clamp(alpha * {a} + beta, 0, 1)", ("alpha", "beta")),
    "Shrink": ("{a} < -lambd ? {a} + bias : ({a} > lambd ? {a} - bias : 0.0)", ("bias", "lambd")),
    "Swish": ("{a} * sigmoid(alpha * {a})", ("alpha",)),
}
"""Functions of an element and of attributes."""


def told(n: OnnxNode) -> str:
    """The operator's name as a def's."""
    name = n.operator.rpartition(".")[2]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def apply(
    b: OnnxBuilder,
    n: OnnxNode,
    name: str,
    body: str,
    operands: Sequence[Operand],
    lets: str = "",
    **numbers: float,
) -> Value:
    """A function of elements; floats of 16 bits are computed as float32 and converted."""
    half = "float16" in {n.dtype, *(x.dtype for x in operands)}
    kind = "float32" if half or n.dtype not in FLOATS else n.dtype
    typed = dict.fromkeys(numbers, kind)
    shapes = [(x.shape, x.dtype) for x in operands]
    widened = {c: f"float({{{c}}})" for c, x in zip("abcdefghijklmnop", operands, strict=False) if x.dtype == "float16"}
    for c, wide in widened.items():
        body, lets = body.replace(f"{{{c}}}", wide), lets.replace(f"{{{c}}}", wide)
    return b.call(n, pointwise(name, body, shapes, n.shape, n.dtype, typed, lets), operands, **numbers)


@rule(*UNARY)
def unary(b: OnnxBuilder, n: OnnxNode, **given: Operand) -> Value:
    (x,) = (operand for operand in given.values() if operand is not None)
    if x.dtype not in FLOATS:
        raise n.refuse(f"takes {x.dtype}")
    return apply(b, n, told(n), UNARY[n.operator], [x])


@rule(*ANY)
def any_unary(b: OnnxBuilder, n: OnnxNode, **given: Operand) -> Value:
    (x,) = given.values()
    if x.dtype.startswith("uint") and n.operator in ("onnx.Abs", "onnx.Relu"):
        return b.call(n, pointwise("copy", "{a}", [(x.shape, x.dtype)], n.shape, n.dtype), [x])
    if x.dtype == "float32" and n.operator != "onnx.Sign":
        name = told(n)
        return b.call(n, elements.unary(name, len(x.shape)), [x])
    body = "{a} != 0 ? 1 : 0" if x.dtype.startswith("uint") and n.operator == "onnx.Sign" else ANY[n.operator]
    return apply(b, n, told(n), body, [x])


@rule("onnx.Round")
def nearest(b: OnnxBuilder, n: OnnxNode, *, X: Operand) -> Value:
    return apply(b, n, "round", ROUNDED, [X], ROUNDING.format(x="{a}"))


@rule(*TESTS)
def test(b: OnnxBuilder, n: OnnxNode, *, X: Operand) -> Value:
    return apply(b, n, told(n), TESTS[n.operator], [X])


@rule("onnx.IsInf")
def is_infinite(b: OnnxBuilder, n: OnnxNode, *, X: Operand, detect_negative: int, detect_positive: int) -> Value:
    signs = [sign for sign, wanted in (("-", detect_negative), ("", detect_positive)) if wanted]
    body = " || ".join(f"{{a}} == {sign}1.0 / 0.0" for sign in signs) or "{a} != {a} && {a} == {a}"
    return apply(b, n, "is_inf" + "".join("_negative" if sign else "_positive" for sign in signs), body, [X])


@rule("onnx.Identity", "onnx.Dropout")
def same(b: OnnxBuilder, n: OnnxNode, **given: Any) -> Operand | list[Operand | None]:
    x = next(iter(given.values()))
    if n.operator == "onnx.Identity":
        return [x]
    training = n.known(given.get("training_mode"), "a mode")
    if training is not None and bool(np.ravel(training)[0]) and _ratio(n, given) > 0:
        raise n.refuse("drops elements")
    return [x, Constant(f"{n.name}_mask", np.ones(x.shape, np.bool_))]


def _ratio(n: OnnxNode, given: dict[str, Any]) -> float:
    ratio = n.known(given.get("ratio"), "a ratio")
    return 0.5 if ratio is None else float(np.ravel(ratio)[0])


@rule(*(f"onnx.{name}" for name in WITH_NUMBERS))
def with_numbers(b: OnnxBuilder, n: OnnxNode, **given: Any) -> Value:
    body, names = WITH_NUMBERS[n.operator.rpartition(".")[2]]
    x = next(value for value in given.values() if isinstance(value, (Value, Constant)))
    numbers = {"gamma_" if name == "gamma" else name: float(given[name]) for name in names}
    return apply(b, n, told(n), body, [x], "", **numbers)


@rule("onnx.Gelu")
def gelu(b: OnnxBuilder, n: OnnxNode, *, X: Operand, approximate: str) -> Value:
    name = "gelu_tanh" if approximate == "tanh" else "gelu"
    return b.floats(n, elements.unary(name, len(X.shape)), [X])


@rule("onnx.PRelu")
def prelu(b: OnnxBuilder, n: OnnxNode, *, X: Operand, slope: Operand) -> Value:
    return apply(b, n, "prelu", "{a} < 0 ? {b} * {a} : {a}", [X, slope])


def number_of(operand: Operand) -> float | int | None:
    """An operand of one element that can be written as a number."""
    if not isinstance(operand, Constant) or operand.array.size != 1 or operand.dtype == "bool":
        return None
    value = operand.array.reshape(()).item()
    return value if math.isfinite(value) else None


@rule(*(f"onnx.{name}" for name in ARITHMETIC))
def arithmetic(b: OnnxBuilder, n: OnnxNode, *, A: Operand, B: Operand) -> Value:
    name = ARITHMETIC[n.operator.rpartition(".")[2]]
    symbol = elements.BINARY[name]
    number = number_of(B)
    if n.dtype == "float32" and number is not None and A.shape == n.shape:
        return b.call(n, elements.with_number(name, len(A.shape)), [A], y=float(number))
    if n.dtype == "float32" and not isinstance(A, Constant):
        return b.call(n, elements.binary(name, A.shape, B.shape), [A, B])
    if name == "divide" and n.dtype.startswith("int"):
        body = "({a} < 0) != ({b} < 0) ? -(abs({a}) / abs({b})) : abs({a}) / abs({b})"
        return apply(b, n, name, body, [A, B])
    return apply(b, n, name, f"{{a}} {symbol} {{b}}", [A, B])


@rule(*(f"onnx.{name}" for name in (*COMPARISONS, *LOGIC, *BITS)))
def compared(b: OnnxBuilder, n: OnnxNode, *, A: Operand, B: Operand) -> Value:
    symbol = (COMPARISONS | LOGIC | BITS)[n.operator.rpartition(".")[2]]
    return apply(b, n, told(n), f"{{a}} {symbol} {{b}}", [A, B])


@rule("onnx.BitShift")
def shifted(b: OnnxBuilder, n: OnnxNode, *, X: Operand, Y: Operand, direction: str) -> Value:
    symbol = "<<" if direction == "LEFT" else ">>"
    return apply(b, n, f"shift_{direction.lower()}", f"{{a}} {symbol} {{b}}", [X, Y])


@rule("onnx.Mod")
def modulo(b: OnnxBuilder, n: OnnxNode, *, A: Operand, B: Operand, fmod: int) -> Value:
    if n.dtype in FLOATS and fmod:
        return apply(b, n, "fmod", "fmod({a}, {b})", [A, B])
    if n.dtype in FLOATS:
        # The sign is the divisor's, as in Python; of 0, too.
        body = "r == 0 ? copysign(0.0, {b}) : ((r < 0) != ({b} < 0) ? r + {b} : r)"
        return apply(b, n, "mod", body, [A, B], "r = fmod({a}, {b})")
    if fmod and n.dtype.startswith("int"):
        return apply(b, n, "fmod", "{a} < 0 ? -(abs({a}) % abs({b})) : {a} % abs({b})", [A, B])
    return apply(b, n, "mod", "{a} % {b}", [A, B])


@rule("onnx.Pow")
def power(b: OnnxBuilder, n: OnnxNode, *, X: Operand, Y: Operand) -> Value:
    number = number_of(Y)
    if number == 2:
        return apply(b, n, "square", "{a} * {a}", [X])
    if number == 0.5 and n.dtype in FLOATS:
        return apply(b, n, "sqrt", "sqrt({a})", [X])
    if number is not None and n.dtype == "float32":
        return b.call(n, elements.with_number("power", len(X.shape)), [X], y=float(number))
    base, exponent = ("{a}", "{b}") if n.dtype in FLOATS else ("double({a})", "double({b})")
    if Y.dtype not in FLOATS or X.dtype not in FLOATS:
        exponent = f"{'double' if n.dtype == 'float64' or X.dtype not in FLOATS else 'float'}({{b}})"
    return apply(b, n, "pow", f"pow({base}, {exponent})", [X, Y])


@rule("onnx.Max", "onnx.Min", "onnx.Sum", "onnx.Mean")
def variadic(b: OnnxBuilder, n: OnnxNode, **given: Sequence[Operand]) -> Value | Operand:
    (operands,) = given.values()
    if len(operands) > 12:
        raise n.refuse(f"takes {len(operands)} operands, at most 12 are known")
    name = told(n)
    letters = [f"{{{c}}}" for c in "abcdefghijkl"[: len(operands)]]
    if name in ("max", "min"):
        body = letters[0]
        for letter in letters[1:]:
            body = f"{name}({body}, {letter})"
    else:
        body = " + ".join(letters)
        body = f"({body}) / {float(len(operands))}" if name == "mean" else body
    return apply(b, n, f"{name}_of_{len(operands)}", body, operands)


@rule("onnx.Where")
def where(b: OnnxBuilder, n: OnnxNode, *, condition: Operand, X: Operand, Y: Operand) -> Value:
    return apply(b, n, "where", "{a} ? {b} : {c}", [condition, X, Y])


@rule("onnx.Clip")
def clip(
    b: OnnxBuilder, n: OnnxNode, *, x: Operand, low: Operand | None, high: Operand | None
) -> Value | list[Operand]:
    bounds = [bound for bound in (low, high) if bound is not None]
    numbers = [number_of(bound) for bound in bounds]
    if not bounds:
        return [x]
    if n.dtype == "float32" and None not in numbers and len(bounds) == 2:
        if numbers == [0, 6]:
            return b.call(n, elements.unary("relu6", len(x.shape)), [x])
        return b.call(n, elements.clip(len(x.shape)), [x], lo=numbers[0] or 0.0, hi=numbers[1] or 0.0)
    if len(bounds) == 2:
        return apply(b, n, "clip", "min(max({a}, {b}), {c})", [x, *bounds])
    name, function = ("at_least", "max") if high is None else ("at_most", "min")
    return apply(b, n, name, f"{function}({{a}}, {{b}})", [x, *bounds])


@rule("onnx.Cast", "onnx.CastLike")
def cast(b: OnnxBuilder, n: OnnxNode, *, x: Operand, **_: Any) -> Value | list[Operand]:
    if x.dtype == n.dtype:
        return [x]
    return b.call(n, texts.conversion(len(x.shape), x.dtype, n.dtype), [x])
