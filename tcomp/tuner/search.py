"""A tuning run: candidates are proposed, compiled, chosen, measured and kept until the time is spent.

Whatever ends a run, what it measured is in the database; the same run started again goes on with the time that is left.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.storage.filelocks import claimed
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.identity import identity_of
from tcomp.tuner.database.records import Tuned
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Problem, Strategy, Trial
from tcomp.tuner.progress import Phase, Progress, Watch, ignore
from tcomp.tuner.report.found import FAILED, LEAST_ROUNDS, RAN, Final, decide, provisional
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.settings import Settings, remarks

FINALISTS = 4
"""Candidates that are measured again, in turn with the default options, at the end of a run."""

CONTENDERS, _HEAT_SHARE = 12, 1 / 3
"""Candidates that may become finalists, if there is time: those that were measured in a lucky moment look best."""

_NEAR = 1.1
"""Finalists took at most so many times as long as the default options."""

_FINAL_SHARE, _LONGEST_FINAL = 0.15, 10.0
_FINAL_ROUNDS, _LARGEST_FINAL_SHARE = 3, 0.3
_SHORTEST_BATCH, _LONGEST_BATCH = 0.5, 6.0
_SMALLEST_BATCH, _LARGEST_BATCH = 4, 64


class Workshop(Protocol):
    """Where the candidates of one problem are compiled and measured.  A candidate that fails is an answer, too."""

    def compile(self, candidates: Sequence[Candidate]) -> Generator[Compiled, None, None]:
        """Compile them, in any order; closing the iterator gives up those that have not begun."""
        ...

    def measure(self, compiled: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
        """Verify and time them; those much slower than ``best`` times the default are given up early."""
        ...

    def compare(self, finalists: Sequence[Compiled], seconds: float) -> Sequence[Final]:
        """Measure them again in rounds, in fresh processes, in about so many seconds, but ``LEAST_ROUNDS`` at least."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the machine, and on how results are checked."""
        ...


@dataclass(frozen=True, slots=True)
class Searcher:
    """What proposes candidates: ``seeds``, the default options first, then a strategy."""

    seeds: tuple[Candidate, ...]
    strategy: Strategy


