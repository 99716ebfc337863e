"""Values and elements in C: types, literals, conversions, and what one family of C spells otherwise than the others."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tcomp.values.operators import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType

C_VALUE_TYPES: dict[str, str] = {
    "float8_e4m3fn": "float",
    "float8_e5m2": "float",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "bool": "unsigned char",
}
"""The C type that holds a value of each element type in an expression."""

C_STORAGE_TYPES: dict[str, str] = C_VALUE_TYPES | {
    "float8_e4m3fn": "unsigned char",
    "float8_e5m2": "unsigned char",
    "float16": "_Float16",
    "bfloat16": "unsigned short",
}
"""The C type of one element in memory."""


def called(rest: str) -> re.Pattern[str]:
    """A pattern of our functions' and types' names in a text, ``tc_`` and what matches ``rest``.

    Letters in front are searched for twenty times as fast as a word's boundary.
    """
    return re.compile(rf"tc_(?<!\wtc_){rest}")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family of C spells what the others spell otherwise.

    ``index`` is the type of indices and ``suffix`` that of its literals, ``wide`` the type that holds every integer
    which data may hold; ``identifiers`` says how program names are spelled where they are not mangled; the others spell
    a float16 element as a value and a value as one (a double otherwise than a float, if so), and infinity and NaN in
    single and double precision.
    ``hides_truths`` says whether subscripts that are truth values must be hidden from the compiler (``tc_hidden``).
    """

    index: str
    wide: str
    suffix: str
    float16_load: str
    float16_store: str
    float16_round: str
    infinity: tuple[str, str]
    nan: tuple[str, str]
    hides_truths: bool
    identifiers: Mapping[str, str] = field(default_factory=dict)
    float16_round_double: str = ""

    def name(self, name: str) -> str:
        """The identifier of a tensor."""
        return self.identifiers.get(name) or mangle(name)


HOST_C = Dialect(
    index="long",
    wide="long",
    suffix="L",
    float16_load="((float){})",
    float16_store="((_Float16){})",
    float16_round="((float)(_Float16){})",
    infinity=("__builtin_inff()", "__builtin_inf()"),
    nan=('__builtin_nanf("")', '__builtin_nan("")'),
    hides_truths=True,
)
"""GNU C for the machine that this runs on."""


def mangle(name: str) -> str:
    """A C identifier for a program name: no keyword, macro or generated name can equal it."""
    return f"v_{name}"


def bare(text: str) -> str:
    """The text without parentheses around all of it, which only a comma needs wherever the text stands."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for n, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if (depth == 0 and n < len(text) - 1) or (depth == 1 and c == ","):
            return text
    return text[1:-1]


def is_kept_as_bits(dtype: DType) -> bool:
    """Whether elements of a float type are integers to the language: functions make values of them, and back."""
    return dtype == BFLOAT16 or dtype.is_float8


def load(element: str, dtype: DType, dialect: Dialect = HOST_C) -> str:
    """An element in memory as a value."""
    if is_kept_as_bits(dtype):
        return f"tc_from_{dtype}({element})"
    return dialect.float16_load.format(element) if dtype == FLOAT16 else element


def store(value: str, dtype: DType, dialect: Dialect = HOST_C) -> str:
    """A value in the form in which memory holds it."""
    if is_kept_as_bits(dtype):
        return f"tc_to_{dtype}({value})"
    return dialect.float16_store.format(value) if dtype == FLOAT16 else value


def convert(text: str, source: DType, target: DType, dialect: Dialect = HOST_C) -> str:
    """A conversion as the language defines it: floats to integers truncate and saturate, NaN gives 0."""
    if source == target:
        return text
    if target.kind == "bool":
        return f"({text} != 0)"
    if is_kept_as_bits(target):
        return f"tc_from_{target}(tc_to_{target}({_near(text, source)}))"
    if target == FLOAT16 and source == FLOAT64 and dialect.float16_round_double:
        return dialect.float16_round_double.format(text)
    if target == FLOAT16:
        return dialect.float16_round.format(text if source.is_float else f"((float){text})")
    if source.is_float and target.is_integer:
        narrow = dialect is HOST_C and source != FLOAT64 and target.bits <= MOST_NARROW
        return f"tc_to_{target.name}{'_float32' if narrow else ''}({text})"
    return f"(({C_VALUE_TYPES[target.name]}){text})"


MOST_NARROW = 16
"""Bits of integers all of which single precision holds."""


def _near(text: str, source: DType) -> str:
    """A value in float32 that is rounded to a shorter float as the one given."""
    if source.is_integer and source.bits == 64:
        text = f"tc_odd_{source.name}({text})"
    return f"(float){text}" if source.bits < 32 or source == FLOAT32 else f"tc_odd_float64({text})"


def constant_text(value: float | int | bool, dtype: DType, dialect: Dialect = HOST_C) -> str:
    """A literal of an element type."""
    if dtype.is_float:
        number = float(value)
        suffix = "" if dtype == FLOAT64 else "f"
        shortest = repr(number) if dtype == FLOAT64 else str(np.float32(number))
        if math.isinf(number):
            text = dialect.infinity[dtype == FLOAT64]
            return f"(-{text})" if number < 0 else text
        if math.isnan(number):
            return dialect.nan[dtype == FLOAT64]
        return f"({shortest}{suffix})" if number < 0 else f"{shortest}{suffix}"
    number = int(value)
    if dtype.kind == "uint":
        return f"(({C_VALUE_TYPES[dtype.name]}){number}ULL)"
    if number == -(2**63):
        return "(-9223372036854775807LL - 1)"
    return f"(({C_VALUE_TYPES[dtype.name]}){number}LL)" if dtype.bits != 32 or number < 0 else str(number)


def combine(reduction: str, accumulator: str, value: str, dtype: DType) -> str:
    """The accumulator combined with a value."""
    if reduction in ("min", "max"):
        return f"tc_{reduction}_{type_suffix(dtype)}({accumulator}, {value})"
    if dtype.kind == "bool":
        return f"({accumulator} {'|' if reduction == '+' else '&'} {value})"
    return narrow(f"({accumulator} {reduction} {value})", dtype)


def narrow(text: str, dtype: DType) -> str:
    """Undo C's promotion of narrow integers to int."""
    return f"(({C_VALUE_TYPES[dtype.name]}){text})" if dtype.is_integer and dtype.bits < 32 else text


def type_suffix(dtype: DType) -> str:
    return FLOAT32.name if dtype.is_short_float else dtype.name
