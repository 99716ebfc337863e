"""What threads do around kernels: first calls after a rest, calls in turn with NumPy's matmul, many callers at once.

    python benchmarks/threads.py [--repeats 40] [--json out/benchmarks/threads.json]

The kernel is a 3x3 convolution of 64 channels, 56x56.  Columns are tcomp on its own threads, tcomp on OpenMP's
(``TCOMP_THREADS=openmp``) and torch, each measured in a process of its own; results are compared with torch's first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import tcomp as tc
from tcomp.commands.terminal.display import show_table

TEXT = "def conv(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }"
REST, CALLERS, CALLS_EACH = 0.06, 8, 30

HOW: dict[str, dict[str, str]] = {"tcomp": {}, "on OpenMP's threads": {"TCOMP_THREADS": "openmp"}, "torch": {}}


def measured(name: str, repeats: int) -> dict[str, float]:
    """Milliseconds of a call by situation, medians; of many callers the ratio to one after another."""
    random = np.random.default_rng(0)
    image, filters = (random.standard_normal(s, dtype=np.float32) for s in ((1, 64, 58, 58), (64, 64, 3, 3)))
    square = random.standard_normal((512, 512), dtype=np.float32)
    tensors = torch.from_numpy(image), torch.from_numpy(filters)
    expected = torch.nn.functional.conv2d(*tensors).numpy()
    own = tc.define(TEXT).conv
    np.testing.assert_allclose(own(image, filters), expected, rtol=1e-3, atol=1e-3)
    out = np.empty_like(expected)

    def call() -> object:
        return torch.nn.functional.conv2d(*tensors) if name == "torch" else own(image, filters, out=out)

    def multiply() -> object:
        return square @ square

    found = {"hot": _hot(call), "NumPy's matmul alone": _hot(multiply)}
    rested = [_after_rest(call) for _ in range(repeats)]
    found["first after a rest"] = statistics.median(first for first, _ in rested)
    found["second"] = statistics.median(second for _, second in rested)
    turns = [(_timed(call), _timed(multiply)) for _ in range(4 * repeats)][repeats:]
    found["in turn with NumPy"] = statistics.median(own for own, _ in turns)
    found["NumPy in turn with it"] = statistics.median(other for _, other in turns)
    found[f"{CALLERS} callers at once, of one after another"] = _at_once(call)
    return found


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def _hot(call: Callable[[], object]) -> float:
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        call()
    return statistics.median(_timed(call) for _ in range(100))


def _after_rest(call: Callable[[], object]) -> tuple[float, float]:
    time.sleep(REST)
    return _timed(call), _timed(call)


def _at_once(call: Callable[[], object]) -> float:
    def several() -> None:
        for _ in range(CALLS_EACH):
            call()

    def together() -> None:
        callers = [threading.Thread(target=several) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()

    ratios = []
    for _ in range(3):
        alone = _timed(lambda: [several() for _ in range(CALLERS)])
        ratios.append(_timed(together) / alone)
    return statistics.median(ratios)


def main() -> None:
    """Measure each in a process of its own, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/threads.json"))
    parser.add_argument("--one", choices=HOW, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.one, chosen.repeats)))
        return
    found: dict[str, dict[str, float]] = {}
    for name, variables in HOW.items():
        command = [sys.executable, __file__, "--one", name, "--repeats", str(chosen.repeats)]
        done = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    rows = [(what, *(f"{times[what]:.2f}" for times in found.values())) for what in next(iter(found.values()))]
    show_table(("ms of a call", *found), rows)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "benchmark": "threads",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": _processor(),
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
        },
        "columns": found,
    }
    chosen.json.write_text(json.dumps(facts, indent=1) + "\n")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
