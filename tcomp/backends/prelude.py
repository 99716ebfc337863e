"""Header-free C that kernels may call: floor division, NaN-propagating extrema, saturating conversions, boundaries.

Only what a kernel mentions is put in front of it, so small kernels compile fast.

Nothing here that a subscript may call makes an integer of a comparison: gcc 12 reads the wrong element where the offset
of a vectorised load is one, as ``(i % 2 != 0) & (i % 2 < 0)`` is in ``A((i - 3) % 2)``: it takes the true of a vector,
which has all bits set, for a number.  Signs are shifted instead, and ``tc_hidden`` is around what programs compare.
"""

from __future__ import annotations

from tcomp.backends.dialect import C_VALUE_TYPES, MOST_NARROW, called
from tcomp.values.operators import BOOL, DTYPES, FLOAT32, FLOAT64, DType

INLINE = "static inline __attribute__((always_inline))"

_APART = "(({1} > 0 ? {0} : ({0} ^ {1}) & ({0} | -{0})) >> {2})"
"""-1 where a remainder is not 0 and has another sign than what was divided by, else 0."""

_REGISTERS = [f'"xmm{n}"' for n in range(32)]


def _from_eighth(name: str, shift: int, bias: str, least: str, small: int, rest: str) -> str:
    """The value of a float of 8 bits: ``small`` sizes have no leading bit, and ``rest`` knows what is no number."""
    return f"""{INLINE} float tc_from_{name}(unsigned char bits) {{
  const unsigned int sign = (unsigned int)(bits & 0x80) << 24, size = bits & 0x7f;
  union {{ unsigned int u; float f; }} both = {{ .u = (size << {shift}) + {bias} }}, small = both;
  small.u += 0x800000;
  small.f -= {least};
  both.u = size < {small} ? small.u : {rest};
  both.u |= sign;
  return both.f;
}}"""


def _to_eighth(name: str, shift: int, bias: str, half: str, small: tuple[str, str, str], beyond: str) -> str:
    """The float of 8 bits nearest to a value.

    Of ``small`` the first is added to values below the second, so that the last bits are theirs behind the third.
    """
    added, end, without = small
    return f"""{INLINE} unsigned char tc_to_{name}(float value) {{
  union {{ float f; unsigned int u; }} both = {{ .f = value }}, small = {{ .f = __builtin_fabsf(value) + {added} }};
  const unsigned int sign = both.u >> 24 & 0x80, size = both.u & 0x7fffffff;
  const unsigned int near = (size - {bias} + {half} + (size >> {shift} & 1)) >> {shift};
  const unsigned int own = size < {end} ? small.u - {without} : near;
  return (unsigned char)(sign | (size > 0x7f800000 ? 0x7f : size >= {beyond} : own));
}}"""


