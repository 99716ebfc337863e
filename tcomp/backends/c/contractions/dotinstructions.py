"""Instructions that multiply groups of neighbouring integers and add the products to the lanes of a vector of sums.

They stand in the text as assembly, which gcc and clang take alike and which needs no header.  Sums wrap; the variants
that saturate are not used.
"""

from __future__ import annotations

from tcomp.backends.dialect import called
from tcomp.backends.prelude import INLINE
from tcomp.values.operators import BFLOAT16, DType

LANE_BYTES = 4
"""What one lane of a sum takes, and a group of integers, too."""

LANE = "tc_lane"
"""The C type of a group in memory, whatever it holds."""

_LANE = f"typedef int {LANE} __attribute__((may_alias));\n"
_CALLED = called(r"dot_(8|16|bfloat16)_x(\d+)\b")

_SPELLED = {
    ("avx512_vnni", 8): "vpdpbusd %2, %1, %0",
    ("avx512_vnni", 16): "vpdpwssd %2, %1, %0",
    ("avx_vnni", 8): "%{vex%} vpdpbusd %2, %1, %0",
    ("avx_vnni", 16): "%{vex%} vpdpwssd %2, %1, %0",
}
"""What adds to the operand 0 the products of 1 and 2, by the feature that brings it and the bits of an integer.

Without the mark an assembler that knows both encodings takes the other, which not every processor with vectors of 32
bytes has; the one that is marked reaches the first 16 registers only.
"""

_OF_BFLOAT16 = "vdpbf16ps %2, %1, %0"
"""The same for pairs of bfloat16.  Numbers below 2^-126, read or written, count as zero."""

_PRODUCTS = "vpmaddwd %2, %1, %0"
"""The sums of products of pairs, to be added."""


def dot(total: str, first: str, second: str, dtype: DType, lanes: int) -> str:
    """``total`` with the products of two vectors of groups added: of unsigned bytes with signed ones, or of 16 bits."""
    kind = dtype.name if dtype == BFLOAT16 else dtype.bits
    return f"tc_dot_{kind}_x{lanes}({total}, {first}, {second})"


def flips(dtype: DType) -> int:
    """The highest bit of an integer, as a number."""
    return 1 << (dtype.bits - 1)


def summed_up(total: str, groups: str, dtype: DType, lanes: int) -> str:
    """``total`` with the elements of groups added, times 128 if they are signed, times -128 if not."""
    vector = f"tc_int32_x{lanes}"
    factor = f"((({vector}){{0}}) + (int)0x80808080)"
    pair = (factor, groups) if dtype.kind == "int" else (groups, factor)
    return dot(total, *pair, dtype, lanes)


def dot_functions(text: str, dots: str) -> str:
    """The functions for the instructions that a text uses, by the feature of the processor that brings them."""
    found = sorted(set(_CALLED.findall(text)))
    return (_LANE if found else "") + "".join(_function(kind, int(lanes), dots) for kind, lanes in found)


def _function(kind: str, lanes: int, dots: str) -> str:
    total, vector = f"tc_{'float32' if kind == 'bfloat16' else 'int32'}_x{lanes}", f"tc_int32_x{lanes}"
    head = f"{INLINE} {total} tc_dot_{kind}_x{lanes}({total} total, {vector} first, {vector} second)\n"
    spelled = _OF_BFLOAT16 if kind == "bfloat16" else _SPELLED.get((dots, int(kind)))
    if spelled is not None:
        register = "x" if "{vex" in spelled else "v"
        operands = f'"+{register}"(total) : "{register}"(first), "{register}"(second)'
        return f'{head}{{\n  __asm__("{spelled}" : {operands});\n  return total;\n}}\n'
    body = f'  {vector} products;\n  __asm__("{_PRODUCTS}" : "=v"(products) : "v"(first), "v"(second));\n'
    return f"{head}{{\n{body}  return total + products;\n}}\n"
