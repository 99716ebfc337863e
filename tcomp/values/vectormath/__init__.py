"""Elementary functions in C that a compiler turns into vector instructions.

A call of the C library inside a loop keeps it from vectorising, so the functions that kernels are full of are given
here instead: no branches, no tables, no calls; selections and arithmetic on the bits of floating-point numbers only.
The methods are those of W. J. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980), and of
S. L. Moshier's Cephes library (1984-1992): reduction by a constant in two parts whose first multiplies exactly, a
polynomial, and reconstruction.  The polynomials are minimax, found by E. Ya. Remez' exchange in 45 digits, their
coefficients rounded one by one from the lowest and the others fitted anew.

All obey IEEE arithmetic: infinities, NaN, signed zeros, overflow and gradual underflow come out as from the C library.
Under ``-ffast-math`` they stay within 4 ulp on finite arguments with finite results where the processor fuses
multiplications with additions, for then no step relies on sums being taken in order.  On x86 the rounding to
integers takes SSE 4.1; below that only logarithms vectorise.
``tests/unit/test_vectormath.py`` holds the greatest errors.
"""

from __future__ import annotations

from tcomp.values.vectormath.cfunctions import CFunction
from tcomp.values.vectormath.exponentials import (
    COSH_FLOAT,
    ERF_DOUBLE,
    ERF_FLOAT,
    EXP2_DOUBLE,
    EXP2_FLOAT,
    EXP10_DOUBLE,
    EXP10_FLOAT,
    EXP_DOUBLE,
    EXP_FLOAT,
    EXPM1_DOUBLE,
    EXPM1_FLOAT,
    SIGMOID_DOUBLE,
    SIGMOID_FLOAT,
    SINH_FLOAT,
    TANH_DOUBLE,
    TANH_FLOAT,
)
from tcomp.values.vectormath.logarithms import (
    LOG1P_DOUBLE,
    LOG1P_FLOAT,
    LOG2_DOUBLE,
    LOG2_FLOAT,
    LOG10_DOUBLE,
    LOG10_FLOAT,
    LOG_DOUBLE,
    LOG_FLOAT,
)
from tcomp.values.vectormath.powers import HYPOT_FLOAT, POW_FLOAT
from tcomp.values.vectormath.trigonometry import COS_FLOAT, SIN_FLOAT, TAN_FLOAT

VECTORISED: dict[tuple[str, str], CFunction] = {
    ("exp", "float"): EXP_FLOAT,
    ("exp", "double"): EXP_DOUBLE,
    ("exp2", "float"): EXP2_FLOAT,
    ("exp2", "double"): EXP2_DOUBLE,
    ("exp10", "float"): EXP10_FLOAT,
    ("exp10", "double"): EXP10_DOUBLE,
    ("expm1", "float"): EXPM1_FLOAT,
    ("expm1", "double"): EXPM1_DOUBLE,
    ("sigmoid", "float"): SIGMOID_FLOAT,
    ("sigmoid", "double"): SIGMOID_DOUBLE,
    ("tanh", "float"): TANH_FLOAT,
    ("tanh", "double"): TANH_DOUBLE,
    ("erf", "float"): ERF_FLOAT,
    ("erf", "double"): ERF_DOUBLE,
    ("log", "float"): LOG_FLOAT,
    ("log", "double"): LOG_DOUBLE,
    ("log2", "float"): LOG2_FLOAT,
    ("log2", "double"): LOG2_DOUBLE,
    ("log10", "float"): LOG10_FLOAT,
    ("log10", "double"): LOG10_DOUBLE,
    ("log1p", "float"): LOG1P_FLOAT,
    ("log1p", "double"): LOG1P_DOUBLE,
    ("sinh", "float"): SINH_FLOAT,
    ("cosh", "float"): COSH_FLOAT,
    ("sin", "float"): SIN_FLOAT,
    ("cos", "float"): COS_FLOAT,
    ("tan", "float"): TAN_FLOAT,
    ("pow", "float"): POW_FLOAT,
    ("hypot", "float"): HYPOT_FLOAT,
}
"""What stands in for the C library, by intrinsic and C type."""