_FIXED: dict[str, str] = {
    "tc_free_registers": f"""{INLINE} void tc_free_registers(void) {{
#if defined(__AVX512F__)
  __asm__ volatile("" ::: {", ".join(_REGISTERS)});
#elif defined(__AVX__)
  __asm__ volatile("" ::: {", ".join(_REGISTERS[:16])});
#endif
}}""",
    "tc_min": f"{INLINE} long tc_min(long a, long b) {{ return a < b ? a : b; }}",
    "tc_max": f"{INLINE} long tc_max(long a, long b) {{ return a > b ? a : b; }}",
    "tc_floordiv": f"""{INLINE} long tc_floordiv(long a, long b) {{
  const long r = b == 0 ? 0 : a % b;
  return b == 0 ? 0 : a / b + {_APART.format("r", "b", 63)};
}}""",
    "tc_mod": f"""{INLINE} long tc_mod(long a, long b) {{
  const long r = b == 0 ? 0 : a % b;
  return r + (b & {_APART.format("r", "b", 63)});
}}""",
    "tc_hidden": f"""__attribute__((weak, visibility("hidden"))) long tc_nothing;
{INLINE} long tc_hidden(long i) {{ return i ^ tc_nothing; }}""",
    "tc_check": f"""{INLINE} long tc_check(long i, long origin, long extent, long number, long long *report,
                          const long *indices, int count) {{
  if (__builtin_expect((unsigned long)(i - origin) < (unsigned long)extent, 1)) return i;
  if (__atomic_exchange_n(&report[2], 1, __ATOMIC_ACQ_REL) == 0) {{
    report[0] = number;
    report[1] = i;
    for (int d = 0; d < count; d++) report[3 + d] = indices[d];
  }}
  return origin;
}}""",
    "tc_repeat_edge": f"{INLINE} long tc_repeat_edge(long i, long origin, long extent) "
    "{ return i < origin ? origin : i >= origin + extent ? origin + extent - 1 : i; }",
    "tc_repeat_image": f"""{INLINE} long tc_repeat_image(long i, long origin, long extent) {{
  long r = (i - origin) % extent;
  return origin + r + (extent & (r >> 63));
}}""",
    "tc_mirror_image": f"""{INLINE} long tc_mirror_image(long i, long origin, long extent) {{
  long r = (i - origin) % (2 * extent);
  r += (2 * extent) & (r >> 63);
  return origin + (r < extent ? r : 2 * extent - 1 - r);
}}""",
    "tc_mirror_interior": f"""{INLINE} long tc_mirror_interior(long i, long origin, long extent) {{
  if (extent == 1) return origin;
  long r = (i - origin) % (2 * extent - 2);
  r += (2 * extent - 2) & (r >> 63);
  return origin + (r < extent ? r : 2 * extent - 2 - r);
}}""",
    "tc_from_bfloat16": f"""{INLINE} float tc_from_bfloat16(unsigned short bits) {{
  union {{ unsigned int u; float f; }} both = {{ .u = (unsigned int)bits << 16 }};
  return both.f;
}}""",
    "tc_to_bfloat16": f"""{INLINE} unsigned short tc_to_bfloat16(float value) {{
  union {{ float f; unsigned int u; }} both = {{ .f = value }};
  if (value != value) return (unsigned short)((both.u >> 16) | 0x40);
  return (unsigned short)((both.u + 0x7fff + ((both.u >> 16) & 1)) >> 16);
}}""",
    "tc_from_float8_e4m3fn": _from_eighth(
        "float8_e4m3fn", 20, "0x3c000000", "0.015625f", 8, "size == 0x7f ? 0x7fc00000 : both.u"
    ),
    "tc_to_float8_e4m3fn": _to_eighth(
        "float8_e4m3fn", 20, "0x3c000000", "0x7ffff", ("16384.0f", "0x3c800000", "0x46800000"), "0x43e80000 ? 0x7e"
    ),
    "tc_from_float8_e5m2": _from_eighth(
        "float8_e5m2", 21, "0x38000000", "6.103515625e-5f", 4, "size >= 0x7c ? both.u + 0x38000000 : both.u"
    ),
    "tc_to_float8_e5m2": _to_eighth(
        "float8_e5m2", 21, "0x38000000", "0xfffff", ("128.0f", "0x38800000", "0x43000000"), "0x47700000 ? 0x7c"
    ),
    # What 15 bits do not hold makes the last of them odd, so that a number is on its side of any middle when it is
    # rounded again.  Floats near zero, which have fewer bits than others, hold these wherever they count.
    "tc_odd_float64": f"""{INLINE} float tc_odd_float64(double value) {{
  union {{ double d; unsigned long long u; }} both = {{ value }};
  const unsigned long long rest = (1ULL << 38) - 1;
  both.u = (both.u | ((both.u & rest) + rest)) & ~rest;
  return (float)both.d;
}}""",
    "tc_odd_int64": f"""{INLINE} double tc_odd_int64(long long value) {{
  if (-(1LL << 53) < value && value < 1LL << 53) return (double)value;
  return (double)(value >> 11 | ((value & 2047) != 0)) * 2048;
}}""",
    "tc_odd_uint64": f"""{INLINE} double tc_odd_uint64(unsigned long long value) {{
  return value < 1ULL << 53 ? (double)value : (double)(value >> 11 | ((value & 2047) != 0)) * 2048;
}}""",
}

FREE_REGISTERS = "tc_free_registers();"
"""The C statement across which no vector stays in a register.

In front of a register tile: gcc would rather keep constants of other loops there, and one of the accumulators in
memory, where each of its additions waits for the last one to be stored and loaded again."""


