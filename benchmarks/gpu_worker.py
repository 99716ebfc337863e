"""A process that works on items of one part of the benchmark: a task as JSON on stdin, outcomes as lines on stdout."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu_workers import Settings
from tcomp.arrays.devices import cupy_module

Work = Callable[[str], dict[str, Any]]

PARTS = {
    "simulated": "benchmarks.gpu_simulated",
    "cases": "benchmarks.gpu_timed",
    "tuned": "benchmarks.gpu_timed",
    "overhead": "benchmarks.gpu_overhead",
    "corpus": "benchmarks.gpu_corpus",
    "sanitizer": "benchmarks.gpu_corpus",
}
"""The module of each part: its ``prepare(settings)`` gives the function that does an item."""


def usable(settings: Settings) -> bool:
    """Whether the device still answers."""
    if not settings.on_gpu:
        return True
    try:
        cupy_module().cuda.Device().synchronize()
    except RuntimeError:
        return False
    return True


def main() -> None:
    """Work through the task; stop early where the device answers no more."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # What libraries print must not get between the lines.

    def say(message: dict[str, Any]) -> None:
        protocol.write(json.dumps(message) + "\n")
        protocol.flush()

    task = json.load(sys.stdin)
    settings = Settings(**task["settings"])
    work: Work = importlib.import_module(PARTS[task["part"]]).prepare(settings)
    for item in task["items"]:
        say({"begin": item})
        start = time.perf_counter()
        error, result = "", {}
        try:
            result = work(item)
        except Exception as problem:  # noqa: BLE001  (recorded with the item; the others go on)
            error = f"{type(problem).__name__}: {problem}"[:3000]
        seconds = time.perf_counter() - start
        say({"status": "failed" if error else "done", "seconds": seconds, "error": error, "result": result})
        if not usable(settings):
            return


if __name__ == "__main__":
    main()
