"""What a tuning run may spend and how it searches.

Calls need this, and nothing else of the search; the modules that search are imported when somebody tunes.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field

from tcomp.errors import TcompError

GUIDED_STRATEGY, UNGUIDED_STRATEGY = "model", "genetic"
"""The strategies that search unless another is named: the first where scikit-learn is installed, which it needs."""

LEARNING = "sklearn"
"""The package that fits trees; ``pip install 'tcomp[tune]'`` brings it."""


def default_strategy() -> str:
    """The strategy that searches unless another is named."""
    return GUIDED_STRATEGY if importlib.util.find_spec(LEARNING) is not None else UNGUIDED_STRATEGY


def remarks(strategy: str) -> tuple[str, ...]:
    """What a user should know of a strategy that was not chosen for its own sake."""
    if strategy != UNGUIDED_STRATEGY or default_strategy() != UNGUIDED_STRATEGY:
        return ()
    return ("scikit-learn is not installed, so no model guides the search: pip install 'tcomp[tune]'",)


LONGEST = sys.float_info.max
_LARGEST_SEED = 10**20


def shown(value: object) -> str:
    """A value as text; Python refuses to write very large numbers."""
    return "a number of thousands of digits" if isinstance(value, int) and value.bit_length() > 9999 else repr(value)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run may spend, ``budget`` seconds of wall time, and how it searches: ``strategy`` by name, ``seed``."""

    budget: float = 60.0
    strategy: str = field(default_factory=default_strategy)
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.budget, bool) or not isinstance(self.budget, int | float) or not 0 < self.budget < LONGEST:
            raise TcompError(f"budget is {shown(self.budget)}; it must be a number of seconds above 0")
        if type(self.seed) is not int or not 0 <= self.seed < _LARGEST_SEED:
            raise TcompError(f"seed is {shown(self.seed)}; it must be a whole number of at least 0")

    def __str__(self) -> str:
        return f"{float(self.budget)} s, {self.strategy}, seed {self.seed}"
