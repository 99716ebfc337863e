"""Exponentials, and what is made of them: the logistic function, hyperbolic functions, the error function."""

from __future__ import annotations

from tcomp.values.vectormath.bits import (
    AS_BITS_DOUBLE,
    AS_BITS_FLOAT,
    MULTIPLY_ADD_DOUBLE,
    MULTIPLY_ADD_FLOAT,
    POWER_DOUBLE,
    POWER_FLOAT,
    SCALE_DOUBLE,
    SCALE_FLOAT,
    inlined,
)

_EXP_REST_FLOAT = inlined(
    """
$T $name($T r) {
  $T q = (((1.384036149829626e-3f * r + 8.369348011910915e-3f) * r + 4.1668083518743515e-2f) * r
      + 1.6666515171527863e-1f) * r + 4.999999403953552e-1f;
  return r * r * q + r;
}"""
)
_EXP_REST_DOUBLE = inlined(
    """
$T $name($T r) {
  $T q = ((((((((2.5000062097889932e-8 * r + 2.7630248227801957e-7) * r + 2.755758637007989e-6) * r
      + 2.4801493099633745e-5) * r + 1.9841269506586253e-4) * r + 1.388888894362905e-3) * r
      + 8.333333333494456e-3) * r + 4.166666666653016e-2) * r + 1.6666666666666413e-1) * r + 5.000000000000011e-1;
  return r * r * q + r;
}"""
)
"""exp(r) - 1 for r between -log(2)/2 and log(2)/2."""

_LESS_LOG2_FLOAT = inlined(
    """
$T $name($T x, $T n) {
  return tc_multiply_add_float(n, 2.12194442e-4f, tc_multiply_add_float(n, -0.693359375f, x));
}""",
    ("multiply_add", MULTIPLY_ADD_FLOAT),
)
_LESS_LOG2_DOUBLE = inlined(
    """
$T $name($T x, $T n) {
  return tc_multiply_add_double(n, -1.90821492927058770e-10, tc_multiply_add_double(n, -6.93147180369123816e-1, x));
}""",
    ("multiply_add", MULTIPLY_ADD_DOUBLE),
)
"""x - n log(2), the first product of which is exact."""

_EXP_FLOAT_PARTS = (("exp_rest", _EXP_REST_FLOAT), ("less_log2", _LESS_LOG2_FLOAT), ("scale", SCALE_FLOAT))
_EXP_DOUBLE_PARTS = (("exp_rest", _EXP_REST_DOUBLE), ("less_log2", _LESS_LOG2_DOUBLE), ("scale", SCALE_DOUBLE))

_EXP_BETWEEN_FLOAT = inlined(
    """
$T $name($T x) {
  $T n = __builtin_rintf(x * 1.44269504f);
  return tc_scale_float(1 + tc_exp_rest_float(tc_less_log2_float(x, n)), n);
}""",
    *_EXP_FLOAT_PARTS,
)
"""exp(x) for x from -120 to 90, or NaN; anything for others."""

_EXP_BETWEEN_DOUBLE = inlined(
    """
$T $name($T x) {
  $T n = __builtin_rint(x * 1.4426950408889634);
  return tc_scale_double(1 + tc_exp_rest_double(tc_less_log2_double(x, n)), n);
}""",
    *_EXP_DOUBLE_PARTS,
)
"""exp(x) for x from -750 to 715, or NaN; anything for others."""

EXP_FLOAT = inlined(
    """
$T $name($T x) {
  $T y = tc_exp_between_float(x > 89 ? 89 : x);
  return tc_from_bits_float(tc_bits_float(y) & ((x < -105) - 1u));
}""",
    ("exp_between", _EXP_BETWEEN_FLOAT),
    *AS_BITS_FLOAT,
)
"""What is too small is cut out of the bits: gcc 12 makes five comparisons of two bounds in front, and with a constant
behind it specialises what is computed from it, for which loops are not vectorised."""

EXP_OF_WEIGHT_FLOAT = inlined(
    """
$T $name($T x) {
  $T z = tc_multiply_add_float(x, 1.44269504f, 12583039.f), n = z - 12583039.f;
  $T r = tc_less_log2_float(x, n);
  $T y = (((((1.384036149829626e-3f * r + 8.369348011910915e-3f) * r + 4.1668083518743515e-2f) * r
      + 1.6666515171527863e-1f) * r + 4.999999403953552e-1f) * r + 1) * r + 1;
  y *= tc_from_bits_float(tc_bits_float(z) << 23);
  return tc_from_bits_float(tc_bits_float(y) & ((x < -87.3365f) - 1u));
}""",
    ("less_log2", _LESS_LOG2_FLOAT),
    *AS_BITS_FLOAT,
)
"""exp(x) for x up to 88, or NaN; 0 where that is below 2^-126, the least normal number.

The sum puts the integer n and the bias of exponents into the low bits of z; ``-ffast-math`` would leave it out."""

