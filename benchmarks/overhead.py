"""What tcomp costs besides running kernels: importing it, the first call, every further call, compiling large programs.

    python benchmarks/overhead.py [--repeats 5] [--json out/benchmarks/overhead.json]

The large programs are the longest of ``../shared/corpus/tc_catalogue.json``; without that file their rows are missing.
Times are medians over ``--repeats`` fresh processes, but for the overhead of a call, which is the least of many runs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import tcomp as tc
from tcomp.backends.host import native, toolchain
from tcomp.commands.terminal.display import show_table
from tcomp.runtime.kernel import Kernel

CATALOGUE = Path(__file__).parents[1] / ".." / "shared" / "corpus" / "tc_catalogue.json"
LARGE_PROGRAMS = 6

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
PRINTING = ("loops", "emit")
"""The stages after the last pass; isl's AST generator is among them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; ``goal`` is what the project promises, in the same unit, or None for a share of another row."""

    what: str
    value: float
    unit: str
    goal: float | None = None

    def texts(self) -> tuple[str, ...]:
        goal = "" if self.goal is None else f"<= {self.goal:g} {self.unit}"
        verdict = "" if self.goal is None else "met" if self.value <= self.goal else "MISSED"
        return self.what, f"{self.value:.1f} {self.unit}", goal, verdict


def first_call() -> dict[str, float]:
    """Milliseconds of each part of the first call of a matmul, in this process, which must be fresh."""
    rng = np.random.default_rng(0)
    a, b = rng.random((256, 256), np.float32), rng.random((256, 256), np.float32)
    start = time.perf_counter()
    mm = tc.define(MM, tune="off").mm
    parsed = time.perf_counter()
    kernel = mm.compile(a, b)
    compiled = time.perf_counter()
    kernel(a, b)
    ran = time.perf_counter()
    parts = {"whole": ran - start, "parse": parsed - start, **shares(kernel, compiled - parsed)}
    parts["first run"] = ran - compiled
    return {name: 1e3 * seconds for name, seconds in parts.items()}


def shares(kernel: Kernel, seconds: float) -> dict[str, float]:
    """Where the time of making a kernel went.  All of it is "cc and load" where the text came from the cache."""
    made = kernel._compilation
    stages = made.seconds if made is not None else {}
    emit = sum(stages.get(name, 0.0) for name in PRINTING)
    schedule = sum(stages.values()) - emit
    return {"isl": schedule, "emit": emit, "cc and load": seconds - schedule - emit}


def in_fresh_process(function: str, cache: str, repeats: int, new_cache: bool) -> dict[str, float]:
    """The medians of what a function of this file returns in fresh processes."""
    runs: list[dict[str, float]] = []
    for number in range(repeats):
        folder = Path(cache) / str(number if new_cache else 0)
        environment = os.environ | {"TCOMP_CACHE": str(folder)}
        command = [sys.executable, __file__, "--print", function]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def import_time(repeats: int) -> float:
    """Milliseconds of ``import tcomp`` in a fresh interpreter."""
    text = "import time; t = time.perf_counter(); import tcomp; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", text], capture_output=True, text=True) for _ in range(repeats)]
    return 1e3 * statistics.median(float(run.stdout) for run in runs)


def call_overhead() -> list[Row]:
    """Microseconds of a call above a bare call of the same machine code with ready addresses."""
    a = np.ones((4, 4), np.float32)
    b, c = a.copy(), a.copy()
    mm = tc.define(MM, tune="off").mm
    kernel = mm.compile(a, b)
    addresses = (a.ctypes.data, b.ctypes.data, c.ctypes.data)
    report = (ctypes.c_int64 * 3)()
    entry, last = native.load(kernel._source), ctypes.addressof(report)
    bare = least_time(lambda: entry(*addresses, None, last))
    calls: dict[str, Callable[[], Any]] = {
        "ops.mm(A, B)": lambda: mm(a, b),
        "ops.mm(A, B, out=C)": lambda: mm(a, b, out=c),
        "kernel(A, B, out=C)": lambda: kernel(a, b, out=c),
    }
    if "torch" in sys.modules or _has_torch():
        import torch  # noqa: PLC0415  (optional)

        x, y, z = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(c)
        calls["ops.mm(A, B), torch"] = lambda: mm(x, y)
        calls["ops.mm(A, B, out=C), torch"] = lambda: mm(x, y, out=z)
    rows = [Row("bare foreign call", bare, "us")]
    for name, call in calls.items():
        call()
        rows.append(Row(f"overhead of {name}", least_time(call) - bare, "us", 15))
    return rows


