"""Device functions that CUDA kernels may call; only what a kernel mentions is put in front of it.

The functions on element types are those of the CPU target (``prelude.py``).  Vectors are read and stored whole; where
``TC_ANYWHERE`` is defined, for arrays that begin at no multiple of 16 bytes, element by element.  What needs a PTX
instruction is left to the simulator's header where the text is compiled for the CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from tcomp.backends.cuda.atomics import ATOMICS
from tcomp.backends.cuda.eighths import EIGHTHS
from tcomp.backends.cuda.quads import QUADS
from tcomp.backends.cuda.tensorcopies import TENSOR_COPIES
from tcomp.backends.cuda.warpgroups import WARPGROUPS
from tcomp.backends.dialect import called
from tcomp.backends.prelude import INLINE, definitions

_DEVICE = "static __device__ __forceinline__"


def _extremum(name: str, before: str) -> str:
    """The one of two floats that comes before the other, or NaN: one instruction from sm_80 on, else four."""
    return f"""$D float tc_{name}_float32(float a, float b) {{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  float result;
  asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a {before} b || a != a ? a : b;
#endif
}}"""


def _put(width: int, vector: str) -> str:
    """Stores so many bytes that a thread has side by side."""
    return f"""template <class T>
$D void tc_put{width}(T *global, const T *values) {{
#ifndef TC_ANYWHERE
  *reinterpret_cast<{vector} *>(global) = *reinterpret_cast<const {vector} *>(values);
#else
  for (int i = 0; i < (int)({width} / sizeof(T)); i++) global[i] = values[i];
#endif
}}"""


def _get(width: int, vector: str) -> str:
    """Loads so many bytes side by side for a thread."""
    return f"""template <class T>
$D void tc_get{width}(T *values, const T *global) {{
#ifndef TC_ANYWHERE
  *reinterpret_cast<{vector} *>(values) = *reinterpret_cast<const {vector} *>(global);
#else
  for (int i = 0; i < (int)({width} / sizeof(T)); i++) values[i] = global[i];
#endif
}}"""


def _copy_async(width: int, cached: str) -> str:
    """Asks for so many bytes, of which ``read`` are read and the others are zeros (sm_80 and later)."""
    operands = '"r"((unsigned int)__cvta_generic_to_shared(shared)), "l"(global), "r"(read)'
    return f"""#ifdef __CUDACC__
$D void tc_copy_async{width}(void *shared, const void *global, const int read) {{
  asm volatile("cp.async.{cached}.shared.global [%0], [%1], {width}, %2;" :: {operands} : "memory");
}}
#endif"""


def _fetch_matrices(name: str, turned: str) -> str:
    """Four matrices of 8 x 8 elements of 2 bytes; each lane says where one of their 32 rows begins."""
    results = '"=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])'
    return f"""#ifdef __CUDACC__
$D void {name}(unsigned int (&part)[4], const void *row) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : {results} : "r"((unsigned int)__cvta_generic_to_shared(row)) : "memory");
}}
#endif"""


def _multiply(kind: str | tuple[str, str], shape: str, sums: str, letter: str) -> str:
    """Adds a product of 16 rows by 8 columns to sums; lanes have parts of all (sm_80 and later)."""
    first, second = (kind, kind) if isinstance(kind, str) else kind
    name = first if first == second else f"{first}_{second}"
    outputs = ", ".join(f'"+{letter}"({c})' for c in ("c0", "c1", "c2", "c3"))
    c_type = {"f": "float", "r": "int"}[letter]
    return f"""#ifdef __CUDACC__
$D void tc_mma_{name}({c_type} &c0, {c_type} &c1, {c_type} &c2, {c_type} &c3, const unsigned int (&a)[4],
    const unsigned int b0, const unsigned int b1) {{
  asm("mma.sync.aligned.{shape}.row.col.{sums}.{first}.{second}.{sums} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
      "{{%8, %9}}, {{%0, %1, %2, %3}};" : {outputs} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}}
#endif"""


def _pack(short: str, kind: str) -> str:
    """Two floats rounded and put side by side, the first one in the lower bits (sm_80 and later)."""
    return f"""$D unsigned int tc_pack_{short}(const float low, const float high) {{
#ifdef __CUDACC__
  unsigned int both;
  asm("cvt.rn.{short}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return (unsigned int)tc_to_{kind}(low) | (unsigned int)tc_to_{kind}(high) << 16;
#endif
}}"""


