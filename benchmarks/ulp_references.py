"""What each built-in function should give, more precisely than any kernel computes it, and where it is measured.

``wide`` is a formula on arrays: float64 to judge float32, long double (64 bits of mantissa on x86) to judge float64.
``exact`` is mpmath's, correctly rounded for our purposes; it judges float64 where no long double function exists, and
the worst points that the wide formula found in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from scipy import special

from tcomp.values.intrinsics import INTRINSICS

Array = np.ndarray[Any, np.dtype[Any]]

DIGITS = 60
"""Of mpmath's arithmetic: enough that a float64 argument near a zero or a pole leaves all digits of a float64."""

LONG = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "exp", "exp2", "expm1", "log", "log10"),
    *("log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh", "atan2", "hypot", "pow", "sigmoid", "rsqrt", "rcbrt"),
    *("exp10", "rhypot", "norm3d", "norm4d", "rnorm3d", "rnorm4d", "fdivide"),
)
"""Functions whose formula NumPy evaluates in long double."""

EXACT = ("abs", "ceil", "copysign", "fabs", "floor", "fmax", "fmin", "fmod", "logb", "nextafter", "relu", "remainder",
         "round", "sign", "trunc")  # fmt: skip
"""Functions whose result is an element of the type, so that any error at all is a mistake."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Where a function is measured: ``text`` says it, ``low`` and ``high`` bound every argument."""

    text: str
    low: float
    high: float


EVERYWHERE = Arguments("all", -np.inf, np.inf)

RESTRICTED: dict[str, Arguments] = {
    "lgamma": Arguments("x > 0", 0.0, np.inf),
    "tgamma": Arguments("x > 0", 0.0, np.inf),
    "digamma": Arguments("x > 0", 0.0, np.inf),
    "trigamma": Arguments("x > 0", 0.0, np.inf),
    "tetragamma": Arguments("x > 0", 0.0, np.inf),
    "j0": Arguments("-2 < x < 2", -2.0, 2.0),
    "j1": Arguments("-3 < x < 3", -3.0, 3.0),
    "y0": Arguments("0 < x < 0.8", 0.0, 0.8),
    "y1": Arguments("0 < x < 2", 0.0, 2.0),
    "erfinv": Arguments("-1 < x < 1", -1.0, 1.0),
    "normcdfinv": Arguments("0 < x < 1", 0.0, 1.0),
    "erfcinv": Arguments("0 < x < 2", 0.0, 2.0),
}
"""Elsewhere the gamma and Bessel functions have zeros between floating-point numbers, near which no ulp bound holds."""


def arguments_of(name: str) -> Arguments:
    """Where the function is measured."""
    return RESTRICTED.get(name, EVERYWHERE)


def _exp10(x: Array) -> Array:
    return np.power(x.dtype.type(10), x)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


_WIDE: dict[str, Callable[..., Array]] = {
    "erf": special.erf, "erfc": special.erfc, "exp10": _exp10, "sigmoid": _sigmoid, "lgamma": special.gammaln,
    "fma": lambda x, y, z: np.asarray(x, np.longdouble) * y + z,
}  # fmt: skip


def wide(name: str, arguments: tuple[Array, ...]) -> Array:
    """The function of arrays in their own precision."""
    with np.errstate(all="ignore"):
        return np.asarray(_WIDE.get(name, INTRINSICS[name].evaluate)(*arguments))


def _newton(inverse: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The exact value near an approximation of it, for a function that is given by its inverse."""

    def improve(x: Any, near: Any) -> Any:
        for _ in range(3):
            near -= (inverse(near) - x) / slope(near)
        return near

    return improve


INVERSES: dict[str, Callable[[Any, Any], Any]] = {
    "erfinv": _newton(mpmath.erf, lambda y: 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-y * y)),
    "erfcinv": _newton(mpmath.erfc, lambda y: -2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-y * y)),
    "normcdfinv": _newton(mpmath.ncdf, mpmath.npdf),
}
"""By argument and a value that is right to a few digits."""


def _length(*x: Any) -> Any:
    return mpmath.sqrt(sum(component * component for component in x))


_EXACT: dict[str, Callable[..., Any]] = {
    "cyl_bessel_i0": lambda x: mpmath.besseli(0, x),
    "cyl_bessel_i1": lambda x: mpmath.besseli(1, x),
    "cospi": mpmath.cospi,
    "sinpi": mpmath.sinpi,
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "exp10": lambda x: mpmath.power(10, x),
    "exp2": lambda x: mpmath.power(2, x),
    "fdivide": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
    "fdim": lambda x, y: max(x - y, mpmath.mpf(0)),
    "hypot": _length,
    "j0": lambda x: mpmath.besselj(0, x),
    "j1": lambda x: mpmath.besselj(1, x),
    "digamma": mpmath.digamma,
    "trigamma": lambda x: mpmath.psi(1, x),
    "tetragamma": lambda x: mpmath.psi(2, x),
    "lgamma": mpmath.loggamma,
    "log10": mpmath.log10,
    "log2": lambda x: mpmath.log(x, 2),
    "norm3d": _length,
    "norm4d": _length,
    "normcdf": lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "pow": mpmath.power,
    "rcbrt": lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "rhypot": lambda *x: 1 / _length(*x),
    "rnorm3d": lambda *x: 1 / _length(*x),
    "rnorm4d": lambda *x: 1 / _length(*x),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tgamma": mpmath.gamma,
    "y0": lambda x: mpmath.bessely(0, x),
    "y1": lambda x: mpmath.bessely(1, x),
}


def exact(name: str, arguments: tuple[float, ...], near: float) -> Any:
    """The function's value to ``DIGITS`` digits; ``near`` is what a kernel made of the arguments."""
    with mpmath.workdps(DIGITS):
        numbers = [mpmath.mpf(a) for a in arguments]
        if name in INVERSES:
            return INVERSES[name](numbers[0], mpmath.mpf(near))
        return mpmath.re(_EXACT.get(name, getattr(mpmath, name, None))(*numbers))
