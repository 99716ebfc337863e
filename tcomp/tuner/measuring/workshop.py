"""Candidates of one problem as jobs for an executor: compiled many at a time, measured one at a time on each device."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, as_completed, wait
from dataclasses import replace
from typing import Any, TypeVar

from tcomp.errors import TcompError
from tcomp.runtime.registry import estimate_of
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Problem, Trial
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, MeasureJob, compile_candidate, measure_candidate
from tcomp.tuner.measuring.timing import Effort
from tcomp.tuner.report.found import LEAST_ROUNDS, Final

Job = TypeVar("Job")
Answer = TypeVar("Answer")

_MOST_ROUNDS = 12
_ROUND = Effort(seconds=0.05, least=3)
_LONGEST_WAIT = 2.0


class ExecutorWorkshop:
    """A workshop on an executor, of this machine or others; ``devices`` measure at a time."""

    def __init__(self, problem: Problem, bench: Bench, executor: Executor, devices: int = 1) -> None:
        self._problem = problem
        self._bench = bench
        self._executor = executor
        self._devices = devices
        self._notes: dict[str, None] = {}
        self._left: list[Future[Any]] = []

    @property
    def notes(self) -> Sequence[str]:
        """What candidates that ran had to remark, each remark once."""
        return tuple(self._notes)

    def compile(self, candidates: Sequence[Candidate]) -> Generator[Compiled, None, None]:
        """Compile them, in any order; closing the iterator gives up those that have not begun."""
        jobs = [CompileJob(self._bench, self._problem, candidate) for candidate in candidates]
        waiting = {self._submitted(compile_candidate, job): job.candidate for job in jobs}
        try:
            for future in as_completed(waiting):
                error = _error(future)
                lost = Compiled(waiting[future], "", (), 0.0, error, Outcome.CRASHED)
                yield lost if error else future.result()
        finally:
            self._give_up(waiting)

    def measure(self, compiled: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
        """Verify and time them; those much slower than ``best`` times the default are given up early."""
        self._let_end()
        left = list(compiled)
        free = list(range(self._devices))
        running: dict[Future[Trial], MeasureJob] = {}
        try:
            while left or running:
                while left and free:
                    job = MeasureJob(self._bench, self._problem, left.pop(0), best, device=free.pop(0))
                    running[self._submitted(measure_candidate, job)] = job
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    free.append(job.device)
                    trial = _trial(future, job)
                    best = min(best, trial.ratio) if trial.certain else best
                    self._note(trial)
                    yield trial
        finally:
            self._give_up(running)

    def compare(self, finalists: Sequence[Compiled], seconds: float) -> Sequence[Final]:
        """Measure them again in rounds, every one in a process of its own, in about so many seconds.

        Rounds that others disturb do not count.
        """
        self._let_end()
        bench = replace(self._bench, effort=_ROUND)
        rounds: list[list[Trial]] = [[] for _ in finalists]
        begin = time.monotonic()
        # An estimate is the same whenever it is made.
        most = 1 if estimate_of(self._problem.specialisation.target) else _MOST_ROUNDS
        for done in range(most):
            spent = time.monotonic() - begin
            if done >= LEAST_ROUNDS and spent + spent / done > seconds:
                break
            for one, taken in zip(finalists, rounds, strict=True):
                if all(t.outcome is Outcome.MEASURED for t in taken):
                    job = MeasureJob(bench, self._problem, one)
                    taken.append(_trial(self._submitted(measure_candidate, job), job))
                    self._note(taken[-1])
        return [_final(one, taken) for one, taken in zip(finalists, rounds, strict=True)]

    def _submitted(self, function: Callable[[Job], Answer], job: Job) -> Future[Answer]:
        try:
            return self._executor.submit(function, job)
        except (OSError, RuntimeError) as error:
            raise TcompError(f"the executor takes no jobs: {error}") from None

    def _give_up(self, waiting: Iterable[Future[Any]]) -> None:
        """Cancel what has not begun; what has, goes on: who was interrupted need not wait for it."""
        self._left += [future for future in waiting if not future.cancel()]

    def _let_end(self) -> None:
        """Wait for what was given up while it ran, for nothing else should run while candidates are measured."""
        wait(self._left, _LONGEST_WAIT)
        self._left.clear()

    def _note(self, trial: Trial) -> None:
        if trial.outcome is Outcome.MEASURED:
            self._notes |= dict.fromkeys(filter(None, trial.message.split("; ")))


def _trial(future: Future[Trial], job: MeasureJob) -> Trial:
    """What a measurement gave, waited for.  Raises TcompError if nothing can be run at all."""
    error = _error(future)
    return Trial(job.compiled, Outcome.CRASHED, message=error) if error else future.result()


def _error(future: Future[Answer]) -> str:
    """Why an executor lost a job, as when its worker died again and again; empty if it did not.

    Raises TcompError if nothing can be run at all.
    """
    try:
        error = future.exception()
    except CancelledError:
        return "it was cancelled"
    if isinstance(error, TcompError):
        raise error
    return "" if error is None else f"the executor lost it: {type(error).__name__}: {error}"


def _final(compiled: Compiled, rounds: Sequence[Trial]) -> Final:
    """A finalist; without times if it failed once, or hardly a round was undisturbed."""
    options, certain = compiled.candidate.options, [t for t in rounds if not t.doubtful]
    if any(t.outcome is not Outcome.MEASURED for t in rounds):
        return Final(options, (), ())
    disturbed = len(rounds) - len(certain)
    if disturbed and len(certain) < LEAST_ROUNDS:
        return Final(options, (), (), disturbed)
    return Final(options, tuple(t.seconds for t in certain), tuple(t.baseline for t in certain), disturbed)
