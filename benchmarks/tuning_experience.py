"""Measure candidates of many programs and fit the trees that the tuner begins with, ``tcomp.tuner.model.experience``.

    python benchmarks/tuning_experience.py [--workloads M4,M7] [--measured 160] [--database FILE] [--output FILE]

The programs are those of the suite ``more``; the workloads on which strategies are compared are not among them.  What
is measured is kept in ``--database``, so the command may be ended and started again.  Options: ``--help``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # The parts are modules beside this one.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("benchmarks.tuning_fit").main())
