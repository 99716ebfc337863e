"""Jobs go to an executor, and come back, are lost or given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, MeasureJob
from tcomp.tuner.measuring.workshop import ExecutorWorkshop
from tcomp.tuner.report.found import decide
from tests.tuner.problems import problem, tiled

CANDIDATES = [Candidate(tiled(n), "test") for n in range(1, 6)]
COMPILED = [Compiled(c, f"source {c.options}", (), 0.1) for c in CANDIDATES]


class LostError(Exception):
    """What an executor of its own kind raises for a job that it lost."""


class Scripted(Executor):
    """Answers jobs by a function; ``None`` leaves them waiting until ``finish``."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.jobs: list[Any] = []
        self.futures: list[Future[Any]] = []

    def submit(self, _function: Callable[..., Any], /, *arguments: Any, **__: Any) -> Future[Any]:
        (job,) = arguments
        future: Future[Any] = Future()
        self.jobs.append(job)
        self.futures.append(future)
        found = self.answer(job)
        if isinstance(found, BaseException):
            future.set_exception(found)
        elif found is not None:
            future.set_result(found)
        return future


def workshop(answer: Callable[[Any], Any], devices: int = 1) -> tuple[ExecutorWorkshop, Scripted]:
    executor = Scripted(answer)
    return ExecutorWorkshop(problem(), Bench("nowhere"), executor, devices), executor


def compiled(job: CompileJob) -> Compiled:
    return Compiled(job.candidate, str(job.candidate.options), (), 0.1)


def measured(job: MeasureJob, seconds: float = 1.0) -> Trial:
    return Trial(job.compiled, Outcome.MEASURED, (seconds,) * 3, "", "here", baseline=2.0)


def test_everything_is_compiled() -> None:
    place, executor = workshop(compiled)
    assert {c.candidate.options for c in place.compile(CANDIDATES)} == {c.options for c in CANDIDATES}
    assert len(executor.jobs) == len(CANDIDATES)


@pytest.mark.parametrize("error", [LostError("gone"), OSError("gone"), RuntimeError("gone")])
def test_what_an_executor_loses_is_a_crash_of_that_candidate(error: Exception) -> None:
    def answer(job: Any) -> Any:
        options = job.candidate.options if isinstance(job, CompileJob) else job.compiled.candidate.options
        if options == tiled(3):
            return error
        return compiled(job) if isinstance(job, CompileJob) else measured(job)

    place, _ = workshop(answer)
    failures = {c.candidate.options: (c.failure, c.message) for c in place.compile(CANDIDATES) if c.failure}
    assert failures == {tiled(3): (Outcome.CRASHED, f"the executor lost it: {type(error).__name__}: gone")}
    outcomes = [t.outcome for t in place.measure(COMPILED, 1.0)]
    assert outcomes == [Outcome.MEASURED] * 2 + [Outcome.CRASHED] + [Outcome.MEASURED] * 2


def test_a_job_that_was_cancelled_is_lost() -> None:
    place, _ = workshop(lambda job: CancelledError() if job.candidate.options == tiled(1) else compiled(job))
    lost = [c for c in place.compile(CANDIDATES) if c.failure]
    assert [c.candidate.options for c in lost] == [tiled(1)]


def test_where_nothing_can_run_the_run_ends() -> None:
    place, _ = workshop(lambda _: TcompError("no sandbox starts"))
    with pytest.raises(TcompError, match="no sandbox starts"):
        list(place.compile(CANDIDATES))
    with pytest.raises(TcompError, match="no sandbox starts"):
        list(place.measure(COMPILED, 1.0))


def test_an_executor_that_takes_no_jobs_ends_the_run() -> None:
    place, executor = workshop(compiled)
    executor.submit = lambda *_: (_ for _ in ()).throw(RuntimeError("it was shut down"))  # type: ignore[method-assign]
    with pytest.raises(TcompError, match="takes no jobs: it was shut down"):
        list(place.compile(CANDIDATES))


def test_closing_gives_up_what_has_not_begun() -> None:
    place, executor = workshop(lambda job: compiled(job) if job.candidate.options == tiled(1) else None)
    compiling = place.compile(CANDIDATES)
    assert next(compiling).candidate.options == tiled(1)
    compiling.close()
    assert [f.cancelled() for f in executor.futures] == [False, True, True, True, True]


