"""Candidates of one problem as jobs for an executor: compiled many at a time, measured one after another."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed, wait
from dataclasses import replace
from typing import TypeVar

from tcomp.errors import TcompError
from tcomp.tuner.evaluation import Bench, CompileJob, MeasureJob, compile_candidate, measure_candidate
from tcomp.tuner.result import Final
from tcomp.tuner.timing import Effort
from tcomp.tuner.trials import Candidate, Compiled, Outcome, Problem, Trial

T = TypeVar("T")

_LEAST_ROUNDS, _MOST_ROUNDS = 4, 12
_ROUND = Effort(seconds=0.05, least=3)
_LOST = "the process that worked on it was lost"
_LONGEST_WAIT = 2.0


class ExecutorWorkshop:
    """A workshop on an executor, of this machine or others."""

    def __init__(self, problem: Problem, bench: Bench, executor: Executor) -> None:
        self._problem = problem
        self._bench = bench
        self._executor = executor
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> Sequence[str]:
        """What candidates that ran had to remark, each remark once."""
        return tuple(self._notes)

    def compile(self, candidates: Sequence[Candidate]) -> Generator[Compiled, None, None]:
        """Compile them, in any order; closing the iterator gives up those that have not begun."""
        jobs = [CompileJob(self._bench, self._problem, candidate) for candidate in candidates]
        waiting = {self._executor.submit(compile_candidate, job): job.candidate for job in jobs}
        try:
            for future in as_completed(waiting):
                lost = Compiled(waiting[future], "", (), 0.0, _LOST, Outcome.CRASHED)
                yield _answer(future, lost)
        finally:
            for future in waiting:
                future.cancel()
            # Nothing else should run while candidates are measured.
            wait(waiting, _LONGEST_WAIT)

    def measure(self, compiled: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
        """Verify and time them; those much slower than ``best`` times the default are given up early."""
        for one in compiled:
            trial = self._measured(MeasureJob(self._bench, self._problem, one, best))
            if trial.outcome is Outcome.MEASURED:
                self._notes |= dict.fromkeys(filter(None, trial.message.split("; ")))
                best = min(best, trial.ratio)
            yield trial

    def compare(self, finalists: Sequence[Compiled], seconds: float) -> Sequence[Final]:
        """Measure them again in rounds, every one in a process of its own, in about so many seconds."""
        bench = replace(self._bench, effort=_ROUND)
        rounds: list[list[Trial]] = [[] for _ in finalists]
        begin = time.monotonic()
        for done in range(_MOST_ROUNDS):
            spent = time.monotonic() - begin
            if done >= _LEAST_ROUNDS and spent + spent / done > seconds:
                break
            for one, taken in zip(finalists, rounds, strict=True):
                if all(t.outcome is Outcome.MEASURED for t in taken):
                    taken.append(self._measured(MeasureJob(bench, self._problem, one)))
        return [_final(one, taken) for one, taken in zip(finalists, rounds, strict=True)]

    def _measured(self, job: MeasureJob) -> Trial:
        return _answer(
            self._executor.submit(measure_candidate, job), Trial(job.compiled, Outcome.CRASHED, message=_LOST)
        )


def _final(compiled: Compiled, rounds: Sequence[Trial]) -> Final:
    """A finalist; without times if it failed once."""
    if any(t.outcome is not Outcome.MEASURED for t in rounds):
        return Final(compiled.candidate.options, (), ())
    return Final(compiled.candidate.options, tuple(t.seconds for t in rounds), tuple(t.baseline for t in rounds))


def _answer(future: Future[T], lost: T) -> T:
    """What a job gave; ``lost`` if the executor lost it.  Raises TcompError if nothing can be run at all."""
    try:
        return future.result()
    except TcompError:
        raise
    except (CancelledError, OSError, RuntimeError):
        # A broken pool, a worker of Dask that was killed again and again: KilledWorker is an Exception of its own.
        return lost
