"""Operations on the bits of integers: what they mean in NumPy, and their C text, which is CUDA's, too.

Nothing in it is undefined in C, whatever the operands.  A shift by less than 0 or by the width or more leaves no bit:
the result is 0, or -1 where a negative number was shifted to the right, as in NumPy.  The sums of ``POPCOUNT`` are
those of H. S. Warren, "Hacker's Delight" (2002), which compilers make one instruction of, also of a vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcomp.values.vectormath.cfunctions import CFunction

Array = np.ndarray[Any, np.dtype[Any]]


def _inline(text: str) -> CFunction:
    return CFunction(text, always_inline=True)


AND = _inline("$T $name($T x, $T y) { return ($T)(x & y); }")
OR = _inline("$T $name($T x, $T y) { return ($T)(x | y); }")
XOR = _inline("$T $name($T x, $T y) { return ($T)(x ^ y); }")
NOT = _inline("$T $name($T x) { return ($T)~x; }")

SHIFT_LEFT = _inline("""
$T $name($T x, $T y) {
  const $T left = sizeof($T) > 4 ? ($T)((unsigned long long)x << (y & 63)) : ($T)((unsigned int)x << (y & 31));
  return !(y < 0) && y < ($T)(8 * sizeof($T)) ? left : ($T)0;
}""")

SHIFT_RIGHT = _inline("""
$T $name($T x, $T y) {
  const int is_near = !(y < 0) && y < ($T)(8 * sizeof($T));
  const $T right = ($T)(x >> (is_near ? (int)y : (int)(8 * sizeof($T) - 1)));
  return is_near || x < 0 ? right : ($T)0;
}""")

POPCOUNT = _inline("""
$T $name($T x) {
  if (sizeof($T) > 4) {
    unsigned long long b = (unsigned long long)x;
    b = b - ((b >> 1) & 0x5555555555555555ULL);
    b = (b & 0x3333333333333333ULL) + ((b >> 2) & 0x3333333333333333ULL);
    b = (b + (b >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
    return ($T)((b * 0x0101010101010101ULL) >> 56);
  }
  unsigned int b = (unsigned int)x & (0xffffffffU >> (32 - 8 * (sizeof($T) > 4 ? 4 : sizeof($T))));
  b = b - ((b >> 1) & 0x55555555U);
  b = (b & 0x33333333U) + ((b >> 2) & 0x33333333U);
  b = (b + (b >> 4)) & 0x0f0f0f0fU;
  return ($T)((b * 0x01010101U) >> 24);
}""")

CLZ = _inline("""
$T $name($T x) {
  unsigned long long b = (unsigned long long)x & (~0ULL >> (64 - 8 * sizeof($T)));
  int n = 8 * (int)sizeof($T);
  n = b >> 32 ? n - 32 : n; b = b >> 32 ? b >> 32 : b;
  n = b >> 16 ? n - 16 : n; b = b >> 16 ? b >> 16 : b;
  n = b >> 8 ? n - 8 : n; b = b >> 8 ? b >> 8 : b;
  n = b >> 4 ? n - 4 : n; b = b >> 4 ? b >> 4 : b;
  n = b >> 2 ? n - 2 : n; b = b >> 2 ? b >> 2 : b;
  return ($T)(b >> 1 ? n - 2 : n - (int)b);
}""")


def _is_near(x: Array, y: Array) -> Array:
    near: Array = (y >= 0) & (y < 8 * x.dtype.itemsize)
    return near


def shift_left(x: Array, y: Array) -> Array:
    """``x << y``."""
    near = _is_near(x, y)
    return np.where(near, np.left_shift(x, np.where(near, y, y.dtype.type(0))), x.dtype.type(0))


def shift_right(x: Array, y: Array) -> Array:
    """``x >> y``: bits like the sign come in."""
    far = y.dtype.type(8 * x.dtype.itemsize - 1)
    near = _is_near(x, y)
    shifted = np.right_shift(x, np.where(near, y, far))
    return np.where(near | (x < 0), shifted, x.dtype.type(0))


def popcount(x: Array) -> Array:
    """How many bits are set, of a negative number those of its two's complement."""
    unsigned = x.astype(np.dtype(f"u{x.dtype.itemsize}"))
    count = np.zeros_like(unsigned)
    for place in range(8 * x.dtype.itemsize):
        count += (unsigned >> count.dtype.type(place)) & count.dtype.type(1)
    return count.astype(x.dtype)


def clz(x: Array) -> Array:
    """How many bits above the highest one that is set: all of them for 0."""
    unsigned = x.astype(np.dtype(f"u{x.dtype.itemsize}"))
    width = 8 * x.dtype.itemsize
    count = np.zeros_like(unsigned)
    for place in range(width):
        count += unsigned >> count.dtype.type(place) == 0
    return count.astype(x.dtype)
