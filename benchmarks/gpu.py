"""The GPU in one command: every corpus program checked, kernels timed against their peers, the cost of a launch.

    python benchmarks/gpu.py [--quick] [--time-limit 540] [--json out/benchmarks/gpu.json]

Where there is no CUDA device, the same programs run at small sizes on the simulator, which checks them and counts what
they move; the results then say that no GPU has run them.  Parts and options: ``--help``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # The parts are modules beside this one, and the corpus is read by the tests' module: both are found from the root.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("benchmarks.gpu_run").main())
