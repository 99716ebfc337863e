from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import tuning_run
from benchmarks.cpu_cases import workloads
from benchmarks.tuning_curves import needed, report, searched, summary
from benchmarks.tuning_memory import Memory
from benchmarks.tuning_run import problem_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial


def compiled(tile: int, source: str = "") -> Compiled:
    candidate = Candidate(MappingOptions(tile_sizes=(tile,)), "made up")
    failure = Outcome.REJECTED if tile == 3 else None
    return Compiled(candidate, "" if failure else source or f"text {tile}", (), 0.1, "no" if failure else "", failure)


class Workshop:
    """Tile 3 is refused, 5 and 6 give the same code, 7 crashes; any other takes as many seconds as its tile."""

    notes = ()

    def __init__(self) -> None:
        self.calls: list[int] = []

    def compile(self, candidates: Sequence[Candidate]) -> Generator[Compiled, None, None]:
        for candidate in reversed(candidates):
            assert candidate.options.tile_sizes is not None
            (tile,) = candidate.options.tile_sizes
            self.calls.append(tile)
            yield compiled(tile, "text 5" if tile == 6 else "")

    def measure(self, chosen: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
        for one in chosen:
            assert one.candidate.options.tile_sizes is not None
            (tile,) = one.candidate.options.tile_sizes
            self.calls.append(-tile)
            yield Trial(one, Outcome.CRASHED) if tile == 7 else Trial(one, Outcome.MEASURED, (float(tile),) * 3)

    def compare(self, finalists: Sequence[Compiled], seconds: float) -> Sequence[tuple[float, ...]]:
        return [() for _ in finalists]


class Downwards:
    """Tiles from 9 down to 1, of which every one that compiles is measured."""

    def propose(self, trials: Sequence[Trial], count: int) -> Sequence[Candidate]:
        tried = {t.options.tile_sizes for t in trials}
        tiles = [tile for tile in range(9, 0, -1) if (tile,) not in tried]
        return [Candidate(MappingOptions(tile_sizes=(tile,)), "down") for tile in tiles[:count]]

    def select(self, found: Sequence[Compiled], trials: Sequence[Trial], count: int) -> Sequence[Compiled]:
        return found[:count]


def memory(path: Path, workshop: Workshop) -> Memory:
    problem = problem_of(next(c for c in workloads(small=True) if c.key == "W5"), parallel=False)
    return Memory(problem, workshop, Database(path))


class TestSearched:
    def test_only_code_that_is_new_counts(self, tmp_path: Path) -> None:
        """Of 9, 8, 7, 6, 5, 4, 3, 2, 1 the third crashes, 5 is the code of 6, and 3 is refused."""
        found = searched(Downwards(), memory(tmp_path / "db", Workshop()), 20, 4)
        assert found == (9, 8, 8, 6, 4, 2, 1)

    def test_what_it_begins_with_is_known_and_not_part_of_the_curve(self, tmp_path: Path) -> None:
        first = Candidate(MappingOptions(tile_sizes=(6,)), "default")
        found = searched(Downwards(), memory(tmp_path / "db", Workshop()), 20, 4, first)
        assert found == (9, 8, 8, 4, 2, 1)

    def test_it_stops_in_time(self, tmp_path: Path) -> None:
        assert searched(Downwards(), memory(tmp_path / "db", Workshop()), 3, 2) == (9, 8, 8)

    def test_nothing_is_found_out_twice(self, tmp_path: Path) -> None:
        workshop = Workshop()
        first = searched(Downwards(), memory(tmp_path / "db", workshop), 20, 4)
        done = list(workshop.calls)
        assert len(set(done)) == len(done)
        assert searched(Downwards(), memory(tmp_path / "db", workshop), 20, 2) == first
        assert workshop.calls == done and memory(tmp_path / "db", workshop).best == 1


class Lucky(Workshop):
    """The default options take a second; tiles below 5 look twice as fast the first time, and take 2 s afterwards.

    Tile 1 takes half a second whenever it is measured.
    """

    def measure(self, chosen: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
        for trial in super().measure(chosen, best):
            (tile,) = trial.options.tile_sizes or (0,)
            seconds = 0.5 if tile < 5 and (tile == 1 or self.calls.count(-tile) == 1) else 2.0
            yield replace(trial, times=(seconds,) * 3, baseline=1.0)


class TestLuck:
    """What seems faster than the default options is measured again."""

    def test_the_median_counts(self, tmp_path: Path) -> None:
        workshop = Lucky()
        assert searched(Downwards(), memory(tmp_path / "db", workshop), 6, 9) == (2.0,) * 6
        assert [workshop.calls.count(-tile) for tile in (9, 8, 4, 2)] == [1, 1, 3, 3]
        assert searched(Downwards(), memory(tmp_path / "db", workshop), 20, 9) == (*(2.0,) * 6, 0.5)
        assert workshop.calls.count(-1) == 5 and memory(tmp_path / "db", workshop).best == 0.5

    def test_what_others_measured_once_is_not_believed(self, tmp_path: Path) -> None:
        known = memory(tmp_path / "db", Lucky())
        (found,) = known.compile([Candidate(MappingOptions(tile_sizes=(4,)), "down")])
        with Database(tmp_path / "db") as database:
            database.add(known._identity, "", next(Lucky().measure([found], 1.0)))
        again = memory(tmp_path / "db", Workshop())
        assert again.best == math.inf
        assert again.measure(found).times == (4.0,) * 3


class TestSummary:
    def test_what_a_strategy_needs_beside_chance(self) -> None:
        chance = [(8.0, 4.0, 4.0, 2.0), (8.0, 6.0, 3.0, 3.0)]
        mine = [(2.0, 2.0, 1.0, 1.0), (9.0, 9.0, 9.0, 4.0)]
        found = summary("W0", "model", mine, chance, 1.0, (2, 4))
        assert found.share == {2: (1 / 2 + 1 / 9) / 2, 4: (1 + 1 / 4) / 2}
        assert found.needed == (1 / 4, math.inf)
        assert summary("W0", "random", chance, chance, 1.0, (4,)).needed == (1.0, 1.0)

    def test_what_the_default_options_settle_is_no_part_of_it(self) -> None:
        chance, mine = [(8.0, 0.9), (8.0, 0.99)], [(0.8, 0.8), (0.9, 0.9)]
        found = summary("W0", "model", mine, chance, 0.5, (1, 2), start=1.0)
        assert (found.needed, found.settled) == ((1 / 2,), 1)
        assert found.share[1] == pytest.approx((0.5 / 0.8 + 0.5 / 0.9) / 2)
        assert summary("W0", "random", chance, chance, 0.5, (1,), start=1.0).share == {1: 0.5}

    def test_candidates_until_a_time_is_reached(self) -> None:
        assert needed((3.0, 2.0, 2.0, 1.0), 2.0) == 2 and needed((3.0,), 2.0) is None
        assert needed((3.0, 2.03), 2.0) == 2, "times are no better known"

    def test_the_table_ends_with_the_medians(self) -> None:
        curves = [(2.0, 1.0)]
        rows = [summary(w, s, curves, curves, 1.0, (1, 2)) for w in ("W1", "W2") for s in ("model", "random")]
        lines = report(rows).splitlines()
        assert lines[0].split()[:2] == ["workload", "strategy"] and len(lines) == 7
        assert lines[-2].split() == ["median", "model", "0.500", "1.000", "1.00"]


@pytest.mark.long
def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = tmp_path / "new" / "tuning.db"
    arguments = ["--workloads", "W5,M4", "--small", "--measured", "4", "--seeds", "1", "--jobs", "1"]
    assert tuning_run.main([*arguments, "--database", str(database)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        [w, s] for w in ("W5", "M4", "median") for s in ("model", "genetic", "random")
    ]
    assert all(0 < float(share) <= 1 for line in lines[1:] for share in line.split()[2:3])
