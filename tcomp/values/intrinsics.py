"""The built-in functions of the language, each declared once: arity, NumPy meaning, C and CUDA spelling.

A row without a definition is a function of the C library under its own name (``acosh``: ``acosh(double)``,
``acoshf(float)``), unless ``vectormath`` has one that vectorises.  A row with one is spelled ``tc_<name>_<type>`` and
defined in front of the kernel; CUDA has most functions natively, so ``cuda_native`` says whether the definition is
needed there.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.errors import TargetError
from tcomp.values import bits, vectormath
from tcomp.values.vectormath import cfunctions
from tcomp.values.vectormath.cfunctions import CFunction
from tcomp.values.vectormath.exponentials import EXP_OF_SCALED_WEIGHT_FLOAT, EXP_OF_WEIGHT_FLOAT

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A built-in function of ``arity`` arguments of one type, which is also the type of its result.

    Arguments are converted to a common float type (float32 at least) unless ``keeps_integers`` holds, in which case
    integers stay integers.  ``evaluate`` is the meaning on arrays: float64 ones, or, where ``typed`` says that the
    result depends on the element type, or where integers stay, arrays of the type itself.  ``only_integers`` are
    functions of bits, whose arguments ``grammar/checking/bits.py`` converts.  ``partials`` are the
    derivatives by the arguments ``a b c d``, in which ``y`` is the value; calls of numbers are constants.
    """

    name: str
    arity: int
    evaluate: Callable[..., Array]
    definition: CFunction | None = None
    keeps_integers: bool = False
    only_integers: bool = False
    typed: bool = False
    cuda_native: bool = True
    partials: tuple[str, ...] | None = None

    def c_name(self, c_type: str) -> str:
        """What a C kernel calls for arguments of ``c_type``: "float", "double" or, if integers stay, an integer."""
        if self.c_definition(c_type):
            return cfunctions.defined_name(self.name, c_type)
        return self.name + ("f" if c_type == "float" else "")

    def c_definition(self, c_type: str) -> CFunction | None:
        """The definition for C kernels, one that vectorises where there is one; None where the C library serves."""
        return vectormath.VECTORISED.get((self.name, c_type), self.definition)

    def cuda_name(self, c_type: str) -> str:
        """What a CUDA kernel calls for arguments of ``c_type``."""
        return self.name + ("f" if c_type == "float" else "") if self.cuda_native else self.c_name(c_type)


