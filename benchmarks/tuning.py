"""How fast the tuner's strategies find good options: best time against measured candidates, by strategy and workload.

    python benchmarks/tuning.py [--workloads W5,W8] [--measured 48] [--seeds 3] [--database out/benchmarks/tuning.db]

Every candidate is compiled and measured once, whoever proposes it; the database keeps what was measured, so that a run
can be continued, or repeated with more seeds, at little cost.  Options: ``--help``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # The parts are modules beside this one.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("benchmarks.tuning_run").main())
