"""Candidates on GPUs: a process lasts until the first failure, sees one device, and fetches its inputs once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tcomp import MappingOptions
from tcomp.tuner.database.trials import Candidate, Outcome, Trial
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, MeasureJob, compile_candidate, measure_candidate
from tcomp.tuner.measuring.executors import local_executor
from tests.tuner.problems import problem

pytestmark = pytest.mark.sweep(4)

PROBLEM = problem("def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }", target="cuda:sm_90", N=1000)
SOUND, SPOILS_INPUTS, FAILS, ABORTS = (MappingOptions(tile_sizes=(size,)) for size in (8, 16, 32, 64))
"""As ``tests.tuner.fake_gpu`` has them, which must not be imported here: it takes the place of CuPy."""


@pytest.fixture
def executor() -> Iterator[Executor]:
    with local_executor(2) as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path), modules=("tests.tuner.fake_gpu",))


def measured(executor: Executor, bench: Bench, options: MappingOptions, device: int = 0) -> Trial:
    job = CompileJob(bench, PROBLEM, Candidate(options, "test"))
    compiled = executor.submit(compile_candidate, job).result()
    assert not compiled.message
    return executor.submit(measure_candidate, MeasureJob(bench, PROBLEM, compiled, device=device)).result()


def calls(bench: Bench) -> list[tuple[str, str]]:
    """Process and visible device of the calls since this was last asked, each pair once."""
    path = Path(bench.directory, "calls")
    pairs = dict.fromkeys(tuple(line.split()) for line in path.read_text().splitlines()) if path.exists() else {}
    path.unlink(missing_ok=True)
    return [(process, device) for process, device in pairs]


def test_one_process_serves_many_candidates(executor: Executor, bench: Bench) -> None:
    for _ in range(3):
        trial = measured(executor, bench, SOUND)
        assert trial.outcome is Outcome.MEASURED, trial.message
        assert trial.seconds > 0
        assert trial.worker.endswith(":cuda-0")
    assert len(calls(bench)) == 1


@pytest.mark.parametrize(
    ("options", "outcome", "word"),
    [
        (SPOILS_INPUTS, Outcome.WRONG, "C(0) is -1.0"),
        (FAILS, Outcome.REJECTED, "illegal memory access"),
        (ABORTS, Outcome.CRASHED, "SIGABRT"),
    ],
)
def test_a_failure_ends_the_process(
    executor: Executor, bench: Bench, options: MappingOptions, outcome: Outcome, word: str
) -> None:
    measured(executor, bench, SOUND)
    before = calls(bench)
    trial = measured(executor, bench, options)
    assert trial.outcome is outcome, trial.message
    assert word in trial.message
    assert measured(executor, bench, SOUND).outcome is Outcome.MEASURED
    assert set(calls(bench)) - set(before)


@pytest.mark.long
def test_each_device_has_a_process_that_sees_it_alone(
    executor: Executor, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    workers = {measured(executor, bench, SOUND, device).worker.rpartition(":")[2] for device in (0, 1)}
    assert workers == {"cuda-0", "cuda-1"}
    assert [device for _, device in calls(bench)] == ["3", "5"]
