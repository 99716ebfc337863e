"""The pieces of the benchmark of short tuning runs against long ones; each goes on where the last one ended."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.cpu_case import Case
from benchmarks.tuning_run import problem_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.trials import Candidate, Outcome, Problem, Trial
from tcomp.tuner.measuring.evaluation import Bench
from tcomp.tuner.measuring.executors import local_executor
from tcomp.tuner.measuring.workshop import ExecutorWorkshop
from tcomp.tuner.report.found import Final
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.settings import Settings
from tcomp.tuner.strategies import STRATEGIES
from tcomp.tuner.tuning import tune

LONGEST_LIST = 4
"""Candidates of the long run that are compared with the winners of the short ones."""


NEW = 1.02
"""A long run ends when a piece makes its kernels less than so many times as many: the others are hard to find."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is done for a workload: ``seeds`` runs of ``budget`` seconds, a long run in pieces of ``piece`` seconds
    until it has tried ``long`` candidates, and a comparison of ``compare`` seconds."""

    budget: float
    seeds: int
    long: int
    piece: float
    compare: float


@dataclass(frozen=True, slots=True)
class Short:
    """A run of the budget's seconds: its winner as JSON, and how many candidates it tried, kernels it saw, and kernels
    it measured."""

    options: str
    tried: int
    kernels: int
    measured: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known of a workload.

    The long run has tried ``candidates``, with ``kernels`` of their own, in ``pieces`` pieces; it is ``exhausted`` when
    a piece brings hardly a new one.  ``gains`` maps options, as JSON, to how many times faster than the default options
    they are.
    """

    title: str
    short: Mapping[str, Short] = field(default_factory=dict)
    pieces: int = 0
    candidates: int = 0
    kernels: int = 0
    exhausted: bool = False
    long: tuple[str, ...] = ()
    gains: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    """The default options' time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to do in about so many seconds."""

    name: str
    seconds: float
    run: Callable[[], Findings]


@dataclass(frozen=True, slots=True)
class Campaign:
    """All of it; databases are kept in ``folder``."""

    folder: Path
    extent: Extent
    parallel: bool
    jobs: int | None

    def next_piece(self, case: Case, found: Findings) -> Piece | None:
        """What is to be done next for a workload; None when all is done."""
        extent = self.extent
        for seed in range(extent.seeds):
            if str(seed) not in found.short:
                return Piece(f"short, seed {seed}", extent.budget, functools.partial(self._short, case, found, seed))
        if found.candidates < extent.long and not found.exhausted:
            name = f"long, {found.candidates} candidates of {extent.long}"
            return Piece(name, extent.piece, functools.partial(self._long, case, found))
        if not found.gains:
            return Piece("comparison", extent.compare, functools.partial(self._compare, case, found))
        return None

    def _short(self, case: Case, found: Findings, seed: int) -> Findings:
        result = self._tuned(case, f"short-{seed}", Settings(self.extent.budget, "model", seed))
        short = Short(
            result.best.to_json(), len(result.history), _kernels(result.history), result.count(Outcome.MEASURED)
        )
        return replace(found, short={**found.short, str(seed): short}, gains={})

    def _long(self, case: Case, found: Findings) -> Findings:
        strategy = list(STRATEGIES)[found.pieces % len(STRATEGIES)]
        result = self._tuned(case, "long", Settings(self.extent.piece, strategy, found.pieces))
        kernels = _kernels(result.history)
        measured = sorted((t for t in result.history if t.outcome is Outcome.MEASURED), key=lambda t: t.ratio)
        best = [result.best, *(t.options for t in measured[:LONGEST_LIST])]
        return replace(
            found,
            pieces=found.pieces + 1,
            candidates=len(result.history),
            kernels=kernels,
            exhausted=kernels < NEW * found.kernels,
            long=tuple(dict.fromkeys(o.to_json() for o in best)),
            gains={},
        )

    def _tuned(self, case: Case, name: str, settings: Settings) -> TuningResult:
        problem = problem_of(case, parallel=self.parallel)
        with Database(self.folder / f"{case.key}-{name}.sqlite3") as database:
            return tune(problem, settings, jobs=self.jobs, database=database)

    def _compare(self, case: Case, found: Findings) -> Findings:
        problem = problem_of(case, parallel=self.parallel)
        default = problem.specialisation.options
        winners = [MappingOptions.from_json(o) for o in (*(s.options for s in found.short.values()), *found.long)]
        others = [o for o in dict.fromkeys(winners) if o != default]
        compared = self._finals(problem, others)
        if any(f.disturbed and not f.times for f in compared):
            return found  # others were at work: it is done again
        gains = {default.to_json(): 1.0} | {f.options.to_json(): f.gain for f in compared}
        seconds = [seconds for f in compared for seconds in f.baselines]
        return replace(found, gains=gains, seconds=min(seconds, default=0.0))

    def _finals(self, problem: Problem, several: Sequence[MappingOptions]) -> Sequence[Final]:
        made = tempfile.TemporaryDirectory(prefix="tcomp-bench-", ignore_cleanup_errors=True)
        with made as folder, local_executor(self.jobs) as executor:
            workshop = ExecutorWorkshop(problem, Bench(folder), executor)
            finalists = list(workshop.compile([Candidate(options, "winner") for options in several]))
            return workshop.compare(finalists, self.extent.compare)


def _kernels(trials: Sequence[Trial]) -> int:
    """How many candidates had code of their own."""
    return len({t.compiled.source for t in trials if t.compiled.source})


def load(path: Path) -> dict[str, Findings]:
    """What was kept, by key; nothing where there is no file."""
    plain = json.loads(path.read_text()) if path.exists() else {}
    return {key: _read(found) for key, found in plain.items()}


def save(path: Path, findings: Mapping[str, Findings]) -> None:
    """Keep all; a run that is killed meanwhile leaves the file as it was."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({key: asdict(found) for key, found in findings.items()}, indent=1))
    draft.replace(path)


def _read(plain: dict[str, Any]) -> Findings:
    short = {seed: Short(**one) for seed, one in plain.pop("short").items()}
    return Findings(short=short, long=tuple(plain.pop("long")), **plain)
