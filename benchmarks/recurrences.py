"""PolyBench's kernels that run step by step, against NumPy, numba and gcc on the same loops.

    python -m benchmarks.recurrences [--only lu,adi] [--size large|medium|small] [--rounds 3] [--json FILE]

Sizes are PolyBench's.  Results are compared with gcc's first (``benchmarks/recurrences.c``, -O3 -march=native
-ffast-math).  NumPy's functions are those of the tests, numba's ``recurrences_numba.py``, parallel and with fastmath;
either is left out where it takes more than ``SLOWEST`` times as long.  Implementations take turns, each on
arguments of its own that are made outside of the time; the time is the least of all rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import tcomp as tc
from benchmarks.gradients import processor
from tcomp.commands.terminal.display import show_table
from tcomp.grammar import define
from tests.language import polybench

ROOT = Path(__file__).parents[1]
FLAGS = ("-O3", "-march=native", "-ffast-math")
SLOWEST = 20
TOLERANCE = 1e-6

SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "adi": {"large": (1000, 500), "medium": (200, 100), "small": (60, 40)},
    "cholesky": {"large": (2000,), "medium": (400,), "small": (120,)},
    "deriche": {"large": (4096, 2160), "medium": (720, 480), "small": (192, 128)},
    "durbin": {"large": (2000,), "medium": (400,), "small": (120,)},
    "fdtd_2d": {"large": (1000, 1200, 500), "medium": (200, 240, 100), "small": (60, 80, 40)},
    "floyd_warshall": {"large": (2800,), "medium": (500,), "small": (180,)},
    "gramschmidt": {"large": (1200, 1000), "medium": (240, 200), "small": (80, 60)},
    "heat_3d": {"large": (120, 500), "medium": (40, 100), "small": (20, 40)},
    "jacobi_1d": {"large": (2000, 500), "medium": (400, 100), "small": (120, 40)},
    "jacobi_2d": {"large": (1300, 500), "medium": (250, 100), "small": (90, 40)},
    "lu": {"large": (2000,), "medium": (400,), "small": (120,)},
    "ludcmp": {"large": (2000,), "medium": (400,), "small": (120,)},
    "nussinov": {"large": (2500,), "medium": (500,), "small": (180,)},
    "seidel_2d": {"large": (2000, 500), "medium": (400, 100), "small": (120, 40)},
    "trisolv": {"large": (2000,), "medium": (400,), "small": (120,)},
}

Run = Callable[[], tuple[float, tuple[Any, ...]]]
"""Seconds of one run, and its results."""


def arguments(name: str, size: tuple[int, ...]) -> tuple[Any, ...]:
    """What a kernel takes; matrices are far from singular."""
    rng = np.random.default_rng(0)
    n = size[0]
    if name in ("lu", "ludcmp", "trisolv"):
        matrix = rng.random((n, n)) + n * np.eye(n)
        return (matrix,) if name == "lu" else (matrix, rng.random(n))
    if name == "cholesky":
        half = rng.random((n, n))
        return (half @ half.T + n * np.eye(n),)
    if name == "gramschmidt":
        return (rng.random(size) + np.eye(*size),)
    if name == "deriche":
        return np.float32(0.25), rng.random(size, np.float32)
    if name == "fdtd_2d":
        return (*(rng.random(size[:2]) for _ in range(3)), np.arange(size[2], dtype=float))
    if name == "floyd_warshall":
        return (rng.integers(1, 999, (n, n)).astype(np.int32),)
    if name == "nussinov":
        return (rng.integers(0, 4, n).astype(np.int32),)
    if name == "durbin":
        return (rng.random(n) / (2 * n),)
    ranks = {"adi": 2, "seidel_2d": 2, "jacobi_1d": 1, "jacobi_2d": 2, "heat_3d": 3}
    arrays = 1 if name in ("adi", "seidel_2d") else 2
    return (*(rng.random((n,) * ranks[name]) for _ in range(arrays)), size[1])


def operation(name: str) -> tc.Operation:
    """The def, from ``examples/polybench``."""
    for path in (ROOT / "examples" / "polybench").glob("*/*.tc"):
        text = path.read_text(encoding="utf-8")
        if name in define(text, path.name):
            return tc.define(text, path.name)[name]
    raise KeyError(name)


def build() -> ctypes.CDLL:
    """The loops in C, compiled."""
    library = Path(tempfile.mkdtemp()) / "recurrences.so"
    text = ROOT / "benchmarks" / "recurrences.c"
    subprocess.run(["gcc", *FLAGS, "-shared", "-fPIC", "-o", library, text, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def in_c(library: ctypes.CDLL, name: str, given: tuple[Any, ...], size: tuple[int, ...]) -> Run:
    """A run of the loops in C on copies of the arguments."""
    function = library[name]
    function.restype = None

    def run() -> tuple[float, tuple[Any, ...]]:
        copies = [a.copy() if isinstance(a, np.ndarray) and a.shape else a for a in given]
        passed, results = _layout(name, copies, size)
        values = [_c_value(p) for p in passed]
        begin = time.perf_counter()
        function(*values)
        return time.perf_counter() - begin, results

    return run


def _c_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_long(value)


def _layout(name: str, given: list[Any], size: tuple[int, ...]) -> tuple[list[Any], tuple[Any, ...]]:
    """The arguments of a function in C, and the arrays that hold its results."""
    n = size[0]
    match name:
        case "jacobi_1d" | "jacobi_2d" | "heat_3d":
            A, B, steps = given
            return [n, steps, A, B], (A, B)
        case "seidel_2d":
            return [n, given[1], given[0]], (given[0],)
        case "fdtd_2d":
            return [*size, *given], tuple(given[:3])
        case "adi":
            return [n, given[1], given[0], *(np.zeros((n, n)) for _ in range(3))], (given[0],)
        case "floyd_warshall" | "lu":
            return [n, given[0]], (given[0],)
        case "cholesky":
            return [n, given[0]], (given[0],)
        case "nussinov":
            table = np.zeros((n, n), np.int32)
            return [n, given[0], table], (table,)
        case "deriche":
            out, y1, y2 = (np.zeros(size, np.float32) for _ in range(3))
            return [*size, float(given[0]), given[1], out, y1, y2], (out,)
        case "durbin":
            y = np.zeros(n)
            return [n, given[0], y, np.zeros(n)], (y,)
        case "gramschmidt":
            Q, R = np.zeros(size), np.zeros((size[1], size[1]))
            return [*size, given[0], R, Q], (Q, R)
        case "ludcmp":
            x = np.zeros(n)
            return [n, given[0], given[1], x, np.zeros(n)], (x,)
        case _:
            x = np.zeros(n)
            return [n, given[0], x, given[1]], (x,)


def plainly(call: Callable[..., Any], given: tuple[Any, ...]) -> Run:
    """A run of what leaves its arguments as they are."""

    def run() -> tuple[float, tuple[Any, ...]]:
        begin = time.perf_counter()
        results = call(*given)
        taken = time.perf_counter() - begin
        return taken, results if isinstance(results, tuple) else (results,)

    return run


def agree(name: str, found: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Whether results are the same but for rounding; of a Cholesky factor, below the diagonal."""
    if name == "cholesky":
        found, wanted = ((np.tril(x[0]),) for x in (found, wanted))
    limit = 1e-3 if name == "deriche" else TOLERANCE
    return all(
        np.linalg.norm(np.asarray(a, float) - b) <= limit * np.linalg.norm(np.asarray(b, float))
        for a, b in zip(found, wanted, strict=True)
    )


