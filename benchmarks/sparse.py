"""Products with sparse matrices against SciPy, torch and numba on the CPU: ``python -m benchmarks.sparse``.

    python -m benchmarks.sparse [--only uniform,banded] [--columns 1,16,128] [--rounds 9] [--json FILE]

Matrices in rows (CSR), with rows that are uniform, follow a power law (some thousands of entries in the longest, most
have few), do so from the longest to the shortest, or lie in a band, in three sizes each; times a vector, 16 and 128
columns.  Results are compared with a product in doubles first.  Implementations take turns; the time is the least of
all rounds.  numba runs rows in parallel with fastmath, and is left out where it is not installed.  A ratio is the time
of the best other one over tcomp's.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

import tcomp as tc
from tcomp.commands.terminal.display import show_table

PROGRAM = """
def vector(int32(R1) row, int32(E) col, float(E) V, float(N) X) -> (Y) {
  Y(i) +=! V(e) * X(col(e)) where e in row(i):row(i+1)
}
def columns(int32(R1) row, int32(E) col, float(E) V, float(N,D) X) -> (Y) {
  Y(i,d) +=! V(e) * X(col(e),d) where e in row(i):row(i+1)
}"""

SIZES = {"small": (2_000, 8), "medium": (50_000, 10), "large": (400_000, 12)}
"""Rows, and the mean of entries in each."""

KINDS = ("uniform", "power law", "sorted", "banded")
COLUMNS = (1, 16, 128)
SECONDS = 0.02
"""What a round of one implementation takes, about."""

Matrix = Any
Call = Callable[[], Any]


def matrix(kind: str, rows: int, mean: int) -> Matrix:
    """A square matrix with about ``mean`` entries a row, whose columns are sorted."""
    rng = np.random.default_rng(0)
    match kind:
        case "uniform":
            lengths = np.full(rows, mean)
        case "power law" | "sorted":
            lengths = np.minimum(rng.zipf(1.8, rows), rows // 2)
            lengths = np.maximum(1, lengths * (mean * rows / lengths.sum())).astype(np.int64)
            lengths = -np.sort(-lengths) if kind == "sorted" else lengths
        case _:
            lengths = np.full(rows, mean)
    own = np.repeat(np.arange(rows, dtype=np.int32), lengths)
    if kind == "banded":
        offset = np.arange(rows * mean) % mean - mean // 2
        col = np.clip(own + offset, 0, rows - 1)
    elif kind in ("power law", "sorted"):
        col = np.minimum((rng.pareto(1.0, len(own)) * rows / 50).astype(np.int64), rows - 1)
        col = rng.permutation(rows)[col]  # those that are met often lie anywhere
    else:
        col = rng.integers(0, rows, len(own))
    values = rng.standard_normal(len(own)).astype(np.float32)
    found = scipy.sparse.coo_array((values, (own, col.astype(np.int32))), (rows, rows)).tocsr()
    found.sort_indices()
    return found


def numba_product() -> Callable[..., Any] | None:
    """The product by numba; None where it is not installed."""
    try:
        import numba  # noqa: PLC0415
    except ImportError:
        return None

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
    def vector(row: Any, col: Any, values: Any, x: Any, y: Any) -> None:
        for i in numba.prange(len(row) - 1):
            total = np.float32(0)
            for e in range(row[i], row[i + 1]):
                total += values[e] * x[col[e]]
            y[i] = total

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
    def columns(row: Any, col: Any, values: Any, x: Any, y: Any) -> None:
        for i in numba.prange(len(row) - 1):
            for d in range(x.shape[1]):
                y[i, d] = 0
            for e in range(row[i], row[i + 1]):
                for d in range(x.shape[1]):
                    y[i, d] += values[e] * x[col[e], d]

    def product(given: Matrix, x: Any, y: Any) -> Any:
        (vector if x.ndim == 1 else columns)(given.indptr, given.indices, given.data, x, y)
        return y

    return product


def implementations(given: Matrix, x: Any) -> dict[str, Call]:
    """By name what computes ``given @ x``; each has its arrays, and their types, before the time begins."""
    operation = tc.define(PROGRAM)
    own = operation.vector if x.ndim == 1 else operation.columns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = torch.sparse_csr_tensor(
            torch.from_numpy(given.indptr), torch.from_numpy(given.indices), torch.from_numpy(given.data), given.shape
        )
    dense = torch.from_numpy(x)
    found: dict[str, Call] = {
        "tcomp": lambda: own(given.indptr, given.indices, given.data, x),
        "SciPy": lambda: given @ x,
        "torch": lambda: (tensor @ dense).numpy(),
    }
    compiled = numba_product()
    if compiled is not None:
        y = np.empty(x.shape, np.float32)
        found["numba"] = lambda: compiled(given, x, y)
    return found


def check(given: Matrix, x: Any, calls: Mapping[str, Call]) -> None:
    """Compare all results with a product in doubles; raises AssertionError where one is wrong."""
    exact = given.astype(np.float64) @ x.astype(np.float64)
    most = abs(given).astype(np.float64) @ np.abs(x).astype(np.float64)
    for name, call in calls.items():
        wrong = np.abs(call() - exact) > 1e-5 * most + 1e-30
        assert not wrong.any(), f"{name} is wrong in {wrong.sum()} elements"


def least(call: Call, count: int) -> float:
    """The least seconds of so many calls."""
    best = math.inf
    for _ in range(count):
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return best


def measured(given: Matrix, x: Any, rounds: int) -> dict[str, float]:
    """Seconds by implementation."""
    calls = implementations(given, x)
    check(given, x, calls)
    counts = {name: max(2, min(300, int(SECONDS / least(call, 2)))) for name, call in calls.items()}
    times = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] = min(times[name], least(call, counts[name]))
    return times


def main() -> None:
    """Measure, print a table, and write a file where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of matrices")
    parser.add_argument("--sizes", default=",".join(SIZES), help="small, medium, large")
    parser.add_argument("--columns", default=",".join(map(str, COLUMNS)), help="columns of what is multiplied")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="where to write the times in seconds")
    args = parser.parse_args()
    rng, rows, found = np.random.default_rng(1), [], []
    for kind in args.only.split(","):
        for size in args.sizes.split(","):
            given = matrix(kind, *SIZES[size])
            for columns in map(int, args.columns.split(",")):
                shape = (given.shape[1], columns)[: 2 if columns > 1 else 1]
                times = measured(given, rng.standard_normal(shape).astype(np.float32), args.rounds)
                ratio = min(t for name, t in times.items() if name != "tcomp") / times["tcomp"]
                found.append({"kind": kind, "size": size, "columns": columns, "seconds": times, "ratio": ratio})
                texts = [f"{name} {1e6 * seconds:.0f}" for name, seconds in times.items()]
                print(f"{kind:10} {size:7} {given.nnz:8} x {columns:<4} {', '.join(texts)} us: {ratio:.2f}", flush=True)
    for kind in args.only.split(","):
        ratios = [entry["ratio"] for entry in found if entry["kind"] == kind]
        rows.append((kind, f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}", f"{min(ratios):.2f}"))
    ratios = [entry["ratio"] for entry in found]
    rows.append(("all", f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}", f"{min(ratios):.2f}"))
    show_table(("rows", "geometric mean", "least"), rows, "the time of the best other one over that of tcomp")
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
