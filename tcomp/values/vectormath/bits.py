"""Floating-point numbers as bits, powers of two, and a product with a sum: what the functions are made of."""

from __future__ import annotations

from tcomp.values.vectormath.cfunctions import CFunction


def inlined(text: str, *uses: tuple[str, CFunction]) -> CFunction:
    return CFunction(text, uses=uses, always_inline=True)


_BITS_FLOAT = inlined("unsigned $name($T x) { union { $T f; unsigned u; } b = { .f = x }; return b.u; }")
_BITS_DOUBLE = inlined(
    "unsigned long long $name($T x) { union { $T f; unsigned long long u; } b = { .f = x }; return b.u; }"
)
_FROM_BITS_FLOAT = inlined("$T $name(unsigned x) { union { unsigned u; $T f; } b = { .u = x }; return b.f; }")
_FROM_BITS_DOUBLE = inlined(
    "$T $name(unsigned long long x) { union { unsigned long long u; $T f; } b = { .u = x }; return b.f; }"
)
AS_BITS_FLOAT = (("bits", _BITS_FLOAT), ("from_bits", _FROM_BITS_FLOAT))
AS_BITS_DOUBLE = (("bits", _BITS_DOUBLE), ("from_bits", _FROM_BITS_DOUBLE))

MULTIPLY_ADD_FLOAT = inlined("""
$T $name($T x, $T y, $T z) {
#ifdef __FP_FAST_FMAF
  return __builtin_fmaf(x, y, z);
#else
  return x * y + z;
#endif
}""")
MULTIPLY_ADD_DOUBLE = inlined("""
$T $name($T x, $T y, $T z) {
#ifdef __FP_FAST_FMA
  return __builtin_fma(x, y, z);
#else
  return x * y + z;
#endif
}""")
"""x y + z, rounded once where the processor can: ``-ffast-math`` takes no part of a fused operation elsewhere, and so
leaves the two steps of a reduction of arguments apart."""

POWER_FLOAT = inlined(
    "$T $name($T n) { return tc_from_bits_float(tc_bits_float(n + 12583039.f) << 23); }", *AS_BITS_FLOAT
)
POWER_DOUBLE = inlined(
    "$T $name($T n) { return tc_from_bits_double(tc_bits_double(n + 6755399441056767.) << 52); }", *AS_BITS_DOUBLE
)
"""2^n for an integer n whose power is a normal number; a NaN gives some power.

The sum puts n and the bias of exponents into the low bits; the others are shifted out."""

SCALE_FLOAT = inlined(
    """
$T $name($T x, $T n) {
  unsigned u = tc_bits_float(n + 12583166.f), half = u >> 1;
  x *= tc_from_bits_float(half << 23);
#ifdef __FAST_MATH__
  x = x > 1e30f ? 1e30f : x;
#endif
  return x * tc_from_bits_float((u - half) << 23);
}""",
    *AS_BITS_FLOAT,
)
"""x 2^n for 0.5 < x < 2 and an integer n from -180 to 180, in two steps of which only the second rounds or overflows.

The sum puts n and twice the bias of exponents into the low bits of u.  A NaN is turned into some power and stays in x.
The bound, which nothing reaches, keeps ``-ffast-math`` from multiplying the powers with each other first."""

SCALE_DOUBLE = inlined(
    """
$T $name($T x, $T n) {
  unsigned long long u = tc_bits_double(n + 6755399441057790.), half = u >> 1;
  x *= tc_from_bits_double(half << 52);
#ifdef __FAST_MATH__
  x = x > 1e300 ? 1e300 : x;
#endif
  return x * tc_from_bits_double((u - half) << 52);
}""",
    *AS_BITS_DOUBLE,
)