def _has_torch() -> bool:
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True)
    return done.returncode == 0


def least_time(call: Callable[[], Any], times: int = 20_000) -> float:
    """Microseconds of a call: the least of some runs of many calls."""
    return 1e6 * min(timeit.repeat(call, number=times, repeat=5)) / times


def large_programs() -> dict[str, tuple[str, dict[str, int]]]:
    """The longest programs of the catalogue that come with sizes: text and sizes by name."""
    if not CATALOGUE.exists():
        return {}
    entries = [e for e in json.loads(CATALOGUE.read_text(encoding="utf-8")) if e["parses"] and e["shapes"]]
    found: dict[str, tuple[str, dict[str, int]]] = {}
    for entry in sorted(entries, key=lambda e: -len(e["tc"])):
        if len(found) < LARGE_PROGRAMS:
            found.setdefault(entry["name"], (entry["tc"], entry["shapes"][0]))
    return found


def compile_large() -> dict[str, float]:
    """Milliseconds of each part of making each large program's kernel."""
    times: dict[str, float] = {}
    for name, (text, shape) in large_programs().items():
        try:
            start = time.perf_counter()
            operation = next(iter(tc.define(text, tune="off")._operations.values()))
            parsed = time.perf_counter()
            sizes = {size: shape[size] for size in operation.function.sizes}
            kernel = operation.compile(sizes=sizes)
        except (tc.TcompError, KeyError) as error:
            sys.stderr.write(f"{name}: {error}\n")
            continue
        end = time.perf_counter()
        parts = {"whole": end - start, "parse": parsed - start, **shares(kernel, end - parsed)}
        times |= {f"{name}/{part}": 1e3 * seconds for part, seconds in parts.items()}
    return times


PRINTED = {"first_call": first_call, "compile_large": compile_large}


def measure(repeats: int) -> list[Row]:
    """Every row of the table."""
    rows = [Row("import tcomp", import_time(repeats), "ms", 400)]
    with tempfile.TemporaryDirectory(prefix="tcomp-benchmark-") as folder:
        cold = in_fresh_process("first_call", f"{folder}/cold", repeats, new_cache=True)
        rows.append(Row("first matmul, empty cache", cold.pop("whole"), "ms", 300))
        rows += [Row(f"  of it {part}", value, "ms") for part, value in cold.items()]
        in_fresh_process("first_call", f"{folder}/warm", 1, new_cache=False)
        warm = in_fresh_process("first_call", f"{folder}/warm", repeats, new_cache=False)
        rows.append(Row("first matmul, kernel in the cache", warm["whole"], "ms"))
        os.environ["TCOMP_CACHE"] = f"{folder}/calls"
        rows += call_overhead()
        large = in_fresh_process("compile_large", f"{folder}/large", max(1, repeats // 2), new_cache=True)
    for name, value in large.items():
        program, _, part = name.partition("/")
        rows.append(
            Row(f"compile {program}", value, "ms", 1000) if part == "whole" else Row(f"  of it {part}", value, "ms")
        )
    return rows


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/overhead.json"))
    parser.add_argument("--print", choices=sorted(PRINTED), help=argparse.SUPPRESS)
    values = parser.parse_args()
    if values.print:
        print(json.dumps(PRINTED[values.print]()))
        return
    rows = measure(values.repeats)
    show_table(("what", "time", "goal", ""), [row.texts() for row in rows])
    machine = {
        "processor": platform.processor() or platform.machine(),
        "threads": os.cpu_count(),
        "compiler": toolchain.find().version,
        "python": platform.python_version(),
        "tcomp": tc.__version__,
    }
    values.json.parent.mkdir(parents=True, exist_ok=True)
    head = {"benchmark": "overhead", "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine}
    values.json.write_text(json.dumps({**head, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