def c_declarations(calls: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Header-free C text, one declaration or definition each, for calls given as (intrinsic, C type).

    Definitions come after what they call; each function comes once.
    """
    texts: dict[str, str] = {}
    for name, c_type in calls:
        cfunctions.declare(name, row_of(name).c_definition(c_type), c_type, texts)
    return tuple(texts.values())


def cuda_definitions(calls: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Device functions for the calls, given as (intrinsic, C type), that CUDA does not know natively."""
    texts: dict[str, str] = {}
    for name, c_type in calls:
        intrinsic = INTRINSICS[name]
        if not intrinsic.cuda_native and intrinsic.definition is not None:
            c_name = intrinsic.c_name(c_type)
            texts[c_name] = f"__device__ __forceinline__ {intrinsic.definition.define(c_name, c_type)}"
    return tuple(texts.values())


def _scipy(name: str) -> Callable[..., Array]:
    """A function of ``scipy.special``, which is imported when it is first called: only the reference needs it."""

    def call(*arguments: Array) -> Array:
        try:
            special = importlib.import_module("scipy.special")
        except ImportError as error:
            raise TargetError(f"the reference interpreter computes this function with SciPy ({name!r}), which is not"
                              " installed: pip install scipy") from error  # fmt: skip
        result: Array = np.asarray(getattr(special, name)(*arguments))
        return result

    return call


_log_gamma = _scipy("gammaln")


def _lgamma(x: Array) -> Array:
    """SciPy's overflows beside its pole at 0."""
    inside = np.where(np.abs(x) < 1e-300, -np.log(np.abs(x)), _log_gamma(x))
    return np.where(np.isinf(x), np.inf, inside)


_polygamma = _scipy("polygamma")


def _trigamma(x: Array) -> Array:
    return _polygamma(1, x)


def _tetragamma(x: Array) -> Array:
    return _polygamma(2, x)


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    vectorised = np.frompyfunc(function, 1, 1)

    def call(x: Array) -> Array:
        return np.asarray(vectorised(x), np.float64)

    return call


_erf, _erfc = _elementwise(math.erf), _elementwise(math.erfc)


def _round(x: Array) -> Array:
    whole = np.trunc(x)
    result: Array = np.copysign(whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1.0, x), 0.0), x)
    return result


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without what overflows: it is exp(x) far below 0."""
    small: Array = np.exp(-np.abs(x))
    result: Array = np.where(x < 0, small, 1) / (1 + small)
    return result


def _sign(x: Array) -> Array:
    return np.where(np.equal(x, 0), x, np.sign(x))


def _remainder(x: Array, y: Array) -> Array:
    """IEEE remainder: x - y n with n the integer nearest x / y, ties to even."""
    period = np.abs(y)
    rest = np.fmod(np.abs(x), 2 * period)
    above = 2 * rest > period
    rest = np.where(above, rest - period, rest)
    result: Array = np.copysign(1.0, x) * np.where(above & (2 * rest >= period), rest - period, rest)
    return result


_inverse_erfc = _scipy("erfcinv")


def _erfcinv(x: Array) -> Array:
    return _inverse_erfc(x) + 0.0


def _half_turns(x: Array) -> tuple[Array, Array]:
    """The multiple of a quarter turn nearest pi x, modulo 4, and the angle that is left."""
    rest = np.fmod(x, 2.0)
    quarter = np.rint(2 * rest)
    return np.mod(quarter, 4), np.pi * (rest - quarter / 2)


def _sinpi(x: Array) -> Array:
    quarter, angle = _half_turns(x)
    value = np.where(quarter % 2 == 0, np.sin(angle), np.cos(angle)) * np.where(quarter >= 2, -1.0, 1.0)
    return np.where(value == 0, np.copysign(0.0, x), value)


def _cospi(x: Array) -> Array:
    quarter, angle = _half_turns(x)
    flipped = (quarter == 1) | (quarter == 2)
    return np.where(quarter % 2 == 0, np.cos(angle), np.sin(angle)) * np.where(flipped, -1.0, 1.0) + 0.0


def _odd(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An odd function, which has -0 at -0; SciPy's have 0 there."""
    return lambda x: np.where(x == 0, x, function(x))


