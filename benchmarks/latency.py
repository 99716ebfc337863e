"""What is around kernels: first calls after a rest, calls in turn with another library's product, many callers at once.

    python -m benchmarks.latency [--repeats 40] [--only tcomp,torch] [--json out/benchmarks/latency.json]

The kernel is a 3x3 convolution of 64 channels, 56x56.  Columns are tcomp on threads of its own, tcomp on OpenMP's
(``TCOMP_THREADS=openmp``), torch, numba and jax, each in a process of its own; results are verified first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu_case import Case, Convolution, Input, contraction
from benchmarks.cpu_formulas import reference
from benchmarks.cpu_peer import MODULES
from tcomp.commands.terminal.display import show_table

RESTS = (0.005, 0.02, 0.06, 0.2)
NEIGHBOURS = ("numpy", "torch", "numba")
CALLERS, CALLS_EACH = 8, 30
WARM_SECONDS = 0.1

KERNEL = Case(
    "conv",
    "3x3 convolution",
    "def conv(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }",
    Convolution(),
    (Input((1, 64, 58, 58)), Input((64, 64, 3, 3))),
    (1, 64, 56, 56),
    2 * 64 * 64 * 9 * 56 * 56,
)
PRODUCT = contraction("mm", "product", "mk,kn->mn", (("m", 512), ("k", 512), ("n", 512)))

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """What has a column: a peer of the other benchmarks, in a process with more variables."""

    peer: str
    variables: Mapping[str, str]


SUBJECTS: Mapping[str, Subject] = {
    "tcomp": Subject("tcomp", {}),
    "on OpenMP's threads": Subject("tcomp", {"TCOMP_THREADS": "openmp"}),
    "torch": Subject("torch", {}),
    "numba": Subject("numba", {}),
    "jax": Subject("jax", {}),
}


def measured(name: str, repeats: int) -> dict[str, float]:
    """Milliseconds of a call by situation, medians; of many callers the ratio to one after another."""
    call = made_ready(SUBJECTS[name].peer, KERNEL)
    found = {"hot": hot(call)}
    for seconds in RESTS:
        rested = [after_rest(call, seconds) for _ in range(repeats)]
        found[f"first after {1e3 * seconds:g} ms"] = statistics.median(first for first, _ in rested)
        found[f"second after {1e3 * seconds:g} ms"] = statistics.median(second for _, second in rested)
    found[f"{CALLERS} callers at once, of one after another"] = at_once(call)
    for neighbour in NEIGHBOURS:
        if find_spec(neighbour):
            multiply = made_ready(neighbour, PRODUCT)
            found[f"{neighbour}'s product, hot"] = hot(multiply)
            hot(call)
            turns = [(timed(call), timed(multiply)) for _ in range(4 * repeats)][repeats:]
            found[f"in turn with {neighbour}"] = statistics.median(own for own, _ in turns)
            found[f"{neighbour} in turn with it"] = statistics.median(other for _, other in turns)
    return found


def made_ready(peer: str, case: Case) -> Call:
    """The case in a peer's words, compiled, and compared with NumPy's result in double precision."""
    inputs = case.make_inputs()
    made = importlib.import_module(MODULES[peer]).peer().build(case, inputs)
    made.call()
    expected = reference(case)
    worst = np.abs(made.result() - expected).max() / np.abs(expected).max()
    if worst > 1e-4:
        raise SystemExit(f"{peer} is wrong by {worst:.1e} of the largest element")
    return made.call  # type: ignore[no-any-return]


def timed(call: Call) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def hot(call: Call) -> float:
    """The median behind a warm-up."""
    end = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < end:
        call()
    return statistics.median(timed(call) for _ in range(100))


def after_rest(call: Call, seconds: float) -> tuple[float, float]:
    """The first and the second call."""
    time.sleep(seconds)
    return timed(call), timed(call)


def at_once(call: Call) -> float:
    """The time of many callers' calls at once over that of the same calls one after another."""

    def several() -> None:
        for _ in range(CALLS_EACH):
            call()

    def one_by_one() -> None:
        for _ in range(CALLERS):
            several()

    def together() -> None:
        callers = [threading.Thread(target=several) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()

    ratios = []
    for _ in range(3):
        alone = timed(one_by_one)
        ratios.append(timed(together) / alone)
    return statistics.median(ratios)


def main() -> None:
    """Measure each in a process of its own, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--only", help="subjects with commas between them; all that are installed otherwise")
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/latency.json"))
    parser.add_argument("--one", choices=SUBJECTS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.one, chosen.repeats)))
        return
    names = chosen.only.split(",") if chosen.only else [n for n, s in SUBJECTS.items() if find_spec(s.peer)]
    if unknown := set(names) - set(SUBJECTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    found = {name: _in_a_process(name, chosen.repeats) for name in names}
    situations = dict.fromkeys(what for times in found.values() for what in times)
    rows = [(what, *(f"{times[what]:.2f}" for times in found.values())) for what in situations]
    show_table(("ms of a call", *found), rows)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(_facts(found), indent=1) + "\n")


def _in_a_process(name: str, repeats: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.latency", "--one", name, "--repeats", str(repeats)]
    variables = os.environ | SUBJECTS[name].variables
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def _facts(found: Mapping[str, Mapping[str, float]]) -> dict[str, object]:
    packages = {name: version(name) for name in ("numpy", "torch", "numba", "jax") if find_spec(name)}
    machine = {"processor": _processor(), "threads": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"benchmark": "latency", "date": date, "machine": machine, "packages": packages, "columns": found}


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
