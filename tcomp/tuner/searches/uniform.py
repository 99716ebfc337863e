"""The strategy ``random``: candidates drawn uniformly, measured as they come.  The others are compared with it."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.tuner.database.trials import Candidate, Compiled, Trial
from tcomp.tuner.model.background import Background
from tcomp.tuner.space.proposals import Proposed, generator
from tcomp.tuner.space.space import Space

NAME = "random"


def begin(background: Background) -> RandomSearch:
    """A search of the background's space."""
    return RandomSearch(background.space, background.seed)


class RandomSearch:
    """Uniform over a space."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        self._space = space
        self._seed = seed
        self._proposed = Proposed(space)

    def propose(self, trials: Sequence[Trial], count: int) -> Sequence[Candidate]:
        """Candidates that were not tried; fewer where few are left."""
        rng = generator(self._seed, trials)
        self._proposed.see(trials)
        drawn = (self._proposed.new(lambda: self._space.drawn(rng)) for _ in range(count))
        return [Candidate(options, "random") for options in drawn if options is not None]

    def select(self, compiled: Sequence[Compiled], trials: Sequence[Trial], count: int) -> Sequence[Compiled]:
        """The first of them."""
        return compiled[:count]
