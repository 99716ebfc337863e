"""What the language computes with, each declared once: element types, reductions, intrinsics.

The parser, the checker, the interpreter and the code generators all read these tables; adding a row is all that a new
reduction or intrinsic costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

from tcomp.values.intrinsics import INTRINSICS as INTRINSICS
from tcomp.values.intrinsics import Intrinsic as Intrinsic

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type.  ``bits`` is its storage width; ``c`` the C type that holds one element in memory.

    ``largest`` is the greatest value of a float, infinity where it has one: what is beyond its numbers becomes that.
    """

    name: str
    kind: Kind
    bits: int
    c: str
    largest: float = inf

    def __str__(self) -> str:
        return self.name

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_short_float(self) -> bool:
        """Whether it is a float of 8 or 16 bits: stored so, computed in float32."""
        return self.kind == "float" and self.bits < 32

    @property
    def is_float8(self) -> bool:
        """Whether it is a float of 8 bits."""
        return self.kind == "float" and self.bits == 8

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def lowest(self) -> float | int:
        """The smallest value: minus infinity for floats that have it."""
        match self.kind:
            case "float":
                return -self.largest
            case "int":
                return -(1 << (self.bits - 1))
            case _:
                return 0

    @property
    def highest(self) -> float | int:
        """The largest value: infinity for floats that have it."""
        match self.kind:
            case "float":
                return self.largest
            case "int":
                return (1 << (self.bits - 1)) - 1
            case "uint":
                return (1 << self.bits) - 1
            case _:
                return 1


FLOAT8_E4M3 = DType("float8_e4m3fn", "float", 8, "uint8_t", largest=448.0)
FLOAT8_E5M2 = DType("float8_e5m2", "float", 8, "uint8_t")
FLOAT16 = DType("float16", "float", 16, "_Float16")
BFLOAT16 = DType("bfloat16", "float", 16, "uint16_t")
FLOAT32 = DType("float32", "float", 32, "float")
FLOAT64 = DType("float64", "float", 64, "double")
INT8 = DType("int8", "int", 8, "int8_t")
INT16 = DType("int16", "int", 16, "int16_t")
INT32 = DType("int32", "int", 32, "int32_t")
INT64 = DType("int64", "int", 64, "int64_t")
UINT8 = DType("uint8", "uint", 8, "uint8_t")
UINT16 = DType("uint16", "uint", 16, "uint16_t")
UINT32 = DType("uint32", "uint", 32, "uint32_t")
UINT64 = DType("uint64", "uint", 64, "uint64_t")
BOOL = DType("bool", "bool", 8, "uint8_t")

DTYPES: dict[str, DType] = {
    t.name: t
    for t in (
        FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, BFLOAT16, FLOAT32, FLOAT64,
        INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, BOOL,
    )
}  # fmt: skip

TYPE_KEYWORDS: dict[str, DType] = DTYPES | {"float": FLOAT32, "double": FLOAT64, "half": FLOAT16, "int": INT32}
"""Every spelling of an element type in program text."""


def promote(a: DType, b: DType) -> DType:
    """The nominal type of an arithmetic operation on two types.

    Float beats integer; otherwise the wider; signed and unsigned mix to signed of the larger width, but int8 and uint8
    to int32, which holds what either has and their products; two different floats of 16 bits, or of 8, give float32;
    bool gives way to everything.
    """
    if {a, b} == {INT8, UINT8}:
        return INT32
    return _of_both(a, b)


def narrows(value: DType, target: DType) -> bool:
    """Whether a value is no longer what it was in kind or width where it is stored, so that a text must say so."""
    return _of_both(target, value) != target


def _of_both(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.kind == "bool" or b.kind == "bool":
        return b if a.kind == "bool" else a
    bits = max(a.bits, b.bits)
    if a.is_float:
        return FLOAT32 if a.bits == b.bits else (a if a.bits == bits else b)
    kind = a.kind if a.kind == b.kind else "int"
    return DTYPES[f"{kind}{bits}"]


def arithmetic_type(nominal: DType) -> DType:
    """The type in which expressions of a nominal type are evaluated: floats of 8 and 16 bits compute in float32."""
    return FLOAT32 if nominal.is_short_float else nominal


def accumulation_type(nominal: DType) -> DType:
    """The type in which a sum or product over a nominal type accumulates."""
    return INT32 if nominal in (INT8, UINT8) else arithmetic_type(nominal)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A combining operator of the language: ``symbol`` as in ``+=``, which is also a binary operator or function of it.

    ``widens``: narrow types accumulate wider; ``ufunc`` is its name in NumPy; ``identity`` gives the neutral element of
    an accumulator type.
    """

    symbol: str
    widens: bool
    ufunc: str
    identity: Callable[[DType], float | int]


REDUCTIONS: dict[str, Reduction] = {
    r.symbol: r
    for r in (
        Reduction("+", True, "add", lambda dtype: 0),
        Reduction("*", True, "multiply", lambda dtype: 1),
        Reduction("min", False, "minimum", lambda dtype: dtype.highest),
        Reduction("max", False, "maximum", lambda dtype: dtype.lowest),
    )
}
"""The combining operators.

``min`` and ``max``, as reductions and as the functions of two arguments, give NaN where an operand is NaN, as
``numpy.minimum`` and ``torch.minimum`` do: ``a < b || a != a ? a : b`` and ``a > b || a != a ? a : b`` in C.  (The
intrinsics ``fmin`` and ``fmax`` give the other operand, as the C functions do.)  Of +0 and -0 either may come out.
"""
