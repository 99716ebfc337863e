"""What every strategy is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.tuner.database.trials import Trial
from tcomp.tuner.model.experience import Experience
from tcomp.tuner.model.features import Facts
from tcomp.tuner.space.space import Space


@dataclass(frozen=True, slots=True)
class Background:
    """What a strategy starts from: the candidates that there are, what is known of them before they are compiled, a
    seed, the trials of other problems that ran on the same device, one sequence for each problem, and what programs
    that were measured elsewhere tell, if there is anything."""

    space: Space
    facts: Facts
    seed: int
    others: Sequence[Sequence[Trial]] = ()
    experience: Experience | None = None
