"""The learned ranker: from the trials so far, how good a candidate that nobody tried will probably be.

Two forests of extremely randomised trees (Geurts, Ernst and Wehenkel, Machine Learning 63, 2006) look at the same
features: a classifier says how likely a candidate is among the best tenth, a regressor how much slower than the best
it is, up to a bound beyond which all are alike; it may well be better where its trees do not agree.  Both are made anew
for each round, from some hundred rows.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.errors import Diagnostic, MissingPackageError
from tcomp.tuner.database.trials import Array, Outcome, Trial
from tcomp.tuner.model.features import Features

BEST_SHARE = 0.1
"""The share of candidates that counts as good."""

WORST_RATIO = 4.0
"""Candidates that take so many times as long as the best, or fail, are alike."""

CURIOSITY = 1.0
"""By how many of their standard deviations trees that do not agree make a candidate better: little like it has run."""

TREES = 40
"""Trees of each forest."""

OTHERS_WEIGHT = 10.0
"""Examples of the problem itself that all those of other problems weigh as much as."""

_SEEDS = 1 << 32
"""So many seeds are there for forests."""


@dataclass(frozen=True, slots=True)
class Example:
    """A candidate with its time over that of the best of its problem, infinite if it failed.

    ``good`` says that it is among the best tenth.
    """

    features: Features
    ratio: float
    good: bool


def examples(rows: Sequence[tuple[Features, float]]) -> list[Example]:
    """Examples from the features and seconds of candidates of one problem."""
    times = sorted(seconds for _, seconds in rows if seconds < math.inf)
    if not times:
        return []
    limit = times[int(BEST_SHARE * len(times))]
    return [Example(features, seconds / times[0], seconds <= limit) for features, seconds in rows]


def pace(trial: Trial) -> float:
    """What a candidate takes: over what the default options take where it ran, if that is known, else in seconds."""
    return trial.seconds / trial.baseline if 0 < trial.baseline < math.inf else trial.seconds


def paces(trials: Sequence[Trial]) -> dict[str, float]:
    """The pace of the code of each candidate that ran, if it is beyond doubt, or failed to; infinite if it failed."""
    found: dict[str, float] = {}
    for trial in trials:
        source = trial.compiled.source
        if source and not trial.doubtful and trial.outcome not in (Outcome.DUPLICATE, Outcome.SKIPPED):
            found[source] = min(pace(trial), found.get(source, math.inf))
    return found


def ensemble() -> Any:
    """What fits forests.  It takes a second to import, and few need it.  Raises MissingPackageError."""
    try:
        return importlib.import_module("sklearn.ensemble")
    except ImportError:
        message = "the strategy model needs scikit-learn, which is not installed"
        hint = "pip install 'tcomp[tune]', or choose the strategy genetic"
        raise MissingPackageError(Diagnostic(message, hint=hint)) from None


class Ranker:
    """Forests fitted to examples.  Scores are lower for better candidates."""

    def __init__(self, names: Iterable[str], own: Sequence[Example], others: Sequence[Example], seed: int) -> None:
        """Fit to the examples of a problem, and to those of others, which together weigh as much as ten of its own.

        Only the features of these ``names`` count.
        """
        forests = ensemble()
        everything = [*own, *others]
        self._names = sorted(names)
        seed %= _SEEDS
        inputs = self._inputs([e.features for e in everything])
        shared = OTHERS_WEIGHT / max(OTHERS_WEIGHT, len(others))
        weights = np.array([1.0] * len(own) + [shared] * len(others))
        slowness = np.log2(np.minimum([e.ratio for e in everything], WORST_RATIO))
        self._regressor = forests.ExtraTreesRegressor(TREES, random_state=seed, max_features=0.5)
        self._regressor.fit(inputs, slowness, sample_weight=weights)
        self._classifier = forests.ExtraTreesClassifier(TREES, random_state=seed, max_features=0.5)
        self._classifier.fit(inputs, [e.good for e in everything], sample_weight=weights)

    def scores(self, found: Sequence[Features]) -> list[float]:
        """One score for each candidate."""
        if not found:
            return []
        inputs = self._inputs(found)
        each = np.array([tree.predict(inputs) for tree in self._regressor.estimators_])
        slowness = each.mean(axis=0) - CURIOSITY * each.std(axis=0)
        chances = self._classifier.predict_proba(inputs)
        good = list(self._classifier.classes_).index(True)
        return [float(s - c) for s, c in zip(slowness, chances[:, good], strict=True)]

    def _inputs(self, found: Sequence[Features]) -> Array:
        """A row of numbers for each candidate; 0 where it has no such feature."""
        return np.array([[features.get(name, 0.0) for name in self._names] for features in found])
