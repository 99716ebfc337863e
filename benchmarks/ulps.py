"""The greatest error of every built-in function on the CPU, in units in the last place, with and without ``fast_math``.

``python -m benchmarks.ulps`` measures all of them (some minutes) and writes the table in docs/numerics.md;
``python -m benchmarks.ulps exp log`` prints the rows of some.  Each function is measured inside a kernel,
``Y(i) = f(X(i))``, where the compiler vectorises it as it does in any program.

Float arguments are every 251st of all bit patterns, seventeen million, and a million more from -10 to 10; of functions
of several arguments two million sets.  Double arguments are half random bit patterns and half between -10 and 10.  The
unit is the distance of the floating-point numbers around the exact value, so that 0.5 is correct rounding.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

import tcomp
from benchmarks.tables import write_table
from benchmarks.ulp_references import DIGITS, EXACT, INVERSES, LONG, arguments_of, exact, wide
from tcomp.values.intrinsics import INTRINSICS
from tcomp.values.operators import FLOAT32, FLOAT64, DType
from tcomp.values.vectormath import VECTORISED

Array = np.ndarray[Any, np.dtype[Any]]

MARK = "ulps"

BATCH = 1 << 20
"""Elements of one call, for a kernel is compiled for one size."""

STRIDE = 251
"""Of the bit patterns of float32 that are tried."""

WORST = 8
"""Points of each batch that are judged anew in ``DIGITS`` digits."""

SLOW_SAMPLES = 4000
"""Arguments of a function that only mpmath knows precisely enough."""


@dataclass(frozen=True, slots=True)
class Error:
    """The greatest error found, in ulps, and the arguments that it was found at."""

    ulps: float
    arguments: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A function: errors in float32 and float64, each by default and with ``fast_math``."""

    name: str
    float_default: Error
    float_fast: Error
    double_default: Error
    double_fast: Error


def kernel(name: str, dtype: DType, fast_math: bool) -> Any:
    """The function as a program on the CPU, called with arrays."""
    names = "XYZW"[: INTRINSICS[name].arity]
    parameters = ", ".join(f"{dtype}(N) {n}" for n in names)
    reads = ", ".join(f"{n}(i)" for n in names)
    operation = tcomp.define(f"def f({parameters}) -> (R) {{ R(i) = {name}({reads}) }}", tune="off").f
    options = tcomp.MappingOptions(fast_math=fast_math)
    return lambda *arrays: operation(*arrays, target="cpu", options=options)


def float_batches(arity: int, stride: int = STRIDE) -> Iterator[tuple[Array, ...]]:
    """Arguments in float32; the last batch is near zero, where functions bend."""
    rng = np.random.default_rng(1)
    if arity == 1:
        patterns = np.arange(0, 1 << 32, stride, dtype=np.uint64)
        for start in range(0, patterns.size, BATCH):
            part = np.resize(patterns[start : start + BATCH], BATCH)
            yield (part.astype(np.uint32).view(np.float32),)
    else:
        yield tuple(rng.integers(0, 1 << 32, BATCH, np.uint32).view(np.float32) for _ in range(arity))
    yield tuple(rng.uniform(-10, 10, BATCH).astype(np.float32) for _ in range(arity))


