"""Logarithms to several bases."""

from __future__ import annotations

from tcomp.values.vectormath.bits import AS_BITS_DOUBLE, AS_BITS_FLOAT, MULTIPLY_ADD_DOUBLE, MULTIPLY_ADD_FLOAT, inlined

_EXPONENT_FLOAT = inlined(
    """
$T $name($T x) {
  int denormal = x < 1.17549435e-38f;
  unsigned u = tc_bits_float(denormal ? x * 8388608 : x) - 0x3f3504f3;
  return ($T)(((int)u >> 23) - (denormal ? 23 : 0));
}""",
    *AS_BITS_FLOAT,
)
"""n where x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), x being positive and finite."""

_FRACTION_FLOAT = inlined(
    """
$T $name($T x) {
  unsigned u = tc_bits_float(x < 1.17549435e-38f ? x * 8388608 : x) - 0x3f3504f3;
  return tc_from_bits_float((u & 0x7fffff) + 0x3f3504f3) - 1;
}""",
    *AS_BITS_FLOAT,
)
"""f where x = 2^n (1 + f), as above."""

_LOG_REST_FLOAT = inlined(
    """
$T $name($T f) {
  $T q = ((((((-7.647456228733063e-2f * f + 1.2768134474754333e-1f) * f - 1.3159197568893433e-1f) * f
      + 1.420091837644577e-1f) * f - 1.662333458662033e-1f) * f + 2.0001260936260223e-1f) * f
      - 2.50008225440979e-1f) * f + 3.333333134651184e-1f;
  return f * f * (f * q - 0.5f);
}"""
)
"""log(1 + f) - f."""

_LOG_LIMITS = """$T beyond = x < __builtin_inf$f() ? 0 : x, below = x == 0 ? -__builtin_inf$f() : __builtin_nan$f("");
  return y + (x > 0 ? beyond : below);"""
"""The limits are added rather than chosen, lest gcc move all that leads to y into a branch; y is finite always."""

_LOG_PARTS_FLOAT = (("exponent", _EXPONENT_FLOAT), ("fraction", _FRACTION_FLOAT), ("log_rest", _LOG_REST_FLOAT))

