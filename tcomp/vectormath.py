"""Elementary functions in C that a compiler turns into vector instructions.

A call of the C library inside a loop keeps it from vectorising, so the functions that kernels are full of are given
here instead: no branches, no tables, no calls; selections and arithmetic on the bits of floating-point numbers only.
The methods are those of W. J. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980), and of
S. L. Moshier's Cephes library (1984-1992): reduction by a constant in two parts whose first multiplies exactly, a
polynomial, and reconstruction.  The polynomials are minimax, found by E. Ya. Remez' exchange in 45 digits, their
coefficients rounded one by one from the lowest and the others fitted anew.

All obey IEEE arithmetic: infinities, NaN, signed zeros, overflow and gradual underflow come out as from the C library.
Under ``-ffast-math`` they stay within 5 ulp (exp10: 71) on finite arguments with finite results, for no step relies on
sums being taken in order.  On x86 the rounding to integers takes SSE 4.1; below that only logarithms vectorise.
``tests/unit/test_vectormath.py`` holds the greatest errors.
"""

from __future__ import annotations

from tcomp.cfunctions import CFunction


def _inlined(text: str, *uses: tuple[str, CFunction]) -> CFunction:
    return CFunction(text, uses=uses, always_inline=True)


_BITS_FLOAT = _inlined("unsigned $name($T x) { union { $T f; unsigned u; } b = { .f = x }; return b.u; }")
_BITS_DOUBLE = _inlined(
    "unsigned long long $name($T x) { union { $T f; unsigned long long u; } b = { .f = x }; return b.u; }"
)
_FROM_BITS_FLOAT = _inlined("$T $name(unsigned x) { union { unsigned u; $T f; } b = { .u = x }; return b.f; }")
_FROM_BITS_DOUBLE = _inlined(
    "$T $name(unsigned long long x) { union { unsigned long long u; $T f; } b = { .u = x }; return b.f; }"
)
_AS_BITS_FLOAT = (("bits", _BITS_FLOAT), ("from_bits", _FROM_BITS_FLOAT))
_AS_BITS_DOUBLE = (("bits", _BITS_DOUBLE), ("from_bits", _FROM_BITS_DOUBLE))

_SCALE_FLOAT = _inlined(
    """
$T $name($T x, $T n) {
  unsigned u = tc_bits_float(n + 12582912.f), half = u >> 1;
  x *= tc_from_bits_float((half + 127) << 23);
  x = x > 1e30f ? 1e30f : x;
  return x * tc_from_bits_float((u - half + 127) << 23);
}""",
    *_AS_BITS_FLOAT,
)
"""x 2^n for 0.5 < x < 2 and an integer n from -180 to 180, in two steps of which only the second rounds or overflows.

The sum puts n into the low bits of u; the others are shifted out.  A NaN is turned into some power and stays in x.
The bound, which nothing reaches, keeps ``-ffast-math`` from multiplying the powers with each other first."""

_SCALE_DOUBLE = _inlined(
    """
$T $name($T x, $T n) {
  unsigned long long u = tc_bits_double(n + 6755399441055744.), half = u >> 1;
  x *= tc_from_bits_double((half + 1023) << 52);
  x = x > 1e300 ? 1e300 : x;
  return x * tc_from_bits_double((u - half + 1023) << 52);
}""",
    *_AS_BITS_DOUBLE,
)

_EXP_BETWEEN_FLOAT = _inlined(
    """
$T $name($T x) {
  $T n = __builtin_rintf(x * 1.44269504f), r = x - n * 0.693359375f - n * -2.12194442e-4f;
  $T q = (((1.384036149829626e-3f * r + 8.369348011910915e-3f) * r + 4.1668083518743515e-2f) * r
      + 1.6666515171527863e-1f) * r + 4.999999403953552e-1f;
  return tc_scale_float(1 + (r * r * q + r), n);
}""",
    ("scale", _SCALE_FLOAT),
)
"""exp(x) for x from -120 to 90, or NaN."""