def _bessel(name: str, limit: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A Bessel function, with its ``limit`` at infinity, where SciPy has NaN."""
    inside = _scipy(name)
    return lambda x: np.where(np.isinf(x), limit(x), inside(x))


def _vanishing(x: Array) -> Array:
    return np.where(x > 0, 0.0, np.nan)


def _fma(x: Array, y: Array, z: Array) -> Array:
    result: Array = (np.asarray(x, np.longdouble) * y + z).astype(np.float64)
    return result


def _logb(x: Array) -> Array:
    return np.where(np.isfinite(x) & (x != 0), np.frexp(x)[1] - 1.0, np.log2(np.abs(x)))


def _norm(*x: Array) -> Array:
    length = np.abs(x[0])
    for component in x[1:]:
        length = np.hypot(length, component)
    return length


def _c(text: str, *calls: str) -> CFunction:
    return CFunction(text, calls)


def _of_bits(name: str, arity: int, evaluate: Callable[..., Array], definition: CFunction) -> Intrinsic:
    return Intrinsic(
        name, arity, evaluate, definition, keeps_integers=True, only_integers=True, typed=True, cuda_native=False
    )


INTRINSICS: dict[str, Intrinsic] = {
    f.name: f
    for f in (
        Intrinsic("acos", 1, np.arccos, partials=("-rsqrt(1.0 - a * a)",)),
        Intrinsic("acosh", 1, np.arccosh, partials=("rsqrt(a * a - 1.0)",)),
        Intrinsic("asin", 1, np.arcsin, partials=("rsqrt(1.0 - a * a)",)),
        Intrinsic("asinh", 1, np.arcsinh, partials=("rsqrt(a * a + 1.0)",)),
        Intrinsic("atan", 1, np.arctan, partials=("1.0 / (1.0 + a * a)",)),
        Intrinsic("atanh", 1, np.arctanh, partials=("1.0 / (1.0 - a * a)",)),
        Intrinsic("cbrt", 1, np.cbrt, partials=("y / (3.0 * a)",)),
        Intrinsic("ceil", 1, np.ceil, partials=("0.0",)),
        Intrinsic("cos", 1, np.cos, partials=("-sin(a)",)),
        Intrinsic("cosh", 1, np.cosh, partials=("sinh(a)",)),
        Intrinsic("cospi", 1, _cospi, cfunctions.COSPI, partials=("-acos(-1.0) * sinpi(a)",)),
        Intrinsic("cyl_bessel_i0", 1, _bessel("i0", np.abs), cfunctions.CYL_BESSEL_I0, partials=("cyl_bessel_i1(a)",)),
        Intrinsic("cyl_bessel_i1", 1, _odd(_bessel("i1", np.positive)), cfunctions.CYL_BESSEL_I1,
                  partials=("a == 0.0 ? 0.5 : cyl_bessel_i0(a) - y / a",)),
        Intrinsic("erf", 1, _erf, partials=("2.0 * rsqrt(acos(-1.0)) * exp(-(a * a))",)),
        Intrinsic("erfc", 1, _erfc, partials=("-2.0 * rsqrt(acos(-1.0)) * exp(-(a * a))",)),
        Intrinsic("erfcinv", 1, _erfcinv, cfunctions.ERFCINV, partials=("-0.5 * sqrt(acos(-1.0)) * exp(y * y)",)),
        Intrinsic("erfcx", 1, _scipy("erfcx"), cfunctions.ERFCX, partials=("2.0 * a * y - 2.0 * rsqrt(acos(-1.0))",)),
        Intrinsic("erfinv", 1, _odd(_scipy("erfinv")), cfunctions.ERFINV,
                  partials=("0.5 * sqrt(acos(-1.0)) * exp(y * y)",)),
        Intrinsic("exp", 1, np.exp, partials=("y",)),
        Intrinsic("exp10", 1, lambda x: np.power(10.0, x), _c("$T $name($T x) { return pow$f(10, x); }", "pow"),
                  partials=("log(10.0) * y",)),
        Intrinsic("exp2", 1, np.exp2, partials=("log(2.0) * y",)),
        Intrinsic("expm1", 1, np.expm1, partials=("y + 1.0",)),
        Intrinsic("fabs", 1, np.abs, partials=("sign(a)",)),
        Intrinsic("floor", 1, np.floor, partials=("0.0",)),
        Intrinsic("j0", 1, _bessel("j0", np.zeros_like), _c("double $name(double x) { return j0(x); }", "j0"),
                  partials=("-j1(a)",)),
        Intrinsic("j1", 1, _bessel("j1", lambda x: np.copysign(0.0, x)),
                  _c("double $name(double x) { return j1(x); }", "j1"), partials=("a == 0.0 ? 0.5 : j0(a) - y / a",)),
        Intrinsic("lgamma", 1, _lgamma, partials=("digamma(a)",)),
        Intrinsic("log", 1, np.log, partials=("1.0 / a",)),
        Intrinsic("log10", 1, np.log10, partials=("1.0 / log(10.0) / a",)),
        Intrinsic("log1p", 1, np.log1p, partials=("1.0 / (1.0 + a)",)),
        Intrinsic("log2", 1, np.log2, partials=("1.0 / log(2.0) / a",)),
        Intrinsic("logb", 1, _logb, partials=("0.0",)),
        Intrinsic("normcdf", 1, _scipy("ndtr"), cfunctions.NORMCDF,
                  partials=("rsqrt(2.0 * acos(-1.0)) * exp(-0.5 * a * a)",)),
        Intrinsic("normcdfinv", 1, _scipy("ndtri"), cfunctions.NORMCDFINV,
                  partials=("sqrt(2.0 * acos(-1.0)) * exp(0.5 * y * y)",)),
        Intrinsic("rcbrt", 1, lambda x: 1 / np.cbrt(x), cfunctions.RCBRT, partials=("-y / (3.0 * a)",)),
        Intrinsic("round", 1, _round, partials=("0.0",)),
        Intrinsic("rsqrt", 1, lambda x: 1 / np.sqrt(x), _c("$T $name($T x) { return 1 / sqrt$f(x); }", "sqrt"),
                  partials=("-0.5 * y * y * y",)),
        Intrinsic("sin", 1, np.sin, partials=("cos(a)",)),
        Intrinsic("sinh", 1, np.sinh, partials=("cosh(a)",)),
        Intrinsic("sinpi", 1, _sinpi, cfunctions.SINPI, partials=("acos(-1.0) * cospi(a)",)),
        Intrinsic("sqrt", 1, np.sqrt, partials=("0.5 / y",)),
        Intrinsic("tan", 1, np.tan, partials=("1.0 + y * y",)),
        Intrinsic("tanh", 1, np.tanh, partials=("1.0 - y * y",)),
        Intrinsic("tgamma", 1, _scipy("gamma"), partials=("y * digamma(a)",)),
        Intrinsic("trunc", 1, np.trunc, partials=("0.0",)),
        Intrinsic("y0", 1, _bessel("y0", _vanishing), _c("double $name(double x) { return y0(x); }", "y0"),
                  partials=("-y1(a)",)),
        Intrinsic("y1", 1, _bessel("y1", _vanishing), _c("double $name(double x) { return y1(x); }", "y1"),
                  partials=("y0(a) - y / a",)),
        Intrinsic("atan2", 2, np.arctan2, partials=("b / (a * a + b * b)", "-a / (a * a + b * b)")),
        Intrinsic("copysign", 2, np.copysign, partials=("a == 0.0 ? 0.0 : y / a", "0.0")),
        Intrinsic("fdim", 2, lambda x, y: np.where(x <= y, 0.0, x - y),
                  _c("$T $name($T x, $T y) { return x <= y ? 0 : x - y; }"),
                  partials=("a > b ? 1.0 : 0.0", "a > b ? -1.0 : 0.0")),
        Intrinsic("fdivide", 2, np.divide, _c("$T $name($T x, $T y) { return x / y; }"), cuda_native=False,
                  partials=("1.0 / b", "-y / b")),
        Intrinsic("fmax", 2, np.fmax,
                  _c("$T $name($T x, $T y) { $T larger = x >= y ? x : y; return y != y ? x : larger; }"),
                  partials=("a > b ? 1.0 : a == b ? 0.5 : 0.0", "b > a ? 1.0 : a == b ? 0.5 : 0.0")),
        Intrinsic("fmin", 2, np.fmin,
                  _c("$T $name($T x, $T y) { $T smaller = x <= y ? x : y; return y != y ? x : smaller; }"),
                  partials=("a < b ? 1.0 : a == b ? 0.5 : 0.0", "b < a ? 1.0 : a == b ? 0.5 : 0.0")),
        Intrinsic("fmod", 2, np.fmod, partials=("1.0", "-trunc(a / b)")),
        Intrinsic("hypot", 2, np.hypot, partials=("a / y", "b / y")),
        Intrinsic("nextafter", 2, np.nextafter, typed=True),
        Intrinsic("pow", 2, np.power,
                  partials=("b == 0.0 ? 0.0 : b * pow(a, b - 1.0)", "a == 0.0 && b >= 0.0 ? 0.0 : y * log(a)")),
        Intrinsic("remainder", 2, _remainder, partials=("1.0", "(y - a) / b")),
        Intrinsic("rhypot", 2, lambda x, y: 1 / np.hypot(x, y), cfunctions.RHYPOT,
                  partials=("-a * y * y * y", "-b * y * y * y")),
        Intrinsic("fma", 3, _fma, partials=("b", "a", "1.0")),
        Intrinsic("norm3d", 3, _norm,
                  _c("$T $name($T x, $T y, $T z) { return hypot$f(hypot$f(x, y), z); }", "hypot"),
                  partials=("a / y", "b / y", "c / y")),
        Intrinsic("rnorm3d", 3, lambda *x: 1 / _norm(*x), cfunctions.RNORM3D,
                  partials=("-a * y * y * y", "-b * y * y * y", "-c * y * y * y")),
        Intrinsic("norm4d", 4, _norm,
                  _c("$T $name($T x, $T y, $T z, $T w) { return hypot$f(hypot$f(x, y), hypot$f(z, w)); }", "hypot"),
                  partials=("a / y", "b / y", "c / y", "d / y")),
        Intrinsic("rnorm4d", 4, lambda *x: 1 / _norm(*x), cfunctions.RNORM4D,
                  partials=("-a * y * y * y", "-b * y * y * y", "-c * y * y * y", "-d * y * y * y")),
        Intrinsic("digamma", 1, _scipy("digamma"), cfunctions.DIGAMMA, cuda_native=False, partials=("trigamma(a)",)),
        Intrinsic(
            "trigamma", 1, _trigamma, cfunctions.TRIGAMMA, cuda_native=False, partials=("tetragamma(a)",)
        ),
        Intrinsic("tetragamma", 1, _tetragamma, cfunctions.TETRAGAMMA, cuda_native=False),
        # The field's names that the original lacks.  NaN gives NaN, also from sign; sign(-0) is -0.
        Intrinsic("abs", 1, np.abs, _c("$T $name($T x) { return x < 0 ? -x : x + 0; }"),
                  keeps_integers=True, cuda_native=False, partials=("sign(a)",)),
        Intrinsic("relu", 1, lambda x: np.where(x < 0, x.dtype.type(0), x),
                  _c("$T $name($T x) { return x < 0 ? 0 : x; }"), keeps_integers=True, cuda_native=False,
                  partials=("y > 0.0 ? 1.0 : 0.0",)),
        Intrinsic("sign", 1, _sign,
                  _c("$T $name($T x) { return x > 0 ? 1 : x < 0 ? -1 : x; }"),
                  keeps_integers=True, cuda_native=False, partials=("0.0",)),
        Intrinsic("sigmoid", 1, _sigmoid,
                  _c("$T $name($T x) { $T y = exp$f(x < 0 ? x : -x); return (x < 0 ? y : 1) / (1 + y); }", "exp"),
                  cuda_native=False, partials=("y * (1.0 - y)",)),
        _of_bits("bit_and", 2, np.bitwise_and, bits.AND),
        _of_bits("bit_or", 2, np.bitwise_or, bits.OR),
        _of_bits("bit_xor", 2, np.bitwise_xor, bits.XOR),
        _of_bits("bit_not", 1, np.bitwise_not, bits.NOT),
        _of_bits("shift_left", 2, bits.shift_left, bits.SHIFT_LEFT),
        _of_bits("shift_right", 2, bits.shift_right, bits.SHIFT_RIGHT),
        _of_bits("popcount", 1, bits.popcount, bits.POPCOUNT),
        _of_bits("clz", 1, bits.clz, bits.CLZ),
    )
}  # fmt: skip
"""The built-in functions that are not rewritten by the checker (``select`` and ``clamp`` are)."""


OF_KERNELS: dict[str, Intrinsic] = {
    f.name: f
    for f in (
        Intrinsic("exp_of_weight", 1, np.exp, EXP_OF_WEIGHT_FLOAT, cuda_native=False),
        Intrinsic(
            "exp_of_scaled_weight", 2, lambda x, by: np.exp(x * by), EXP_OF_SCALED_WEIGHT_FLOAT, cuda_native=False
        ),
    )
}
"""What C kernels call instead of some built-in functions, and no text does: for floats of 32 bits alone."""


def row_of(name: str) -> Intrinsic:
    """A built-in function, or one of kernels."""
    return INTRINSICS[name] if name in INTRINSICS else OF_KERNELS[name]
