"""What compiling and measuring a candidate takes, and how far measurements of the same candidate are apart.

    python benchmarks/measuring.py [--rounds 12] [--only mm,softmax]

Each round measures the default options in a fresh process.  "time" is the relative standard deviation of the medians of
these processes, "ratio" that of the same divided by the default's median next to it, which is what the tuner compares.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tcomp import grammar
from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Problem, Trial
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, MeasureJob, compile_candidate, measure_candidate
from tcomp.tuner.measuring.executors import local_executor

_TILES = tuple(product((8, 16, 32, 64), (32, 64, 128)))


@dataclass(frozen=True, slots=True)
class Program:
    """A program and the values of its sizes."""

    text: str
    sizes: Mapping[str, int]

    def problem(self) -> Problem:
        (function,) = grammar.define(self.text).values()
        return Problem(Specialisation(function, Sizes(self.sizes), MappingOptions(), "cpu", False), "this machine")


_MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"

PROGRAMS: Mapping[str, Program] = {
    "small mm": Program(_MM, {"M": 128, "N": 256, "K": 32}),
    "mm": Program(_MM, {"M": 512, "N": 512, "K": 512}),
    "softmax": Program(
        """
        def softmax(float(N,D) X) -> (Y) {
          m(n)   max=! X(n,d)
          e(n,d) =     exp(X(n,d) - m(n))
          s(n)   +=!   e(n,d)
          Y(n,d) =     e(n,d) / s(n)
        }
        """,
        {"N": 4096, "D": 1024},
    ),
    "blur": Program(
        """
        def blur(float(H,W) I) -> (O) {
          T(h,w) = (I(h,w) + I(h,w+1) + I(h,w+2)) / 3
          O(h,w) = (T(h,w) + T(h+1,w) + T(h+2,w)) / 3
        }
        """,
        {"H": 2048, "W": 2048},
    ),
    "pointwise": Program("def f(float(N) A, float(N) B) -> (C) { C(n) = tanh(A(n)) * B(n) }", {"N": 1 << 23}),
}


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of wall time: ``compile`` and ``measure`` of one candidate, ``prepare`` of the first measurement.

    ``time`` and ``ratio`` are relative standard deviations.
    """

    name: str
    compile: float
    prepare: float
    measure: float
    median: float
    time: float
    ratio: float


def survey(name: str, program: Program, rounds: int, executor: Executor, bench: Bench) -> Row:
    """Compile a dozen candidates at once, then measure the default again and again.  Raises TcompError."""
    problem = program.problem()
    (default,), _ = _compiled(problem, [MappingOptions()], executor, bench)
    others, compiling = _compiled(problem, [MappingOptions(tile_sizes=t) for t in _TILES], executor, bench)
    begin = time.perf_counter()
    first = _measured(problem, default, executor, bench)
    measuring = time.perf_counter()
    trials = [_measured(problem, default, executor, bench) for _ in range(rounds)]
    end = time.perf_counter()
    medians = [t.seconds for t in trials]
    measure = (end - measuring) / rounds
    return Row(
        name,
        compiling / len(others),
        measuring - begin - measure,
        measure,
        first.seconds,
        _spread(medians),
        _spread([t.ratio for t in trials]),
    )


def _compiled(
    problem: Problem, options: Sequence[MappingOptions], executor: Executor, bench: Bench
) -> tuple[list[Compiled], float]:
    begin = time.perf_counter()
    jobs = [CompileJob(bench, problem, Candidate(o, "survey")) for o in options]
    compiled = list(executor.map(compile_candidate, jobs))
    return compiled, time.perf_counter() - begin


def _measured(problem: Problem, compiled: Compiled, executor: Executor, bench: Bench) -> Trial:
    trial = executor.submit(measure_candidate, MeasureJob(bench, problem, compiled)).result()
    if trial.outcome is not Outcome.MEASURED:
        raise TcompError(f"the default options are {trial.outcome.value}: {trial.message}")
    return trial


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) / statistics.mean(values)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", help="names of programs, separated by commas")
    values = parser.parse_args()
    chosen = values.only.split(",") if values.only else list(PROGRAMS)
    print(f"{'':10} {'compile':>8} {'prepare':>8} {'measure':>8} {'median':>10} {'time':>7} {'ratio':>7}")
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder, local_executor() as executor:
            row = survey(name, PROGRAMS[name], values.rounds, executor, Bench(folder))
        print(
            f"{row.name:10} {row.compile:6.3f} s {row.prepare:6.3f} s {row.measure:6.3f} s {1e6 * row.median:7.1f} us"
            f" {row.time:7.1%} {row.ratio:7.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
