"""Vectors of narrow elements as vectors of 32 bits, and back: one instruction where the processor has it.

Compilers take such conversions apart into several instructions, gcc 12 those of bytes into one for each element.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.backends.dialect import called
from tcomp.backends.prelude import INLINE
from tcomp.values.operators import BFLOAT16, DTYPES, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, INT32, DType

_CALLED = called(r"(widened|narrowed)_([a-z]+\d+(?:_e\dm\d(?:fn)?)?)_x(\d+)\b")

WIDENED = ("int8", "uint8", "int16", "uint16", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Element types that vectors are made of: of int32 for integers, of float32 for floats."""

LEAST_LANES = 4
"""Lanes of the narrowest vectors that the instructions give."""

NARROWED = (FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)
"""Element types to which vectors of float32 are rounded."""

_INSTRUCTIONS = {
    "int8": "vpmovsxbd",
    "uint8": "vpmovzxbd",
    "int16": "vpmovsxwd",
    "uint16": "vpmovzxwd",
    "float16": "vcvtph2ps",
    "bfloat16": "vpmovzxwd",
    "float8_e4m3fn": "vpmovzxbd",
    "float8_e5m2": "vpmovzxbd",
}

_NO_NUMBER = {3: "0x7fc00000", 2: "0x7f800000"}
"""What makes an infinity or NaN of a float, by the bits of the fraction of the short one."""


@dataclass(frozen=True, slots=True)
class _Eighth:
    """A float of 8 bits: bits of its fraction, the bias of its exponent, and the first size that is no finite number.

    ``middle`` has the bits of the float in the middle between the largest number and what would be the next one;
    ``beyond`` is what becomes of that float and those behind it.
    """

    fraction: int
    bias: int
    first: int
    middle: int
    beyond: int


_EIGHTHS = {
    FLOAT8_E4M3: _Eighth(3, 7, 0x7F, 0x43E80000, 0x7E),
    FLOAT8_E5M2: _Eighth(2, 15, 0x7C, 0x47700000, 0x7C),
}


def widened_type(dtype: DType) -> DType:
    """What the lanes are for elements of a type."""
    return FLOAT32 if dtype.is_float else INT32


def widened(pointer: str, dtype: DType, lanes: int) -> str:
    """The C text of a vector of the elements at a pointer."""
    return f"tc_widened_{dtype}_x{lanes}({pointer})"


def narrowed(pointer: str, value: str, dtype: DType, lanes: int) -> str:
    """The C statement that rounds a vector of float32 to shorter floats at a pointer."""
    return f"tc_narrowed_{dtype}_x{lanes}({pointer}, {value});"


def widening_functions(text: str, in_hardware: bool) -> str:
    """The functions that a text calls; ``in_hardware`` says that the processor has the instructions."""
    functions = []
    for kind, name, count in sorted(set(_CALLED.findall(text))):
        spelled = _widening if kind == "widened" else _narrowing
        functions.append(spelled(DTYPES[name], int(count), in_hardware and int(count) >= LEAST_LANES))
    return "".join(functions)


def _widening(dtype: DType, lanes: int, in_hardware: bool) -> str:
    result = f"tc_{widened_type(dtype)}_x{lanes}"
    raw = f"uint{dtype.bits}" if dtype.is_short_float else dtype.name
    loaded = f"*(const tc_{raw}_x{lanes} *)from"
    lines = [
        f"static inline __attribute__((always_inline)) {result} tc_widened_{dtype}_x{lanes}(const void *from)",
        "{",
    ]
    if dtype in _EIGHTHS:
        lines += _of_eighths(_EIGHTHS[dtype], loaded, result, lanes, in_hardware)
    elif in_hardware:
        wide = f"tc_uint32_x{lanes}" if dtype == BFLOAT16 else result
        lines.append(f"  {wide} to;")
        lines.append(f'  __asm__("{_INSTRUCTIONS[dtype.name]} %1, %0" : "=v"(to) : "m"({loaded}));')
        lines.append(f"  return ({result})(to << 16);" if dtype == BFLOAT16 else "  return to;")
    elif dtype == BFLOAT16:
        lines.append(f"  return ({result})(__builtin_convertvector({loaded}, tc_uint32_x{lanes}) << 16);")
    elif dtype == FLOAT16:
        lines.append(f"  {result} to;")
        lines.append(f"  for (int n = 0; n < {lanes}; n++) to[n] = (float)((const _Float16 *)from)[n];")
        lines.append("  return to;")
    else:
        lines.append(f"  return __builtin_convertvector({loaded}, {result});")
    return "\n".join([*lines, "}"]) + "\n"


