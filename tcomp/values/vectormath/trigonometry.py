"""Sine, cosine and tangent."""

from __future__ import annotations

from tcomp.values.vectormath.bits import inlined

_CIRCLE = """
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
  RESULT
}"""
_SINE_OF_TURNED = """quarter.u += TURN;
  y.f = quarter.u & 1 ? cosine : sine;
  y.u ^= (quarter.u & 2) << 62;
  return """
_TANGENT = """y.f = quarter.u & 1 ? -cosine / sine : sine / cosine;
  return x == 0 ? x : ($T)y.f;"""
SIN_FLOAT = inlined(_CIRCLE.replace("RESULT", _SINE_OF_TURNED.replace("TURN", "0") + "x == 0 ? x : ($T)y.f;"))
COS_FLOAT = inlined(_CIRCLE.replace("RESULT", _SINE_OF_TURNED.replace("TURN", "1") + "($T)y.f;"))
TAN_FLOAT = inlined(_CIRCLE.replace("RESULT", _TANGENT))
"""Exact for all x: x 2/pi modulo 4 is (x 2^-27k) (2^27k 2/pi modulo 4) where x is a multiple of 2^27k, and two factors
of 24 and 28 bits have a product that a double holds (after M. H. Payne and R. N. Hanek, "Radian Reduction for
Trigonometric Functions", SIGNUM Newsletter 18 (1983) 19-24).  The third part of 2/pi is rounded."""
