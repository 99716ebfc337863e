"""Functions that OpenCL kernels may call; only what a kernel mentions is put in front of it.

The functions on element types are those of the CPU target (``backends/prelude.py``).  There are neither templates nor
overloading, so what copies elements has their type at the end of its name.  Where ``TC_ANYWHERE`` is defined, for
arrays that begin at no multiple of 16 bytes, vectors are read and stored by ``vload`` and ``vstore``, which need not be
aligned.
"""

from __future__ import annotations

import re

from tcomp.backends.dialect import called
from tcomp.backends.prelude import INLINE, definitions
from tcomp.grammar.tree.limits import MAX_INDICES

_VECTORS = {
    "signed_char": ("char", 1),
    "unsigned_char": ("uchar", 1),
    "short": ("short", 2),
    "unsigned_short": ("ushort", 2),
    "int": ("int", 4),
    "unsigned_int": ("uint", 4),
    "float": ("float", 4),
    "long_long": ("long", 8),
    "unsigned_long_long": ("ulong", 8),
    "double": ("double", 8),
}
"""For each element type, as names end in it, the word that OpenCL's vectors of it begin with, and its bytes."""

_FIXED = {
    "tc_min": "static inline $I tc_min($I a, $I b) { return a < b ? a : b; }",
    "tc_max": "static inline $I tc_max($I a, $I b) { return a > b ? a : b; }",
    "tc_floordiv": "static inline $I tc_floordiv($I a, $I b) "
    "{ return b == 0 ? 0 : a / b - ((a % b != 0) & ((a ^ b) < 0)); }",
    "tc_mod": "static inline $I tc_mod($I a, $I b) "
    "{ $I r = b == 0 ? 0 : a % b; return r != 0 && ((r ^ b) < 0) ? r + b : r; }",
    "tc_repeat_edge": """static inline $I tc_repeat_edge(long i, $I origin, $I extent) {
  return i < origin ? origin : i >= origin + extent ? origin + extent - 1 : ($I)i;
}""",
    "tc_repeat_image": """static inline $I tc_repeat_image(long i, $I origin, $I extent) {
  const $I r = (i - origin) % extent;
  return origin + (r < 0 ? r + extent : r);
}""",
    "tc_mirror_image": """static inline $I tc_mirror_image(long i, $I origin, $I extent) {
  $I r = (i - origin) % (2 * extent);
  r = r < 0 ? r + 2 * extent : r;
  return origin + (r < extent ? r : 2 * extent - 1 - r);
}""",
    "tc_mirror_interior": """static inline $I tc_mirror_interior(long i, $I origin, $I extent) {
  if (extent == 1) return origin;
  $I r = (i - origin) % (2 * extent - 2);
  r = r < 0 ? r + 2 * extent - 2 : r;
  return origin + (r < extent ? r : 2 * extent - 2 - r);
}""",
    "tc_from_bfloat16": "static inline float tc_from_bfloat16(ushort bits) { return as_float((uint)bits << 16); }",
    "tc_to_bfloat16": """static inline ushort tc_to_bfloat16(float value) {
  const uint bits = as_uint(value);
  if (value != value) return (ushort)((bits >> 16) | 0x40);
  return (ushort)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}""",
    "tc_from_float8_e4m3fn": """static inline float tc_from_float8_e4m3fn(uchar bits) {
  const uint size = bits & 0x7f, wide = (size << 20) + 0x3c000000, whole = size == 0x7f ? 0x7fc00000 : wide;
  const float value = size < 8 ? as_float(wide + 0x800000) - 0.015625f : as_float(whole);
  return as_float(as_uint(value) | (uint)(bits & 0x80) << 24);
}""",
    "tc_to_float8_e4m3fn": """static inline uchar tc_to_float8_e4m3fn(float value) {
  const uint bits = as_uint(value), size = bits & 0x7fffffff;
  const uint near = (size - 0x3c000000 + 0x7ffff + (size >> 20 & 1)) >> 20;
  const uint own = size < 0x3c800000 ? as_uint(as_float(size) + 16384.0f) - 0x46800000 : near;
  return (uchar)((bits >> 24 & 0x80) | (size > 0x7f800000 ? 0x7f : size >= 0x43e80000 ? 0x7e : own));
}""",
    "tc_from_float8_e5m2": """static inline float tc_from_float8_e5m2(uchar bits) {
  const uint size = bits & 0x7f, wide = (size << 21) + 0x38000000, whole = size >= 0x7c ? wide + 0x38000000 : wide;
  const float value = size < 4 ? as_float(wide + 0x800000) - 6.103515625e-5f : as_float(whole);
  return as_float(as_uint(value) | (uint)(bits & 0x80) << 24);
}""",
    "tc_to_float8_e5m2": """static inline uchar tc_to_float8_e5m2(float value) {
  const uint bits = as_uint(value), size = bits & 0x7fffffff;
  const uint near = (size - 0x38000000 + 0xfffff + (size >> 21 & 1)) >> 21;
  const uint own = size < 0x38800000 ? as_uint(as_float(size) + 128.0f) - 0x43000000 : near;
  return (uchar)((bits >> 24 & 0x80) | (size > 0x7f800000 ? 0x7f : size >= 0x47700000 ? 0x7c : own));
}""",
    "tc_odd_float64": """static inline float tc_odd_float64(double value) {
  const float near = (float)value;
  const int away = fabs((double)near) > fabs(value);
  return near < value || near > value ? as_float((as_uint(near) - away) | 1) : near;
}""",
    # By way of bytes: a compiler may take it that a pointer to a half points to no number of another type.
    "tc_from_float16": """static inline float tc_from_float16(ushort bits) {
  const uchar2 both = as_uchar2(bits);
  return vload_half(0, (const half *)&both);
}""",
    "tc_to_float16": """static inline ushort tc_to_float16(float value) {
  uchar2 both;
  vstore_half_rte(value, 0, (half *)&both);
  return as_ushort(both);
}""",
    "tc_to_float16_double": """static inline ushort tc_to_float16_double(double value) {
  uchar2 both;
  vstore_half_rte(value, 0, (half *)&both);
  return as_ushort(both);
}""",
}
"""Functions of indices (``$I`` is their type), and conversions that OpenCL spells otherwise than C."""


