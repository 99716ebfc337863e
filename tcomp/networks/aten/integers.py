"""PyTorch's arithmetic of integers: signs, powers, quotients, bits.

A quotient by 0 is 0, as in the language; PyTorch raises an error there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts.general import pointwise, spelled

Operand = Value | float

_MOST_FACTORS = 16
_TOWARDS_ZERO = "({a} - r) / {b}"
_REST = "r = {a} % {b} != 0 && ({a} < 0) != ({b} < 0) ? {a} % {b} - {b} : {a} % {b}"
"""What ``fmod`` leaves; ``%`` of the language has the sign of the divisor."""

QUOTIENTS = {"floor": ("{a} / {b}", ""), "trunc": (_TOWARDS_ZERO, _REST)}
_BITS = {"and": "&", "or": "|", "xor": "^", "left_shift": "<<", "right_shift": ">>"}
_OF_TRUTH = {"and": "{a} && {b}", "or": "{a} || {b}", "xor": "{a} != {b}"}
_SPELLED = {"__and__": "and", "__or__": "or", "__xor__": "xor", "__lshift__": "left_shift", "__rshift__": "right_shift"}
_SHIFTED = [f"aten.{name}.{kind}" for name in ("__lshift__", "__rshift__") for kind in ("Scalar", "Tensor")]
_SHIFTED += [f"aten.bitwise_{s}_shift.{kind}" for s in ("left", "right") for kind in ("Tensor", "Tensor_Scalar")]
_NUMBERED = [f"aten.bitwise_{name}.Scalar" for name in ("and", "or", "xor")]
_NUMBERED += [f"aten.{name}.{kind}" for name in ("__and__", "__or__", "__xor__") for kind in ("Scalar", "Tensor")]


def are_integers(*operands: Operand) -> bool:
    """Whether these are tensors of integers, and numbers beside them."""
    kinds = {one.dtype if isinstance(one, Value) else type(one).__name__ for one in operands}
    return kinds <= {"int64", "int32", "int"} and kinds != {"int"}


def computed(b: Builder, n: Node, name: str, body: str, operands: Sequence[Operand], lets: str = "") -> Value:
    """A function ``{a}``, ``{b}`` of elements and numbers, all of them as integers of the type of the result."""
    texts: dict[str, str] = {}
    tensors: list[Value] = []
    numbers: dict[str, int] = {}
    for letter, one in zip("ab", operands, strict=False):
        if isinstance(one, Value):
            read = f"{{{'ab'[len(tensors)]}}}"
            texts[letter] = read if one.dtype == n.dtype else f"{spelled(n.dtype)}({read})"
            tensors.append(one)
        else:
            texts[letter], numbers[f"n{letter}"] = f"n{letter}", int(one)
    body, lets = body.format(**texts), lets.format(**texts)
    label = "_".join([name, *(f"number_{letter[1]}" for letter in numbers)])
    kinds = [(one.shape, one.dtype) for one in tensors]
    made = pointwise(label, body, kinds, n.shape, n.dtype, dict.fromkeys(numbers, n.dtype), lets)
    return b.call(n, made, tensors, **numbers)


def remainder(b: Builder, n: Node, x: Operand, other: Operand, towards_zero: bool) -> Value:
    """What is left of a quotient that is rounded down, or towards 0."""
    if towards_zero:
        return computed(b, n, "fmod_of_integers", "r", [x, other], _REST)
    return computed(b, n, "remainder", "{a} % {b}", [x, other])


def power(b: Builder, n: Node, x: Value, exponent: float) -> Value:
    """A product of up to sixteen equal factors."""
    if exponent != int(exponent) or not 0 <= exponent <= _MOST_FACTORS:
        raise n.refuse(f"raises {x.dtype} to {exponent}", f"whole numbers from 0 to {_MOST_FACTORS} are known")
    count = int(exponent)
    body = " * ".join(["{a}"] * count) if count else "{a} - {a} + 1"
    return computed(b, n, f"power_{count}", body, [x])


def sign_changed(b: Builder, n: Node, x: Value, name: str) -> Value:
    """``neg`` or ``abs``."""
    return computed(b, n, f"{name}_of_integers", {"neg": "0 - {a}", "abs": "abs({a})"}[name], [x])


def bits(b: Builder, n: Node, name: str, x: Operand, other: Operand) -> Value:
    """``and``, ``or``, ``xor`` and shifts, bit by bit."""
    if not are_integers(x, other):
        kinds = " and ".join(one.dtype if isinstance(one, Value) else str(one) for one in (x, other))
        raise n.refuse(f"takes {kinds}", "integers are known, and truth values without numbers")
    return computed(b, n, f"bits_{name}", f"{{a}} {_BITS[name]} {{b}}", [x, other])


@rule(*_SHIFTED, *_NUMBERED)
def bitwise(b: Builder, n: Node, *, x: Value, other: Operand) -> Value:
    written = n.operator.split(".")[1]
    name = _SPELLED.get(written) or written.removeprefix("bitwise_")
    if isinstance(other, Value) and x.dtype == other.dtype == "bool" and name in _OF_TRUTH:
        kinds = [(x.shape, x.dtype), (other.shape, other.dtype)]
        return b.call(n, pointwise(f"logical_{name}", _OF_TRUTH[name], kinds, n.shape, "bool"), [x, other])
    return bits(b, n, name, x, other)