def test_nothing_is_measured_beside_what_was_given_up_but_nobody_waits_for_it_before() -> None:
    place, executor = workshop(lambda job: compiled(job) if job.candidate.options == tiled(1) else None)
    compiling = place.compile(CANDIDATES[:2])
    next(compiling)
    given_up = executor.futures[1]
    given_up.set_running_or_notify_cancel()
    compiling.close()
    assert not given_up.done()

    executor.answer = lambda job: measured(job) if given_up.done() else AssertionError("something runs beside it")
    threading.Timer(0.1, given_up.set_result, [COMPILED[1]]).start()
    assert [t.outcome for t in place.measure(COMPILED[:1], 1.0)] == [Outcome.MEASURED]


def test_one_candidate_at_a_time_is_measured_on_each_device() -> None:
    place, executor = workshop(lambda _: None, devices=2)
    running: list[int] = []

    def answer(job: MeasureJob) -> None:
        running.append(job.device)
        assert len(executor.jobs) - sum(f.done() for f in executor.futures) <= 2
        if len(executor.jobs) in (2, 3, 4, 5):
            # The first that waits is done when the next begins to wait.
            first = next(k for k, f in enumerate(executor.futures) if not f.done())
            executor.futures[first].set_result(measured(executor.jobs[first]))
        if len(executor.jobs) == 5:
            executor.futures[-1].set_result(measured(executor.jobs[-1]))

    executor.answer = answer
    trials = list(place.measure(COMPILED, 1.0))
    assert {t.options for t in trials} == {c.options for c in CANDIDATES}
    assert running[:2] == [0, 1]
    assert set(running) == {0, 1}


def test_what_is_good_is_told_to_the_next() -> None:
    place, executor = workshop(lambda job: measured(job, {tiled(2): 0.5}.get(job.compiled.candidate.options, 1.0)))
    list(place.measure(COMPILED, 0.75))
    assert [job.best for job in executor.jobs] == [0.75, 0.5, 0.25, 0.25, 0.25]


def test_finalists_are_measured_in_rounds_until_the_time_is_over() -> None:
    place, executor = workshop(measured)
    finals = place.compare(COMPILED[:2], 60.0)
    assert [job.compiled.candidate.options for job in executor.jobs[:4]] == [tiled(1), tiled(2)] * 2
    assert [f.gain for f in finals] == [2.0, 2.0]
    assert len(finals[0].times) == len(executor.jobs) // 2 == 12
    place, executor = workshop(measured)
    place.compare(COMPILED[:2], 0.0)
    assert len(executor.jobs) == 4


def test_a_finalist_that_fails_once_is_out() -> None:
    def answer(job: MeasureJob) -> Trial:
        later = sum(j.compiled is job.compiled for j in executor.jobs) > 3
        wrong = later and job.compiled.candidate.options == tiled(1)
        return Trial(job.compiled, Outcome.WRONG) if wrong else measured(job)

    place, executor = workshop(answer)
    first, second = place.compare(COMPILED[:2], 60.0)
    assert (first.times, first.gain) == ((), 0.0)
    assert len(second.times) == 12
    assert len([j for j in executor.jobs if j.compiled.candidate.options == tiled(1)]) == 4


def test_rounds_that_others_disturb_do_not_count() -> None:
    """There the first looks twice as fast as the default options, else both are as fast as these."""

    def answer(job: MeasureJob) -> Trial:
        rounds = sum(j.compiled is job.compiled for j in executor.jobs)
        alone = job.compiled.candidate.options == tiled(1)
        busy = rounds % 4 or not alone
        return replace(measured(job), baseline=2.0 if busy and alone else 1.0, doubtful=bool(busy))

    place, executor = workshop(answer)
    first, second = place.compare(COMPILED[:2], 60.0)
    assert (first.gains, first.disturbed) == ((1.0,) * 3, 9)
    assert (second.gains, second.disturbed) == ((), 12)
    assert decide([first, second]) is None


def test_remarks_of_candidates_that_ran_are_notes_each_once() -> None:
    def answer(job: MeasureJob) -> Trial:
        wrong = job.compiled.candidate.options == tiled(2)
        outcome, message = (Outcome.WRONG, "C(0) is 1") if wrong else (Outcome.MEASURED, "busy; belief")
        return Trial(job.compiled, outcome, () if wrong else (1.0,), message, baseline=1.0)

    place, _ = workshop(answer)
    list(place.measure(COMPILED, 1.0))
    assert list(place.notes) == ["busy", "belief"]


def test_an_estimate_is_made_once() -> None:
    executor = Scripted(measured)
    place = ExecutorWorkshop(problem(target="simulator:sm_90"), Bench("nowhere"), executor)
    place.compare(COMPILED[:2], 60.0)
    assert len(executor.jobs) == 2
    assert executor.jobs[0].compiled.candidate.options == MappingOptions(tile_sizes=(1,))
