"""The command line of the tuning benchmark."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tcomp as tc
from benchmarks.cpu_case import Case
from benchmarks.cpu_cases import workloads
from benchmarks.cpu_suites import chosen
from benchmarks.tuning_curves import Curve, report, searched, summary
from benchmarks.tuning_memory import Memory
from benchmarks.tuning_plot import check, draw
from tcomp.arrays.devices import MAIN
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.identity import device_model
from tcomp.tuner.database.trials import Candidate, Problem
from tcomp.tuner.measuring.evaluation import Bench
from tcomp.tuner.measuring.executors import local_executor
from tcomp.tuner.measuring.workshop import ExecutorWorkshop
from tcomp.tuner.model.background import Background
from tcomp.tuner.model.description import describe
from tcomp.tuner.model.experience import experience_of
from tcomp.tuner.model.features import facts_of
from tcomp.tuner.space.space import space_of
from tcomp.tuner.strategies import STRATEGIES, strategy_named

BATCH = 8
"""Candidates that a strategy proposes at a time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the strategies; the exit status."""
    options = _parser().parse_args(arguments)
    if options.plot:
        check()
    keys = options.workloads.split(",") if options.workloads else [case.key for case in workloads(small=True)]
    cases = chosen(keys, small=options.small)
    curves: dict[str, dict[str, list[Curve]]] = {}
    best: dict[str, float] = {}
    options.database.parent.mkdir(parents=True, exist_ok=True)
    strategies = options.strategies.split(",")
    with Database(options.database) as database, local_executor(options.jobs) as executor:
        for case in cases:
            problem = problem_of(case, parallel=options.threads > 1)
            with tempfile.TemporaryDirectory(prefix="tcomp-bench-", ignore_cleanup_errors=True) as folder:
                workshop = ExecutorWorkshop(problem, Bench(folder, describe), executor)
                memory = Memory(problem, workshop, database)
                curves[case.key] = {
                    name: [
                        curve(problem, name, seed, memory, options.measured, warm=options.warm)
                        for seed in range(options.seeds)
                    ]
                    for name in strategies
                }
                best[case.key] = memory.best
            sys.stderr.write(f"{case.key}: the best takes {memory.best:.3f} of what the default options take\n")
    counts = [count for count in (4, 8, 16, 32, 64) if count < options.measured] + [options.measured]
    rows = [
        summary(key, name, found[name], found["random"], best[key], counts, 1.0 if options.warm else math.inf)
        for key, found in curves.items()
        for name in strategies
    ]
    print(report(rows), end="")
    if options.plot:
        draw(curves, best, options.plot)
    return 0


def problem_of(case: Case, *, parallel: bool) -> Problem:
    """The tuning problem of a case, with the arrays that it is benchmarked with."""
    (operation,) = tc.define(case.text)._operations.values()
    given = (*case.make_inputs(), *case.constants)
    made = operation.compile(*given).specialisation
    default = replace(made, options=MappingOptions(parallel=parallel))
    return Problem(default, device_model("cpu", MAIN), given=given)


def curve(problem: Problem, name: str, seed: int, memory: Memory, measured: int, *, warm: bool) -> Curve:
    """The curve of one strategy with one seed, from nothing or, if ``warm``, after the default options."""
    default = problem.specialisation
    made = default.lower()
    fixed = () if default.options.parallel else ("parallel",)
    space = space_of(made, default.options, default.target, fixed)
    background = Background(space, facts_of(made, default.target), seed, experience=experience_of(default.target))
    strategy = strategy_named(name, background)
    return searched(strategy, memory, measured, BATCH, Candidate(default.options, "default") if warm else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tuning.py", description=__doc__)
    parser.add_argument("--workloads", default="", help="keys such as W5,M8; the 18 of suite w unless given")
    parser.add_argument("--measured", type=int, default=48, help="candidates that a search measures")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="their names; random is among them")
    parser.add_argument("--warm", action="store_true", help="begin with the default options, as runs of the tuner do")
    parser.add_argument("--seeds", type=int, default=3, help="searches of each strategy")
    parser.add_argument("--threads", type=int, default=1, help="1 keeps kernels on one thread; more searches that, too")
    parser.add_argument("--jobs", type=int, default=None, help="processes that compile; one for each processor")
    parser.add_argument("--database", type=Path, default=Path("out/benchmarks/tuning.db"), help="what is measured")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the benchmark itself")
    parser.add_argument("--plot", type=Path, help="where to draw the curves; needs matplotlib")
    return parser
