"""Calls pick tuned options by themselves, unless they are told not to."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.devices import MAIN
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner import policy
from tcomp.tuner import tuning as module
from tcomp.tuner.database.database import Database, TuningWarning
from tcomp.tuner.database.identity import device_model, identity_of
from tcomp.tuner.database.records import Tuned
from tcomp.tuner.database.trials import Problem
from tcomp.tuner.policy import Policy, policy_of
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.settings import Settings
from tests.tuner.problems import MM, tiled

SIZES = {"M": 16, "K": 8, "N": 32}
A = np.ones((16, 8), np.float32)
B = np.ones((8, 32), np.float32)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "tuned.sqlite3"
    monkeypatch.setenv("TCOMP_TUNED", str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        yield path


def keep(file: Path, options: MappingOptions, seconds: float = 1.0, confirmed: bool = True, text: str = MM) -> None:
    function = tc.define(text).mm.function
    made = Specialisation(function, Sizes(SIZES), MappingOptions(), "cpu", False)
    identity = identity_of(made, device_model("cpu", MAIN))
    with Database(file) as database:
        database.keep(Tuned(identity, made.label(), options, (seconds,), (2.0,), confirmed, 3, 0.0, "here"))


def options_of(operation: tc.Operation, **choices: Any) -> MappingOptions:
    return operation.compile(sizes=SIZES, **choices).specialisation.options


def test_without_a_database_the_model_chooses() -> None:
    assert options_of(tc.define(MM).mm) == MappingOptions()


def test_without_a_database_no_program_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_TUNED", str(tmp_path / "none.sqlite3"))
    asked: list[object] = []
    monkeypatch.setattr(policy, "identity_of", lambda *facts: asked.append(facts))
    assert options_of(tc.define(MM).mm) == MappingOptions()
    assert not asked


def test_a_call_uses_what_tuning_found(file: Path) -> None:
    keep(file, tiled(8, 8))
    ops = tc.define(MM)
    assert options_of(ops.mm) == tiled(8, 8)
    assert np.array_equal(ops.mm(A, B), A @ B)
    (kernel,) = ops.mm._chosen.values()
    assert kernel.specialisation.options == tiled(8, 8)


def test_names_do_not_matter(file: Path) -> None:
    keep(file, tiled(8, 8))
    ops = tc.define("def product(float(a,b) x, float(b,c) y) -> (z) { z(i,j) +=! x(i,r) * y(r,j) }")
    assert ops.product.compile(x := A, B).specialisation.options == tiled(8, 8)
    assert np.array_equal(ops.product(x, B), A @ B)


def test_other_sizes_strides_and_targets_have_their_own(file: Path) -> None:
    keep(file, tiled(8, 8))
    ops = tc.define(MM)
    assert ops.mm.compile(np.asfortranarray(A), B).specialisation.options == MappingOptions()
    assert ops.mm.compile(sizes=SIZES | {"M": 17}).specialisation.options == MappingOptions()
    assert options_of(ops.mm, target="cuda:sm_90" if tc.targets()["cuda"] else "simulator") == MappingOptions()


def test_options_that_are_given_count(file: Path) -> None:
    keep(file, tiled(8, 8))
    ops = tc.define(MM)
    assert options_of(ops.mm, options=MappingOptions()) == MappingOptions()
    assert options_of(ops.mm, options=tiled(4)) == tiled(4)
    assert options_of(ops.mm) == tiled(8, 8)


def test_a_plan_is_taken_as_it_is(file: Path) -> None:
    plan = tc.define(MM).mm.compile(sizes=SIZES).stages["place"]
    keep(file, tiled(8, 8))
    assert options_of(tc.define(MM).mm, plan=plan) == MappingOptions()


def test_off_knows_nothing(file: Path) -> None:
    keep(file, tiled(8, 8))
    assert options_of(tc.define(MM, tune="off").mm) == MappingOptions()
    engine = tc.ExecutionEngine(tune="off")
    engine.define(MM)
    assert options_of(engine.mm) == MappingOptions()


def test_what_was_not_compared_must_promise_more(file: Path) -> None:
    keep(file, tiled(8, 8), seconds=1.95, confirmed=False)
    assert options_of(tc.define(MM).mm) == MappingOptions()
    keep(file, tiled(8, 8), seconds=1.5, confirmed=False)
    assert options_of(tc.define(MM).mm) == tiled(8, 8)


@pytest.mark.parametrize("option", ["fast_math", "atomics"])
def test_what_changes_results_never_comes_from_the_database(option: str, file: Path) -> None:
    keep(file, MappingOptions(**{option: True}))
    assert options_of(tc.define(MM).mm) == MappingOptions()


@pytest.mark.parametrize("error", [tc.CompileError, tc.TargetError])
def test_options_that_compile_no_more_give_a_warning(
    error: type[tc.TcompError], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(file, tiled(8, 8))
    lower = Specialisation.lower

    def refuse(made: Specialisation, *given: Any) -> Any:
        if made.options == tiled(8, 8):
            raise error("cannot")
        return lower(made, *given)

    monkeypatch.setattr(Specialisation, "lower", refuse)
    monkeypatch.setenv("TCOMP_CACHE", "0")
    ops = tc.define(MM)
    with pytest.warns(TuningWarning, match="do not compile any more; tune it again: cannot"):
        assert options_of(ops.mm) == MappingOptions()


def test_a_target_that_is_not_here_is_an_error_without_a_warning(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(file, tiled(8, 8))
    monkeypatch.setenv("CC", "/no/such/cc")
    monkeypatch.setenv("TCOMP_CACHE", "0")
    with pytest.raises(tc.TargetError, match="/no/such/cc"):
        tc.define(MM).mm(A, B)


def test_the_look_up_happens_once_for_a_layout(file: Path) -> None:
    keep(file, tiled(8, 8))
    ops = tc.define(MM)
    first = ops.mm.compile(sizes=SIZES)
    file.unlink()
    assert ops.mm.compile(sizes=SIZES) is first


def test_operations_keep_their_policy_when_pickled() -> None:
    ops = tc.define(MM, tune="off")
    assert pickle.loads(pickle.dumps(ops)).mm._policy == Policy(look=False)


@pytest.mark.parametrize("tune", ["on", "", 0, -1, True, None, float("inf"), float("nan"), ["cache"]])
def test_what_tune_may_be(tune: object) -> None:
    with pytest.raises(tc.TcompError, match="tune is"):
        policy_of(tune)
    with pytest.raises(tc.TcompError, match="tune is"):
        tc.define(MM, tune=tune)  # type: ignore[arg-type]


def _tuned_as(file: Path, calls: list[float], interrupted: bool = False) -> Any:
    """Stands for a run that finds tiles of 8 x 8."""

    def tune(problem: Problem, settings: Settings, **_: Any) -> TuningResult:
        calls.append(settings.budget)
        keep(file, tiled(8, 8))
        return TuningResult(problem, tiled(8, 8), 1.0, 2.0, (), (), 0, "random", 0.1, interrupted)

    return tune


def test_a_number_of_seconds_tunes_before_the_first_call(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    monkeypatch.setattr(module, "tune", _tuned_as(file, calls))
    ops = tc.define(MM, tune=2.5)
    assert np.array_equal(ops.mm(A, B), A @ B)
    assert options_of(ops.mm) == tiled(8, 8)
    assert options_of(tc.define(MM, tune=2.5).mm) == tiled(8, 8)
    assert calls == [2.5]


def test_where_nothing_is_kept_the_process_remembers(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tune", _tuned_as(file, []))
    monkeypatch.setenv("TCOMP_TUNED", "0")
    ops = tc.define(MM)
    ops.mm.tune(A, B)
    assert ops.mm.compile(A, B).specialisation.options == tiled(8, 8)
    assert options_of(tc.define(MM).mm) == MappingOptions()
    first = tc.define(MM, tune=1)
    assert options_of(first.mm) == tiled(8, 8)
    off = tc.define(MM, tune="off")
    off.mm.tune(A, B)
    assert options_of(off.mm) == MappingOptions()


def test_what_is_not_here_cannot_be_tuned() -> None:
    if not tc.targets()["cuda"]:
        with pytest.raises(tc.TargetError, match="cuda:sm_90 is not here"):
            tc.define(MM).mm.tune(sizes=SIZES, target="cuda:sm_90")


def test_tune_changes_what_the_next_call_runs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    monkeypatch.setattr(module, "tune", _tuned_as(file, calls))
    bound: list[MappingOptions] = []
    bind = Kernel.bind

    def noted(kernel: Kernel, *arguments: Any) -> Any:
        bound.append(kernel.specialisation.options)
        return bind(kernel, *arguments)

    monkeypatch.setattr(Kernel, "bind", noted)
    ops = tc.define(MM)
    for _ in range(5):
        ops.mm(A, B)
    assert bound == [MappingOptions()]
    before = ops.mm.compile(A, B)
    result = ops.mm.tune(A, B, budget=3.0)
    assert (result.best, calls) == (tiled(8, 8), [3.0])
    assert ops.mm.compile(A, B).specialisation.options == tiled(8, 8)
    assert ops.mm.compile(A, B) is not before
    assert np.array_equal(ops.mm(A, B), A @ B)
    assert bound == [MappingOptions(), tiled(8, 8)]


def test_ctrl_c_during_tune_is_passed_on_with_the_best_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tune", _tuned_as(file, [], interrupted=True))
    ops = tc.define(MM)
    with pytest.raises(KeyboardInterrupt):
        ops.mm.tune(sizes=SIZES)
    assert options_of(ops.mm) == tiled(8, 8)


def test_arguments_of_tune_are_checked() -> None:
    ops = tc.define(MM)
    with pytest.raises(tc.ShapeError, match="not both"):
        ops.mm.tune(A, B, sizes=SIZES)
    with pytest.raises(tc.ShapeError, match="the size N is not given"):
        ops.mm.tune(sizes={"M": 1, "K": 1})
    with pytest.raises(tc.TargetError, match="there is no target"):
        ops.mm.tune(A, B, target="abacus")
    with pytest.raises(tc.TcompError, match="budget is -1"):
        ops.mm.tune(A, B, budget=-1)
    with pytest.raises(tc.TcompError, match="there is no strategy 'genetics'; did you mean"):
        ops.mm.tune(A, B, strategy="genetics")
    with pytest.raises(tc.TcompError, match="there is no executor at"):
        ops.mm.tune(A, B, executor="tcp://nowhere:1")
    with pytest.raises(tc.TcompError, match="executor must be an Executor or an address, not int"):
        ops.mm.tune(A, B, executor=3)


def test_subscripts_are_given_to_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[Problem] = []

    def tune(problem: Problem, settings: Settings, **_: Any) -> TuningResult:
        problems.append(problem)
        return TuningResult(problem, MappingOptions(), 1.0, 1.0, (), (), 0, "random", 0.1, False)

    monkeypatch.setattr(module, "tune", tune)
    ops = tc.define("def take(float(N) A, int32(M) I) -> (B) { B(m) = A(I(m)) }")
    table, index = np.arange(8, dtype=np.float32), np.array([3, 1], np.int32)
    ops.take.tune(table, index)
    tc.define(MM).mm.tune(A, B)
    given = problems[0].given
    assert given is not None
    assert np.array_equal(given[1], index)
    assert problems[1].given is None
    assert replace(problems[0], given=None) == problems[0]
