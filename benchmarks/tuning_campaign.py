"""The command line of the benchmark of short tuning runs against long ones."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cpu_suites import chosen
from benchmarks.tuning_pieces import Campaign, Extent, Findings, load, save
from benchmarks.tuning_shares import show

CHOSEN = "W2,W5,W7,W10,W11,W18,M6,M16,M29"
"""Six of the workloads of the CPU benchmark and three of the suite that nobody looked at when the models were made."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Go on with the campaign; the exit status, 0 when all of it is done, else 3."""
    options = _parser().parse_args(arguments)
    extent = Extent(options.budget, options.seeds, options.long, options.piece, options.compare)
    campaign = Campaign(options.folder, extent, parallel=options.threads > 1, jobs=options.jobs)
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "results.json"
    findings, end = load(path), time.monotonic() + options.seconds
    cases = chosen(options.workloads.split(","), small=options.small)
    done = True
    for case in cases:
        found = findings.setdefault(case.key, Findings(case.title))
        while (piece := campaign.next_piece(case, found)) is not None:
            if time.monotonic() + piece.seconds > end:
                done = False
                break
            sys.stderr.write(f"{case.key} {case.title}: {piece.name}\n")
            findings[case.key] = found = piece.run()
            save(path, findings)
    show({case.key: findings.get(case.key, Findings(case.title)) for case in cases})
    return 0 if done else 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tuning_budget.py", description=__doc__)
    parser.add_argument("--workloads", default=CHOSEN, help=f"keys of the suites w and more; {CHOSEN} unless given")
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"), help="end after so many seconds")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a short run")
    parser.add_argument("--seeds", type=int, default=3, help="short runs of each workload")
    parser.add_argument("--long", type=int, default=2000, help="candidates that a long run tries")
    parser.add_argument("--piece", type=float, default=150.0, help="seconds of a piece of a long run")
    parser.add_argument("--compare", type=float, default=30.0, help="seconds of the comparison")
    parser.add_argument("--threads", type=int, default=2, help="1 keeps kernels on one thread; more searches that, too")
    parser.add_argument("--jobs", type=int, default=None, help="processes that compile; one for each processor")
    parser.add_argument("--folder", type=Path, default=Path("out/benchmarks/tuning-budget"), help="what is done")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the benchmark itself")
    return parser
