from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tcomp.errors import TcompError
from tcomp.mapping.options.options import OPTIONS, MappingOptions
from tcomp.tuner import searches
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Strategy, Trial
from tcomp.tuner.model.background import Background
from tcomp.tuner.model.experience import Experience
from tcomp.tuner.model.features import ESTIMATE, signature
from tcomp.tuner.model.ranking import Ranker, examples, pace, paces
from tcomp.tuner.searches.genetic import Breeding, GeneticSearch, breeders, scaled
from tcomp.tuner.searches.model import Judgement, ModelSearch
from tcomp.tuner.searches.uniform import RandomSearch
from tcomp.tuner.space.parameters import Scalar, Sizes
from tcomp.tuner.space.space import Space
from tcomp.tuner.strategies import STRATEGIES, Begin, strategies_in, strategy_named

pytestmark = pytest.mark.sweep(3)

POWERS = tuple(1 << k for k in range(8))
SPACE = Space(
    MappingOptions(),
    "cpu",
    (
        Sizes("tile_sizes", OPTIONS["tile_sizes"], (POWERS, POWERS, POWERS), 0, (256,) * 3, (8, 8, 8)),
        Sizes("register_tile", OPTIONS["register_tile"], (tuple(range(1, 15)), POWERS), 1),
        Scalar("parallel", (False, True), True),
    ),
)
SMALL = Space(MappingOptions(), "cpu", (Scalar("parallel", (False, True), True),))
Make = Callable[[Space, int], Strategy]


def plain_facts(options: MappingOptions) -> dict[str, float]:
    """What is known of a made-up candidate: its numbers, and an estimate that knows of the tiles alone."""
    numbers = (*(options.tile_sizes or (1, 8, 128)), *(options.register_tile or (2, 16)), options.parallel)
    found = {f"number {position}": float(number) for position, number in enumerate(numbers)}
    return found | {ESTIMATE: math.log2(seconds(replace(options, register_tile=(2, 16))))}


def model(space: Space, seed: int) -> ModelSearch:
    return ModelSearch(space, plain_facts, seed)


def make_of(begin: Begin) -> Make:
    return lambda space, seed: begin(Background(space, plain_facts, seed))


def seconds(options: MappingOptions) -> float:
    """A made-up time with its best at tiles of 16, 64, 4 and register tiles of 6 by 32, and interactions."""
    tiles = options.tile_sizes or (1, 8, 128)
    rows, columns = options.register_tile or (2, 16)
    off = [abs(math.log2((t or 256) / w)) for t, w in zip(tiles, (16, 64, 4), strict=True)]
    cost = 1 + sum(off) / 4 + off[0] * off[1] / 8 + abs(rows - 6) / 6 + abs(math.log2(columns / 32)) / 3
    return 1e-3 * cost * (1 if options.parallel else 1.8)


def compile_(candidate: Candidate) -> Compiled:
    return Compiled(candidate, candidate.options.to_json(), tuple(plain_facts(candidate.options).items()), 0.1)


def trial(options: MappingOptions, outcome: Outcome = Outcome.MEASURED) -> Trial:
    compiled = compile_(Candidate(options, "made up"))
    return Trial(compiled, outcome, (seconds(options),) if outcome is Outcome.MEASURED else ())


def searched(strategy: Strategy, measured: int, round_size: int = 8) -> list[Trial]:
    trials = [trial(MappingOptions())]
    while sum(t.outcome is Outcome.MEASURED for t in trials) < measured:
        proposed = strategy.propose(trials, round_size)
        if not proposed:
            break
        compiled = [compile_(c) for c in proposed]
        chosen = strategy.select(compiled, trials, round_size)
        assert len(chosen) <= round_size
        trials += [trial(c.candidate.options) for c in chosen]
        trials += [trial(c.candidate.options, Outcome.SKIPPED) for c in compiled if c not in chosen]
    return trials


@pytest.mark.parametrize("make", [make_of(begin) for begin in STRATEGIES.values()], ids=list(STRATEGIES))
class TestEveryStrategy:
    def test_nothing_is_tried_twice(self, make: Make) -> None:
        trials = searched(make(SPACE, 1), 120, round_size=24)
        assert len({t.options for t in trials}) == len(trials) >= 120

    def test_proposals_in_flight_are_not_proposed_again(self, make: Make) -> None:
        strategy = make(SPACE, 2)
        first = strategy.propose([trial(MappingOptions())], 20)
        second = strategy.propose([trial(MappingOptions())], 20)
        assert not {c.options for c in first} & {c.options for c in second}

    def test_an_exhausted_space_ends_the_search(self, make: Make) -> None:
        trials = searched(make(SMALL, 3), 50)
        assert {t.options.parallel for t in trials} == {False, True} and len(trials) == 2

    def test_another_seed_is_another_search(self, make: Make) -> None:
        one, other = (make(SPACE, seed).propose([], 10) for seed in (1, 2))
        assert {c.options for c in one} != {c.options for c in other}

    def test_a_resumed_search_goes_on_where_it_was(self, make: Make) -> None:
        trials = searched(make(SPACE, 4), 40, round_size=20)
        resumed = make(SPACE, 4).propose(trials, 8)
        again = make(SPACE, 4).propose(trials, 8)
        assert resumed == again
        assert not {c.options for c in resumed} & {t.options for t in trials}

    def test_failed_candidates_are_survived_and_not_repeated(self, make: Make) -> None:
        failed = [trial(c.options, outcome) for outcome in Outcome if outcome is not Outcome.MEASURED
                  for c in make(SPACE, 5).propose([], 6)]  # fmt: skip
        proposed = make(SPACE, 5).propose(failed, 20)
        assert len(proposed) == 20 and not {c.options for c in proposed} & {t.options for t in failed}