LOG_FLOAT = inlined(
    """
$T $name($T x) {
  $T n = tc_exponent_float(x), f = tc_fraction_float(x);
  $T y = n * 0.693359375f + (f + (tc_log_rest_float(f) + n * -2.12194442e-4f));
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS),
    *_LOG_PARTS_FLOAT,
)
LOG2_FLOAT = inlined(
    """
$T $name($T x) {
  $T n = tc_exponent_float(x), f = tc_fraction_float(x);
  $T y = n + (f * 1.44269502f + (tc_log_rest_float(f) * 1.44269502f + f * 1.92596303e-8f));
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS),
    *_LOG_PARTS_FLOAT,
)
LOG10_FLOAT = inlined(
    """
$T $name($T x) {
  $T n = tc_exponent_float(x), f = tc_fraction_float(x), rest = tc_log_rest_float(f);
  $T low = rest * 0.434294492f + (f * -1.0103049952192578e-8f + n * 4.605039066518657e-6f);
  $T y = n * 0.301025390625f + (f * 0.434294492f + low);
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS),
    *_LOG_PARTS_FLOAT,
)
LOG1P_FLOAT = inlined(
    """
$T $name($T x) {
  $T within = ((x > -1) & (x < __builtin_inff())) ? x : 1;
  unsigned u = tc_bits_float(1 + within) - 0x3f400000;
  $T n = ($T)((int)u >> 23), power = tc_from_bits_float(0x40800000 - (u & 0xff800000));
  $T f = 0.25f * tc_multiply_add_float(within, power, power - 4);
  $T q = ((((((-4.5152269303798676e-2f * f + 1.0472550988197327e-1f) * f - 1.3163936138153076e-1f) * f
      + 1.4477629959583282e-1f) * f - 1.664687842130661e-1f) * f + 1.9990848004817963e-1f) * f
      - 2.5000110268592834e-1f) * f + 3.333345055580139e-1f;
  $T y = n * 0.693359375f + (f + (f * f * (f * q - 0.5f) + n * -2.12194442e-4f));
  $T beyond = x < __builtin_inff() ? 0 : x, below = x == -1 ? -__builtin_inff() : __builtin_nanf("");
  return __builtin_copysignf(y + (x > -1 ? beyond : below), x);
}""",
    ("multiply_add", MULTIPLY_ADD_FLOAT),
    *AS_BITS_FLOAT,
)
"""With n from the rounded sum, f = 2^-n x + (2^-n - 1) is rounded once, for products with a power of two are exact, and
not at all where n is 1 or -1 and the logarithm small, for 3/4 <= 1 + f < 3/2.  Four times as much is computed first,
since 2^-n may be too small for a normal number."""

_EXPONENT_DOUBLE = inlined(
    """
$T $name($T x) {
  int denormal = x < 2.2250738585072014e-308;
  unsigned long long u = tc_bits_double(denormal ? x * 18014398509481984. : x) - 0x3fe6a09e667f3bcdULL;
  $T n = tc_from_bits_double(0x4330000000000000ULL + ((u + 0x8000000000000000ULL) >> 52)) - 4503599627372544.;
  return n - (denormal ? 54 : 0);
}""",
    *AS_BITS_DOUBLE,
)
_FRACTION_DOUBLE = inlined(
    """
$T $name($T x) {
  int denormal = x < 2.2250738585072014e-308;
  unsigned long long u = tc_bits_double(denormal ? x * 18014398509481984. : x) - 0x3fe6a09e667f3bcdULL;
  return tc_from_bits_double((u & 0xfffffffffffffULL) + 0x3fe6a09e667f3bcdULL) - 1;
}""",
    *AS_BITS_DOUBLE,
)
_LOG_REST_DOUBLE = inlined(
    """
$T $name($T f) {
  $T s = f / (2 + f), z = s * s, half = 0.5 * f * f;
  $T q = (((((1.4796081550292858e-1 * z + 1.53140382539498e-1) * z + 1.8183564772537406e-1) * z
      + 2.2222198565246307e-1) * z + 2.8571428742458754e-1) * z + 3.999999999941439e-1) * z + 6.666666666666734e-1;
  return s * (half + z * q);
}"""
)
"""log(1 + f) - f + f^2/2 from log(1 + f) = 2 atanh(s) with s = f / (2 + f), as in Sun's fdlibm (1993)."""

_LOG_PARTS_DOUBLE = (
    ("exponent", _EXPONENT_DOUBLE),
    ("fraction", _FRACTION_DOUBLE),
    ("log_rest", _LOG_REST_DOUBLE),
)

LOG_DOUBLE = inlined(
    """
$T $name($T x) {
  $T n = tc_exponent_double(x), f = tc_fraction_double(x), half = 0.5 * f * f;
  $T y = n * 6.93147180369123816490e-01 + (f - (half - (tc_log_rest_double(f) + n * 1.90821492927058770002e-10)));
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS),
    *_LOG_PARTS_DOUBLE,
)
_LOG_OTHER_BASE = """
$T $name($T x) {
  $T n = tc_exponent_double(x), f = tc_fraction_double(x), half = 0.5 * f * f;
  $T high = tc_from_bits_double(tc_bits_double(f - half) & 0xffffffff00000000ULL);
  $T low = f - high - half + tc_log_rest_double(f);
  $T first = high * HIGH, second = SECOND(low + high) * LOW + low * HIGH;
  $T whole = WHOLE, sum = whole + first;
  $T y = sum + (whole - sum + first + second);
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS)
LOG2_DOUBLE = inlined(
    _LOG_OTHER_BASE.replace("HIGH", "1.4426950407214463")
    .replace("LOW", "1.6751713164886512e-10")
    .replace("SECOND", "")
    .replace("WHOLE", "n"),
    *_LOG_PARTS_DOUBLE,
    *AS_BITS_DOUBLE,
)
LOG10_DOUBLE = inlined(
    _LOG_OTHER_BASE.replace("HIGH", "0.4342944818781689")
    .replace("LOW", "2.5082946711645275e-11")
    .replace("SECOND", "n * 1.42050232272661e-13 + ")
    .replace("WHOLE", "n * 0.30102999566383914"),
    *_LOG_PARTS_DOUBLE,
    *AS_BITS_DOUBLE,
)
"""The logarithm in two parts, the first of 21 bits, so that its product with a constant of 32 bits is exact."""

LOG1P_DOUBLE = inlined(
    """
$T $name($T x) {
  $T within = ((x > -1) & (x < __builtin_inf())) ? x : 1;
  unsigned long long u = tc_bits_double(1 + within) - 0x3fe6a09e667f3bcdULL;
  $T n = tc_from_bits_double(0x4330000000000000ULL + ((u + 0x8000000000000000ULL) >> 52)) - 4503599627372544.;
  $T power = tc_from_bits_double(0x4010000000000000ULL - (u & 0xfff0000000000000ULL));
  $T f = 0.25 * tc_multiply_add_double(within, power, power - 4), half = 0.5 * f * f;
  $T y = n * 6.93147180369123816490e-01 + (f - (half - (tc_log_rest_double(f) + n * 1.90821492927058770002e-10)));
  $T beyond = x < __builtin_inf() ? 0 : x, below = x == -1 ? -__builtin_inf() : __builtin_nan("");
  return __builtin_copysign(y + (x > -1 ? beyond : below), x);
}""",
    ("log_rest", _LOG_REST_DOUBLE),
    ("multiply_add", MULTIPLY_ADD_DOUBLE),
    *AS_BITS_DOUBLE,
)
