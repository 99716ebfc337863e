"""The command line that fits the tuner's experience to measured candidates."""

from __future__ import annotations

import argparse
import importlib
import math
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.cpu_case import Case
from benchmarks.cpu_more import more
from benchmarks.tuning_curves import searched
from benchmarks.tuning_memory import Memory
from benchmarks.tuning_run import BATCH, problem_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.trials import Candidate, Compiled, Problem, Trial
from tcomp.tuner.measuring.evaluation import Bench
from tcomp.tuner.measuring.executors import local_executor
from tcomp.tuner.measuring.workshop import ExecutorWorkshop
from tcomp.tuner.model.background import Background
from tcomp.tuner.model.description import describe
from tcomp.tuner.model.experience import Experience, Tree, differences
from tcomp.tuner.model.features import facts_of
from tcomp.tuner.model.ranking import pace
from tcomp.tuner.space.proposals import Proposed, generator
from tcomp.tuner.space.space import Space, space_of
from tcomp.tuner.strategies import strategy_named

WORKLOADS = "M2,M3,M5,M7,M8,M14,M15,M17,M18,M19,M20,M21,M23,M24,M26,M28,M30,M33,M34,M36"
"""Those of the suite whose candidates take some milliseconds at most, and that the table of docs/tuning.md has not."""

TREES, LEAVES, LEAST = 40, 100, 5
"""Trees, the most leaves of one, and the fewest candidates of a leaf."""

FASTEST, SLOWEST = 0.5, 4.0
"""Paces beyond which candidates are alike."""


class Around:
    """Near the default options and the best so far: one or two options drawn anew, a step, or a mutation."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._proposed = Proposed(space)

    def propose(self, trials: Sequence[Trial], count: int) -> Sequence[Candidate]:
        """Candidates that were not tried."""
        rng = generator(self._seed, trials)
        self._proposed.see(trials)
        best = [t.options for t in sorted((t for t in trials if t.certain), key=pace)[:6]] or [self._space.base]
        drawn = (self._proposed.new(lambda: self._near(best, rng)) for _ in range(count))
        return [Candidate(options, "around") for options in drawn if options is not None]

    def select(self, compiled: Sequence[Compiled], trials: Sequence[Trial], count: int) -> Sequence[Compiled]:
        """The first of them."""
        return compiled[:count]

    def _near(self, best: Sequence[MappingOptions], rng: random.Random) -> MappingOptions:
        start = rng.choice([self._space.base, self._space.base, rng.choice(best)])
        way = rng.random()
        if way < 0.6:
            several = rng.sample(self._space.parameters, min(len(self._space.parameters), 1 if way < 0.4 else 2))
            changed: dict[str, Any] = {p.name: p.drawn(rng) for p in several}
            return self._space.normal(replace(start, **changed))
        steps = list(self._space.neighbours(start)) if way < 0.8 else []
        return rng.choice(steps) if steps else self._space.mutated(start, rng, 0.2)


@dataclass(frozen=True, slots=True)
class Measured:
    """Candidates of one program: what is different from the default options, and the pace of each."""

    rows: tuple[Mapping[str, float], ...]
    paces: tuple[float, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, fit, and write; the exit status."""
    options = _parser().parse_args(arguments)
    wanted = options.workloads.split(",")
    options.database.parent.mkdir(parents=True, exist_ok=True)
    found = []
    with Database(options.database) as database, local_executor(options.jobs) as executor:
        for case in (c for c in more(options.small) if c.key in wanted):
            with tempfile.TemporaryDirectory(prefix="tcomp-bench-", ignore_cleanup_errors=True) as folder:
                problem = problem_of(case, parallel=False)
                memory = Memory(problem, ExecutorWorkshop(problem, Bench(folder, describe), executor), database)
                found.append(measured(problem, memory, options.measured))
            sys.stderr.write(f"{_title(case)}: {len(found[-1].paces)} candidates\n")
    options.output.write_text(fitted(found).to_json(), encoding="utf-8")
    return 0


def measured(problem: Problem, memory: Memory, count: int) -> Measured:
    """So many candidates, half of them drawn uniformly, half around the default options; and what else is known."""
    default = problem.specialisation
    made = default.lower()
    facts, space = facts_of(made, default.target), space_of(made, default.options, default.target, ("parallel",))
    first = Candidate(default.options, "default")
    searched(strategy_named("random", Background(space, facts, 0)), memory, count // 2, BATCH, first)
    searched(Around(space, 0), memory, count // 2, BATCH, first)
    usual = facts(default.options)
    rows = {o: differences(o, facts(o), default.options, usual) for o in memory.paces}
    return Measured(tuple(rows.values()), tuple(memory.paces.values()))


def fitted(found: Sequence[Measured]) -> Experience:
    """Trees for the candidates of several programs, which all count alike."""
    names = sorted({name for of in found for row in of.rows for name, value in row.items() if value})
    inputs = [[row.get(name, 0.0) for name in names] for of in found for row in of.rows]
    slowness = [math.log2(min(max(pace, FASTEST), SLOWEST)) for of in found for pace in of.paces]
    weights = [1 / len(of.paces) for of in found for _ in of.paces]
    ensemble = importlib.import_module("sklearn.ensemble")
    forest = ensemble.ExtraTreesRegressor(
        TREES, max_leaf_nodes=LEAVES, min_samples_leaf=LEAST, max_features=0.4, random_state=0
    )
    forest.fit(inputs, slowness, sample_weight=[w * len(weights) / len(found) for w in weights])
    return Experience(tuple(names), tuple(_tree(one.tree_, 0) for one in forest.estimators_))


def _tree(nodes: Any, at: int) -> Tree:
    """A node of a tree of scikit-learn with what follows, rounded."""
    low, high = int(nodes.children_left[at]), int(nodes.children_right[at])
    if low < 0:
        return round(float(nodes.value[at].item()), 3)
    threshold = float(f"{nodes.threshold[at]:.4g}")
    return int(nodes.feature[at]), threshold, _tree(nodes, low), _tree(nodes, high)


def _title(case: Case) -> str:
    return f"{case.key} {case.title}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tuning_experience.py", description=__doc__)
    parser.add_argument("--workloads", default=WORKLOADS, help="keys of the suite more")
    parser.add_argument("--measured", type=int, default=160, help="candidates of each")
    parser.add_argument("--jobs", type=int, default=None, help="processes that compile; one for each processor")
    parser.add_argument("--database", type=Path, default=Path("out/benchmarks/experience.db"), help="what is measured")
    parser.add_argument("--output", type=Path, default=Path("tcomp/tuner/model/experience-cpu.json"), help="the trees")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the benchmark itself")
    return parser
