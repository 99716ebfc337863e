"""Powers and lengths."""

from __future__ import annotations

from tcomp.values.vectormath.bits import AS_BITS_FLOAT, inlined

POW_FLOAT = inlined(
    """
$T $name($T x, $T y) {
  if (__builtin_constant_p(y) && y == 2) return x * x;
  if (__builtin_constant_p(y) && y == 3) return x * x * x;
  double size = __builtin_fabs(x), bound = __builtin_inf();
  double infinity = y == 0 ? 0 : bound, nan = y == 0 ? 0 : __builtin_nan(""), exponent = y < -1e38f ? -1e38f : y;
  union { double f; unsigned long long u; } whole = { .f = size }, part, power;
  whole.u -= 0x3fe6a09e667f3bcdULL;
  part.u = (whole.u & 0xfffffffffffffULL) + 0x3fe6a09e667f3bcdULL;
  whole.u = 0x4330000000000000ULL + ((whole.u + 0x8000000000000000ULL) >> 52);
  double s = (part.f - 1) / (part.f + 1), z = s * s;
  double log2 = (whole.f - 4503599627372544.) + s * (((((2.8291032750345064e-1 * z + 3.1990495828263754e-1) * z
      + 4.1220927116188255e-1) * z + 5.770779421697970e-1) * z + 9.617966941140518e-1) * z + 2.8853900817778495);
  exponent = exponent > 1e38f ? 1e38f : exponent;
  double t = exponent * (log2 + (size == 0 ? -infinity : size < bound ? 0 : size == bound ? infinity : nan));
  t = t < -160 ? -160 : t;
  t = t > 130 ? 130 : t;
  double n = __builtin_rint(t), r = t - n;
  power.f = n + 6755399441055744.;
  power.u = (power.u + 1023) << 52;
  double p = ((((((1.5345818187546072e-4 * r + 1.3399931347515336e-3) * r + 9.61848893219726e-3) * r
      + 5.5503287769089596e-2) * r + 2.4022646890893154e-1) * r + 6.931472057372908e-1) * r + 1.0000000005541196);
  $T half = 0.5f * y, root = __builtin_floorf(y) == y ? -0.f : __builtin_nanf("");
  unsigned sign = root == 0 && __builtin_floorf(half) != half ? 0x80000000u : 0;
  $T value = tc_from_bits_float(tc_bits_float((float)(p * power.f)) | (tc_bits_float(x) & sign));
  root = x < 0 ? root : -0.f;
  value += x > -__builtin_inff() ? root : -0.f;
  return x == 1 ? 1 : value;
}""",
    *AS_BITS_FLOAT,
)
"""2^(y log2 |x|) in double precision, all but exact for float; the rest are the limits of IEEE 754.

What depends on y alone is a number rather than a condition, for gcc selects by no condition that a loop leaves as it
is.  Squares and cubes by constants are products, as the compiler makes them of calls of the C library."""

HYPOT_FLOAT = inlined(
    """
$T $name($T x, $T y) {
  double infinite = (__builtin_fabsf(x) == __builtin_inff()) | (__builtin_fabsf(y) == __builtin_inff());
  double length = __builtin_sqrt((double)x * x + (double)y * y);
  return infinite != 0 ? __builtin_inff() : ($T)length;
}"""
)
"""In double precision, where no square of a float overflows."""