def _typed(dtype: DType) -> dict[str, str]:
    """The functions of one element type."""
    name, c = dtype.name, C_VALUE_TYPES[dtype.name]
    if dtype.is_float:
        nan = " || a != a"
        return {
            f"tc_min_{name}": f"{INLINE} {c} tc_min_{name}({c} a, {c} b) {{ return a < b{nan} ? a : b; }}",
            f"tc_max_{name}": f"{INLINE} {c} tc_max_{name}({c} a, {c} b) {{ return a > b{nan} ? a : b; }}",
            f"tc_floormod_{name}": f"{INLINE} {c} tc_floormod_{name}({c} r, {c} b) "
            "{ return r == 0 ? (b < 0 ? -0.0 : 0.0) : (r < 0) != (b < 0) ? r + b : r; }",
        }
    result = {
        f"tc_min_{name}": f"{INLINE} {c} tc_min_{name}({c} a, {c} b) {{ return a < b ? a : b; }}",
        f"tc_max_{name}": f"{INLINE} {c} tc_max_{name}({c} a, {c} b) {{ return a > b ? a : b; }}",
    }
    if dtype == BOOL:
        return result
    low, high = int(dtype.lowest), int(dtype.highest)
    lowest = f"({low + 1}LL - 1)" if dtype.kind == "int" else "0"
    highest = f"{high}{'LL' if dtype.kind == 'int' else 'ULL'}"
    result[f"tc_to_{name}"] = (
        f"{INLINE} {c} tc_to_{name}(double x) "
        f"{{ return x != x ? 0 : x <= {float(low)!r} ? ({c}){lowest} "
        f": x >= {float(high)!r} ? ({c}){highest} : ({c})x; }}"
    )
    if dtype.kind == "uint":
        result[f"tc_div_{name}"] = f"{INLINE} {c} tc_div_{name}({c} a, {c} b) {{ return b == 0 ? 0 : a / b; }}"
        result[f"tc_rem_{name}"] = f"{INLINE} {c} tc_rem_{name}({c} a, {c} b) {{ return b == 0 ? 0 : a % b; }}"
        return result
    apart = _APART.format("r", "b", dtype.bits - 1)
    result[f"tc_div_{name}"] = f"""{INLINE} {c} tc_div_{name}({c} a, {c} b) {{
  if (b == 0) return 0;
  if (b == -1) return ({c})(0 - (unsigned long long)a);
  const {c} r = a % b;
  return ({c})(a / b + {apart});
}}"""
    result[f"tc_rem_{name}"] = f"""{INLINE} {c} tc_rem_{name}({c} a, {c} b) {{
  if (b == 0 || b == -1) return 0;
  const {c} r = a % b;
  return ({c})(r + (b & {apart}));
}}"""
    return result


def definitions() -> dict[str, str]:
    """Every function by name."""
    table = dict(_FIXED)
    for dtype in DTYPES.values():
        if not dtype.is_short_float:
            table |= _typed(dtype)
    return table


def _extrema() -> dict[str, str]:
    return {
        f"tc_{extremum}_{dtype.name}": _extremum(extremum, *signs, dtype.name, C_VALUE_TYPES[dtype.name])
        for dtype in (FLOAT32, FLOAT64)
        for extremum, signs in (("min", ("<", ">=")), ("max", (">", "<=")))
    }


def _extremum(extremum: str, before: str, not_before: str, name: str, c: str) -> str:
    """The one of two floats that comes before the other, or NaN.

    Where an operand is known not to be NaN, one comparison is enough: gcc 12 moves the masks of two through integer
    registers.
    """
    return f"""{INLINE} {c} tc_{extremum}_{name}({c} a, {c} b) {{
  if (__builtin_constant_p(b) && b == b) return !(a {not_before} b) ? a : b;
  if (__builtin_constant_p(a) && a == a) return a {before} b ? a : b;
  return a {before} b || a != a ? a : b;
}}"""


def _narrowing() -> dict[str, str]:
    """Conversions of single precision to integers of few bits, without branches, so that compilers make vectors."""
    table = {}
    for dtype in DTYPES.values():
        if dtype.is_integer and dtype.bits <= MOST_NARROW:
            name, c = dtype.name, C_VALUE_TYPES[dtype.name]
            number = "x" if dtype.kind == "uint" else "(x != x ? 0.0f : x)"
            table[f"tc_to_{name}_float32"] = f"""{INLINE} {c} tc_to_{name}_float32(float x) {{
  const float number = {number}, low = {float(dtype.lowest)!r}f, high = {float(dtype.highest)!r}f;
  const float above = number > low ? number : low;
  return ({c})(int)(above < high ? above : high);
}}"""
    return table


_TABLE = definitions() | _extrema() | _narrowing()
_NAME = called(r"\w+")


def prelude(text: str) -> str:
    """The definitions that ``text`` calls."""
    used = dict.fromkeys(_NAME.findall(text))
    return "".join(_TABLE[name] + "\n" for name in used if name in _TABLE)
