"""Reductions of two vectors, element by element, and absolute values.

In extrema NaN in either gives NaN, as the language has it.
"""

from __future__ import annotations

from collections.abc import Callable

from tcomp.backends.dialect import called
from tcomp.backends.prelude import INLINE
from tcomp.values.operators import DTYPES, DType

_FEATURES = {128: "SSE4_1", 256: "AVX2"}
"""What x86 calls the instructions that came with extrema of 32 bits in vectors of so many bits."""

_CALLED = called(r"(min|max|abs)_([a-z]+\d+)_x(\d+)\b")


def of_vectors(reduction: str, dtype: DType, lanes: int) -> Callable[[str, str], str]:
    """How a reduction combines two vectors of so many lanes: from their C texts the one of the result."""
    if reduction in ("min", "max"):
        return lambda a, b: f"tc_{reduction}_{dtype.name}_x{lanes}({a}, {b})"
    return lambda a, b: f"{a} {reduction} {b}"


def magnitude(vector: str, dtype: DType, lanes: int) -> str:
    """The C text of the absolute values of a vector of floats, from the text of that."""
    return f"tc_abs_{dtype.name}_x{lanes}({vector})"


def vector_extrema(text: str) -> str:
    """The definitions of those that a text calls.

    They select by the bits of a comparison, which compilers turn into blends; C has no conditional of vectors.  Where
    x86 has an instruction for extrema of such integers, gcc is asked for it by name: it makes a comparison and a blend
    of that selection.
    """
    return "".join(_definition(*called) for called in sorted(set(_CALLED.findall(text))))


def _definition(reduction: str, element: str, lanes: str) -> str:
    dtype = DTYPES[element]
    vector, mask = f"tc_{element}_x{lanes}", f"tc_int{dtype.bits}_x{lanes}"
    if reduction == "abs":
        bits = f"({mask}){{}} + {2 ** (dtype.bits - 1) - 1}L"
        return (
            f"{INLINE} {vector} tc_abs_{element}_x{lanes}({vector} a) {{ return ({vector})(({mask})a & ({bits})); }}\n"
        )
    test = f"(a {'<' if reduction == 'min' else '>'} b)"
    if dtype.is_float:
        test += " | (a != a)"
    head = f"{INLINE} {vector} tc_{reduction}_{element}_x{lanes}({vector} a, {vector} b)"
    selected = f"{{ {mask} m = ({mask})({test}); return ({vector})((({mask})a & m) | (({mask})b & ~m)); }}"
    named = None if dtype.is_float else _instruction(reduction, dtype, int(lanes), mask)
    if named is None:
        return f"{head} {selected}\n"
    feature, call = named
    asked = f"#if defined __{feature}__ && defined __GNUC__ && !defined __clang__\n"
    return f"{asked}{head} {{ return ({vector}){call}; }}\n#else\n{head} {selected}\n#endif\n"


def _instruction(reduction: str, dtype: DType, lanes: int, mask: str) -> tuple[str, str] | None:
    """What a processor must have for an instruction of its own, and the call that gcc makes it of; None: there is none.

    Shorter integers are in no vectors of these texts, longer ones have such instructions on few processors.
    """
    size = dtype.bits * lanes
    if dtype.bits != 32 or size not in _FEATURES:
        return None
    sign = "u" if dtype.kind == "uint" else "s"
    return _FEATURES[size], f"__builtin_ia32_p{reduction}{sign}d{size}(({mask})a, ({mask})b)"
