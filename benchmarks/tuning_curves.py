"""Curves of searches: the best time after each measured candidate, and what they tell of the strategies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Strategy, Trial
from tcomp.tuner.model.ranking import pace

Curve = tuple[float, ...]
"""The best pace after 1, 2, ... measured candidates: the time over that of the default options next to it."""


class Bench(Protocol):
    """Where candidates are compiled and measured."""

    def compile(self, candidates: Sequence[Candidate]) -> Sequence[Compiled]: ...

    def measure(self, compiled: Compiled) -> Trial: ...


NEAR = 1.02
"""A search has reached a time when its best takes no more than so many times as long: times are no better known."""


def searched(strategy: Strategy, bench: Bench, measured: int, batch: int, first: Candidate | None = None) -> Curve:
    """The curve of a search in rounds of ``batch`` candidates, until so many were measured.

    It begins with nothing, or after ``first``, as runs do after the default options; that is not part of the curve.
    """
    trials: list[Trial] = []
    if first is not None:
        (compiled,) = bench.compile([first])
        trials.append(replace(bench.measure(compiled), compiled=compiled))
    sources = {t.compiled.source for t in trials}
    curve: list[float] = []
    while len(curve) < measured:
        proposed = strategy.propose(trials, batch)
        if not proposed:
            break
        fresh = []
        for compiled in bench.compile(proposed):
            if compiled.failure is None and compiled.source not in sources:
                sources.add(compiled.source)
                fresh.append(compiled)
            else:
                trials.append(Trial(compiled, compiled.failure or Outcome.DUPLICATE))
        chosen = strategy.select(fresh, trials, len(fresh))
        kept = {id(c) for c in chosen}
        trials += [Trial(c, Outcome.SKIPPED) for c in fresh if id(c) not in kept]
        for compiled in chosen:
            trial = bench.measure(compiled)
            trials.append(replace(trial, compiled=compiled))
            latest = pace(trial) if trial.outcome is Outcome.MEASURED else math.inf
            curve.append(min(latest, curve[-1]) if curve else latest)
    return tuple(curve[:measured])


def needed(curve: Curve, goal: float) -> int | None:
    """How many candidates a search measured until one was near that; None if none was."""
    return next((count for count, best in enumerate(curve, 1) if best <= NEAR * goal), None)


@dataclass(frozen=True, slots=True)
class Summary:
    """What one strategy did on one workload.

    ``share`` maps a number of measured candidates to the best time of all over the best by then, the median over the
    seeds; ``needed`` is how many candidates each seed needed to come near what as many candidates at random reach in
    the same seed, over what random search needed for that (infinite if it did not get there).  Where both begin with
    the default options and these are near it, nobody needs a candidate: such seeds are ``settled``, and no part of it.
    """

    workload: str
    strategy: str
    share: Mapping[int, float]
    needed: tuple[float, ...]
    settled: int = 0


def summary(
    workload: str,
    strategy: str,
    curves: Sequence[Curve],
    chance: Sequence[Curve],
    best: float,
    counts: Sequence[int],
    start: float = math.inf,
) -> Summary:
    """The summary of a strategy's curves, one for each seed, beside those of random search.

    ``start`` is the pace of what searches begin with, where they do.
    """
    share = {
        count: statistics.median(best / min(start, curve[min(count, len(curve)) - 1]) for curve in curves)
        for count in counts
    }
    ratios = []
    goals = [(mine, theirs, theirs[-1]) for mine, theirs in zip(curves, chance, strict=True)]
    open_goals = [(mine, theirs, goal) for mine, theirs, goal in goals if start > NEAR * goal]
    for mine, theirs, goal in open_goals:
        first, reached = needed(theirs, goal), needed(mine, goal)
        assert first is not None
        ratios.append(math.inf if reached is None else reached / first)
    return Summary(workload, strategy, share, tuple(ratios), len(goals) - len(open_goals))


def report(summaries: Sequence[Summary]) -> str:
    """A table with a line for each workload and strategy, and the medians over all."""
    counts = list(summaries[0].share)
    strategies = list(dict.fromkeys(s.strategy for s in summaries))
    titles = ["workload", "strategy", *(f"after {count}" for count in counts), "needed / random's", "settled"]
    rows = [
        [s.workload, s.strategy, *(f"{s.share[c]:.3f}" for c in counts), _ratio(s.needed), str(s.settled or "")]
        for s in summaries
    ]
    for strategy in strategies:
        own = [s for s in summaries if s.strategy == strategy]
        shares = [f"{statistics.median(s.share[c] for s in own):.3f}" for c in counts]
        settled = str(sum(s.settled for s in own) or "")
        rows.append(["median", strategy, *shares, _ratio([ratio for s in own for ratio in s.needed]), settled])
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [titles, *rows]]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _ratio(found: Sequence[float]) -> str:
    return f"{statistics.median(found):.2f}" if found else "-"