def double_batches(arity: int, count: int) -> Iterator[tuple[Array, ...]]:
    """Arguments in float64, ``count`` sets."""
    rng = np.random.default_rng(2)
    bits = tuple(rng.integers(0, 1 << 64, count // 2, np.uint64).view(np.float64) for _ in range(arity))
    near = tuple(rng.uniform(-10, 10, count - count // 2) for _ in range(arity))
    yield tuple(np.concatenate(pair) for pair in zip(bits, near, strict=True))


def measure(name: str, dtype: DType, fast_math: bool, stride: int = STRIDE) -> Error:
    """The greatest error of a function in one type.

    With ``fast_math`` only where arguments and results are normal numbers: the option promises nothing elsewhere.
    """
    arity, slow = INTRINSICS[name].arity, dtype == FLOAT64 and name not in LONG and name not in EXACT
    count = SLOW_SAMPLES if slow else BATCH
    batches = float_batches(arity, stride) if dtype == FLOAT32 else double_batches(arity, count)
    run = kernel(name, dtype, fast_math)
    greatest = Error(0.0, ())
    for arguments in batches:
        error = _greatest(name, arguments, run(*arguments), fast_math)
        greatest = max(greatest, error, key=lambda e: e.ulps)
    return greatest


def _greatest(name: str, arguments: tuple[Array, ...], found: Array, fast_math: bool) -> Error:
    dtype, info = found.dtype, np.finfo(found.dtype)
    counts = _inside(name, arguments, found, fast_math)
    if name in EXACT:
        with np.errstate(all="ignore"):
            same = INTRINSICS[name].evaluate(*arguments)
        wrong = counts & (found != same) & ~(np.isnan(found) & np.isnan(same))
        return Error(np.inf, _at(arguments, int(np.argmax(wrong)))) if wrong.any() else Error(0.0, ())
    if dtype == np.float64 and name not in LONG:
        candidates = np.flatnonzero(counts)
    else:
        precise = np.float64 if dtype == np.float32 else np.longdouble
        with np.errstate(all="ignore"):
            values = wide(name, tuple(a.astype(precise) for a in arguments))
            errors = np.abs(found - values) / spacing(values, dtype)
        counts &= np.isfinite(values) & (np.abs(values) <= precise(info.max))
        counts &= np.abs(values) >= precise(info.tiny if fast_math else info.smallest_subnormal)
        errors = np.where(counts, np.where(np.isnan(errors), np.inf, errors), 0)
        candidates = np.argpartition(errors, -WORST)[-WORST:]
        candidates = candidates[errors[candidates] > 0]
    worst = Error(0.0, ())
    for position in candidates:
        point = _at(arguments, int(position))
        worst = max(worst, Error(_exact_error(name, point, found[position], fast_math), point), key=lambda e: e.ulps)
    return worst


def _inside(name: str, arguments: tuple[Array, ...], found: Array, fast_math: bool) -> Array:
    """Which points count: those of the function's domain; with ``fast_math`` normal numbers only."""
    domain, tiny = arguments_of(name), np.finfo(found.dtype).tiny
    counts = np.ones(found.shape, bool)
    for a in arguments:
        counts &= np.isfinite(a) & (a > domain.low) & (a < domain.high)
        if fast_math:
            counts &= np.abs(a) >= tiny
    if fast_math:
        counts &= np.isfinite(found) & (np.abs(found) >= tiny)
    return counts


def spacing(values: Array, dtype: np.dtype[Any]) -> Array:
    """The distance of the numbers of a type around each value."""
    info, one = np.finfo(dtype), values.dtype.type(1)
    exponent = np.clip(np.frexp(values)[1], int(info.minexp) + 1, int(info.maxexp))
    return np.ldexp(one, exponent - int(info.nmant) - 1)


def _exact_error(name: str, arguments: tuple[float, ...], found: Any, fast_math: bool) -> float:
    """Ulps between a result and the exact value; 0 where there is none or it is beyond the type's numbers."""
    info = np.finfo(found.dtype)
    if np.isnan(found) and name in INVERSES:
        return np.inf
    try:
        value = exact(name, arguments, float(found))
    except (ValueError, ZeroDivisionError, OverflowError, mpmath.libmp.NoConvergence):
        return 0.0
    with mpmath.workdps(DIGITS):
        size = abs(value)
        least = float(info.tiny if fast_math else info.smallest_subnormal)
        if not mpmath.isfinite(value) or size > float(info.max) or size < least:
            return 0.0
        if not np.isfinite(found):
            return 0.0 if size > float(info.max) * (1 - float(info.eps)) else np.inf
        exponent = max(int(mpmath.frexp(value)[1]), int(info.minexp) + 1)
        return float(abs(mpmath.mpf(float(found)) - value) / mpmath.ldexp(1, exponent - int(info.nmant) - 1))


def _at(arguments: tuple[Array, ...], position: int) -> tuple[float, ...]:
    return tuple(float(a[position]) for a in arguments)


def measure_row(name: str, stride: int = STRIDE) -> Row:
    """All four measurements of a function."""
    return Row(
        name,
        *(measure(name, dtype, fast, stride) for dtype in (FLOAT32, FLOAT64) for fast in (False, True)),
    )


def row_text(row: Row) -> str:
    """A row of the table."""
    own = "/".join(t for t in ("float", "double") if (row.name, t) in VECTORISED)
    errors = (row.float_default, row.float_fast, row.double_default, row.double_fast)
    cells = (f"`{row.name}`", arguments_of(row.name).text, own, *(ulps_text(e.ulps) for e in errors))
    return f"| {' | '.join(cells)} |"


def ulps_text(ulps: float) -> str:
    """A number of ulps, rounded up: what a table says must hold."""
    if ulps == 0 or not np.isfinite(ulps):
        return "0" if ulps == 0 else "none"
    digits = 2 if ulps < 10 else 0
    return f"{np.ceil(ulps * 10**digits) / 10**digits:.{digits}f}" if ulps < 1e6 else f"{ulps:.0e}"


HEAD = (
    "| function | arguments | ours | float32 | with `fast_math` | float64 | with `fast_math` |",
    "|---|---|---|---|---|---|---|",
)


def main() -> None:
    """Measure the functions that the command line names; all of them rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("functions", nargs="*", metavar="FUNCTION")
    names = parser.parse_args().functions or sorted(INTRINSICS)
    unknown = [n for n in names if n not in INTRINSICS]
    if unknown:
        parser.error(f"there is no function {unknown[0]}")
    lines = list(HEAD)
    for name in names:
        row = measure_row(name)
        lines.append(row_text(row))
        print(lines[-1], flush=True)
        for error in (row.float_default, row.float_fast, row.double_default, row.double_fast):
            print(f"    {error.ulps:.3f} at {error.arguments}", file=sys.stderr)
    if len(names) == len(INTRINSICS):
        write_table(MARK, lines)


if __name__ == "__main__":
    main()
