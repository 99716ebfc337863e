"""Floats of 8 bits on devices: by instructions from sm_89 on, else by bits.

The instructions make the largest number of what is beyond it, also of ``float8_e5m2``, which has infinities for that.
"""

from __future__ import annotations


def _from(name: str, short: str, shift: int, bias: str, least: str, small: int, rest: str) -> str:
    return f"""$D float tc_from_{name}(unsigned char bits) {{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  unsigned int halves;
  float value;
  asm("cvt.rn.f16x2.{short}x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)bits));
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)halves));
  return value;
#else
  const unsigned int size = bits & 0x7f, wide = (size << {shift}) + {bias};
  const unsigned int whole = {rest};
  const float value = size < {small} ? __uint_as_float(wide + 0x800000) - {least} : __uint_as_float(whole);
  return __uint_as_float(__float_as_uint(value) | (unsigned int)(bits & 0x80) << 24);
#endif
}}"""


def _to(name: str, short: str, shift: int, bias: int, power: int, beyond: str) -> str:
    least, half = (127 - bias) << 23, (1 << (shift - 1)) - 1
    return f"""$D unsigned char tc_to_{name}(float value) {{
  const unsigned int bits = __float_as_uint(value), size = bits & 0x7fffffff;
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  unsigned short both;
  asm("cvt.rn.satfinite.{short}x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(value));
  const unsigned int own = both & 0x7f;
#else
  const unsigned int near = (size - {least:#x} + {half:#x} + (size >> {shift} & 1)) >> {shift};
  const unsigned int small = __float_as_uint(__uint_as_float(size) + {2.0**power!r}f) - {(127 + power) << 23:#x};
  const unsigned int own = size < {least + 0x800000:#x} ? small : near;
#endif
  return (unsigned char)((bits >> 24 & 0x80) | ({beyond} : own));
}}"""


_TO_E4M3 = "size > 0x7f800000 ? 0x7fu : size >= 0x43e80000 ? 0x7eu"
_TO_E5M2 = "size > 0x7f800000 ? 0x7fu : size >= 0x47700000 ? 0x7cu"

EIGHTHS: dict[str, str] = {
    "tc_from_float8_e4m3fn": _from(
        "float8_e4m3fn", "e4m3", 20, "0x3c000000", "0.015625f", 8, "size == 0x7f ? 0x7fc00000 : wide"
    ),
    "tc_to_float8_e4m3fn": _to("float8_e4m3fn", "e4m3", 20, 7, 14, _TO_E4M3),
    "tc_from_float8_e5m2": _from(
        "float8_e5m2", "e5m2", 21, "0x38000000", "6.103515625e-5f", 4, "size >= 0x7c ? wide + 0x38000000 : wide"
    ),
    "tc_to_float8_e5m2": _to("float8_e5m2", "e5m2", 21, 15, 7, _TO_E5M2),
}
"""Values of elements, and elements nearest to values: beyond the middle behind the largest number that, or infinity."""