_EXP_BETWEEN_DOUBLE = _inlined(
    """
$T $name($T x) {
  $T n = __builtin_rint(x * 1.4426950408889634), r = x - n * 6.93147180369123816e-1 - n * 1.90821492927058770e-10;
  $T q = ((((((((2.5000062097889932e-8 * r + 2.7630248227801957e-7) * r + 2.755758637007989e-6) * r
      + 2.4801493099633745e-5) * r + 1.9841269506586253e-4) * r + 1.388888894362905e-3) * r
      + 8.333333333494456e-3) * r + 4.166666666653016e-2) * r + 1.6666666666666413e-1) * r + 5.000000000000011e-1;
  return tc_scale_double(1 + (r * r * q + r), n);
}""",
    ("scale", _SCALE_DOUBLE),
)
"""exp(x) for x from -750 to 715, or NaN."""

_EXP_FLOAT = _inlined(
    "$T $name($T x) { x = x < -105 ? -105 : x; return tc_exp_between_float(x > 89 ? 89 : x); }",
    ("exp_between", _EXP_BETWEEN_FLOAT),
)
_EXP_DOUBLE = _inlined(
    "$T $name($T x) { x = x < -746 ? -746 : x; return tc_exp_between_double(x > 710 ? 710 : x); }",
    ("exp_between", _EXP_BETWEEN_DOUBLE),
)

_EXP2_FLOAT = _inlined(
    """
$T $name($T x) {
  x = x < -151 ? -151 : x;
  x = x > 129 ? 129 : x;
  $T n = __builtin_rintf(x), r = x - n;
  $T q = ((((1.3372371904551983e-4f * r + 1.338770380243659e-3f) * r + 9.62536595761776e-3f) * r
      + 5.5503662675619125e-2f) * r + 2.4022594094276428e-1f) * r + 6.931471824645996e-1f;
  return tc_scale_float(1 + r * q, n);
}""",
    ("scale", _SCALE_FLOAT),
)
_EXP10_FLOAT = _inlined(
    """
$T $name($T x) {
  x = x < -46 ? -46 : x;
  x = x > 39 ? 39 : x;
  $T n = __builtin_rintf(x * 3.32192809f), r = x - n * 0.301025390625f - n * 4.605039066518657e-6f;
  $T q = ((((1.854320913553238e-1f * r + 5.417673587799072e-1f) * r + 1.1719495058059692f) * r
      + 2.0346570014953613f) * r + 2.650944232940674f) * r + 2.3025851249694824f;
  return tc_scale_float(1 + r * q, n);
}""",
    ("scale", _SCALE_FLOAT),
)
_EXPM1_FLOAT = _inlined(
    """
$T $name($T x) {
  $T y = x < -20 ? -20 : x;
  y = y > 89 ? 89 : y;
  $T n = __builtin_rintf(y * 1.44269504f), r = y - n * 0.693359375f - n * -2.12194442e-4f;
  $T q = ((((1.503124e-4f * r + 1.3930101413279772e-3f) * r + 8.341509848833084e-3f) * r
      + 4.1666511446237564e-2f) * r + 1.6666635870933533e-1f) * r + 0.5f;
  unsigned large = n > 100;
  $T power = tc_from_bits_float((tc_bits_float(n + 12582912.f) - large + 127) << 23), p = r * r * q + r;
  y = power * p + (power - 1);
  y = large ? y + y : n == 0 ? p : y;
  return __builtin_copysignf(y, x);
}""",
    *_AS_BITS_FLOAT,
)
"""2^n (exp(r) - 1) + (2^n - 1), twice the half of it where 2^n might overflow."""