EXP_OF_SCALED_WEIGHT_FLOAT = inlined(
    """
$T $name($T x, double by) {
#ifdef __FP_FAST_FMAF
  $T turns = ($T)(by * 1.4426950408889634);
  $T z = tc_multiply_add_float(x, turns, 12583039.f), n = z - 12583039.f;
  $T r = tc_multiply_add_float(x, turns, -n), power = tc_from_bits_float(tc_bits_float(z) << 23);
  $T q = ((((1.559467816132662e-4f * r + 1.3406643902351759e-3f) * r + 9.617692972993062e-3f) * r
      + 5.550310551013797e-2f) * r + 2.4022652782887738e-1f) * r + 6.931472149680279e-1f;
  $T y = tc_multiply_add_float(power * r, q, power);
  return tc_from_bits_float(tc_bits_float(y) & ((z < 12582913.f) - 1u));
#else
  return tc_exp_of_weight_float(x * ($T)by);
#endif
}""",
    ("multiply_add", MULTIPLY_ADD_FLOAT),
    ("exp_of_weight", EXP_OF_WEIGHT_FLOAT),
    *AS_BITS_FLOAT,
)
"""exp(x by), as the one above, where ``by`` is between 2^-60 and 2^60: the same for a whole loop, so that a factor
of log2(e) costs nothing.  It is rounded once, as the product would be: that is |x by| units more.  2^r - 1 is r q, the
remainder r is exact but for one rounding, and the sum with the power rounds once.  z is 12583039 + n."""

EXP_DOUBLE = inlined(
    """
$T $name($T x) {
  $T y = tc_exp_between_double(x > 710 ? 710 : x);
  return tc_from_bits_double(tc_bits_double(y) & ((x < -746) - 1ull));
}""",
    ("exp_between", _EXP_BETWEEN_DOUBLE),
    *AS_BITS_DOUBLE,
)

EXP2_FLOAT = inlined(
    """
$T $name($T x) {
  $T bounded = x > 129 ? 129 : x, n = __builtin_rintf(bounded), r = bounded - n;
  $T q = ((((1.3372371904551983e-4f * r + 1.338770380243659e-3f) * r + 9.62536595761776e-3f) * r
      + 5.5503662675619125e-2f) * r + 2.4022594094276428e-1f) * r + 6.931471824645996e-1f;
  return tc_from_bits_float(tc_bits_float(tc_scale_float(1 + r * q, n)) & ((x < -151) - 1u));
}""",
    ("scale", SCALE_FLOAT),
    *AS_BITS_FLOAT,
)
EXP10_FLOAT = inlined(
    """
$T $name($T x) {
  $T bounded = x > 39 ? 39 : x, n = __builtin_rintf(bounded * 3.32192809f);
  $T r = tc_multiply_add_float(n, -4.605039066518657e-6f, tc_multiply_add_float(n, -0.301025390625f, bounded));
  $T q = ((((1.854320913553238e-1f * r + 5.417673587799072e-1f) * r + 1.1719495058059692f) * r
      + 2.0346570014953613f) * r + 2.650944232940674f) * r + 2.3025851249694824f;
  return tc_from_bits_float(tc_bits_float(tc_scale_float(1 + r * q, n)) & ((x < -46) - 1u));
}""",
    ("multiply_add", MULTIPLY_ADD_FLOAT),
    ("scale", SCALE_FLOAT),
    *AS_BITS_FLOAT,
)
EXP2_DOUBLE = inlined(
    """
$T $name($T x) {
  x = x < -1076 ? -1076 : x;
  x = x > 1025 ? 1025 : x;
  $T n = __builtin_rint(x);
  return tc_scale_double(1 + tc_exp_rest_double((x - n) * 6.931471805599453e-1), n);
}""",
    ("exp_rest", _EXP_REST_DOUBLE),
    ("scale", SCALE_DOUBLE),
)
EXP10_DOUBLE = inlined(
    """
$T $name($T x) {
  x = x < -324.5 ? -324.5 : x;
  x = x > 309 ? 309 : x;
  $T n = __builtin_rint(x * 3.321928094887362);
  $T r = tc_multiply_add_double(n, 8.532344317057107e-14, tc_multiply_add_double(n, -3.010299956640665e-1, x));
  return tc_scale_double(1 + tc_exp_rest_double(r * 2.302585092994046), n);
}""",
    ("exp_rest", _EXP_REST_DOUBLE),
    ("multiply_add", MULTIPLY_ADD_DOUBLE),
    ("scale", SCALE_DOUBLE),
)
EXPM1_FLOAT = inlined(
    """
$T $name($T x) {
  $T y = x < -20 ? -20 : x;
  y = y > 89 ? 89 : y;
  $T n = __builtin_rintf(y * 1.44269504f);
  $T r = tc_multiply_add_float(n, 2.12194442e-4f, tc_multiply_add_float(n, -0.693359375f, y));
  $T q = ((((1.503124e-4f * r + 1.3930101413279772e-3f) * r + 8.341509848833084e-3f) * r
      + 4.1666511446237564e-2f) * r + 1.6666635870933533e-1f) * r + 0.5f;
  unsigned large = n > 100;
  $T power = tc_from_bits_float((tc_bits_float(n + 12582912.f) - large + 127) << 23), p = r * r * q + r;
  y = power * p + (power - 1);
  y = large ? y + y : n == 0 ? p : y;
  return __builtin_copysignf(y, x);
}""",
    ("multiply_add", MULTIPLY_ADD_FLOAT),
    *AS_BITS_FLOAT,
)
"""2^n (exp(r) - 1) + (2^n - 1), twice the half of it where 2^n might overflow."""

