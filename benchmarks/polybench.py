"""All thirty kernels of PolyBench, against NumPy, numba and gcc on the same loops.

    python -m benchmarks.polybench [--only lu,adi] [--size large|medium|small] [--rounds 3] [--json FILE]

Sizes are PolyBench's.  Results are compared with gcc's first (``benchmarks/polybench_*.c``, -O3 -march=native
-ffast-math).  NumPy's functions are those of the tests, where these have no loops over elements; numba's
``polybench_numba_*.py``, parallel and with fastmath.  Implementations take turns, in
another order each round, and run for ``TURN`` seconds in each, at least once; gcc's arguments are copied outside of the
time.  The time is the least of all.  Who takes more than ``SLOWEST`` times as long as the best in its first run has no
other, and who would take that long and ``LONGEST`` seconds, by a run of the next smaller size, has none.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import platform
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import tcomp as tc
from benchmarks.gradients import processor
from benchmarks.polybench_cases import PRODUCTS, SIZES, arguments, layout
from tcomp.commands.terminal.display import show_table
from tcomp.grammar import define
from tests.language import polybench

ROOT = Path(__file__).parents[1]
FLAGS = ("-O3", "-march=native", "-ffast-math")
SLOWEST = 5
LONGEST = 4
TOLERANCE = 1e-6
TURN = 0.06
"""Seconds of a turn.  Threads of who was before wait awake for the first thirty milliseconds."""

PEERS = ("gcc", "numpy", "numba")
WITH_LOOPS = frozenset(("adi", "deriche", "durbin", "gramschmidt", "lu", "nussinov", "seidel_2d"))
"""Kernels whose NumPy has loops over elements, or over rows."""

SMALLER = {"large": "medium", "medium": "small", "small": "small"}

Run = Callable[[], tuple[float, tuple[Any, ...]]]
"""Seconds of one run, and its results."""


def operation(name: str) -> tc.Operation:
    """The def, from ``examples/polybench``."""
    for path in (ROOT / "examples" / "polybench").glob("*/*.tc"):
        text = path.read_text(encoding="utf-8")
        if name in define(text, path.name):
            return tc.define(text, path.name)[name]
    raise KeyError(name)


def build(flags: Sequence[str] = FLAGS) -> list[ctypes.CDLL]:
    """The loops in C, compiled: those of products, and those that run step by step."""
    made, folder = [], Path(tempfile.mkdtemp())
    for part in ("products", "steps"):
        text, library = ROOT / "benchmarks" / f"polybench_{part}.c", folder / f"{part}.so"
        subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-o", library, text, "-lm"], check=True)
        made.append(ctypes.CDLL(str(library)))
    return made


def in_c(libraries: Sequence[ctypes.CDLL], name: str, given: tuple[Any, ...], size: tuple[int, ...]) -> Run:
    """A run of the loops in C on copies of the arguments."""
    function = libraries[0 if name in PRODUCTS else 1][name]
    function.restype = None

    def run() -> tuple[float, tuple[Any, ...]]:
        copies = [a.copy() if isinstance(a, np.ndarray) and a.shape else a for a in given]
        passed, results = layout(name, copies, size)
        values = [_c_value(p) for p in passed]
        begin = time.perf_counter()
        function(*values)
        return time.perf_counter() - begin, results

    return run


def _c_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, np.float32):
        return ctypes.c_float(float(value))
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_long(value)


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


def measure(name: str, size: str, rounds: int, libraries: Sequence[ctypes.CDLL]) -> Mapping[str, float]:
    """Seconds by implementation.  Raises AssertionError where results differ."""
    smaller, runs = (_runs(name, SIZES[name][s], libraries) for s in (SMALLER[size], size))
    usual, _ = smaller["gcc"]()
    taken: dict[str, list[float]] = {}
    seconds, wanted = runs["gcc"]()
    taken["gcc"] = [seconds]
    for peer, run in runs.items():
        if peer == "gcc":
            continue
        first = run if peer == "tcomp" else smaller[peer]
        first()
        expected = 0.0 if peer == "tcomp" else first()[0] / usual * taken["gcc"][0]
        if expected > max(LONGEST, SLOWEST * taken["gcc"][0]):
            continue
        seconds, found = run()
        assert agree(name, found, wanted), f"{peer} gives something else for {name}"
        taken[peer] = [seconds]
    best = min(seconds for (seconds,) in taken.values())
    again = [peer for peer, (seconds,) in taken.items() if peer == "tcomp" or seconds <= SLOWEST * best]
    rng = random.Random(0)
    for _ in range(rounds):
        rng.shuffle(again)
        for peer in again:
            taken[peer].append(_turn(runs[peer]))
    return {peer: min(seconds) for peer, seconds in taken.items()}


def _turn(run: Run) -> float:
    """The least time of as many runs as a turn has time for, one at least."""
    begin, least = time.perf_counter(), math.inf
    while least == math.inf or time.perf_counter() - begin < TURN:
        least = min(least, run()[0])
    return least


def _runs(name: str, size: tuple[int, ...], libraries: Sequence[ctypes.CDLL]) -> dict[str, Run]:
    """What runs a kernel: tcomp, gcc, NumPy where it has no loops over elements, and numba where it is installed."""
    given = arguments(name, size)
    found = {"tcomp": plainly(operation(name), given), "gcc": in_c(libraries, name, given, size)}
    if name not in WITH_LOOPS:
        found["numpy"] = plainly(getattr(polybench, name), given)
    try:
        from benchmarks import polybench_numba_products, polybench_numba_steps  # noqa: PLC0415  (not always there)
    except ImportError:
        return found
    module = polybench_numba_products if name in PRODUCTS else polybench_numba_steps
    return found | {"numba": plainly(getattr(module, name), given)}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="kernels, with commas between them")
    parser.add_argument("--size", choices=("large", "medium", "small"), default="large")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/polybench.json"))
    chosen = parser.parse_args()
    wanted = set(filter(None, chosen.only.split(",")))
    libraries = build()
    found = {}
    for name in SIZES:
        if wanted and name not in wanted:
            continue
        found[name] = measure(name, chosen.size, chosen.rounds, libraries)
        told = (f"{peer} {1e3 * seconds:.2f} ms" for peer, seconds in found[name].items())
        print(f"{name}: {', '.join(told)}", flush=True)
    rows, ratios = [], []
    for name, times in found.items():
        best = min(seconds for peer, seconds in times.items() if peer != "tcomp")
        ratios.append(best / times["tcomp"])
        cells = (f"{1e3 * times[p]:.2f} ms" if p in times else "" for p in ("tcomp", *PEERS))
        rows.append((name, *cells, f"{ratios[-1]:.2f}"))
    show_table(("kernel", "tcomp", *PEERS, "best / tcomp"), rows)
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}")
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {"processor": processor(), "python": platform.python_version(), "threads": os.cpu_count()}
    facts = {
        "benchmark": "polybench",
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
