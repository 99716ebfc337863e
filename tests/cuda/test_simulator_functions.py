"""The functions that CUDA has beyond the C library's, in the simulator's runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcomp.backends.source import Launch
from tests.cuda.simulated import NEEDS_COMPILER, Array, Tensor, out, simulate

pytestmark = NEEDS_COMPILER

special = pytest.importorskip("scipy.special")

X = np.linspace(-6, 6, 241)
UNIT = np.concatenate([[1e-300, 1e-30, 1e-8, 1e-3], np.linspace(0.01, 0.99, 99), [0.999, 1 - 1e-10]])

UNARY: dict[str, tuple[Callable[[Array], Any], Array]] = {
    "erfinv": (special.erfinv, np.concatenate([-UNIT[4:], UNIT])),
    "erfcinv": (special.erfcinv, np.concatenate([UNIT, 2 - UNIT[4:]])),
    "erfcx": (special.erfcx, np.concatenate([X, [15.0, 19.9, 20.1, 25.0, 1000.0, 1e30]])),
    "normcdf": (special.ndtr, X * 3),
    "normcdfinv": (special.ndtri, UNIT),
    "cyl_bessel_i0": (special.i0, X * 20),
    "cyl_bessel_i1": (special.i1, X * 20),
    "exp10": (lambda x: 10.0**x, X),
    "sinpi": (lambda x: np.sin(np.pi * (x % 2)), X + 1 / 64),
    "cospi": (lambda x: np.cos(np.pi * (x % 2)), X + 1 / 64),
    "rsqrt": (lambda x: 1 / np.sqrt(x), UNIT),
    "rcbrt": (lambda x: 1 / np.cbrt(x), UNIT),
    "j0": (special.j0, X),
    "y1": (special.y1, UNIT[4:]),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("c_type", ["float", "double"])
def test_functions_of_one_argument(name: str, c_type: str) -> None:
    reference, points = UNARY[name]
    x = points.astype("float32" if c_type == "float" else "float64")
    y = apply(f"{name}{'f' if c_type == 'float' else ''}(A[i])", c_type, x)
    with np.errstate(over="ignore", divide="ignore"):
        expected = np.asarray(reference(x.astype(np.float64))).astype(x.dtype)
    tolerance = 2e-7 if c_type == "float" else 2e-13
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance * 1e-2)


def apply(expression: str, c_type: str, x: Array, result: str | None = None) -> Array:
    text = f"""
extern "C" __global__ void apply(const {c_type} *__restrict__ A, {result or c_type} *__restrict__ B) {{
  for (int i = threadIdx.x; i < {x.size}; i += 32) B[i] = {expression};
}}
"""
    dtype = {None: str(x.dtype), "float": "float32", "unsigned short": "uint16"}[result]
    b = out("B", x.shape, dtype)
    report = simulate(text, [Launch("apply", (1, 1, 1), (32, 1, 1), 0, ("A", "B"))], [Tensor("A", x), b])
    assert not report.findings, str(report)
    return b.array


def test_edges_of_inverse_functions() -> None:
    values = apply("erfinv(A[i])", "double", np.array([-1.0, 1.0, 1.5, 0.0]))
    np.testing.assert_array_equal(values, [-np.inf, np.inf, np.nan, 0.0])
    values = apply("erfcinv(A[i])", "double", np.array([0.0, 2.0, -0.1, 1.0]))
    np.testing.assert_array_equal(values, [np.inf, -np.inf, np.nan, 0.0])
    assert not np.signbit(values[-1])
    np.testing.assert_array_equal(apply("erfcx(A[i])", "double", np.array([-np.inf, -1e200])), np.inf)


def test_norms() -> None:
    x = np.array([2.0, 0.5, 3.0])
    np.testing.assert_allclose(apply("norm3d(A[i], 1.0, 2.0)", "double", x), np.sqrt(x * x + 5), rtol=1e-15)
    np.testing.assert_allclose(apply("rnorm4d(A[i], 1.0, 2.0, 3.0)", "double", x), 1 / np.sqrt(x * x + 14), rtol=1e-15)
    np.testing.assert_allclose(apply("rhypot(A[i], 1.0)", "double", x), 1 / np.sqrt(x * x + 1), rtol=1e-15)
    np.testing.assert_allclose(apply("fdivide(A[i], 3.0)", "double", x), x / 3, rtol=1e-15)


def test_float16_conversions_are_numpys() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = apply("tc_from_float16(A[i])", "unsigned short", bits, "float")
    np.testing.assert_array_equal(wide, bits.view(np.float16).astype(np.float32))
    finite = wide[np.isfinite(wide)]
    between = (finite[:-1].astype(np.float64) + np.diff(finite.astype(np.float64)) / 2).astype(np.float32)
    edges = np.array([65519.9, 65520.0, 1e30, -1e30, 2.98e-8, 2.99e-8], np.float32)
    numbers = np.concatenate([wide, between, edges])
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16)
    narrow = apply("tc_to_float16(A[i])", "float", numbers, "unsigned short").view(np.float16)
    np.testing.assert_array_equal(narrow, expected)
