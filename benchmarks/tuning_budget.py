"""How near a minute of tuning comes to a long run, workload by workload, and whether it is ever slower than not tuning.

    python benchmarks/tuning_budget.py [--workloads W5,M6] [--for 180] [--budget 60] [--seeds 3] [--long 2000]

For each workload there are runs of ``--budget`` seconds, one for each seed, which know nothing of one another; one long
run, in pieces that go on where the last one was, with each of the strategies in turn, until it has tried ``--long``
candidates; and a comparison in which the winners of all of them run in turn with the default options.  What
is done is kept in ``--folder``, databases and ``results.json``: the command may be ended and started again, and
``--for`` ends it after about so many seconds, where a machine is shared.  All options: ``--help``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # The parts are modules beside this one.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("benchmarks.tuning_campaign").main())