EXPM1_DOUBLE = inlined(
    """
$T $name($T x) {
  $T y = x < -40 ? -40 : x;
  y = y > 710 ? 710 : y;
  $T n = __builtin_rint(y * 1.4426950408889634);
  $T r = tc_multiply_add_double(n, -1.90821492927058770e-10, tc_multiply_add_double(n, -6.93147180369123816e-1, y));
  $T q = (((((((((2.087524877886528e-9 * r + 2.5108975119940503e-8) * r + 2.7557403271390185e-7) * r
      + 2.7557244395499026e-6) * r + 2.4801587171274864e-5) * r + 1.9841269885931148e-4) * r
      + 1.3888888888963329e-3) * r + 8.333333333321712e-3) * r + 0.041666666666666505) * r
      + 0.16666666666666677) * r + 0.5;
  unsigned long long large = n > 1000;
  $T power = tc_from_bits_double((tc_bits_double(n + 6755399441055744.) - large + 1023) << 52), p = r * r * q + r;
  y = power * p + (power - 1);
  y = large ? y + y : n == 0 ? p : y;
  return __builtin_copysign(y, x);
}""",
    ("multiply_add", MULTIPLY_ADD_DOUBLE),
    *AS_BITS_DOUBLE,
)

SIGMOID_FLOAT = inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabsf(x);
  a = a > 104 ? 104 : a;
  $T n = __builtin_rintf(a * 1.44269504f), power = tc_power_float(24 - n);
  $T y = power / (16777216 + (tc_exp_rest_float(tc_less_log2_float(a, n)) * 16777216 + power));
  return x < 0 ? y : 1 - y;
}""",
    ("power", POWER_FLOAT),
    *_EXP_FLOAT_PARTS[:2],
)
SIGMOID_DOUBLE = inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabs(x);
  a = a > 746 ? 746 : a;
  $T n = __builtin_rint(a * 1.4426950408889634), power = tc_power_double(54 - n);
  $T y = power / (0x1p54 + (tc_exp_rest_double(tc_less_log2_double(a, n)) * 0x1p54 + power));
  return x < 0 ? y : 1 - y;
}""",
    ("power", POWER_DOUBLE),
    *_EXP_DOUBLE_PARTS[:2],
)
"""1 / (1 + exp(a)) = 2^-n / (2^-n + exp(a - n log(2))) for a = |x|, or 1 less that.  Numerator and denominator are
scaled so that the power is a normal number where the quotient underflows; the sum is rounded once at its full size."""

TANH_FLOAT = inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabsf(x), s = x * x;
  $T b = a > 10 ? 20 : 2 * a, n = __builtin_rintf(b * 1.44269504f), power = tc_power_float(n);
  $T large = 1 - 2 / (tc_exp_rest_float(tc_less_log2_float(b, n)) * power + (power + 1));
  $T small = x + x * s * ((((-5.727272480726242e-3f * s + 2.0663263276219368e-2f) * s - 5.3748968988657e-2f) * s
      + 1.3331587612628937e-1f) * s - 3.33332896232605e-1f);
  return __builtin_copysignf(a < 0.625f ? small : large, x);
}""",
    ("power", POWER_FLOAT),
    *_EXP_FLOAT_PARTS[:2],
)

TANH_DOUBLE = inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabs(x), s = x * x;
  $T b = a > 20 ? 40 : 2 * a, n = __builtin_rint(b * 1.4426950408889634), power = tc_power_double(n);
  $T large = 1 - 2 / (tc_exp_rest_double(tc_less_log2_double(b, n)) * power + (power + 1));
  $T small = x + x * s * ((((((((((-1.9682766549069678e-5 * s + 8.364048576939294e-5) * s - 2.3362368275812523e-4) * s
      + 5.885472521274968e-4) * s - 1.4555701033316145e-3) * s + 3.5920967115222586e-3) * s
      - 8.863233122822433e-3) * s + 2.1869488422502744e-2) * s - 5.396825396528479e-2) * s
      + 1.3333333333329908e-1) * s - 3.3333333333333326e-1);
  return __builtin_copysign(a < 0.55 ? small : large, x);
}""",
    ("power", POWER_DOUBLE),
    *_EXP_DOUBLE_PARTS[:2],
)