def _of_eighths(form: _Eighth, loaded: str, result: str, lanes: int, in_hardware: bool) -> list[str]:
    """Floats of 8 bits: those below the first normal one have no leading 1, which is taken off them again."""
    bits = f"tc_uint32_x{lanes}"
    shift, least = 23 - form.fraction, (127 - form.bias) << 23
    whole = f"  {bits} own = __builtin_convertvector({loaded}, {bits});"
    if in_hardware:
        whole = f'  {bits} own; __asm__("vpmovzxbd %1, %0" : "=v"(own) : "m"({loaded}));'
    none = f"(({bits})(size >= {form.first:#x}) & {_NO_NUMBER[form.fraction]})"
    return [
        whole,
        f"  const {bits} sign = (own & 0x80) << 24, size = own & 0x7f, wide = (size << {shift}) + {least:#x};",
        f"  const {bits} small = ({bits})(({result})(wide + 0x800000) - {2.0 ** (1 - form.bias)!r}f);",
        f"  const {bits} is_small = ({bits})(size < {1 << form.fraction});",
        f"  return ({result})((is_small & small) | (~is_small & wide) | {none} | sign);",
    ]


def _to_eighths(form: _Eighth, lanes: int) -> list[str]:
    """Rounded to nearest even: small ones by an addition of floats, in which the last bit counts as much."""
    source, bits, raw = (f"tc_{name}_x{lanes}" for name in ("float32", "uint32", "uint8"))
    shift, least = 23 - form.fraction, (127 - form.bias) << 23
    power = 24 - form.bias - form.fraction
    return [
        f"  const {bits} own = ({bits})from, size = own & 0x7fffffff, sign = own >> 24 & 0x80;",
        f"  const {bits} small = ({bits})(({source})size + {2.0**power!r}f) - {(127 + power) << 23:#x};",
        f"  const {bits} near = (size - {least:#x} + {(1 << (shift - 1)) - 1:#x} + (size >> {shift} & 1)) >> {shift};",
        f"  const {bits} is_small = ({bits})(size < {least + 0x800000:#x});",
        f"  const {bits} beyond = ({bits})(size >= {form.middle:#x});",
        f"  const {bits} nan = ({bits})(size > 0x7f800000);",
        f"  const {bits} inside = ~beyond & ((is_small & small) | (~is_small & near));",
        f"  const {bits} byte = sign | inside | (beyond & {form.beyond:#x}) | (nan & 0x7f);",
        f"  *({raw} *)to = __builtin_convertvector(byte, {raw});",
    ]


def _narrowing(dtype: DType, lanes: int, in_hardware: bool) -> str:
    source, bits, raw = (f"tc_{name}_x{lanes}" for name in ("float32", "uint32", "uint16"))
    lines = [f"{INLINE} void tc_narrowed_{dtype}_x{lanes}(void *to, {source} from)", "{"]
    if dtype in _EIGHTHS:
        lines += _to_eighths(_EIGHTHS[dtype], lanes)
    elif dtype == BFLOAT16:
        lines += [
            f"  const {bits} own = ({bits})from, nan = ({bits})(from != from);",
            f"  const {bits} rounded = (own + 0x7fff + ((own >> 16) & 1)) >> 16;",
            f"  *({raw} *)to = __builtin_convertvector((nan & ((own >> 16) | 0x40)) | (~nan & rounded), {raw});",
        ]
    elif in_hardware:
        lines.append(f'  __asm__("vcvtps2ph $0, %1, %0" : "=m"(*({raw} *)to) : "v"(from));')
    else:
        lines.append(f"  for (int n = 0; n < {lanes}; n++) ((_Float16 *)to)[n] = (_Float16)from[n];")
    return "\n".join([*lines, "}"]) + "\n"
