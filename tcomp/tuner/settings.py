"""What a tuning run may spend and how it searches.

Calls need this, and nothing else of the search; the modules that search are imported when somebody tunes.
"""

from __future__ import annotations

import math

from tcomp.errors import TcompError
from tcomp.records import dataclass

DEFAULT_STRATEGY = "model"
"""The strategy that searches unless another is named."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run may spend, ``budget`` seconds of wall time, and how it searches: ``strategy`` by name, ``seed``."""

    budget: float = 60.0
    strategy: str = DEFAULT_STRATEGY
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.budget, bool) or not isinstance(self.budget, int | float) or not 0 < self.budget < math.inf:
            raise TcompError(f"budget is {self.budget!r}; it must be a number of seconds above 0")
        if type(self.seed) is not int:
            raise TcompError(f"seed is {self.seed!r}; it must be an integer")

    def __str__(self) -> str:
        return f"{float(self.budget)} s, {self.strategy}, seed {self.seed}"