def _check(count: int) -> str:
    """A subscript, replaced and reported where it is outside; so many indices are told of."""
    parameters = "".join(f", long at{n}" for n in range(count))
    stores = "".join(f"\n    report[{3 + n}] = at{n};" for n in range(count))
    return f"""\
static inline $I tc_check{count}(long i, $I origin, $I extent, int number, __global long *report{parameters}) {{
  if (i >= origin && i < (long)origin + extent) return ($I)i;
  if (atomic_xchg((volatile __global int *)&report[2], 1) == 0) {{
    report[0] = number;
    report[1] = i;{stores}
  }}
  return origin;
}}"""


def _copies(suffix: str, base: str, itemsize: int) -> dict[str, str]:
    """What moves several elements of one type at a time, by name."""
    element, count = suffix.replace("_", " "), 16 // itemsize
    vector = f"{base}{count if count > 1 else ''}"
    reinterpret = f"as_{vector}(whole)"
    table = {
        f"tc_load16_{suffix}": f"""static inline uint4 tc_load16_{suffix}(const __global {element} *source) {{
#ifndef TC_ANYWHERE
  return as_uint4(*(const __global {vector} *)source);
#else
  return as_uint4(vload{count}(0, (const __global {base} *)source));
#endif
}}""",
        f"tc_store16_{suffix}": f"""static inline void tc_store16_{suffix}(__local {element} *target, uint4 whole) {{
  *(__local {vector} *)target = {reinterpret};
}}""",
        f"tc_store_column_{suffix}": f"""\
static inline void tc_store_column_{suffix}(__local {element} *target, int apart, uint4 whole) {{
  {base} values[{count}];
  vstore{count}({reinterpret}, 0, values);
  for (int i = 0; i < {count}; i++) target[i * apart] = values[i];
}}""",
        f"tc_store_turned_{suffix}": f"""\
// Into a column, its second half first where it is the turn: fewer lanes meet in a bank.
static inline void tc_store_turned_{suffix}(__local {element} *target, int apart, int turn, uint4 whole) {{
  {base} values[{count}];
  vstore{count}({reinterpret}, 0, values);
  __local {element} *const first = target + (turn ? 2 * apart : 0), *const second = target + (turn ? 0 : 2 * apart);
  first[0] = turn ? values[2] : values[0];
  first[apart] = turn ? values[3] : values[1];
  second[0] = turn ? values[0] : values[2];
  second[apart] = turn ? values[1] : values[3];
}}""",
    }
    for width in (4, 8, 16):
        few = width // itemsize
        if few > 1:
            table[f"tc_get{width}_{suffix}"] = f"""\
static inline void tc_get{width}_{suffix}({element} *values, const __global {element} *source) {{
#ifndef TC_ANYWHERE
  *({base}{few} *)values = *(const __global {base}{few} *)source;
#else
  *({base}{few} *)values = vload{few}(0, (const __global {base} *)source);
#endif
}}"""
            table[f"tc_put{width}_{suffix}"] = f"""\
static inline void tc_put{width}_{suffix}(__global {element} *target, const {element} *values) {{
#ifndef TC_ANYWHERE
  *(__global {base}{few} *)target = *(const {base}{few} *)values;
#else
  vstore{few}(*(const {base}{few} *)values, 0, (__global {base} *)target);
#endif
}}"""
    return table


def _all() -> dict[str, str]:
    table = {name: text.replace(INLINE, "static inline") for name, text in definitions().items()}
    table |= _FIXED | {f"tc_check{count}": _check(count) for count in range(MAX_INDICES + 1)}
    for suffix, (base, itemsize) in _VECTORS.items():
        table |= _copies(suffix, base, itemsize)
    return table


_TABLE = _all()
_NAME = called(r"\w+")
_DOUBLE = re.compile(r"\bdouble\b")


def opencl_prelude(text: str, index: str, doubles: bool) -> str:
    """The definitions that ``text`` calls, for indices of type ``index``.

    Without ``doubles`` floats become integers without a detour through double precision; literals are single then, too.
    """
    found: dict[str, str] = {}

    def add(calling: str, inside: frozenset[str]) -> None:
        for name in dict.fromkeys(_NAME.findall(calling)):
            if name in _TABLE and name not in found and name not in inside:
                body = _TABLE[name].replace("$I", index)
                if not doubles and name.startswith(("tc_to_int", "tc_to_uint")):
                    body = _DOUBLE.sub("float", body)
                add(body, inside | {name})
                found[name] = body

    add(text, frozenset())
    return "".join(definition + "\n" for definition in found.values())
