// Functions that CUDA has and the C library has not, in double precision; float versions round their results.
#pragma once

#include <math.h>

#include "state.hpp"

static const double ROOT_OF_PI = 1.7724538509055160273, ROOT_HALF = 0.70710678118654752440;

// Newton's method on the logarithm of erfc, which is nearly a parabola in the tail.
static double solve_erfc(double y, double x) {
  for (int i = 0; i < 60; i++) {
    double value = erfc(x), slope = -2 / ROOT_OF_PI * exp(-x * x);
    double step = (log(value) - log(y)) * value / slope;
    x -= step;
    if (fabs(step) <= 1e-16 * fabs(x)) break;
  }
  return x;
}

static double solve_erf(double y) {
  double w = -log((1 - y) * (1 + y)), x = y * (0.8862269254527580 + 0.23 * w);
  for (int i = 0; i < 60; i++) {
    double step = (erf(x) - y) * ROOT_OF_PI / 2 * exp(x * x);
    step /= 1 + x * step;
    x -= step;
    if (fabs(step) <= 1e-17 * fabs(x)) break;
  }
  return x;
}

static double continued_erfcx(double x) {
  double tail = x;
  for (int k = 60; k > 0; k--) tail = x + k / 2.0 / tail;
  return 1 / (ROOT_OF_PI * tail);
}

static double half_turns(double x, double (*at_quarter)(int, double)) {
  double rest = fmod(x, 2.0), quarter = rint(2 * rest);
  return at_quarter((int)quarter & 3, 3.14159265358979323846 * (rest - quarter / 2));
}
static double sine_at(int quarter, double angle) {
  double value = quarter & 1 ? cos(angle) : sin(angle);
  return quarter & 2 ? -value : value;
}
static double cosine_at(int quarter, double angle) { return sine_at((quarter + 1) & 3, angle); }

static double bessel(double x, int order) {
  double quarter = x * x / 4, term = order ? x / 2 : 1, sum = term;
  if (isinf(x)) return order ? x : INFINITY;
  for (int k = 1; fabs(term) > 1e-18 * fabs(sum); k++) {
    term *= quarter / k / (k + order);
    sum += term;
  }
  return sum;
}

#define TC_SHOWN __attribute__((visibility("hidden")))
#define TC_FUNCTION(name, parameters, ...)           \
  extern "C" TC_SHOWN double name(TC_EACH_##parameters(double)) { __VA_ARGS__ } \
  extern "C" TC_SHOWN float name##f(TC_EACH_##parameters(float)) { return (float)name(TC_NAMES_##parameters); }
#define TC_EACH_1(T) T x
#define TC_EACH_2(T) T x, T y
#define TC_EACH_3(T) T x, T y, T z
#define TC_EACH_4(T) T x, T y, T z, T w
#define TC_NAMES_1 x
#define TC_NAMES_2 x, y
#define TC_NAMES_3 x, y, z
#define TC_NAMES_4 x, y, z, w

TC_FUNCTION(erfcinv, 1, {
  if (!(x > 0 && x < 2)) return x == 0 ? INFINITY : x == 2 ? -INFINITY : NAN;
  if (x > 1.5) return -erfcinv(2 - x);
  if (x > 0.5) return 0 - solve_erf(x - 1);
  double root = sqrt(-log(x));
  return solve_erfc(x, sqrt(fmax(root * root - log(root * ROOT_OF_PI), 0.2)));
})
TC_FUNCTION(erfinv, 1, {
  if (!(fabs(x) < 1)) return fabs(x) == 1 ? copysign(INFINITY, x) : NAN;
  return fabs(x) <= 0.5 ? solve_erf(x) : copysign(erfcinv(1 - fabs(x)), x);
})
TC_FUNCTION(erfcx, 1, {
  if (x > 20) return continued_erfcx(x);
  if (x < -30) return INFINITY;
  double square = x * x, rest = fma(x, x, -square);
  return exp(square) * erfc(x) * (1 + rest);
})
TC_FUNCTION(normcdf, 1, return erfc(-x * ROOT_HALF) / 2;)
TC_FUNCTION(normcdfinv, 1, return (0 - erfcinv(2 * x)) / ROOT_HALF;)
TC_FUNCTION(cyl_bessel_i0, 1, return bessel(x, 0);)
TC_FUNCTION(cyl_bessel_i1, 1, return bessel(x, 1);)
TC_FUNCTION(exp10, 1, return pow(10.0, x);)
TC_FUNCTION(sinpi, 1, double value = half_turns(x, sine_at); return value == 0 ? x * 0 : value;)
TC_FUNCTION(cospi, 1, return half_turns(x, cosine_at) + 0;)
TC_FUNCTION(rsqrt, 1, return 1 / sqrt(x);)
TC_FUNCTION(rcbrt, 1, return 1 / cbrt(x);)
TC_FUNCTION(rhypot, 2, return 1 / hypot(x, y);)
TC_FUNCTION(fdivide, 2, return x / y;)
TC_FUNCTION(norm3d, 3, return hypot(hypot(x, y), z);)
TC_FUNCTION(rnorm3d, 3, return 1 / hypot(hypot(x, y), z);)
TC_FUNCTION(norm4d, 4, return hypot(hypot(x, y), hypot(z, w));)
TC_FUNCTION(rnorm4d, 4, return 1 / hypot(hypot(x, y), hypot(z, w));)

extern "C" TC_SHOWN float tc_from_float16(unsigned short bits) {
  u32 sign = (u32)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (!exponent) {
    float value = ldexpf((float)fraction, -24);
    return sign ? -value : value;
  }
  u32 wide = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

extern "C" TC_SHOWN unsigned short tc_to_float16(float value) {
  u32 bits;
  memcpy(&bits, &value, sizeof bits);
  u32 sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return (u16)(sign | 0x7e00 | (size >> 13 & 0x3ff));
  if (size >= 0x477ff000) return (u16)(sign | 0x7c00);  // 65520 and above
  if (size < 0x38800000) return (u16)(sign | (u32)rint(ldexp(fabs((double)value), 24)));
  u32 odd = size >> 13 & 1;
  return (u16)(sign | ((size - 0x38000000 + 0xfff + odd) >> 13));
}
