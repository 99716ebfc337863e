"""Candidates that are compiled and measured once, however often strategies come upon them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tcomp.mapping.options import MappingOptions
from tcomp.tuner.database import Database
from tcomp.tuner.identity import identity_of
from tcomp.tuner.ranking import pace
from tcomp.tuner.search import Workshop
from tcomp.tuner.trials import Candidate, Compiled, Outcome, Problem, Trial


class Memory:
    """What is known of the candidates of one problem; what is not, a workshop finds out, and a database keeps."""

    def __init__(self, problem: Problem, workshop: Workshop, database: Database) -> None:
        self._identity = identity_of(problem.specialisation, problem.device)
        self._label = problem.specialisation.label()
        self._workshop = workshop
        self._database = database
        self._compiled: dict[MappingOptions, Compiled] = {}
        self._trials: dict[str, Trial] = {}
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
        known = self._trials.get(compiled.source)
        if known is None:
            (known,) = self._workshop.measure([compiled], math.inf)
            self._keep(known)
        return known

    @property
    def paces(self) -> dict[MappingOptions, float]:
        """The pace of each candidate whose code was measured beyond doubt, or failed; infinite if it did."""
        found = {}
        for options, compiled in self._compiled.items():
            trial = self._trials.get(compiled.source)
            if trial is not None and not trial.doubtful:
                found[options] = pace(trial) if trial.times else math.inf
        return found

    @property
    def best(self) -> float:
        """The best pace of all candidates: the time over that of the default options next to it."""
        return min((pace(t) for t in self._trials.values() if t.outcome is Outcome.MEASURED), default=math.inf)

    def _keep(self, trial: Trial) -> None:
        self._database.add(self._identity, self._label, trial)
        self._learn(trial)

    def _learn(self, trial: Trial) -> None:
        self._compiled[trial.options] = trial.compiled
        if trial.compiled.source and trial.outcome not in (Outcome.SKIPPED, Outcome.DUPLICATE):
            self._trials[trial.compiled.source] = trial
