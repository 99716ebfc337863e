"""Candidates with faults are lost alone, whatever the fault; the next one is measured as if nothing had been."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tcomp import MappingOptions
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, MeasureJob, compile_candidate, measure_candidate
from tcomp.tuner.measuring.executors import local_executor
from tcomp.tuner.measuring.preparation import Limits
from tcomp.tuner.measuring.timing import Effort
from tests.tuner.faulty import FAULTS, TARGET, options_with
from tests.tuner.problems import problem

pytestmark = pytest.mark.sweep(8)

LIMITS = Limits(compile=6.0, call=2.0, memory=2 << 30)
EFFORT = Effort(least=2)
"""A kernel that does not return has as much time as so many samples could take."""


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with local_executor(1) as made:
        yield made


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = str(tmp_path_factory.mktemp("kernels"))
    return Bench(folder, limits=LIMITS, effort=EFFORT, modules=("tests.tuner.faultytarget",))


def tried(executor: Executor, bench: Bench, options: MappingOptions) -> Trial | Compiled:
    of = problem(target=TARGET)
    compiled = executor.submit(compile_candidate, CompileJob(bench, of, Candidate(options, "test"))).result()
    if compiled.failure is not None:
        return compiled
    return executor.submit(measure_candidate, MeasureJob(bench, of, compiled)).result()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_loses_its_candidate_alone(executor: Executor, bench: Bench, name: str) -> None:
    fault = FAULTS[name]
    lost = tried(executor, bench, options_with(name))
    assert isinstance(lost, Trial) == fault.compiles, lost.message
    outcome = lost.outcome if isinstance(lost, Trial) else lost.failure
    assert outcome is fault.outcome, lost.message
    assert fault.word in lost.message
    sound = tried(executor, bench, MappingOptions(tile_sizes=(8, 8)))
    assert isinstance(sound, Trial)
    assert sound.outcome is Outcome.MEASURED, sound.message


def test_without_the_interpreter_the_default_options_say_what_is_right(executor: Executor, tmp_path: Path) -> None:
    limits = Limits(reference=1e-6, call=2.0)
    bench = Bench(str(tmp_path), limits=limits, modules=("tests.tuner.faultytarget",))
    sound = tried(executor, bench, MappingOptions(tile_sizes=(8, 8)))
    assert isinstance(sound, Trial)
    assert sound.outcome is Outcome.MEASURED, sound.message
    assert "compared with those of the default options" in sound.message
    for name in ("adds to one element", "gives NaN", "writes nothing"):
        lost = tried(executor, bench, options_with(name))
        assert isinstance(lost, Trial)
        assert lost.outcome is Outcome.WRONG, lost.message