_OF_BYTES = {
    f"tc_mma_{a}" if a == b else f"tc_mma_{a}_{b}": _multiply((a, b), "m16n8k32", sums, letter)
    for family, sums, letter in ((("s8", "u8"), "s32", "r"), (("e4m3", "e5m2"), "f32", "f"))
    for a, b in itertools.product(family, repeat=2)
}

_MULTIPLY_DOUBLES = """#ifdef __CUDACC__
$D void tc_mma_f64(double &c0, double &c1, double &c2, double &c3, const double (&a)[8], const double (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};" : "+d"(c0), "+d"(c1), "+d"(c2), "+d"(c3)
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
        "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
  for (int i = 0; i < 4; i++) {  // 8 rows and 4 steps each: a lane has the same parts of them
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c0), "+d"(c1) : "d"(a[2 * i]), "d"(b[i]));
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c2), "+d"(c3) : "d"(a[2 * i + 1]), "d"(b[i]));
  }
#endif
}
#endif"""
"""The same for doubles; before sm_90 as eight products of 8 rows and 4 steps."""


_INDEX: dict[str, str] = {
    "tc_min": "$D $I tc_min($I a, $I b) { return a < b ? a : b; }",
    "tc_max": "$D $I tc_max($I a, $I b) { return a > b ? a : b; }",
    "tc_floordiv": "$D $I tc_floordiv($I a, $I b) { return b == 0 ? 0 : a / b - ((a % b != 0) & ((a ^ b) < 0)); }",
    "tc_mod": "$D $I tc_mod($I a, $I b) { $I r = b == 0 ? 0 : a % b; return r != 0 && ((r ^ b) < 0) ? r + b : r; }",
    "tc_check": """template <class... Indices>
$D $I tc_check(long long i, $I origin, $I extent, int number, long long *report, Indices... at) {
  if (i >= origin && i < (long long)origin + extent) return ($I)i;
  if (atomicExch((unsigned long long *)&report[2], 1ULL) == 0) {
    const long long values[] = {(long long)at..., 0};
    report[0] = number;
    report[1] = i;
    for (int d = 0; d < (int)sizeof...(at); d++) report[3 + d] = values[d];
  }
  return origin;
}""",
    "tc_load16": """template <class T>
$D uint4 tc_load16(const T *global) {
#ifndef TC_ANYWHERE
  return *reinterpret_cast<const uint4 *>(global);
#else
  uint4 whole;
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) reinterpret_cast<T *>(&whole)[i] = global[i];
  return whole;
#endif
}""",
    "tc_store16": """template <class T>
$D void tc_store16(T *shared, const uint4 whole) {
  *reinterpret_cast<uint4 *>(shared) = whole;
}""",
    "tc_store_column": """template <class T>
$D void tc_store_column(T *shared, const int apart, const uint4 whole) {
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) shared[i * apart] = reinterpret_cast<const T *>(&whole)[i];
}""",
    "tc_store_turned": """// Into a column, its second half first where it is the turn: fewer lanes meet in a bank.
template <class T>
$D void tc_store_turned(T *shared, const int apart, const int turn, const uint4 whole) {
  T *const first = shared + (turn ? 2 * apart : 0), *const second = shared + (turn ? 0 : 2 * apart);
  const T *const values = reinterpret_cast<const T *>(&whole);
  first[0] = turn ? values[2] : values[0];
  first[apart] = turn ? values[3] : values[1];
  second[0] = turn ? values[0] : values[2];
  second[apart] = turn ? values[1] : values[3];
}""",
    "tc_copy_async4": _copy_async(4, "ca"),
    "tc_copy_async8": _copy_async(8, "ca"),
    "tc_copy_async16": _copy_async(16, "cg"),
    "tc_copy_async_commit": """#ifdef __CUDACC__
$D void tc_copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#endif""",
    "tc_copy_async_wait": """// Waits for all groups of copies of this thread but the newest.
#ifdef __CUDACC__
template <int newest>
$D void tc_copy_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(newest) : "memory"); }
#endif""",
    "tc_ask4": """template <class T>
$D void tc_ask4(T *shared, const T *global, const int read = 4) {
#ifndef TC_ANYWHERE
  tc_copy_async4(shared, global, read);
#else
  if (sizeof(T) == 4) tc_copy_async4(shared, global, read);
  else for (int i = 0; i < (int)(4 / sizeof(T)); i++) {
    if (sizeof(T) == 4) tc_copy_async4(shared + i, global + i, read ? 4 : 0);
    else shared[i] = read ? global[i] : T();
  }
#endif
}""",
    "tc_ask8": """template <class T>
$D void tc_ask8(T *shared, const T *global, const int read = 8) {
#ifndef TC_ANYWHERE
  tc_copy_async8(shared, global, read);
#else
  if (sizeof(T) == 8) tc_copy_async8(shared, global, read);
  else for (int i = 0; i < (int)(8 / sizeof(T)); i++) {
    if (sizeof(T) == 4) tc_copy_async4(shared + i, global + i, read ? 4 : 0);
    else shared[i] = read ? global[i] : T();
  }
#endif
}""",
    "tc_ask16": """template <class T>
$D void tc_ask16(T *shared, const T *global, const int read = 16) {
#ifndef TC_ANYWHERE
  tc_copy_async16(shared, global, read);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) {
    if (sizeof(T) == 4) tc_copy_async4(shared + i, global + i, read ? 4 : 0);
    else shared[i] = read ? global[i] : T();
  }
#endif
}""",
    "tc_ldmatrix": _fetch_matrices("tc_ldmatrix", ""),
    "tc_ldmatrix_turned": _fetch_matrices("tc_ldmatrix_turned", ".trans"),
    "tc_pack_f16": _pack("f16", "float16"),
    "tc_pack_bf16": _pack("bf16", "bfloat16"),
    "tc_mma_f16": _multiply("f16", "m16n8k16", "f32", "f"),
    "tc_mma_bf16": _multiply("bf16", "m16n8k16", "f32", "f"),
    **_OF_BYTES,
    "tc_to_tf32": """// The nearest float of 11 bits, ties away from zero.
#ifdef __CUDACC__
$D unsigned int tc_to_tf32(const float value) {
  unsigned int bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}
#endif""",
    "tc_mma_tf32": _multiply("tf32", "m16n8k8", "f32", "f"),
    "tc_mma_rounded": """// The operands are floats, which are rounded first.
$D void tc_mma_rounded(float &c0, float &c1, float &c2, float &c3, const unsigned int (&a)[4],
    const unsigned int b0, const unsigned int b1) {
  unsigned int near[4];
  for (int i = 0; i < 4; i++) near[i] = tc_to_tf32(__uint_as_float(a[i]));
  tc_mma_tf32(c0, c1, c2, c3, near, tc_to_tf32(__uint_as_float(b0)), tc_to_tf32(__uint_as_float(b1)));
}""",
    "tc_mma_three": """// A float is what it is rounded to, and a rest: of the four products all but that of the rests.
$D void tc_mma_three(float &c0, float &c1, float &c2, float &c3, const unsigned int (&a)[4],
    const unsigned int b0, const unsigned int b1) {
  const float b[2] = {__uint_as_float(b0), __uint_as_float(b1)};
  unsigned int near_a[4], rest_a[4], near_b[2], rest_b[2];
  for (int i = 0; i < 4; i++) {
    near_a[i] = tc_to_tf32(__uint_as_float(a[i]));
    rest_a[i] = tc_to_tf32(__uint_as_float(a[i]) - __uint_as_float(near_a[i]));
  }
  for (int i = 0; i < 2; i++) {
    near_b[i] = tc_to_tf32(b[i]);
    rest_b[i] = tc_to_tf32(b[i] - __uint_as_float(near_b[i]));
  }
  tc_mma_tf32(c0, c1, c2, c3, rest_a, near_b[0], near_b[1]);
  tc_mma_tf32(c0, c1, c2, c3, near_a, rest_b[0], rest_b[1]);
  tc_mma_tf32(c0, c1, c2, c3, near_a, near_b[0], near_b[1]);
}""",
    "tc_mma_f64": _MULTIPLY_DOUBLES,
    **WARPGROUPS,
    **TENSOR_COPIES,
    "tc_get4": _get(4, "unsigned int"),
    "tc_get8": _get(8, "uint2"),
    "tc_get16": _get(16, "uint4"),
    "tc_put4": _put(4, "unsigned int"),
    "tc_put8": _put(8, "uint2"),
    "tc_put16": _put(16, "uint4"),
    **QUADS,
    "tc_repeat_edge": """template <class Subscript>
$D $I tc_repeat_edge(Subscript i, $I origin, $I extent) {
  return i < origin ? origin : i >= origin + extent ? origin + extent - 1 : ($I)i;
}""",
    "tc_repeat_image": """template <class Subscript>
$D $I tc_repeat_image(Subscript i, $I origin, $I extent) {
  const $I r = (i - origin) % extent;
  return origin + (r < 0 ? r + extent : r);
}""",
    "tc_mirror_image": """template <class Subscript>
$D $I tc_mirror_image(Subscript i, $I origin, $I extent) {
  $I r = (i - origin) % (2 * extent);
  r = r < 0 ? r + 2 * extent : r;
  return origin + (r < extent ? r : 2 * extent - 1 - r);
}""",
    "tc_mirror_interior": """template <class Subscript>
$D $I tc_mirror_interior(Subscript i, $I origin, $I extent) {
  if (extent == 1) return origin;
  $I r = (i - origin) % (2 * extent - 2);
  r = r < 0 ? r + 2 * extent - 2 : r;
  return origin + (r < extent ? r : 2 * extent - 2 - r);
}""",
    "tc_power_of_two": """$D float tc_power_of_two(const float power) {
#ifdef __CUDACC__
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(power));
  return value;
#else
  return exp2f(power);
#endif
}""",
    "tc_choose": """#ifdef __CUDACC__
$D float tc_choose(const bool condition, const float one, const float other) {
  float chosen;
  asm("{ .reg .pred p; setp.ne.s32 p, %1, 0; selp.f32 %0, %2, %3, p; }"
      : "=f"(chosen) : "r"((int)condition), "f"(one), "f"(other));
  return chosen;
}
#else
#define tc_choose(condition, one, other) ((condition) ? (one) : (other))
#endif""",
    "tc_min_float32": _extremum("min", "<"),
    "tc_max_float32": _extremum("max", ">"),
    "tc_from_bfloat16": "$D float tc_from_bfloat16(unsigned short bits) "
    "{ return __uint_as_float((unsigned int)bits << 16); }",
    "tc_to_bfloat16": """$D unsigned short tc_to_bfloat16(float value) {
  const unsigned int bits = __float_as_uint(value);
  if (value != value) return (unsigned short)((bits >> 16) | 0x40);
  return (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}""",
    **EIGHTHS,
    "tc_from_float16": """#ifdef __CUDACC__
$D float tc_from_float16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#endif""",
    "tc_to_float16": """#ifdef __CUDACC__
$D unsigned short tc_to_float16(float value) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // where the other conversion reads sums of warpgroups, ptxas runs products in turn
  unsigned int both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(0.0f), "f"(value));
  return (unsigned short)both;
#else
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#endif
}
$D unsigned short tc_to_float16(double value) {
  unsigned short bits;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
  return bits;
}
#endif""",
}
"""Functions of indices (``$I`` is their type), and extrema and conversions that the CPU target spells otherwise."""

_NOTHING: Mapping[str, str] = {}

_NAME = called(r"\w+")


def device_prelude(text: str, index: str, own: Mapping[str, str] = _NOTHING) -> str:
    """The definitions that ``text`` calls, for indices of type ``index``; a language's ``own`` replace CUDA's."""
    table = {name: body.replace(INLINE, _DEVICE) for name, body in definitions().items()}
    table |= {
        name: body.replace("$D", _DEVICE).replace("$I", index) for name, body in {**_INDEX, **ATOMICS, **own}.items()
    }
    found: dict[str, str] = {}

    def add(calling: str, inside: frozenset[str]) -> None:
        for name in dict.fromkeys(_NAME.findall(calling)):
            if name in table and name not in found and name not in inside:
                add(table[name], inside | {name})
                found[name] = table[name]

    add(text, frozenset())
    return "".join(definition + "\n" for definition in found.values())
