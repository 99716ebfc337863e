"""Candidates that are compiled and measured once, however often strategies come upon them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.identity import identity_of
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Problem, Trial
from tcomp.tuner.model.ranking import pace
from tcomp.tuner.search import Workshop

AGAIN = 4
"""How often what seems faster than the default options is measured again.

The best of many candidates that were measured once is mostly one that was measured in a lucky moment: of 25 that seemed
1 to 16 % faster fifteen were not, by the median of five more (Zen 3).
"""


class Memory:
    """What is known of the candidates of one problem; what is not, a workshop finds out, and a database keeps.

    Candidates that seem faster than the default options are measured ``AGAIN``, until they do not any more in the
    median, which is what counts.
    """

    def __init__(self, problem: Problem, workshop: Workshop, database: Database) -> None:
        self._identity = identity_of(problem.specialisation, problem.device)
        self._label = problem.specialisation.label()
        self._workshop = workshop
        self._database = database
        self._compiled: dict[MappingOptions, Compiled] = {}
        self._trials: dict[str, list[Trial]] = {}
        for trial in database.trials(self._identity):
            self._learn(trial)

    def compile(self, candidates: Sequence[Candidate]) -> list[Compiled]:
        """The candidates compiled, in their order."""
        unknown = [c for c in candidates if c.options not in self._compiled]
        for compiled in self._workshop.compile(unknown):
            self._keep(Trial(compiled, compiled.failure or Outcome.SKIPPED, message=compiled.message))
        return [self._compiled[c.options] for c in candidates]

    def measure(self, compiled: Compiled) -> Trial:
        """What the code of a candidate takes."""
        known = self._trials.setdefault(compiled.source, [])
        while not _is_settled(known):
            (trial,) = self._workshop.measure([compiled], math.inf)
            self._keep(trial)
        return _middle(known)

    @property
    def paces(self) -> dict[MappingOptions, float]:
        """The pace of each candidate whose code was measured beyond doubt, or failed; infinite if it did."""
        found = {}
        for options, compiled in self._compiled.items():
            trials = self._trials.get(compiled.source)
            if trials and not _middle(trials).doubtful:
                found[options] = pace(_middle(trials)) if _middle(trials).times else math.inf
        return found

    @property
    def best(self) -> float:
        """The best pace of all candidates: the time over that of the default options next to it."""
        known = [_middle(trials) for trials in self._trials.values() if _is_settled(trials)]
        return min((pace(t) for t in known if t.outcome is Outcome.MEASURED), default=math.inf)

    def _keep(self, trial: Trial) -> None:
        self._database.add(self._identity, self._label, trial)
        self._learn(trial)

    def _learn(self, trial: Trial) -> None:
        self._compiled[trial.options] = trial.compiled
        if trial.compiled.source and trial.outcome not in (Outcome.SKIPPED, Outcome.DUPLICATE):
            self._trials.setdefault(trial.compiled.source, []).append(trial)


def _is_settled(trials: Sequence[Trial]) -> bool:
    """Whether a candidate was measured often enough."""
    return len(trials) > AGAIN or (len(trials) % 2 == 1 and pace(_middle(trials)) >= 1)


def _middle(trials: Sequence[Trial]) -> Trial:
    """The median trial of a candidate, of those that are beyond doubt if there are any."""
    ordered = sorted([t for t in trials if t.certain] or trials, key=pace)
    return ordered[len(ordered) // 2]