def best_of(make: Make, count: int) -> float:
    """The median over seeds of the best time after so many measured candidates."""
    runs: list[Sequence[Trial]] = [searched(make(SPACE, seed), count, round_size=12) for seed in range(3)]
    return statistics.median(min(t.seconds for t in trials) for trials in runs)


LATEST = """
from tcomp.tuner.searches.uniform import RandomSearch

NAME = "last first"

class Backwards(RandomSearch):
    def propose(self, trials, count):
        return super().propose(trials, count)[::-1]

def begin(background):
    return Backwards(background.space, background.seed)
"""


class TestNames:
    def test_the_default_comes_first(self) -> None:
        assert list(STRATEGIES) == ["model", "genetic", "random"]

    def test_a_new_strategy_is_one_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "backwards.py").write_text(LATEST)
        monkeypatch.setattr(searches, "__path__", [*searches.__path__, str(tmp_path)])
        monkeypatch.delitem(sys.modules, f"{searches.__name__}.backwards", raising=False)
        found = strategies_in(searches)
        assert list(found) == ["model", "genetic", "last first", "random"]
        background = Background(SPACE, plain_facts, 1)
        proposed = found["last first"](background).propose([], 6)
        assert proposed == found["random"](background).propose([], 6)[::-1]

    def test_an_unknown_one_is_refused_with_a_hint(self) -> None:
        with pytest.raises(TcompError, match="no strategy 'genetics'; did you mean `genetic`"):
            strategy_named("genetics", Background(SPACE, plain_facts, 1))


class TestGenetic:
    def test_it_finds_better_candidates_than_chance(self) -> None:
        assert best_of(GeneticSearch, 120) < 0.9 * best_of(RandomSearch, 120)

    def test_the_elites_and_the_latest_breed(self) -> None:
        tiles = [(1 << k, 1, 1) for k in range(8)]
        ran = [trial(MappingOptions(tile_sizes=t)) for t in [(16, 64, 4), *tiles]]
        found = breeders(ran, Breeding(population=4, elites=1))
        assert found.options == tuple(t.options for t in (ran[0], *ran[-3:]))
        assert found.fitness[0] == max(found.fitness)

    def test_fitness_grows_with_speed_and_tells_good_ones_apart(self) -> None:
        found = scaled([1.0, 1.01, 1.02])
        assert found[0] < found[1] < found[2] and found[2] > 2 * found[0]
        assert scaled([2.0, 2.0]) == (1.0, 1.0) and scaled([]) == ()


