"""The CPU in one command: 18 workloads against the libraries and compilers that people use, and further suites.

    python benchmarks/cpu.py [--suite w|more|tccg] [--threads N] [--json out/benchmarks/cpu.json] [--plot out/cpu.png]

Each peer runs in a process of its own, in turn with the others; peers that are not installed are left out and named.
Options: ``--help``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # The parts are modules beside this one.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("benchmarks.cpu_run").main())
