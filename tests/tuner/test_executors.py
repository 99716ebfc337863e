"""Jobs survive what may befall whatever executes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tcomp import MappingOptions
from tcomp.errors import TcompError
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, MeasureJob, compile_candidate, measure_candidate
from tcomp.tuner.measuring.executors import executor_at, local_executor
from tcomp.tuner.measuring.preparation import Limits
from tests.tuner.faulty import TARGET, options_with
from tests.tuner.problems import problem

TILES = [(8, 8), (4, 8), (8, 40), (24, 8), (12, 20), (6, 40)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path), limits=Limits(compile=60.0, call=2.0), modules=("tests.tuner.faultytarget",))


def all_compiled(executor: Executor, bench: Bench) -> list[Compiled]:
    jobs = [CompileJob(bench, problem(), Candidate(MappingOptions(tile_sizes=tiles), "test")) for tiles in TILES]
    futures = [executor.submit(compile_candidate, job) for job in jobs]
    return [future.result(timeout=120) for future in futures]


def all_measured(executor: Executor, bench: Bench) -> list[Trial]:
    jobs = [MeasureJob(bench, problem(), one) for one in all_compiled(executor, bench)]
    return [executor.submit(measure_candidate, job).result(timeout=120) for job in jobs]


@pytest.mark.long
def test_jobs_run_in_any_pool_of_processes(bench: Bench) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        assert {trial.outcome for trial in all_measured(pool, bench)} == {Outcome.MEASURED}


def test_leaving_a_local_executor_stops_what_runs(bench: Bench) -> None:
    begin = time.monotonic()
    with local_executor(1) as executor:
        job = CompileJob(bench, problem(target=TARGET), Candidate(options_with("never compiles"), "test"))
        running = executor.submit(compile_candidate, job)
        waiting = executor.submit(compile_candidate, job)
        while not running.running():
            time.sleep(0.01)
    assert time.monotonic() - begin < 50, "the limit is 60 seconds"
    assert running.result().failure is Outcome.CRASHED
    assert waiting.cancelled()


@pytest.mark.long
def test_sandboxes_work_again_after_an_executor_was_left(bench: Bench) -> None:
    for _ in range(2):
        with local_executor(1) as executor:
            assert not all_compiled(executor, bench)[0].message


def test_leaving_one_executor_leaves_others_alone(bench: Bench) -> None:
    with local_executor(1) as executor:
        job = CompileJob(bench, problem(target=TARGET), Candidate(MappingOptions(), "test"))
        first = executor.submit(compile_candidate, job)
        with local_executor(1) as other:
            assert not other.submit(compile_candidate, job).result().message
        assert not first.result().message
        assert not executor.submit(compile_candidate, job).result().message


def test_an_address_that_stands_for_nothing_is_refused() -> None:
    with pytest.raises(TcompError, match="dask://HOST:PORT"), executor_at("spark://somewhere"):
        pass


class Cluster:
    """A scheduler of Dask and two workers, each a process, which finds the modules that this one finds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._processes: list[subprocess.Popen[bytes]] = []
        scheduler_file = folder / "scheduler.json"
        self._start("scheduler", "--scheduler-file", str(scheduler_file), "--port", "0", "--no-dashboard", "--no-show")
        for number in range(2):
            self._start(
                *("worker", "--scheduler-file", str(scheduler_file), "--nthreads", "1", "--no-dashboard", "--no-nanny"),
                *("--name", str(number), "--local-directory", str(folder / str(number))),
            )

    def _start(self, *arguments: str) -> None:
        program = "from distributed.cli.dask_" + arguments[0] + " import main; main()"
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-c", program, *arguments[1:]],
                stderr=subprocess.DEVNULL,
                cwd=self._folder,
                env=self._environment,
            )
        )

    def address(self) -> str:
        path = self._folder / "scheduler.json"
        limit = time.monotonic() + 60
        while not path.exists() or not path.read_text():
            assert time.monotonic() < limit
            time.sleep(0.05)
        return f"dask://{json.loads(path.read_text())['address'].removeprefix('tcp://')}"

    def kill_a_worker(self) -> None:
        self._processes[1].kill()
        self._processes[1].wait()

    def end(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    made = Cluster(tmp_path)
    yield made
    made.end()


@pytest.mark.long
def test_two_workers_of_dask_of_which_one_is_killed(cluster: Cluster, bench: Bench) -> None:
    with executor_at(cluster.address()) as executor:
        jobs = [MeasureJob(bench, problem(), one) for one in all_compiled(executor, bench)]
        futures = [executor.submit(measure_candidate, job) for job in jobs * 4]
        futures[0].result(timeout=120)
        cluster.kill_a_worker()
        trials = [future.result(timeout=240) for future in futures]
    assert [t.outcome for t in trials] == [Outcome.MEASURED] * len(trials)