ERF_FLOAT = inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabsf(x), t = a > 3.93f ? 3.93f : a;
  $T p = (((((((-9.350345862912945e-6f * t + 1.1858878133352846e-4f) * t - 6.366652087308466e-4f) * t
      + 1.6749775968492031e-3f) * t - 1.6941438661888242e-4f) * t - 1.9147593528032303e-2f) * t
      + 1.0277622193098068e-1f) * t + 6.366195678710938e-1f) * t + 1.2837916612625122e-1f;
  $T q = t * p + t, n = __builtin_rintf(q * -1.44269504f), power = tc_power_float(n);
  $T y = tc_multiply_add_float(-tc_exp_rest_float(tc_less_log2_float(-q, n)), power, 1 - power);
  return __builtin_copysignf(y, x);
}""",
    ("multiply_add", MULTIPLY_ADD_FLOAT),
    ("power", POWER_FLOAT),
    *_EXP_FLOAT_PARTS[:2],
)
"""1 - exp(-q(|x|)), q being fitted to -log(erfc).  Below 0.33, where the power is 1, it is -(exp(-q) - 1), as precise
as q is, which is t and a part of t: no other polynomial is needed there."""

ERF_DOUBLE = inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabs(x), s = a < 1 ? x * x : 1;
  $T p = (((((((((((5.945255584223488e-11 * s - 1.136567067182716e-9) * s + 1.4657883530919653e-8) * s
      - 1.635002619207727e-7) * s + 1.6460972954153765e-6) * s - 1.4925593518728226e-5) * s
      + 1.2055331037551108e-4) * s - 8.548326978765149e-4) * s + 5.22397762478137e-3) * s - 0.02686617064507296) * s
      + 0.11283791670954858) * s - 0.3761263890318375) * s + 0.1283791670955126;
  $T t = a > 6 ? 6 : a;
  $T q = (((((((((((((((((-1.049361720433128e-12 * t + 4.794963229515975e-11) * t - 1.0254935997246957e-9) * t
      + 1.3624229878916955e-8) * t - 1.2568450947074795e-7) * t + 8.50450334189302e-7) * t
      - 4.326472547864222e-6) * t + 1.651191130143558e-5) * t - 4.5031698863820895e-5) * t
      + 7.035399755097819e-5) * t + 4.484494778668406e-5) * t - 6.41204606356402e-4) * t
      + 1.7690364431902652e-3) * t - 2.8051986879664396e-4) * t - 0.01907813493267315) * t
      + 0.10274724227684265) * t + 0.6366284922821487) * t + 1.128377328551619) * t + 1.796905850750127e-7;
  $T n = __builtin_rint(q * -1.4426950408889634), power = tc_power_double(n);
  $T large = 1 - power - tc_exp_rest_double(tc_less_log2_double(-q, n)) * power;
  return a < 1 ? x + x * p : __builtin_copysign(large, x);
}""",
    ("power", POWER_DOUBLE),
    *_EXP_DOUBLE_PARTS[:2],
)
"""Below 1 an odd polynomial, above 1 - exp(-q(|x|)), q being fitted to -log(erfc)."""

SINH_FLOAT = inlined(
    """
double $name(double x) {
  double a = __builtin_fabs(x), t = tc_expm1_double(a > 100 ? 100 : a);
  return __builtin_copysign(0.5 * (t + t / (t + 1)), x);
}""",
    ("expm1", EXPM1_DOUBLE),
)
COSH_FLOAT = inlined(
    """
double $name(double x) {
  double a = __builtin_fabs(x), e = tc_exp_between_double(a > 100 ? 100 : a);
  return 0.5 * (e + 1 / e);
}""",
    ("exp_between", _EXP_BETWEEN_DOUBLE),
)
"""Good for all floats, to which they are converted: computed in double precision, they are all but exact."""