def measure(name: str, size: tuple[int, ...], rounds: int, library: ctypes.CDLL) -> Mapping[str, float]:
    """Seconds by implementation.  Raises AssertionError where results differ."""
    given = arguments(name, size)
    runs = {"tcomp": plainly(operation(name), given), "gcc": in_c(library, name, given, size)}
    runs |= _peers(name, given)
    taken: dict[str, list[float]] = {}
    _, wanted = runs["gcc"]()
    usual, _ = runs["gcc"]()
    for peer, run in list(runs.items()):
        run() if peer in ("tcomp", "numba") else None
        seconds, found = run()
        assert agree(name, found, wanted), f"{peer} gives something else for {name}"
        if peer != "tcomp" and seconds > SLOWEST * usual:
            del runs[peer]
        taken[peer] = [seconds]
    for _ in range(rounds):
        for peer, run in runs.items():
            taken[peer].append(run()[0])
    return {peer: min(seconds) for peer, seconds in taken.items()}


def _peers(name: str, given: tuple[Any, ...]) -> dict[str, Run]:
    """NumPy where it has no loops over elements, and numba where it is installed."""
    found: dict[str, Run] = {}
    if name in ("cholesky", "ludcmp", "trisolv", "fdtd_2d", "heat_3d", "jacobi_1d", "jacobi_2d", "floyd_warshall"):
        found["numpy"] = plainly(getattr(polybench, name), given)
    try:
        from benchmarks import recurrences_numba  # noqa: PLC0415  (numba is not always there)
    except ImportError:
        return found
    return found | {"numba": plainly(getattr(recurrences_numba, name), given)}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="kernels, with commas between them")
    parser.add_argument("--size", choices=("large", "medium", "small"), default="large")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/recurrences.json"))
    chosen = parser.parse_args()
    wanted = set(filter(None, chosen.only.split(",")))
    library = build()
    found = {
        name: measure(name, sizes[chosen.size], chosen.rounds, library)
        for name, sizes in SIZES.items()
        if not wanted or name in wanted
    }
    rows, ratios = [], []
    for name, times in found.items():
        best = min(seconds for peer, seconds in times.items() if peer != "tcomp")
        ratios.append(best / times["tcomp"])
        cells = (f"{1e3 * times[p]:.2f} ms" if p in times else "" for p in ("tcomp", "gcc", "numpy", "numba"))
        rows.append((name, *cells, f"{ratios[-1]:.2f}"))
    show_table(("kernel", "tcomp", "gcc", "numpy", "numba", "best / tcomp"), rows)
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}")
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {"processor": processor(), "python": platform.python_version(), "threads": os.cpu_count()}
    facts = {
        "benchmark": "recurrences",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "size": chosen.size,
        "flags": " ".join(FLAGS),
        "rounds": chosen.rounds,
        "seconds": found,
    }
    chosen.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
