"""The table of greatest errors in docs/numerics.md: complete, in keeping with the tolerance, and true of some rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp
from benchmarks.tables import PAGE, write_table
from tcomp.values.accuracy import FAST_FUNCTIONS, FUNCTIONS
from tcomp.values.operators import FLOAT32, FLOAT64
from tcomp.values.vectormath import VECTORISED
from tests.agreement import OF_FLOATS

pytestmark = pytest.mark.sweep(5)

COARSE = 40_009
"""Stride through the bit patterns of float32: a hundred thousand arguments, and a million near zero."""

MEASURED = ("exp", "exp10", "expm1", "sigmoid", "tanh", "log", "log1p", "sin", "rsqrt", "cbrt", "rcbrt", "pow", "floor")
"""Rows that are measured anew; those of tcomp's own code, and some of the C library's."""


@pytest.fixture(scope="module")
def ulps() -> Any:
    """The module that measures, which needs packages that the tests of a bare machine may lack."""
    pytest.importorskip("mpmath")
    pytest.importorskip("scipy")
    return pytest.importorskip("benchmarks.ulps")


def rows() -> dict[str, list[str]]:
    """The cells of the table, by function."""
    table = PAGE.read_text(encoding="utf-8").partition("<!-- ulps: begin -->")[2].partition("<!-- ulps: end -->")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_function_has_a_row_and_an_accuracy() -> None:
    assert list(rows()) == sorted(OF_FLOATS)
    assert FUNCTIONS.keys() == OF_FLOATS.keys()
    assert FAST_FUNCTIONS.keys() <= OF_FLOATS.keys()


@pytest.mark.parametrize("name", sorted(OF_FLOATS))
def test_the_tolerance_covers_the_table(name: str) -> None:
    _, own, *errors = rows()[name]
    assert own == "/".join(t for t in ("float", "double") if (name, t) in VECTORISED)
    measured = [float(e) for e in errors]
    usual = FUNCTIONS[name]
    fast = FAST_FUNCTIONS.get(name, usual)
    allowed = [usual.float32, fast.float32, usual.float64, fast.float64]
    assert all(m <= max(a, 0.51) or a == m == 0 for m, a in zip(measured, allowed, strict=True)), (measured, allowed)
    assert all(f >= u for f, u in zip(allowed[1::2], allowed[::2], strict=True)), "fast_math is never more precise"


@pytest.mark.parametrize("name", MEASURED)
def test_rows_hold(name: str, ulps: Any) -> None:
    """On another machine the C library and the contraction of products may differ, but not by much."""
    errors = [float(e) for e in rows()[name][2:]]
    for cell, (dtype, fast) in zip(errors, ((t, f) for t in (FLOAT32, FLOAT64) for f in (False, True)), strict=True):
        assert ulps.measure(name, dtype, fast, COARSE).ulps <= cell + (0.8 if cell else 0)


def test_errors_are_measured_in_units_of_the_result(ulps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is off by a known amount."""
    for dtype, storage in ((FLOAT32, np.float32), (FLOAT64, np.float64)):

        def off(name: str, dtype: Any, fast_math: bool, storage: Any = storage) -> Any:
            return lambda x: np.nextafter(np.nextafter(np.sqrt(x).astype(storage), np.inf), np.inf, dtype=storage)

        monkeypatch.setattr(ulps, "kernel", off)
        with np.errstate(all="ignore"):
            assert 2.4 < ulps.measure("sqrt", dtype, False, COARSE).ulps <= 2.51


def test_the_table_is_written_between_its_marks(ulps: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- ulps: begin -->\nold\n<!-- ulps: end -->\nafter\n", encoding="utf-8")
    error = ulps.Error(1.234, (1.0,))
    line = ulps.row_text(ulps.Row("exp", error, ulps.Error(0.0, ()), ulps.Error(182.2, ()), error))
    assert line == "| `exp` | all | float/double | 1.24 | 0 | 183 | 1.24 |"
    write_table("ulps", [line], page)
    text = page.read_text(encoding="utf-8")
    assert text == f"before\n<!-- ulps: begin -->\n{line}\n<!-- ulps: end -->\nafter\n"
    with pytest.raises(ValueError, match="no marks for times"):
        write_table("times", [line], page)


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_inverse_lengths_do_not_overflow_inside(dtype: str) -> None:
    """The inverse of a length beyond the largest number is a number still; it came out as 0."""
    storage = np.dtype(np.float32 if dtype == "float" else np.float64)
    largest = np.finfo(storage).max
    x = np.full(4, largest, storage)
    for name, count in (("rhypot", 2), ("rnorm3d", 3), ("rnorm4d", 4)):
        names = "XYZW"[:count]
        parameters = ", ".join(f"{dtype}(N) {n}" for n in names)
        call = ", ".join(f"{n}(i)" for n in names)
        found = tcomp.define(f"def f({parameters}) -> (R) {{ R(i) = {name}({call}) }}").f(*[x] * count, target="cpu")
        exact = 1 / np.sqrt(np.longdouble(count)) / np.longdouble(largest)
        np.testing.assert_allclose(found.astype(np.longdouble), np.full(4, exact), rtol=1e-6)


@pytest.mark.parametrize("name", ["exp", "exp10", "sigmoid"])
def test_fast_math_leaves_the_reduction_of_arguments_alone(name: str) -> None:
    """With -ffast-math gcc joined its two steps: 183 ulp in exp, 173 in sigmoid; and made 916 ulp of pow(10, x)."""
    x = np.linspace(-300, 300, 4001)
    operation = tcomp.define(f"def f(double(N) X) -> (Y) {{ Y(i) = {name}(X(i)) }}").f
    found = operation(x, target="cpu", options=tcomp.MappingOptions(fast_math=True))
    wide = x.astype(np.longdouble)
    exact = {"exp": np.exp, "exp10": lambda x: np.longdouble(10) ** x, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}[name]
    np.testing.assert_allclose(found, exact(wide).astype(np.float64), rtol=5 * 2.0**-52)


@pytest.mark.parametrize("target", ["cpu", "simulator"])
@pytest.mark.parametrize(("dtype", "least"), [("float32", -103.0), ("float64", -744.0)])
def test_sigmoid_is_small_and_not_0_where_exp_overflows(dtype: str, least: float, target: str) -> None:
    if not tcomp.targets()[target]:
        pytest.skip(f"there is no {target}")
    sigmoid = tcomp.define(f"def f({dtype}(N) A) -> (B) {{ B(i) = sigmoid(A(i)) }}").f
    a = np.array([least, least * 0.9, -1.0, -0.0, 0.0, 1.0, -least, -np.inf, np.inf, np.nan], dtype)
    for found in (sigmoid(a, target=target), sigmoid.reference(a)):
        assert (found[:2] > 0).all()
        np.testing.assert_allclose(np.log(found[1].astype(np.float64)), a[1], rtol=1e-3)
        np.testing.assert_allclose(found[2:7], [0.26894142, 0.5, 0.5, 0.73105858, 1], rtol=1e-6)
        np.testing.assert_array_equal(found[7:], [0, 1, np.nan])
