"""Vectors of narrow elements as vectors of 32 bits, and back: one instruction where the processor has it.

Compilers take such conversions apart into several instructions, gcc 12 those of bytes into one for each element.
"""

from __future__ import annotations

from tcomp.backends.dialect import called
from tcomp.backends.prelude import INLINE
from tcomp.values.operators import BFLOAT16, DTYPES, FLOAT16, FLOAT32, INT32, DType

_CALLED = called(r"(widened|narrowed)_([a-z]+\d+)_x(\d+)\b")

WIDENED = ("int8", "uint8", "int16", "uint16", "float16", "bfloat16")
"""Element types that vectors are made of: of int32 for integers, of float32 for floats."""

LEAST_LANES = 4
"""Lanes of the narrowest vectors that the instructions give."""

NARROWED = (FLOAT16, BFLOAT16)
"""Element types to which vectors of float32 are rounded."""

_INSTRUCTIONS = {
    "int8": "vpmovsxbd",
    "uint8": "vpmovzxbd",
    "int16": "vpmovsxwd",
    "uint16": "vpmovzxwd",
    "float16": "vcvtph2ps",
    "bfloat16": "vpmovzxwd",
}


def widened_type(dtype: DType) -> DType:
    """What the lanes are for elements of a type."""
    return FLOAT32 if dtype.is_float else INT32


def widened(pointer: str, dtype: DType, lanes: int) -> str:
    """The C text of a vector of the elements at a pointer."""
    return f"tc_widened_{dtype}_x{lanes}({pointer})"


def narrowed(pointer: str, value: str, dtype: DType, lanes: int) -> str:
    """The C statement that rounds a vector of float32 to the elements, of float16 or bfloat16, at a pointer."""
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
    raw = "uint16" if dtype in (FLOAT16, BFLOAT16) else dtype.name
    loaded = f"*(const tc_{raw}_x{lanes} *)from"
    lines = [
        f"static inline __attribute__((always_inline)) {result} tc_widened_{dtype}_x{lanes}(const void *from)",
        "{",
    ]
    if in_hardware:
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


def _narrowing(dtype: DType, lanes: int, in_hardware: bool) -> str:
    source, bits, raw = (f"tc_{name}_x{lanes}" for name in ("float32", "uint32", "uint16"))
    lines = [f"{INLINE} void tc_narrowed_{dtype}_x{lanes}(void *to, {source} from)", "{"]
    if dtype == BFLOAT16:
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
