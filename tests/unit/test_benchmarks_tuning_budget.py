"""The benchmark of short tuning runs against long ones: its pieces, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import tuning_campaign
from benchmarks.cpu_case import Case
from benchmarks.cpu_cases import workloads
from benchmarks.tuning_pieces import Campaign, Extent, Findings, Short, load, save
from benchmarks.tuning_run import problem_of
from benchmarks.tuning_shares import gains, longest, shares
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Problem, Trial
from tcomp.tuner.report.found import Final
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.settings import Settings

CASE = next(case for case in workloads(small=True) if case.key == "W5")


def options(tile: int) -> MappingOptions:
    return MappingOptions(tile_sizes=(tile,))


def result(problem: Problem, best: int, kernels: int, equals: int = 0) -> TuningResult:
    """Of a run that measured so many kernels, of which ``best`` is the fastest, and met ``equals`` of it."""
    tiles = [best, *(n for n in range(1000, 999 + kernels))]
    compiled = [Compiled(Candidate(options(n), "made up"), f"text {n}", (), 0.1) for n in tiles]
    trials = tuple(Trial(c, Outcome.MEASURED, (1e-3 * (1 + k),) * 3, baseline=1.0) for k, c in enumerate(compiled))
    trials += (Trial(compiled[0], Outcome.DUPLICATE),) * equals
    return TuningResult(problem, options(best), 1.0, 1.0, (), trials, 0, "model", 1.0, interrupted=False)


class Faked:
    """Every run of 5 s finds tile 50 + its seed, every piece of the long run 30 kernels more and 10 equals of one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[tuple[str, Settings]] = []
        self.disturbed = 0
        monkeypatch.setattr(Campaign, "_tuned", lambda _, case, name, settings: self.tuned(case, name, settings))
        monkeypatch.setattr(Campaign, "_finals", lambda _, problem, several: self.finals(several))

    def tuned(self, case: Case, name: str, settings: Settings) -> TuningResult:
        from_ = problem_of(case, parallel=False)
        self.runs.append((name, settings))
        pieces = sum(n == "long" for n, _ in self.runs)
        if name == "long":
            return result(from_, 60, 30 * pieces, 10 * pieces)
        return result(from_, 50 + settings.seed, 9)

    def finals(self, several: Sequence[MappingOptions]) -> list[Final]:
        if self.disturbed:
            self.disturbed -= 1
            return [Final(o, (), (), 12) for o in several]
        return [Final(o, (50.0 / (o.tile_sizes or (1,))[0],) * 4, (1.0,) * 4) for o in several]


def ran(campaign: Campaign, limit: float = math.inf) -> tuple[list[str], Findings]:
    found, names = Findings(CASE.title), []
    while (piece := campaign.next_piece(CASE, found)) is not None and len(names) < limit:
        names.append(piece.name)
        found = piece.run()
    return names, found


def test_pieces_come_in_order_and_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    faked = Faked(monkeypatch)
    names, found = ran(Campaign(tmp_path, Extent(5.0, 2, 100, 30.0, 9.0), parallel=False, jobs=1))
    assert names == [
        *("short, seed 0", "short, seed 1", "long, 0 candidates of 100", "long, 40 candidates of 100"),
        *("long, 80 candidates of 100", "comparison"),
    ]
    assert [s for n, s in faked.runs if n == "long"] == [
        Settings(30.0, strategy, number) for number, strategy in enumerate(("model", "genetic", "random"))
    ]
    assert (found.pieces, found.candidates, found.kernels, found.exhausted) == (3, 120, 90, False)
    save(tmp_path / "results.json", {"W5": found})
    assert load(tmp_path / "results.json") == {"W5": found}


def test_a_comparison_that_was_disturbed_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Faked(monkeypatch).disturbed = 2
    names, found = ran(Campaign(tmp_path, Extent(5.0, 1, 0, 30.0, 9.0), parallel=False, jobs=1))
    assert names == ["short, seed 0"] + ["comparison"] * 3
    assert gains(found) == [1.0]


def test_shares_are_those_of_the_best_that_is_known() -> None:
    short = {str(n): Short(options(n).to_json(), 9, 9, 9) for n in (1, 2)}
    known = {options(1).to_json(): 1.2, options(2).to_json(): 0.9, options(3).to_json(): 1.5, options(4).to_json(): 9.0}
    found = Findings("made up", short, long=(options(3).to_json(),), gains=known)
    assert (gains(found), longest(found)) == ([1.2, 0.9], 1.5)
    assert shares(found) == pytest.approx([0.8, 0.6])
    slower = Findings("made up", short, long=(options(2).to_json(),), gains=known)
    assert longest(slower) == 1.0, "the default options are as fast as they are"
    assert shares(Findings("not compared", short)) == []


def test_the_command_stops_in_time_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Faked(monkeypatch)
    arguments = ["--small", "--workloads", "W5", "--budget", "5", "--long", "0", "--folder", str(tmp_path / "new")]
    assert tuning_campaign.main([*arguments, "--for", "1"]) == 3
    assert "no workload is done yet" in capsys.readouterr().out
    assert tuning_campaign.main(arguments) == 0
    out = capsys.readouterr().out
    assert "1 of 1 workloads, 3 short runs: median 1.020, least 1.000; slower than the default options: 0" in out
    with pytest.raises(SystemExit, match="there is no workload W99"):
        tuning_campaign.main([*arguments, "--workloads", "W99"])
