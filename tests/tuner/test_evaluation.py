"""Candidates are compiled, verified and timed; whatever they do, the job comes back with what became of them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

import pytest

import tcomp as tc
from tcomp.backends.simulator import compiler
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Problem, Trial
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, MeasureJob, compile_candidate, measure_candidate
from tcomp.tuner.measuring.executors import local_executor
from tcomp.tuner.measuring.preparation import Limits
from tests.tuner.problems import problem

pytestmark = pytest.mark.sweep(3)


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with local_executor(1) as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path))


def compiled(executor: Executor, bench: Bench, of: Problem, options: tc.MappingOptions) -> Compiled:
    return executor.submit(compile_candidate, CompileJob(bench, of, Candidate(options, "test"))).result()


def measured(
    executor: Executor, bench: Bench, of: Problem, options: tc.MappingOptions, best: float = math.inf
) -> Trial:
    made = compiled(executor, bench, of, options)
    assert not made.message
    return executor.submit(measure_candidate, MeasureJob(bench, of, made, best)).result()


def test_a_candidate_is_compiled_and_measured(executor: Executor, bench: Bench) -> None:
    trial = measured(executor, bench, problem(), tc.MappingOptions(tile_sizes=(8, 8)))
    assert trial.outcome is Outcome.MEASURED, trial.message
    assert len(trial.times) >= bench.effort.least
    assert 0 < trial.seconds < math.inf
    assert 0 < trial.baseline < math.inf
    assert trial.compiled.source
    assert trial.when
    assert trial.worker


def test_equal_code_has_one_digest(executor: Executor, bench: Bench) -> None:
    plain = compiled(executor, bench, problem(), tc.MappingOptions(tile_sizes=(8, 8)))
    same = compiled(executor, bench, problem(), tc.MappingOptions(tile_sizes=(8, 8), unroll=2))
    other = compiled(executor, bench, problem(), tc.MappingOptions(tile_sizes=(4, 8)))
    assert plain.source == same.source != other.source


def test_options_that_are_refused_lose_the_candidate(executor: Executor, bench: Bench) -> None:
    made = compiled(executor, bench, problem(target="cuda:sm_1"), tc.MappingOptions())
    assert made.failure is Outcome.REJECTED
    assert "sm_1" in made.message


@pytest.mark.parametrize("strides", [{"A": (1, 24)}, {"A": (-16, 1)}, {"B": (0, 1)}, {"C": (1, 24)}])
def test_arrays_are_laid_out_as_the_program_has_them(
    executor: Executor, bench: Bench, strides: dict[str, tuple[int, ...]]
) -> None:
    trial = measured(executor, bench, problem(strides=strides), tc.MappingOptions())
    assert trial.outcome is Outcome.MEASURED, trial.message


def test_outputs_that_are_read_are_restored(executor: Executor, bench: Bench) -> None:
    text = "def f(float(N) A) -> (float(N) B) { B(i) *= A(i) + 1000 }"
    trial = measured(executor, bench, problem(text, N=1000), tc.MappingOptions())
    assert trial.outcome is Outcome.MEASURED, trial.message


@pytest.mark.long
def test_a_problem_without_room_for_its_arrays_is_refused(executor: Executor, bench: Bench) -> None:
    small = replace(bench, limits=Limits(memory=1 << 28))
    trial = measured(
        executor, small, problem("def f(float(N) A) -> (B) { B(i) = A(i) }", N=1 << 27), tc.MappingOptions()
    )
    assert trial.outcome in (Outcome.REJECTED, Outcome.OUT_OF_MEMORY)
    assert "array" in trial.message or "room" in trial.message


def test_jobs_can_be_pickled(bench: Bench) -> None:
    job = CompileJob(bench, problem(), Candidate(tc.MappingOptions(), "default"))
    again = pickle.loads(pickle.dumps(job))
    assert (again.bench, again.candidate, again.problem) == (job.bench, job.candidate, job.problem)


@pytest.mark.long
def test_on_the_simulator_the_estimate_is_the_time(executor: Executor, bench: Bench) -> None:
    if compiler.why_not():
        pytest.skip(str(compiler.why_not()))
    of = problem(target="simulator:sm_90")
    default, other = (measured(executor, bench, of, tc.MappingOptions(tile_sizes=t)) for t in (None, (4, 4)))
    assert default.outcome is other.outcome is Outcome.MEASURED, default.message + other.message
    assert default.times == (default.baseline,)
    assert other.baseline == default.baseline
