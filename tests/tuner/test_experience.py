"""What comes with tcomp of other programs, and how it is made."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from benchmarks.tuning_fit import WORKLOADS, Measured, fitted, measured
from benchmarks.tuning_memory import Memory
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial
from tcomp.tuner.model.experience import Experience, differences, experience_of, read
from tcomp.tuner.model.features import facts_of
from tcomp.tuner.report.found import Final
from tcomp.tuner.space.space import space_of
from tests.tuner.problems import problem

STUMPS = Experience(("rows", "options changed"), ((0, 1.5, -1.0, (1, 2.0, 0.5, 2.0)), 0.25))
"""Up to 1.5 rows more are good; with more of them few changes are better.  The second tree says the same of all."""


class TestTrees:
    @pytest.mark.parametrize(
        ("different", "expected"),
        [({}, -0.375), ({"rows": 1.5}, -0.375), ({"rows": 2.0}, 0.375), ({"rows": 2.0, "options changed": 3.0}, 1.125)],
    )
    def test_the_mean_of_the_leaves(self, different: dict[str, float], expected: float) -> None:
        assert STUMPS.expected(different) == expected

    def test_json_keeps_them(self) -> None:
        assert read(STUMPS.to_json()) == STUMPS

    def test_differences_are_to_the_default_options(self) -> None:
        options = MappingOptions(tile_sizes=(8,), parallel=False)
        found = differences(options, {"rows": 3.0, "same": 1.0}, MappingOptions(), {"rows": 1.0, "same": 1.0})
        of_options = {"tile_sizes changed": 1.0, "register_tile changed": 0.0, "options changed": 2.0}
        assert found == {"rows": 2.0, "same": 0.0} | of_options


class TestFit:
    def test_it_learns_from_no_program_that_the_strategies_are_tried_on(self) -> None:
        table = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
        tried = set(re.findall(r"^\| ([A-Z]\d+), ", table, re.MULTILINE))
        assert len(tried) == 18 and not tried & set(WORKLOADS.split(","))

    @pytest.mark.long
    def test_it_carries_over_to_a_program_that_nobody_measured(self) -> None:
        """Each program has its own unit and place; what is better, and by how much, is the same everywhere."""
        rng = random.Random(1)
        rows = [{"rows": rng.uniform(-2, 2), "noise": rng.random()} for _ in range(120)]
        programs = [Measured(tuple(rows[k::3]), tuple(2 ** row["rows"] for row in rows[k::3])) for k in range(3)]
        found = fitted(programs)
        assert found.names == ("noise", "rows")
        assert found.expected({"rows": -1.5}) < -0.3 < 0.3 < found.expected({"rows": 1.5})

    def test_what_failed_is_as_bad_as_what_is_slow(self) -> None:
        rows = tuple({"rows": float(k)} for k in range(60))
        failed, slow = (
            fitted([Measured(rows, tuple(t if k > 30 else 1.0 for k in range(60)))]) for t in (math.inf, 4.0)
        )
        assert failed == slow and failed.expected({"rows": 0.0}) < 0.5 < 1.5 < failed.expected({"rows": 59.0})


class Workshop:
    """Compiles anything to a text of its own; a candidate takes as many seconds as it has options that are not None."""

    notes = ()

    def compile(self, candidates: Sequence[Candidate]) -> Generator[Compiled, None, None]:
        for candidate in candidates:
            yield Compiled(candidate, candidate.options.to_json(), (), 0.1)

    def measure(self, compiled: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
        for one in compiled:
            crashed = one.candidate.options.register_tile == (1, 16)
            times = () if crashed else (seconds(one.candidate.options),)
            yield Trial(one, Outcome.CRASHED if crashed else Outcome.MEASURED, times, baseline=1.0)

    def compare(self, finalists: Sequence[Compiled], seconds: float) -> Sequence[Final]:
        return ()


def seconds(options: MappingOptions) -> float:
    return 1.0 + (options.tile_sizes is not None) + (options.register_tile is not None)


class TestMeasured:
    def test_candidates_are_told_by_their_differences(self, tmp_path: Path) -> None:
        of = problem(M=32, K=32, N=32)
        with Database(tmp_path / "db") as database:
            memory = Memory(of, Workshop(), database)
            found = measured(of, memory, 48)
            again = measured(of, memory, 48)
        assert found == again, "what is known is not drawn anew"
        assert len(found.rows) == len(found.paces) > 40
        assert sum(row["options changed"] == 1 for row in found.rows) > 5, "some are near the default options"
        for row, pace in zip(found.rows, found.paces, strict=True):
            assert pace in (1 + row["tile_sizes changed"] + row["register_tile changed"], math.inf)
        default = next(row for row in found.rows if not row["options changed"])
        assert not any(default.values())


class TestShipped:
    def test_its_features_are_those_of_candidates(self) -> None:
        """A feature that is renamed would be forgotten: the trees must be fitted anew."""
        experience = experience_of("cpu")
        assert experience is not None
        made = problem(M=64, K=64, N=64).specialisation
        facts = facts_of(made.lower(), "cpu")
        usual = facts(made.options)
        assert set(experience.names) <= set(differences(made.options, usual, made.options, usual))

    def test_it_tells_candidates_apart(self) -> None:
        """Rows of one element are slow; the default options are among the better ones."""
        experience = experience_of("cpu")
        assert experience is not None
        made = problem(M=256, K=256, N=256).specialisation
        compilation = made.lower()
        facts, space, rng = facts_of(compilation, "cpu"), space_of(compilation, made.options, "cpu"), random.Random(2)

        def expected(options: MappingOptions) -> float:
            return experience.expected(differences(options, facts(options), made.options, facts(made.options)))

        assert expected(made.options) < 0.2 < expected(MappingOptions(tile_sizes=(1, 1)))
        drawn = sorted(expected(space.drawn(rng)) for _ in range(40))
        assert expected(made.options) < drawn[20]

    def test_there_is_none_for_a_gpu(self) -> None:
        assert experience_of("cuda:sm_90") is None
