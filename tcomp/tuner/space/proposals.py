"""What strategies propose with: memory, so that nothing is tried twice, and chance that a resumed run repeats."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.trials import Trial
from tcomp.tuner.space.space import Space

TRIES = 50
"""Draws for a candidate that was not tried, after which the space counts as exhausted."""


class Proposed:
    """What a strategy has proposed or finds among the trials, so that nothing is tried twice."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._seen: set[MappingOptions] = set()

    def see(self, trials: Sequence[Trial]) -> None:
        """Take note of what others have tried."""
        self._seen.update(self._space.normal(t.options) for t in trials)

    def knows(self, options: MappingOptions) -> bool:
        """Whether a candidate was proposed or tried."""
        return options in self._seen

    def keep(self, several: Iterable[MappingOptions]) -> None:
        """Take note of candidates that are proposed now."""
        self._seen.update(several)

    def new(self, draw: Callable[[], MappingOptions]) -> MappingOptions | None:
        """The first of several draws that is new, which it then is no longer; None if none is."""
        for _ in range(TRIES):
            found = draw()
            if found not in self._seen:
                self._seen.add(found)
                return found
        return None


def generator(seed: int, trials: Sequence[Trial]) -> random.Random:
    """Random numbers for the next proposal: others after every trial, the same when a run is resumed."""
    return random.Random(f"{seed} {len(trials)}")