class TestModel:
    def test_it_needs_a_third_of_what_chance_needs(self) -> None:
        assert best_of(model, 40) <= best_of(RandomSearch, 120)

    def test_what_the_model_finds_hopeless_is_not_compiled(self) -> None:
        search = ModelSearch(SPACE, plain_facts, 1, judgement=Judgement(hopeless=4.0))
        proposed = [c.options for c in search.propose([], 32)]
        estimates = [2 ** plain_facts(options)[ESTIMATE] for options in proposed]
        random_ones = [2 ** plain_facts(c.options)[ESTIMATE] for c in RandomSearch(SPACE, 1).propose([], 200)]
        assert max(estimates) <= 4.001 * min(estimates) < max(random_ones)

    def test_few_candidates_of_a_round_are_alike(self) -> None:
        """Here the model of the target knows of the tiles alone."""

        def of_tiles(options: MappingOptions) -> dict[str, float]:
            known = {"estimate": 0.0, "first tile": float((options.tile_sizes or (8,))[0])}
            return known | {"parallel": float(options.parallel), "register_tile of the model": 0.0}

        proposed = ModelSearch(SPACE, of_tiles, 1, judgement=Judgement(cold=0.0)).propose([], 12)
        assert max(Counter(signature(of_tiles(c.options)) for c in proposed).values()) == 2

    def test_it_measures_a_part_of_what_was_compiled_the_best_first(self) -> None:
        trials = [trial(c.options) for c in RandomSearch(SPACE, 2).propose([], 100)]
        compiled = [compile_(c) for c in RandomSearch(SPACE, 3).propose(trials, 40)]
        chosen = model(SPACE, 1).select(compiled, trials, 40)
        assert len(chosen) == 24
        times = [seconds(c.candidate.options) for c in compiled]
        assert statistics.fmean(seconds(c.candidate.options) for c in chosen[:8]) < 0.8 * statistics.fmean(times)

    def test_it_learns_from_other_problems(self) -> None:
        """Trials of another problem, with times in another unit, tell it about the register tiles."""
        other = [[trial(c.options) for c in RandomSearch(SPACE, seed).propose([], 150)] for seed in (5, 6)]
        scaled_up = [[replace(t, times=(1000 * t.seconds,)) for t in trials] for trials in other]
        first = [trial(c.options) for c in RandomSearch(SPACE, 7).propose([], 9)]

        def median(others: list[list[Trial]]) -> float:
            found = [ModelSearch(SPACE, plain_facts, seed, others).propose(first, 24) for seed in range(3)]
            return statistics.median(seconds(c.options) for candidates in found for c in candidates)

        assert median(scaled_up) < 0.95 * median([])

    def test_other_problems_help_from_the_first_candidate_on(self) -> None:
        """Where the analytic model knows nothing."""

        def blind(options: MappingOptions) -> dict[str, float]:
            return plain_facts(options) | {ESTIMATE: 0.0}

        def tried(options: MappingOptions) -> Trial:
            found = trial(options)
            return replace(found, compiled=replace(found.compiled, features=tuple(blind(options).items())))

        def median(others: list[list[Trial]]) -> float:
            found = ModelSearch(SPACE, blind, 1, others, Judgement(cold=0.0)).propose([], 24)
            return statistics.median(seconds(c.options) for c in found)

        other = [[tried(c.options) for c in RandomSearch(SPACE, seed).propose([], 100)] for seed in (5, 6)]
        assert median(other) < 0.7 * median([])

    @pytest.mark.parametrize("right", [True, False])
    def test_experience_comes_first_and_fades(self, right: bool) -> None:
        """What was learned elsewhere says that fewer rows of the first tile are better, or that more are."""
        sign = 1.0 if right else -1.0
        experience = Experience(("number 0",), ((0, 2.0, (0, -0.5, -sign, 0.0), sign),))

        def first_tiles(trials: list[Trial]) -> float:
            proposed = ModelSearch(SPACE, ladder, 1, experience=experience).propose(trials, 16)
            return statistics.fmean((c.options.tile_sizes or (1,))[0] for c in proposed)

        def ladder(options: MappingOptions) -> dict[str, float]:
            return plain_facts(options) | {ESTIMATE: 0.0}

        def ran(options: MappingOptions) -> Trial:
            size = (options.tile_sizes or (1,))[0]
            compiled = Compiled(Candidate(options, "x"), options.to_json(), tuple(ladder(options).items()), 0.1)
            return Trial(compiled, Outcome.MEASURED, (1.0 + size,))

        many = [ran(c.options) for c in RandomSearch(SPACE, 2).propose([], 120)]
        before, after = first_tiles([ran(MappingOptions())]), first_tiles(many)
        assert (before < 10) == right
        assert after < 10

    def test_times_of_different_machines_compare_by_the_default(self) -> None:
        """A machine that is ten times slower measured the best candidates."""
        drawn = [c.options for c in RandomSearch(SPACE, 2).propose([], 60)]
        drawn.sort(key=seconds)
        first = [replace(trial(o), times=(10 * seconds(o),), baseline=10.0) for o in drawn[:30]]
        trials = first + [replace(trial(o), baseline=1.0) for o in drawn[30:]]
        best = {t.options.tile_sizes for t in trials[:8]}
        assert [pace(t) for t in trials] == sorted(pace(t) for t in trials)
        near = [c.options.tile_sizes for c in GeneticSearch(SPACE, 3).propose(trials, 40)]
        far = [c.options.tile_sizes for c in GeneticSearch(SPACE, 3).propose([trial(t.options) for t in trials], 40)]
        assert near == far and any(tiles in best for tiles in near)


class TestExamples:
    def test_the_best_tenth_is_good_and_failures_are_not(self) -> None:
        rows = [({"x": float(k)}, float(k)) for k in range(1, 21)] + [({"x": 0.0}, math.inf)]
        found = examples(rows)
        assert [e.good for e in found] == [k <= 3 for k in range(1, 21)] + [False]
        assert [e.ratio for e in found[:3]] == [1, 2, 3] and found[-1].ratio == math.inf
        assert examples([({"x": 0.0}, math.inf)]) == []

    def test_a_duplicate_tells_what_its_code_takes(self) -> None:
        first = trial(MappingOptions(parallel=False))
        again = replace(first, compiled=replace(first.compiled, candidate=Candidate(MappingOptions(), "x")))
        duplicate = replace(again, outcome=Outcome.DUPLICATE, times=())
        assert paces([first, duplicate]) == {first.compiled.source: first.seconds}


def test_the_ranker_takes_any_seed() -> None:
    rows = [({"height": float(n)}, 1.0 + n) for n in range(20)]
    found = [{"height": 1.0}, {"height": 19.0}]
    scores = [Ranker(["height"], examples(rows), [], seed).scores(found) for seed in (7, 7 + (1 << 32), 10**19)]
    assert scores[0] == scores[1] and scores[2][0] < scores[2][1]
