"""How precise kernels are: the formats of floating-point numbers, and the greatest errors of the built-in functions.

``python -m benchmarks.ulps`` measures the functions on the CPU; docs/numerics.md has its table and NVIDIA's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.values.operators import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, FLOAT64, DType


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format: bits of the significand, exponent of the smallest positive number, and the largest number."""

    precision: int
    lowest_exponent: int
    largest: float

    @property
    def unit(self) -> float:
        """The unit roundoff: the largest relative error of rounding to nearest."""
        return 2.0**-self.precision

    @property
    def least(self) -> float:
        """The smallest positive number: twice the largest error where results underflow."""
        return 2.0**self.lowest_exponent


FORMATS: dict[DType, Format] = {
    FLOAT8_E4M3: Format(4, -9, 448.0),
    FLOAT8_E5M2: Format(3, -16, 57344.0),
    FLOAT16: Format(11, -24, 65504.0),
    BFLOAT16: Format(8, -133, 2.0**128 - 2.0**120),
    FLOAT32: Format(24, -149, 2.0**128 - 2.0**104),
    FLOAT64: Format(53, -1074, 1.7976931348623157e308),
}


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The greatest error of a function: in units in the last place for float32 and float64, plus an absolute one."""

    float32: float
    float64: float
    absolute32: float = 0.0
    absolute64: float = 0.0

    def ulps(self, dtype: DType) -> float:
        """Of the type that the function computes in."""
        return self.float64 if dtype == FLOAT64 else self.float32

    def absolute(self, dtype: DType) -> float:
        """Of the type that the function computes in."""
        return self.absolute64 if dtype == FLOAT64 else self.absolute32


EXACT = Accuracy(0.0, 0.0)
CORRECTLY_ROUNDED = Accuracy(0.5, 0.5)

FUNCTIONS: dict[str, Accuracy] = {
    "abs": EXACT, "ceil": EXACT, "copysign": EXACT, "fabs": EXACT, "floor": EXACT, "fmax": EXACT, "fmin": EXACT,
    "fmod": EXACT, "logb": EXACT, "nextafter": EXACT, "relu": EXACT, "remainder": EXACT, "round": EXACT, "sign": EXACT,
    "trunc": EXACT,
    "fdim": CORRECTLY_ROUNDED, "fdivide": CORRECTLY_ROUNDED, "fma": CORRECTLY_ROUNDED, "sqrt": CORRECTLY_ROUNDED,
    "acos": Accuracy(2.5, 2.5), "acosh": Accuracy(4.5, 3.5), "asin": Accuracy(2.5, 2.5), "asinh": Accuracy(3.5, 3.5),
    "atan": Accuracy(2.5, 2.5), "atan2": Accuracy(3.5, 2.5), "atanh": Accuracy(3.5, 2.5), "cbrt": Accuracy(1.5, 4.0),
    "cos": Accuracy(2.5, 2.5), "cosh": Accuracy(2.5, 2.0), "cospi": Accuracy(1.5, 2.5),
    "cyl_bessel_i0": Accuracy(6.5, 6.5), "cyl_bessel_i1": Accuracy(6.5, 6.5), "erf": Accuracy(2.5, 2.5),
    "digamma": Accuracy(4.5, 4.5, 1e-6, 2e-15), "trigamma": Accuracy(4.5, 6.5),
    "tetragamma": Accuracy(4.5, 6.5),
    "erfc": Accuracy(4.5, 5.5), "erfcinv": Accuracy(4.5, 6.5), "erfcx": Accuracy(4.5, 4.5),
    "erfinv": Accuracy(2.5, 5.5), "exp": Accuracy(2.5, 1.5), "exp10": Accuracy(2.5, 2.0), "exp2": Accuracy(2.5, 1.5),
    "expm1": Accuracy(1.5, 2.0), "hypot": Accuracy(3.5, 2.5), "j0": Accuracy(9.5, 7.5, 2.2e-6, 5e-12),
    "j1": Accuracy(9.5, 7.5, 2.2e-6, 5e-12), "lgamma": Accuracy(8.0, 8.0, 1e-6, 2e-15), "log": Accuracy(1.5, 1.5),
    "log10": Accuracy(2.5, 2.0), "log1p": Accuracy(1.5, 1.5), "log2": Accuracy(1.5, 1.5), "norm3d": Accuracy(3.5, 2.5),
    "norm4d": Accuracy(3.5, 2.5), "normcdf": Accuracy(5.5, 5.5), "normcdfinv": Accuracy(5.5, 8.5),
    "pow": Accuracy(4.5, 2.5), "rcbrt": Accuracy(1.5, 1.5), "rhypot": Accuracy(2.5, 2.5),
    "rnorm3d": Accuracy(2.5, 3.5), "rnorm4d": Accuracy(2.5, 3.5), "rsqrt": Accuracy(2.5, 1.5),
    "sigmoid": Accuracy(4.5, 3.5), "sin": Accuracy(2.5, 2.5), "sinh": Accuracy(3.5, 2.5), "sinpi": Accuracy(1.5, 2.5),
    "tan": Accuracy(4.5, 2.5), "tanh": Accuracy(2.5, 2.5), "tgamma": Accuracy(5.5, 10.5),
    "y0": Accuracy(9.5, 7.5, 2.2e-6, 5e-12), "y1": Accuracy(9.5, 7.5, 2.2e-6, 5e-12),
}  # fmt: skip
"""For every intrinsic what holds on all targets, IEEE arithmetic provided: the larger of what was measured on the CPU
and what NVIDIA states (CUDA Programming Guide, "Mathematical Functions"; there a correctly rounded result counts as 0,
hence half an ulp more here).  ``lgamma`` at negative arguments and the Bessel functions have zeros, near which only
the absolute error is small."""

FAST_FUNCTIONS: dict[str, Accuracy] = {
    "digamma": Accuracy(4.5, 128.0, 1e-6, 1e-15), "trigamma": Accuracy(4.5, 8.0),
    "tetragamma": Accuracy(4.5, 8.0),
    "cos": Accuracy(2.5, 2.5, 2.0**-20), "erf": Accuracy(4.0, 2.5), "exp": Accuracy(110.0, 8.0),
    "exp10": Accuracy(120.0, 4.0), "exp2": Accuracy(4.0, 2.0), "expm1": Accuracy(4.0, 4.0),
    "fdivide": Accuracy(5.0, 2.5), "log": Accuracy(4.0, 2.5, 2.0**-21), "log10": Accuracy(4.0, 2.5, 2.0**-21),
    "log1p": Accuracy(4.0, 3.0), "log2": Accuracy(4.0, 2.5, 2.0**-21), "pow": Accuracy(500.0, 4.0),
    "rsqrt": Accuracy(4.5, 2.5), "sigmoid": Accuracy(16.0, 8.0), "sin": Accuracy(2.5, 2.5, 2.0**-20),
    "sqrt": Accuracy(2.5, 2.5), "tan": Accuracy(16.0, 4.0, 2.0**-19), "tanh": Accuracy(2.0**13, 4.0),
}  # fmt: skip
"""What ``fast_math`` changes: the larger of what was measured on the CPU (normal numbers only) and what NVIDIA states
of the functions that ``--use_fast_math`` puts in place (``__expf`` and so on).  Those of ``sin``, ``cos`` and ``tan``
hold from -pi to pi, that of ``pow`` for exponents up to 50."""


WEIGHT_FUNCTIONS: dict[str, Accuracy] = {"exp": Accuracy(160.0, 1.5), "exp2": Accuracy(4.0, 1.5)}
"""What GPUs make of the weights of attention that they round to 16 bits: ``exp(x)`` is ``ex2.approx`` of ``x log2(e)``,
whose three roundings are errors of the power.  The bound is that of -88, where floats end; near -10 it is 20 ulps."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a kernel computes with: IEEE arithmetic, or what ``fast_math`` or ``rounded_weights`` make of it."""

    fast_math: bool = False
    rounded_weights: bool = False

    def operation(self, op: str) -> float:
        """The greatest error of an operator on floats, in ulps."""
        if not self.fast_math:
            return 0.5
        return FAST_FUNCTIONS["fdivide"].float32 if op == "/" else 1.0

    def function(self, name: str) -> Accuracy:
        """The greatest error of an intrinsic."""
        if self.rounded_weights and name in WEIGHT_FUNCTIONS:
            return WEIGHT_FUNCTIONS[name]
        usual = FUNCTIONS[name]
        return FAST_FUNCTIONS.get(name, usual) if self.fast_math else usual