_SIGMOID = """
$T $name($T x) {
  $T a = __builtin_fabs$f(x), e = tc_exp_between_$T(a > LOWEST ? -LOWEST : -a);
  $T sum = 1 + e, lost = e - (sum - 1), y = (x < 0 ? e : 1) / sum;
  return y - y * (lost * (x < 0 ? 1 - y : y));
}"""
_SIGMOID_FLOAT = _inlined(_SIGMOID.replace("LOWEST", "105"), ("exp_between", _EXP_BETWEEN_FLOAT))
_SIGMOID_DOUBLE = _inlined(_SIGMOID.replace("LOWEST", "746"), ("exp_between", _EXP_BETWEEN_DOUBLE))
"""1 / (1 + exp(-x)) with an exponential that cannot overflow, so that it underflows gradually; to first order it is
corrected by what the rounding of the sum lost, times the sum's reciprocal: y, or 1 - y."""

_TANH_FLOAT = _inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabsf(x), s = x * x;
  $T large = 1 - 2 / (1 + tc_exp_between_float(a > 10 ? 20 : 2 * a));
  $T small = x + x * s * ((((-5.727272480726242e-3f * s + 2.0663263276219368e-2f) * s - 5.3748968988657e-2f) * s
      + 1.3331587612628937e-1f) * s - 3.33332896232605e-1f);
  return __builtin_copysignf(a < 0.625f ? small : large, x);
}""",
    ("exp_between", _EXP_BETWEEN_FLOAT),
)

_TANH_DOUBLE = _inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabs(x), s = x * x;
  $T large = 1 - 2 / (1 + tc_exp_between_double(a > 20 ? 40 : 2 * a));
  $T small = x + x * s * ((((((((((-1.9682766549069678e-5 * s + 8.364048576939294e-5) * s - 2.3362368275812523e-4) * s
      + 5.885472521274968e-4) * s - 1.4555701033316145e-3) * s + 3.5920967115222586e-3) * s
      - 8.863233122822433e-3) * s + 2.1869488422502744e-2) * s - 5.396825396528479e-2) * s
      + 1.3333333333329908e-1) * s - 3.3333333333333326e-1);
  return __builtin_copysign(a < 0.55 ? small : large, x);
}""",
    ("exp_between", _EXP_BETWEEN_DOUBLE),
)

_ERF_FLOAT = _inlined(
    """
$T $name($T x) {
  $T a = __builtin_fabsf(x), s = x * x;
  $T small = x + x * ((((((7.806903158780187e-5f * s - 7.997853099368513e-4f) * s + 5.187162198126316e-3f) * s
      - 2.6853347197175026e-2f) * s + 1.1283583723669052e-1f) * s - 3.761262595653534e-1f) * s
      + 1.2837916612625122e-1f);
  $T t = a > 3.93f ? 3.93f : a;
  $T q = ((((((1.5794004866620526e-5f * t - 3.597947652451694e-4f) * t + 3.734726458787918e-3f) * t
      - 2.3749250918626785e-2f) * t + 1.0578358918428421e-1f) * t + 6.359877586364746e-1f) * t
      + 1.1280113458633423f) * t + 1.813607377698645e-4f;
  return a < 1 ? small : __builtin_copysignf(1 - tc_exp_between_float(-q), x);
}""",
    ("exp_between", _EXP_BETWEEN_FLOAT),
)
"""Below 1 an odd polynomial, above 1 - exp(-q(|x|)), q being fitted to -log(erfc)."""

_EXPONENT_FLOAT = _inlined(
    """
$T $name($T x) {
  int denormal = x < 1.17549435e-38f;
  unsigned u = tc_bits_float(denormal ? x * 8388608 : x) - 0x3f3504f3;
  return ((int)u >> 23) - (denormal ? 23 : 0);
}""",
    *_AS_BITS_FLOAT,
)
"""n where x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), x being positive and finite."""

_FRACTION_FLOAT = _inlined(
    """
$T $name($T x) {
  unsigned u = tc_bits_float(x < 1.17549435e-38f ? x * 8388608 : x) - 0x3f3504f3;
  return tc_from_bits_float((u & 0x7fffff) + 0x3f3504f3) - 1;
}""",
    *_AS_BITS_FLOAT,
)
"""f where x = 2^n (1 + f), as above."""

