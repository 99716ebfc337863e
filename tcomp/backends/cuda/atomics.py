"""Device functions that combine a value into an element as one operation, whatever other threads do to it meanwhile.

Where the device has no instruction for that, the element is compared with what was combined and exchanged if it is
still that.  The first guess is what a reduction begins with, so nothing is read beforehand, and a value that leaves an
element as it is stores nothing.
"""

from __future__ import annotations

import math

from tcomp.backends.dialect import C_VALUE_TYPES, combine
from tcomp.backends.gpu.words.atomics import atomic_name
from tcomp.values.operators import DTYPES, REDUCTIONS, DType

_WORDS = {4: "unsigned int", 8: "unsigned long long"}

_INFINITY = {"float32": "__int_as_float(0x7f800000)", "float64": "__longlong_as_double(0x7ff0000000000000LL)"}

_NATIVE = {"+": "atomicAdd", "min": "atomicMin", "max": "atomicMax"}


def _definition(reduction: str, dtype: DType) -> str:
    c, word = C_VALUE_TYPES[dtype.name], _WORDS[dtype.itemsize]
    head = f"$D void {atomic_name(reduction, dtype)}({c} *element, const {c} value)"
    if reduction == "+" and dtype.name == "int64":
        return f"{head} {{ atomicAdd(({word} *)element, ({word})value); }}"
    if reduction in _NATIVE and (dtype.is_integer or reduction == "+"):
        return f"{head} {{ {_NATIVE[reduction]}(element, value); }}"
    start = REDUCTIONS[reduction].identity(dtype)
    first = f"{start}" if math.isfinite(start) else f"{'-' * (start < 0)}{_INFINITY[dtype.name]}"
    return f"""{head} {{
  union {{ {c} value; {word} bits; }} seen, next;
  seen.value = {first};
  for (;;) {{
    next.value = {combine(reduction, "seen.value", "value", dtype)};
    if (next.bits == seen.bits) return;
    const {word} before = atomicCAS(({word} *)element, seen.bits, next.bits);
    if (before == seen.bits) return;
    seen.bits = before;
  }}
}}"""


ATOMICS: dict[str, str] = {
    atomic_name(reduction, dtype): _definition(reduction, dtype)
    for reduction in REDUCTIONS
    for dtype in DTYPES.values()
    if dtype.itemsize in _WORDS
}
"""Definitions by name, as in ``prelude.py``."""
