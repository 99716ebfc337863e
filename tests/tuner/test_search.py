"""A run, on a workshop that measures nothing: what it tries, keeps, and goes on with after it was ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.identity import Identity, identity_of
from tcomp.tuner.database.records import Tuned
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Strategy, Trial
from tcomp.tuner.progress import Phase, Progress
from tcomp.tuner.report.found import Final, decide
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.search import Run, Searcher
from tcomp.tuner.settings import Settings
from tcomp.tuner.tuning import tune
from tests.tuner.fakes import FakeWorkshop, Listed, seconds_of
from tests.tuner.problems import problem, tiled

DEFAULT = MappingOptions()
PROBLEM = problem()
CANDIDATES = [tiled(n) for n in range(60, 140, 7)]


def identity() -> Identity:
    return identity_of(PROBLEM.specialisation, PROBLEM.device)


def run(
    database: Database,
    workshop: FakeWorkshop | None = None,
    strategy: Strategy | None = None,
    budget: float = 2.0,
    seeds: Sequence[MappingOptions] = (),
    events: list[Progress] | None = None,
) -> TuningResult:
    searcher = Searcher(
        (Candidate(DEFAULT, "default"), *(Candidate(s, "named") for s in seeds)), strategy or Listed(CANDIDATES)
    )
    watch = [].append if events is None else events.append
    return Run(PROBLEM, Settings(budget), searcher, workshop or FakeWorkshop(), database, watch).search()


def test_the_best_is_found_kept_and_told() -> None:
    best = min(CANDIDATES, key=seconds_of)
    with Database() as database:
        result = run(database)
        kept = database.best(identity())
    assert result.best == best
    assert result.speedup == pytest.approx(seconds_of(DEFAULT) / seconds_of(best))
    assert kept is not None
    assert (kept.options, kept.confirmed, kept.trials) == (best, True, 1 + len(CANDIDATES))
    assert [t.options for t in result.history] == [DEFAULT, *CANDIDATES]
    assert {f.options for f in result.finals} == set(sorted(CANDIDATES, key=seconds_of)[:4])


def test_the_default_is_as_fast_as_itself() -> None:
    class Noisy(FakeWorkshop):
        def measure(self, compiled: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
            for trial in FakeWorkshop.measure(self, compiled, best):
                yield replace(trial, baseline=2 * trial.baseline) if trial.options == DEFAULT else trial

    with Database() as database:
        result = run(database, Noisy(), Listed([tiled(180)]))
    assert result.history[0].ratio == 1.0
    assert result.default_seconds == seconds_of(DEFAULT)


def test_the_default_comes_first_and_seeds_before_proposals() -> None:
    with Database() as database:
        workshop = FakeWorkshop()
        run(database, workshop, seeds=[tiled(1), tiled(2)])
    assert workshop.measured[:3] == [DEFAULT, tiled(1), tiled(2)]


def test_who_was_measured_in_a_lucky_moment_takes_nobodys_place_among_the_finalists() -> None:
    """Six of eight look best in the search, but not when they are measured again; one of them even fails then."""

    class Lucky(FakeWorkshop):
        def measure(self, compiled: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
            for trial in super().measure(compiled, best):
                yield replace(trial, times=(1e-5,) * 3) if trial.options in lucky else trial

        def compare(self, finalists: Sequence[Compiled], seconds: float) -> Sequence[Final]:
            return [
                replace(f, times=(), baselines=()) if f.options == lucky[0] else f
                for f in super().compare(finalists, seconds)
            ]

    *lucky, good, best = [tiled(n) for n in (40, 30, 20, 15, 10, 5, 80, 95)]
    with Database() as database:
        workshop = Lucky()
        result = run(database, workshop, Listed([*lucky, good, best]))
    assert result.best == best
    assert [f.options for f in result.finals][:2] == [best, good] and len(result.finals) == 4
    assert lucky[0] not in workshop.compared


def test_a_tie_goes_to_the_default() -> None:
    with Database() as database:
        workshop = FakeWorkshop(finals=dict.fromkeys(CANDIDATES, seconds_of(DEFAULT)))
        result = run(database, workshop)
        kept = database.best(identity())
    assert result.best == DEFAULT
    assert result.speedup == 1.0
    assert kept is not None and kept.options == DEFAULT


@pytest.mark.parametrize(
    ("times", "wins"),
    [
        ((0.9,) * 8, True),
        ((1.0,) * 8, False),
        ((0.995,) * 8, False),
        ((0.5, 0.5, 0.5, 2.0, 2.0, 2.0, 0.5, 0.5), False),
        ((0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.5), True),
        ((), False),
    ],
)
def test_a_winner_is_faster_in_most_rounds(times: tuple[float, ...], wins: bool) -> None:
    final = Final(tiled(8), times, (1.0,) * len(times))
    assert decide([final]) is (final if wins else None)


def test_drift_of_the_machine_makes_no_winner() -> None:
    drifting = tuple(1.0 + 0.1 * k for k in range(8))
    finals = [Final(tiled(4), drifting, drifting), Final(tiled(8), tuple(0.9 * t for t in drifting), drifting)]
    assert decide(finals) is finals[1]


def test_on_a_busy_machine_nothing_is_kept_for_calls() -> None:
    """Neither the best of the search nor, as if it had been compared, the default."""

    class Busy(FakeWorkshop):
        def measure(self, compiled: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
            for trial in FakeWorkshop.measure(self, compiled, best):
                yield replace(trial, doubtful=True)

        def compare(self, finalists: Sequence[Compiled], seconds: float) -> Sequence[Final]:
            return [Final(f.candidate.options, (), (), 8) for f in finalists]

    for candidates in (CANDIDATES, []):
        with Database() as database:
            result = run(database, Busy(), Listed(candidates))
            assert database.best(identity()) is None
        assert result.best == DEFAULT
        assert result.undecided
        assert "undecided" in result.summary()


def test_candidates_that_fail_lose_themselves_only() -> None:
    lost = {
        CANDIDATES[0]: Outcome.CRASHED,
        CANDIDATES[2]: Outcome.HUNG,
        CANDIDATES[5]: Outcome.WRONG,
        CANDIDATES[6]: Outcome.OUT_OF_MEMORY,
        CANDIDATES[7]: Outcome.REJECTED,
    }
    with Database() as database:
        result = run(database, FakeWorkshop(lost))
        assert {t.options: t.outcome for t in database.trials(identity()) if t.options in lost} == lost
    assert result.best == min((c for c in CANDIDATES if c not in lost), key=seconds_of)
    for outcome in lost.values():
        assert f"1 {outcome.value}" in result.summary()


def test_equal_code_is_measured_once() -> None:
    same = MappingOptions(tile_sizes=(95,), recompute_limit=4.0)
    with Database() as database:
        workshop = FakeWorkshop()
        result = run(database, workshop, Listed([tiled(95), same]))
    assert workshop.measured == [DEFAULT, tiled(95)]
    assert [(t.options, t.outcome) for t in result.history[1:]] == [
        (tiled(95), Outcome.MEASURED),
        (same, Outcome.DUPLICATE),
    ]


def test_what_the_strategy_leaves_out_is_skipped() -> None:
    with Database() as database:
        workshop = FakeWorkshop()
        result = run(database, workshop, Listed(CANDIDATES, left_out=CANDIDATES[3:]))
    assert workshop.measured == [DEFAULT, *CANDIDATES[:3]]
    assert result.count(Outcome.SKIPPED) == len(CANDIDATES) - 3


def test_a_default_that_does_not_work_is_an_error() -> None:
    with Database() as database, pytest.raises(TcompError, match="default options do not work: wrong: planted"):
        run(database, FakeWorkshop({DEFAULT: Outcome.WRONG}))


def test_a_run_ends_in_time() -> None:
    begin = time.monotonic()
    with Database() as database:
        result = run(database, FakeWorkshop(pause=0.02), Listed([tiled(n) for n in range(60, 5000)]), budget=1.0)
    assert 0.5 < time.monotonic() - begin < 3.0
    assert result.finals
    assert 10 < len(result.history) < 60


def test_however_short_the_time_the_default_is_measured() -> None:
    with Database() as database:
        result = run(database, budget=1e-9)
    assert [t.options for t in result.history] == [DEFAULT]
    assert result.best == DEFAULT


def test_a_short_time_has_one_finalist() -> None:
    """Four would be measured for longer than the whole search has."""
    with Database() as database:
        workshop = FakeWorkshop(pause=0.02)
        result = run(database, workshop, budget=0.1)
    assert len(workshop.compared) == len(result.finals) == 1


def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    with Database(tmp_path / "file") as database:
        result = run(database, FakeWorkshop(interrupt_after=6))
        kept = database.best(identity())
    assert result.interrupted
    assert result.best == CANDIDATES[4]
    assert kept is not None
    assert (kept.options, kept.confirmed) == (CANDIDATES[4], False)
    assert "interrupted" in result.summary()


def unfinished(database: Database) -> int:
    found = database.unfinished(identity(), str(Settings(2.0)))
    assert found is not None
    return found[0]


def test_the_same_run_goes_on_where_it_was(tmp_path: Path) -> None:
    with Database(tmp_path / "file") as database:
        run(database, FakeWorkshop(interrupt_after=6))
        database.note(unfinished(database), 0.75)
        workshop = FakeWorkshop()
        events: list[Progress] = []
        begin = time.monotonic()
        result = run(database, workshop, events=events)
        assert begin + 1.0 < events[0].end < begin + 1.5
        assert database.unfinished(identity(), str(Settings(2.0))) is None
    assert workshop.measured == CANDIDATES[5:]
    assert result.earlier == 6
    assert result.best == min(CANDIDATES, key=seconds_of)


def test_a_run_with_other_settings_begins_anew_but_knows_the_trials(tmp_path: Path) -> None:
    with Database(tmp_path / "file") as database:
        run(database, FakeWorkshop(interrupt_after=6))
        workshop = FakeWorkshop()
        events: list[Progress] = []
        begin = time.monotonic()
        run(database, workshop, budget=3.0, events=events)
        assert events[0].end > begin + 2.9
        assert workshop.measured == CANDIDATES[5:]


def test_a_run_after_one_that_ended_has_all_its_time(tmp_path: Path) -> None:
    with Database(tmp_path / "file") as database:
        run(database)
        events: list[Progress] = []
        begin = time.monotonic()
        run(database, events=events)
        assert events[0].end > begin + 1.9


def test_two_runs_of_one_problem_at_a_time_share_no_run(tmp_path: Path) -> None:
    ends: list[float] = []

    def work() -> None:
        events: list[Progress] = []
        with Database(tmp_path / "file") as database:
            run(database, FakeWorkshop(pause=0.05), events=events)
        ends.append(events[0].end)

    with Database(tmp_path / "file") as database:
        run(database, FakeWorkshop(interrupt_after=2))
        database.note(unfinished(database), 1.0)
    threads = [threading.Thread(target=work) for _ in range(2)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fresh, resumed = sorted((end - begin for end in ends), reverse=True)
    assert resumed < 1.5 < fresh
    assert not list(tmp_path.glob(".lock-run-*"))


def test_default_options_that_failed_once_are_tried_again(tmp_path: Path) -> None:
    with Database(tmp_path / "file") as database:
        for outcome in (Outcome.OUT_OF_MEMORY, Outcome.REJECTED):
            with pytest.raises(TcompError, match="default options do not work"):
                run(database, FakeWorkshop({DEFAULT: outcome}))
        assert run(database).best == min(CANDIDATES, key=seconds_of)


def test_what_was_imported_and_is_not_tried_stays(tmp_path: Path) -> None:
    known = Tuned(identity(), "mm", tiled(3), (1e-5,), (1e-3,), True, 9, 0.0, "elsewhere")
    with Database(tmp_path / "file") as database:
        database.keep(known)
        run(database)
        assert database.best(identity()) == known
        run(database, seeds=[known.options])
        kept = database.best(identity())
    assert kept is not None and kept.options == min(CANDIDATES, key=seconds_of)


def test_what_was_known_before_is_among_the_finalists(tmp_path: Path) -> None:
    with Database(tmp_path / "file") as database:
        run(database, strategy=Listed([tiled(60)]))
        workshop = FakeWorkshop()
        run(database, workshop, strategy=Listed([tiled(n) for n in range(95, 105)]))
    assert tiled(60) in workshop.compared


def test_progress_tells_where_a_run_is() -> None:
    events: list[Progress] = []
    with Database() as database:
        run(database, events=events)
    last = events[-1]
    assert {e.phase for e in events} == set(Phase)
    assert last.phase is Phase.DONE
    assert last.compiled == last.measured == 1 + len(CANDIDATES)
    assert last.default == seconds_of(DEFAULT)
    assert last.best == min(map(seconds_of, CANDIDATES))
    assert list(last.curve) == sorted(last.curve, reverse=True)
    assert last.curve[-1] == pytest.approx(last.best / last.default)
    assert [e.measured for e in events] == sorted(e.measured for e in events)


def test_the_summary_is_short() -> None:
    with Database() as database:
        result = run(database)
    lines = str(result).splitlines()
    assert len(lines) <= 10
    assert "3.70 times as fast as the default, 1 ms" in str(result)
    assert str(result.best) in str(result)


@pytest.mark.parametrize(
    "budget", [0, -1.0, float("nan"), float("inf"), "60", None, True, pytest.param(10**9999, id="digits")]
)
def test_a_budget_is_a_number_of_seconds(budget: object) -> None:
    with pytest.raises(TcompError, match="budget is"):
        Settings(budget)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, 1.0, True, pytest.param(10**9999, id="digits")])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(TcompError, match="seed is"):
        Settings(60.0, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("jobs", [0, -1, "2", True])
def test_jobs_are_a_whole_number(jobs: object) -> None:
    with pytest.raises(TcompError, match="jobs is"):
        tune(PROBLEM, Settings(1.0), jobs=jobs)  # type: ignore[arg-type]
