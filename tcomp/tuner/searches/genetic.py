"""The strategy ``genetic``: the search of Tensor Comprehensions, with children that are new and measured once.

A generation is bred from the latest candidates and the elites.  A child takes each of its options from one of three
parents, drawn in proportion to their fitness, and each option mutates now and then.  There, children only filled the
slots of failed candidates, and everybody else was measured again; here everybody in a generation is new.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.trials import Candidate, Compiled, Trial
from tcomp.tuner.model.background import Background
from tcomp.tuner.model.ranking import pace
from tcomp.tuner.space.proposals import Proposed, generator
from tcomp.tuner.space.space import Space

NAME = "genetic"

PARENTS = 3
"""Parents of a child."""


def begin(background: Background) -> GeneticSearch:
    """A search of the background's space."""
    return GeneticSearch(background.space, background.seed)


@dataclass(frozen=True, slots=True)
class Breeding:
    """The parameters of a genetic search.

    ``population`` are parents that may breed, of which the fittest ``elites`` ever; the others are the latest.
    ``crossover`` is the share of children that have three parents instead of one, ``mutation`` the probability that
    an option of a child is drawn anew.  Until there are ``founders`` that ran, candidates are random.
    """

    population: int = 24
    elites: int = 8
    crossover: float = 0.8
    mutation: float = 0.07
    founders: int = 12


class GeneticSearch:
    """Crossover of three parents, and mutation."""

    def __init__(self, space: Space, seed: int = 0, breeding: Breeding | None = None) -> None:
        self._space = space
        self._seed = seed
        self._breeding = breeding or Breeding()
        self._proposed = Proposed(space)

    def propose(self, trials: Sequence[Trial], count: int) -> Sequence[Candidate]:
        """Children that were not tried; random candidates as long as there are few parents or few new children."""
        rng = generator(self._seed, trials)
        self._proposed.see(trials)
        ran = [t for t in trials if t.certain]
        parents = breeders(ran, self._breeding)
        found: list[Candidate] = []
        for _ in range(count):
            child = None
            if len(ran) >= self._breeding.founders:
                child = self._proposed.new(lambda: self._child(parents, rng))
            options = child or self._proposed.new(lambda: self._space.drawn(rng))
            if options is None:
                break
            found.append(Candidate(options, "random" if child is None else "crossover"))
        return found

    def select(self, compiled: Sequence[Compiled], trials: Sequence[Trial], count: int) -> Sequence[Compiled]:
        """The first of them."""
        return compiled[:count]

    def _child(self, parents: Parents, rng: random.Random) -> MappingOptions:
        chosen = parents.drawn(rng, PARENTS)
        child = self._space.crossed(chosen, rng) if rng.random() < self._breeding.crossover else chosen[0]
        return self._space.mutated(child, rng, self._breeding.mutation)


@dataclass(frozen=True, slots=True)
class Parents:
    """Options that may breed, and how fit each is."""

    options: tuple[MappingOptions, ...]
    fitness: tuple[float, ...]

    def drawn(self, rng: random.Random, count: int) -> list[MappingOptions]:
        """Some of them, the fit more often."""
        return rng.choices(self.options, self.fitness, k=count)


def breeders(ran: Sequence[Trial], breeding: Breeding) -> Parents:
    """Who may breed: the elites among all that ran, and the latest others."""
    best = sorted(ran, key=pace)[: breeding.elites]
    others = [t for t in ran if all(t is not b for b in best)]
    chosen = [*best, *others[max(0, len(others) - (breeding.population - breeding.elites)) :]]
    return Parents(tuple(t.options for t in chosen), scaled([1 / pace(t) for t in chosen]))


def scaled(speeds: Sequence[float]) -> tuple[float, ...]:
    """Fitness by how many deviations a speed is above the mean: 1 at the mean, at least a tenth (sigma scaling).

    Speeds themselves, as Tensor Comprehensions takes them, hardly differ among candidates that are all good.
    """
    if not speeds:
        return ()
    mean, deviation = statistics.fmean(speeds), statistics.pstdev(speeds)
    return tuple(max(0.1, 1 + (s - mean) / (2 * deviation)) if deviation else 1.0 for s in speeds)
