"""Random right-hand sides that are the same in any order of evaluation: whole numbers, small enough to be exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.exactness import exact_limit
from tcomp.fuzzing.programs.subscripts import Known, Span, read, term
from tcomp.values.operators import BOOL, DTYPES, FLOAT32, FLOAT64, INT32, DType, promote

_WHOLE_FUNCTIONS = ("floor", "ceil", "trunc", "round", "fabs")
"""Built-in functions that give a float and keep whole numbers whole."""

_LARGEST_SIZE = 512
"""No size is larger."""


def stored_bound(bound: float, dtype: DType) -> float:
    """How large what was at most ``bound`` can be in an element of a type."""
    if dtype.kind == "uint":
        return 2.0**dtype.bits
    if dtype.is_float8:
        return bound * 1.25
    return bound * 1.01 if dtype.is_short_float else bound


def bits_bound(bound: float, dtype: DType) -> float:
    """How large an integer can be that is made of bits of others, which are at most ``bound``."""
    return min(2.0 ** math.frexp(bound)[1], 2.0**dtype.bits) if dtype.kind == "int" else 2.0**dtype.bits


@dataclass(frozen=True, slots=True)
class Value:
    """An expression of nominal type ``dtype``; it and its parts stay within ``bound`` unless they are not finite."""

    text: str
    dtype: DType
    bound: float

    def tame(self) -> Value:
        """The value brought into a small range."""
        dtype = promote(self.dtype, INT32)
        return Value(f"clamp({self.text}, -3, 3)", dtype, stored_bound(3, dtype))


@dataclass(frozen=True, slots=True)
class Expressions:
    """Makes values out of reads of known tensors over known indices, and of ``lets``, names for values."""

    choices: Choices
    tensors: Sequence[Known]
    spans: Sequence[Span]
    sizes: Sequence[str]
    lets: Sequence[Value] = ()

    def value(self, depth: int) -> Value:
        """A random value; deeper ones hold up to ``2**depth`` reads."""
        if depth == 0:
            return self._leaf()
        match self.choices.pick("l+*pm?-icdnawb"):
            case "l":
                return self._leaf()
            case "+" | "-" | "*" as operator:
                return self._arithmetic(operator, self.value(depth - 1), self.value(depth - 1))
            case "p":
                return self.product([self._leaf() for _ in range(self.choices.integer(2, 3))])
            case "m":
                return self._extremum(depth)
            case "?":
                return self._conditional(depth)
            case "i":
                return self._function(self.value(depth - 1))
            case "c":
                return self.value(depth - 1).tame()
            case "d":
                return self._division(depth)
            case "n":
                return self._cast(self.value(depth - 1))
            case "b":
                return self._of_bits(depth)
            case "a":
                a, b = self.value(depth - 1), self.value(depth - 1)
                dtype = promote(a.dtype, b.dtype)
                a, b = self._fitting(a, dtype), self._fitting(b, dtype)
                return Value(f"select({self.condition()}, {a.text}, {b.text})", dtype, max(a.bound, b.bound))
            case _:
                return self._number()

    def _function(self, operand: Value) -> Value:
        name = self.choices.pick(["abs", "relu", "sign", "-", *_WHOLE_FUNCTIONS])
        if name in _WHOLE_FUNCTIONS:
            operand = self._fitting(operand, promote(operand.dtype, FLOAT32))
        dtype = promote(operand.dtype, FLOAT32) if name in _WHOLE_FUNCTIONS else operand.dtype
        return Value(f"{name}({operand.text})", dtype, max(operand.bound, stored_bound(operand.bound, dtype)))

    def _of_bits(self, depth: int) -> Value:
        """An operation on the bits of integers; shifts may be by too much, or by less than 0."""
        operator = self.choices.pick(["&", "|", "^", "~", "<<", ">>", "popcount", "clz"])
        a = self._integer(self.value(depth - 1))
        if operator == "~":
            return Value(f"(~{a.text})", a.dtype, bits_bound(a.bound, a.dtype))
        if operator in ("popcount", "clz"):
            return Value(f"{operator}({a.text})", a.dtype, stored_bound(a.dtype.bits, a.dtype))
        b = self._integer(self._leaf())
        text = f"({a.text} {operator} {b.text})"
        if operator == "<<":
            return Value(text, a.dtype, 2.0**a.dtype.bits)
        if operator == ">>":
            return Value(text, a.dtype, max(1.0, a.bound))
        dtype = promote(a.dtype, b.dtype)
        return Value(text, dtype, bits_bound(max(a.bound, b.bound), dtype))

    def _integer(self, value: Value) -> Value:
        """The value if it is a whole number, else that of a float as one."""
        return value if value.dtype.is_integer else cast(value, DTYPES[self.choices.pick(["int32", "int64", "int8"])])

    def condition(self) -> str:
        """A random condition: affine, or on data."""
        flags = [t for t in self.tensors if t.dtype == BOOL]
        kind = self.choices.pick("aaa2dfn")
        if kind == "d":
            return f"{self._leaf().text} > 0"
        if kind == "f" and flags:
            return self._read(self.choices.pick(flags), "0 < 1")
        if kind == "n":
            return f"!({self.condition()})"
        if not self.spans:
            return f"{self._leaf().text} > 0"
        if kind == "2":
            return f"{self._comparison()} {self.choices.pick(['&&', '||'])} {self._comparison()}"
        return self._comparison()

    def _comparison(self) -> str:
        found = term(self.choices, self.spans, ())
        operator = self.choices.pick(["<", ">=", "==", "!=", "<=", ">"])
        return f"{found.text} {operator} {self.choices.integer(found.low, max(found.low, found.high))}"

    def _leaf(self) -> Value:
        numbers = [t for t in self.tensors if t.dtype != BOOL]
        if self.lets and self.choices.chance(30):
            return self.choices.pick(self.lets)
        if not numbers or self.choices.chance(8):
            return self._number()
        tensor = numbers[0] if not self.choices.chance(60) else self.choices.pick(numbers)
        otherwise = str(self.choices.integer(0, 3))
        if tensor.dtype not in (INT32, FLOAT32, FLOAT64):
            otherwise = f"{tensor.dtype}({otherwise})"
        return Value(self._read(tensor, otherwise), tensor.dtype, max(tensor.bound, 3))

    def _read(self, tensor: Known, otherwise: str) -> str:
        integers = [t for t in self.tensors if t.dtype.is_integer and 0 not in t.box.extent]
        return read(self.choices, tensor, self.spans, integers, otherwise)

    def _number(self) -> Value:
        kind = self.choices.pick("cfis")
        number = self.choices.integer(1, 3)
        if kind == "i" and self.spans:
            span = self.choices.pick(self.spans)
            return Value(span.name, INT32, max(abs(span.low), abs(span.high)))
        if kind == "s" and self.sizes:
            return Value(self.choices.pick(self.sizes), INT32, _LARGEST_SIZE)
        if kind == "f":
            return Value(f"{number}.0", FLOAT32, number)
        return Value(str(number), INT32, number)

    def _fitting(self, value: Value, dtype: DType) -> Value:
        """The value, tamed unless it is exact in the arithmetic of ``dtype``."""
        return value if value.bound <= exact_limit(dtype) else value.tame()

    def _arithmetic(self, operator: str, a: Value, b: Value) -> Value:
        dtype = promote(a.dtype, b.dtype)
        if self._bound(operator, a, b) > exact_limit(dtype):
            a, b = a.tame(), b.tame()
            dtype = promote(a.dtype, b.dtype)
        bound = max(self._bound(operator, a, b), stored_bound(0, dtype))
        return Value(f"({a.text} {operator} {b.text})", dtype, bound)

    def total(self, values: Sequence[Value]) -> Value:
        """The sum of some values."""
        result = values[0]
        for value in values[1:]:
            result = self._arithmetic("+", result, value)
        return result

    def product(self, values: Sequence[Value]) -> Value:
        """The product of some values."""
        result = values[0]
        for value in values[1:]:
            result = self._arithmetic("*", result, value)
        return result

    def _bound(self, operator: str, a: Value, b: Value) -> float:
        return a.bound * b.bound if operator == "*" else a.bound + b.bound

    def _extremum(self, depth: int) -> Value:
        a, b = self.value(depth - 1), self.value(depth - 1)
        dtype = promote(a.dtype, b.dtype)
        a, b = self._fitting(a, dtype), self._fitting(b, dtype)
        bound = max(a.bound, b.bound, stored_bound(0, dtype))
        return Value(f"{self.choices.pick(['max', 'min'])}({a.text}, {b.text})", dtype, bound)

    def _conditional(self, depth: int) -> Value:
        a, b = self.value(depth - 1), self.value(depth - 1)
        dtype = promote(a.dtype, b.dtype)
        a, b = self._fitting(a, dtype), self._fitting(b, dtype)
        bound = max(a.bound, b.bound, stored_bound(0, dtype))
        return Value(f"({self.condition()} ? {a.text} : {b.text})", dtype, bound)

    def _division(self, depth: int) -> Value:
        operand = self.value(depth - 1)
        divisor = self.choices.integer(2, 5)
        operator = "%" if operand.dtype.is_float else self.choices.pick("/%")
        dtype = promote(operand.dtype, INT32)
        bound = max(operand.bound, divisor, stored_bound(0, dtype))
        return Value(f"({operand.text} {operator} {divisor})", dtype, bound)

    def _cast(self, operand: Value) -> Value:
        return cast(operand, self.choices.pick([t for t in DTYPES.values() if not t.is_float8][:-1]))


def cast(operand: Value, dtype: DType) -> Value:
    """The value converted to a type, tamed first where that would round."""
    if operand.bound > exact_limit(dtype):
        operand = operand.tame()
    return Value(f"{dtype}({operand.text})", dtype, max(operand.bound, stored_bound(operand.bound, dtype)))