_LOG_REST_FLOAT = _inlined(
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

_LOG_FLOAT = _inlined(
    """
$T $name($T x) {
  $T n = tc_exponent_float(x), f = tc_fraction_float(x);
  $T y = n * 0.693359375f + (f + (tc_log_rest_float(f) + n * -2.12194442e-4f));
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS),
    *_LOG_PARTS_FLOAT,
)
_LOG2_FLOAT = _inlined(
    """
$T $name($T x) {
  $T n = tc_exponent_float(x), f = tc_fraction_float(x);
  $T y = n + (f * 1.44269502f + (tc_log_rest_float(f) * 1.44269502f + f * 1.92596303e-8f));
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS),
    *_LOG_PARTS_FLOAT,
)
_LOG10_FLOAT = _inlined(
    """
$T $name($T x) {
  $T n = tc_exponent_float(x), f = tc_fraction_float(x), rest = tc_log_rest_float(f);
  $T low = rest * 0.434294492f + (f * -1.0103049952192578e-8f + n * 4.605039066518657e-6f);
  $T y = n * 0.301025390625f + (f * 0.434294492f + low);
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS),
    *_LOG_PARTS_FLOAT,
)
_LOG1P_FLOAT = _inlined(
    """
$T $name($T x) {
  $T u = 1 + x, lost = x < 1 ? x - (u - 1) : 1 - (u - x);
  int small = (x > -0.2928f) & (x < 0.4142f), finite = (x > -1) & (x < __builtin_inff());
  $T n = small ? 0 : tc_exponent_float(u), f = small ? x : tc_fraction_float(u), c = finite > small ? lost / u : 0;
  $T y = n * 0.693359375f + (f + (tc_log_rest_float(f) + (n * -2.12194442e-4f + c)));
  $T beyond = x < __builtin_inff() ? 0 : x, below = x == -1 ? -__builtin_inff() : __builtin_nanf("");
  return __builtin_copysignf(y + (x > -1 ? beyond : below), x);
}""",
    *_LOG_PARTS_FLOAT,
)
"""From the logarithm of the rounded sum, corrected by what the rounding lost (W. Kahan's method, as in fdlibm)."""

_LOG_DOUBLE = _inlined(
    """
$T $name($T x) {
  int denormal = x < 2.2250738585072014e-308;
  unsigned long long u = tc_bits_double(denormal ? x * 18014398509481984. : x) - 0x3fe6a09e667f3bcdULL;
  $T n = tc_from_bits_double(0x4330000000000000ULL + ((u + 0x8000000000000000ULL) >> 52)) - 4503599627372544.;
  $T f = tc_from_bits_double((u & 0xfffffffffffffULL) + 0x3fe6a09e667f3bcdULL) - 1;
  n -= denormal ? 54 : 0;
  $T s = f / (2 + f), z = s * s, half = 0.5 * f * f;
  $T q = (((((1.4796081550292858e-1 * z + 1.53140382539498e-1) * z + 1.8183564772537406e-1) * z
      + 2.2222198565246307e-1) * z + 2.8571428742458754e-1) * z + 3.999999999941439e-1) * z + 6.666666666666734e-1;
  $T y = n * 6.93147180369123816490e-01 + (f - (half - (s * (half + z * q) + n * 1.90821492927058770002e-10)));
  LIMITS
}""".replace("LIMITS", _LOG_LIMITS),
    *_AS_BITS_DOUBLE,
)
"""log(1 + f) = 2 atanh(s) with s = f / (2 + f), summed as in Sun's fdlibm (1993)."""

_SINE = """
$T $name($T x) {
  $T a = __builtin_fabsf(x);
  double scale = a < 0x1p51f ? 1 : 0x1p-27, high = a < 0x1p51f ? 0x1.45f306c000000p-1 : -0x1.1b1bbec000000p-1;
  double middle = a < 0x1p51f ? 0x1.c9c882a000000p-29 : 0x1.29fc276000000p-29;
  double low = a < 0x1p51f ? 0x1.4fe13abe8fa9ap-59 : -0x1.05c1596447e49p-58;
  scale = a < 0x1p78f ? scale : 0x1p-54;
  high = a < 0x1p78f ? high : 0x1.4a7f09e000000p+0;
  middle = a < 0x1p78f ? middle : -0x1.4170566000000p-29;
  low = a < 0x1p78f ? low : 0x1.bb81b6c52b328p-59;
  scale = a < 0x1p105f ? scale : 0x1p-81;
  high = a < 0x1p105f ? high : -0x1.505c15a000000p+0;
  middle = a < 0x1p105f ? middle : 0x1.377036e000000p-29;
  low = a < 0x1p105f ? low : -0x1.d6a66c3bc6fbep-59;
  double part = x * scale, first = part * high, second = part * middle;
  first -= 4 * __builtin_rint(first * 0.25);
  second -= 4 * __builtin_rint(second * 0.25);
  double n = __builtin_rint(first + second);
  double t = ((first - n) + second + part * low) * 1.5707963267948966, z = t * t;
  double sine = t * ((((2.717075755459071e-6 * z - 1.9839169970464282e-4) * z + 8.333328662152051e-3) * z
      - 1.6666666630154175e-1) * z + 9.999999999954043e-1);
  double cosine = (((2.4371811187620782e-5 * z - 1.388651953772419e-3) * z + 4.166661290526216e-2) * z
      - 4.999999956802566e-1) * z + 9.999999999433555e-1;
  union { double f; unsigned long long u; } quarter = { .f = n + 6755399441055744. }, y;
  quarter.u += TURN;
  y.f = quarter.u & 1 ? cosine : sine;
  y.u ^= (quarter.u & 2) << 62;
  RESULT
}"""
_SIN_FLOAT = _inlined(_SINE.replace("TURN", "0").replace("RESULT", "return x == 0 ? x : ($T)y.f;"))
_COS_FLOAT = _inlined(_SINE.replace("TURN", "1").replace("RESULT", "return ($T)y.f;"))
"""Exact for all x: x 2/pi modulo 4 is (x 2^-27k) (2^27k 2/pi modulo 4) where x is a multiple of 2^27k, and two factors
of 24 and 28 bits have a product that a double holds (after M. H. Payne and R. N. Hanek, "Radian Reduction for
Trigonometric Functions", SIGNUM Newsletter 18 (1983) 19-24).  The third part of 2/pi is rounded."""

_POW_FLOAT = _inlined(
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
    *_AS_BITS_FLOAT,
)
"""2^(y log2 |x|) in double precision, all but exact for float; the rest are the limits of IEEE 754.

What depends on y alone is a number rather than a condition, for gcc selects by no condition that a loop leaves as it
is.  Squares and cubes by constants are products, as the compiler makes them of calls of the C library."""

VECTORISED: dict[tuple[str, str], CFunction] = {
    ("exp", "float"): _EXP_FLOAT,
    ("exp", "double"): _EXP_DOUBLE,
    ("exp2", "float"): _EXP2_FLOAT,
    ("exp10", "float"): _EXP10_FLOAT,
    ("expm1", "float"): _EXPM1_FLOAT,
    ("sigmoid", "float"): _SIGMOID_FLOAT,
    ("sigmoid", "double"): _SIGMOID_DOUBLE,
    ("tanh", "float"): _TANH_FLOAT,
    ("tanh", "double"): _TANH_DOUBLE,
    ("erf", "float"): _ERF_FLOAT,
    ("log", "float"): _LOG_FLOAT,
    ("log", "double"): _LOG_DOUBLE,
    ("log2", "float"): _LOG2_FLOAT,
    ("log10", "float"): _LOG10_FLOAT,
    ("log1p", "float"): _LOG1P_FLOAT,
    ("sin", "float"): _SIN_FLOAT,
    ("cos", "float"): _COS_FLOAT,
    ("pow", "float"): _POW_FLOAT,
}
"""What stands in for the C library, by intrinsic and C type."""
