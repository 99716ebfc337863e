"""The strategies by name.  A new one is a module with a class, and a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tcomp.errors import TcompError
from tcomp.grammar.diagnostics import did_you_mean
from tcomp.tuner.features import Facts
from tcomp.tuner.genetic import GeneticSearch
from tcomp.tuner.model import ModelSearch
from tcomp.tuner.random_search import RandomSearch
from tcomp.tuner.space import Space
from tcomp.tuner.trials import Strategy, Trial


@dataclass(frozen=True, slots=True)
class Background:
    """What a strategy starts from: the candidates that there are, what is known of them before they are compiled, a
    seed, and the trials of other problems that ran on the same device, one sequence for each problem."""

    space: Space
    facts: Facts
    seed: int
    others: Sequence[Sequence[Trial]] = ()


STRATEGIES: Mapping[str, Callable[[Background], Strategy]] = {
    "model": lambda background: ModelSearch(background.space, background.facts, background.seed, background.others),
    "genetic": lambda background: GeneticSearch(background.space, background.seed),
    "random": lambda background: RandomSearch(background.space, background.seed),
}

DEFAULT_STRATEGY = "model"


def strategy_named(name: str, background: Background) -> Strategy:
    """A strategy, ready to propose.  Raises TcompError if there is none of that name."""
    make = STRATEGIES.get(name)
    if make is None:
        hint = did_you_mean(str(name), STRATEGIES) or f"there are {', '.join(STRATEGIES)}"
        raise TcompError(f"there is no strategy {name!r}; {hint}")
    return make(background)