class Run:
    """One run for one problem."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        searcher: Searcher,
        workshop: Workshop,
        database: Database,
        watch: Watch = ignore,
        begin: float | None = None,
    ) -> None:
        """``begin`` is when the time began to run, as ``time.monotonic`` has it; None means now."""
        self.problem = problem
        self.settings = settings
        self.default = problem.specialisation.options
        self._searcher = searcher
        self._workshop = workshop
        self._database = database
        self._watch = watch
        self._identity = identity_of(problem.specialisation, problem.device)
        self._label = problem.specialisation.label()
        self._trials = database.trials(self._identity)
        self._earlier = len(self._trials)
        self._sources = {t.compiled.source for t in self._trials if t.outcome in (*RAN, *FAILED)}
        self._generation = max((t.generation for t in self._trials), default=-1) + 1
        self._compile_rate = 0.0
        self._measure_seconds = 0.0
        self._run = 0
        self._before = 0.0
        self._begin = time.monotonic() if begin is None else begin

    def search(self) -> TuningResult:
        """Search until the time is spent, or Ctrl-C, which the result tells of; what is found is kept.

        Raises TcompError if not even the default options work.
        """
        with self._claimed():
            finals: tuple[Final, ...] = ()
            interrupted = False
            try:
                self._spend()
                finals = self._compare()
            except KeyboardInterrupt:
                interrupted = True
            result = self._result(finals, interrupted)
            self._keep(result)
            self._database.note(self._run, self._spent(), ended=not interrupted)
        self._tell(Phase.DONE)
        return result

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Go on with a run of these settings that nobody works on and that has not ended, or begin a new one."""
        found = self._database.unfinished(self._identity, str(self.settings))
        if found is not None:
            with claimed(self._database.lock(found[0])) as ours:
                if ours:
                    self._run, self._before = found
                    yield
                    return
        self._run = self._database.begin(self._identity, self._label, str(self.settings))
        with claimed(self._database.lock(self._run)):
            yield

    def _spent(self) -> float:
        return self._before + time.monotonic() - self._begin

    @property
    def _end(self) -> float:
        """When the time is spent."""
        return self._begin + self.settings.budget - self._before

    @property
    def _final_seconds(self) -> float:
        """The time that the finalists get: more than usual where a single measurement takes long."""
        usual = min(_FINAL_SHARE * self.settings.budget, _LONGEST_FINAL)
        needed = _FINAL_ROUNDS * FINALISTS * self._measure_seconds
        return min(max(usual, needed), _LARGEST_FINAL_SHARE * self.settings.budget)

    def _over(self) -> bool:
        """Whether only the time for the finalists is left."""
        return time.monotonic() >= self._end - self._final_seconds

    def _spend(self) -> None:
        """Try candidates until the time is over; the default options are tried in any case, and again if they failed:
        another process may have taken the memory then."""
        tried = {t.options for t in self._trials}
        default, *others = self._searcher.seeds
        if not self._default_ran():
            fresh, known = self._compile([default])
            self._measure([*fresh, *known], math.inf)
            self._generation += 1
        self._check_default()
        waiting = [c for c in others if c.options not in tried]
        while not self._over():
            count = self._batch()
            batch, waiting = waiting[:count], waiting[count:]
            if len(batch) < count:
                batch += self._searcher.strategy.propose(self._trials, count - len(batch))
            if not batch:
                return
            self._try(batch)

    def _default_ran(self) -> bool:
        return any(t.outcome is Outcome.MEASURED and t.options == self.default for t in self._trials)

    def _check_default(self) -> None:
        if not self._default_ran():
            trial = next((t for t in reversed(self._trials) if t.options == self.default), None)
            reason = "it was not measured" if trial is None else f"{trial.outcome.value}: {trial.message}"
            raise TcompError(f"{self._label} cannot be tuned, for its default options do not work: {reason}")

    def _batch(self) -> int:
        """How many candidates to compile before the next are measured."""
        seconds = min(max(self.settings.budget / 12, _SHORTEST_BATCH), _LONGEST_BATCH)
        return min(max(_SMALLEST_BATCH, int(seconds * self._compile_rate)), _LARGEST_BATCH)

    def _try(self, batch: Sequence[Candidate]) -> None:
        """Compile, choose and measure candidates of one generation."""
        fresh, known = self._compile(batch)
        if fresh and not self._over():
            chosen = self._searcher.strategy.select(fresh, self._trials, len(fresh))
            self._measure(chosen, self._fastest())
            kept = {id(c) for c in chosen}
            for compiled in fresh:
                if id(compiled) not in kept:
                    self._add(Trial(compiled, Outcome.SKIPPED))
        for compiled in known:
            self._add(Trial(compiled, Outcome.DUPLICATE))
        self._generation += 1

    def _compile(self, batch: Sequence[Candidate]) -> tuple[list[Compiled], list[Compiled]]:
        """Those whose code is new, and those whose code an earlier candidate had."""
        self._tell(Phase.COMPILING)
        fresh: list[Compiled] = []
        known: list[Compiled] = []
        begin, count = time.monotonic(), 0
        with closing(self._workshop.compile(batch)) as compiling:
            for compiled in compiling:
                count += 1
                if compiled.failure is not None:
                    self._add(Trial(compiled, compiled.failure, message=compiled.message))
                elif compiled.source in self._sources:
                    known.append(compiled)
                else:
                    self._sources.add(compiled.source)
                    fresh.append(compiled)
                self._tell(Phase.COMPILING)
                if self._over():
                    break
        self._compile_rate = count / max(1e-6, time.monotonic() - begin)
        return fresh, known

    def _measure(self, chosen: Sequence[Compiled], best: float) -> None:
        self._tell(Phase.MEASURING)
        begin, count = time.monotonic(), 0
        with closing(self._workshop.measure(chosen, best)) as measuring:
            for trial in measuring:
                count += 1
                self._measure_seconds = (time.monotonic() - begin) / count
                self._add(trial)
                self._tell(Phase.MEASURING)
                if self._over():
                    return

    def _fastest(self) -> float:
        """The best time so far as a multiple of the default's."""
        return min((t.ratio for t in self._trials if t.certain), default=math.inf)

    def _add(self, trial: Trial) -> None:
        """Keep a trial, at once."""
        trial = replace(trial, generation=self._generation, when=trial.when or time.time())
        if trial.options == self.default and trial.times:
            trial = replace(trial, baseline=trial.seconds)  # it was measured in turn with itself
        self._trials.append(trial)
        self._database.add(self._identity, self._label, trial, self._run, self._spent())
        if trial.outcome is Outcome.MEASURED:
            self._keep_provisional(trial)

    def _keep_provisional(self, latest: Trial) -> None:
        """Let calls have the best so far, unless they have something that was compared with others."""
        if provisional(self._trials) is not latest:
            return
        known = self._database.known(self._identity)
        if known is None or not known.confirmed:
            self._database.keep(self._tuned(latest.options, latest.times, (latest.baseline,), confirmed=False))

    def _tuned(
        self, options: MappingOptions, times: tuple[float, ...], baseline: tuple[float, ...], *, confirmed: bool
    ) -> Tuned:
        ran = [t for t in self._trials if t.outcome in RAN]
        worker = ran[-1].worker if ran else ""
        return Tuned(self._identity, self._label, options, times, baseline, confirmed, len(ran), time.time(), worker)

    def _compare(self) -> tuple[Final, ...]:
        """Measure the best candidates again, and what was known before."""
        measured = [t for t in self._trials if t.outcome is Outcome.MEASURED and t.options != self.default]
        latest = {t.options: t for t in [t for t in measured if t.certain] or measured}
        near = sorted((t for t in latest.values() if t.ratio < _NEAR), key=lambda t: t.ratio)
        if not near:
            return ()
        self._tell(Phase.COMPARING)
        begin, seconds = time.monotonic(), self._final_seconds
        near = self._in_heat(near, seconds)[: self._most_finalists(seconds)]
        known = self._database.known(self._identity)
        if known is not None and known.confirmed and known.options in latest and latest[known.options] not in near:
            near = [latest[known.options], *near[: max(1, len(near) - 1)]]
        left = seconds - (time.monotonic() - begin)
        return tuple(self._workshop.compare([t.compiled for t in near], left))

    def _most_finalists(self, seconds: float) -> int:
        """How many are measured anew in so many seconds, in the fewest rounds: one at least."""
        return max(1, min(FINALISTS, int(seconds / max(1e-6, LEAST_ROUNDS * self._measure_seconds))))

    def _in_heat(self, near: Sequence[Trial], seconds: float) -> list[Trial]:
        """The candidates by the median of what the search and a heat of the first of them have shown.

        The heat is as large as a part of the ``seconds`` for the finalists allows.  Who fails in it is out.
        """
        most = min(CONTENDERS, int(_HEAT_SHARE * seconds / max(1e-6, LEAST_ROUNDS * self._measure_seconds)))
        first = near[:most]
        if len(first) <= FINALISTS:
            return list(near)
        heat = self._workshop.compare([t.compiled for t in first], 0.0)
        ran = [(t, [1 / t.ratio, *f.gains]) for t, f in zip(first, heat, strict=True) if f.times or f.disturbed]
        return [t for t, _ in sorted(ran, key=lambda one: -statistics.median(one[1]))]

    def _result(self, finals: tuple[Final, ...], interrupted: bool) -> TuningResult:
        best, seconds = self.default, self._default_seconds()
        default_seconds = seconds
        winner, trial = decide(finals), provisional(self._trials)
        if winner is not None:
            best, seconds, default_seconds = winner.options, winner.seconds, winner.seconds * winner.gain
        elif interrupted and trial is not None:
            best, seconds, default_seconds = trial.options, trial.seconds, trial.baseline
        return TuningResult(
            self.problem,
            best,
            seconds,
            default_seconds,
            finals,
            tuple(self._trials),
            self._earlier,
            self.settings.strategy,
            self._spent(),
            interrupted,
            (*remarks(self.settings.strategy), *self._workshop.notes),
        )

    def _default_seconds(self) -> float:
        return next((t.seconds for t in reversed(self._trials) if t.options == self.default and t.times), math.inf)

    def _keep(self, result: TuningResult) -> None:
        """Let calls have what the finalists showed; what is provisional has been kept already.

        What is known from elsewhere and was not tried, for want of time, stays if it promises more.
        """
        if result.interrupted or result.undecided:
            return
        known = self._database.known(self._identity)
        untried = known is not None and all(t.options != known.options for t in self._trials)
        if known is not None and untried and known.confirmed and known.speedup > result.speedup:
            return
        final = next((f for f in result.finals if f.options == result.best), None)
        seconds = (result.default_seconds,)
        times, baseline = (seconds, seconds) if final is None else (final.times, final.baselines)
        self._database.keep(self._tuned(result.best, times, baseline, confirmed=True))

    def _tell(self, phase: Phase) -> None:
        ran = [t for t in self._trials if t.certain]
        best = min(ran, key=lambda t: t.ratio, default=None)
        self._watch(
            Progress(
                self._label,
                phase,
                self._generation,
                sum(t.compiled.failure is None and t.outcome is not Outcome.DUPLICATE for t in self._trials),
                sum(t.outcome in RAN for t in self._trials),
                sum(t.outcome in FAILED for t in self._trials),
                math.inf if best is None else best.baseline,
                math.inf if best is None else best.seconds,
                statistics.median(t.seconds for t in ran) if ran else math.inf,
                self.default if best is None else best.options,
                tuple(itertools.accumulate((t.ratio for t in ran), min)),
                self._end,
            )
        )
