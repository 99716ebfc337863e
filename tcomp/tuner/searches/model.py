"""The strategy ``model``: judge many candidates before compiling a few, and learn from what they take.

Each round a pool of candidates is drawn: at random, and around the best so far.  An analytic model of the machine drops
those that are hopeless.  The others are ranked by what was learned from other programs, or by that model where nothing
was, and more and more by a ranker that learns from the trials, which also chooses what to measure among what was
compiled.  A share of each choice is left to chance.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial
from tcomp.tuner.model.background import Background
from tcomp.tuner.model.experience import Experience, differences
from tcomp.tuner.model.features import ESTIMATE, Facts, Features, signature
from tcomp.tuner.model.ranking import OTHERS_WEIGHT, Example, Ranker, ensemble, examples, pace, paces
from tcomp.tuner.space.proposals import Proposed, generator
from tcomp.tuner.space.space import Space

NAME = "model"

ALIKE = 2
"""Candidates of a round that the model of the target cannot tell apart."""

ESTIMATE_SHARE = 0.25
"""What the analytic model adds to experience, which tells nothing apart that is far from all that it has seen."""

Item = TypeVar("Item")


def begin(background: Background) -> ModelSearch:
    """A search of the background's space, by what is known of its candidates and of other problems."""
    ensemble()  # so that what is missing is said at once
    space, facts, others = background.space, background.facts, background.others
    return ModelSearch(space, facts, background.seed, others, experience=background.experience)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The parameters of the model.

    A round judges ``pool`` candidates, half of them around the ``best`` so far, and drops those that the analytic model
    finds ``hopeless`` times slower than the best of the pool.  The ranker is asked once ``enough`` candidates of the
    problem have run, or there are ``enough_others`` of other problems, of which it sees ``most_others``.  ``measured``
    is the share of what was compiled that is measured.  ``chance`` is the share of any choice that is random, and
    ``cold`` that share as long as little of the problem itself is known and there is no experience: where the code that
    is generated has a weakness, the analytic model does not know it.  Experience counts as much as ``trust``
    candidates of the problem itself.
    """

    pool: int = 600
    best: int = 8
    hopeless: float = 8.0
    enough: int = 8
    enough_others: int = 50
    most_others: int = 400
    measured: float = 0.6
    chance: float = 0.15
    cold: float = 0.4
    mutation: float = 0.2
    trust: float = 4.0


class ModelSearch:
    """Ranked by an analytic model, then by what was learned."""

    def __init__(
        self,
        space: Space,
        facts: Facts,
        seed: int = 0,
        others: Sequence[Sequence[Trial]] = (),
        judgement: Judgement | None = None,
        experience: Experience | None = None,
    ) -> None:
        """Search a space.

        ``facts`` knows candidates, ``others`` are trials of other problems on the same device, and ``experience`` is
        what was learned elsewhere.
        """
        self._space = space
        self._facts = facts
        self._experience = experience
        self._seed = seed
        self._judgement = judgement or Judgement()
        self._proposed = Proposed(space)
        self._facts_known: dict[MappingOptions, Features] = {}
        self._expectations: dict[MappingOptions, float] = {}
        found = [example for trials in others for example in _compiled_examples(trials)]
        most = self._judgement.most_others
        self._others = random.Random(seed).sample(found, most) if len(found) > most else found

    def propose(self, trials: Sequence[Trial], count: int) -> Sequence[Candidate]:
        """The candidates of a pool that are ranked best, and some of the others that are not hopeless."""
        rng = generator(self._seed, trials)
        self._proposed.see(trials)
        pool = self._pool(trials, rng)
        own = self._own_examples(trials)
        ranked = self._ranked(pool, own)
        blind = self._experience is None and len(own) < self._judgement.enough
        chance = self._judgement.cold if blind else self._judgement.chance
        chosen = _with_chance(ranked, count, chance, rng)
        self._proposed.keep(chosen)
        return [Candidate(options, "model") for options in chosen]

    def select(self, compiled: Sequence[Compiled], trials: Sequence[Trial], count: int) -> Sequence[Compiled]:
        """Those that are ranked best with all that is known of their code; all until the ranker has enough to go by."""
        rng = generator(self._seed, trials)
        own = _compiled_examples(trials)
        if len(own) < self._judgement.enough:
            return sorted(compiled, key=lambda c: self._expected(c.candidate.options))[:count]
        most = min(count, max(1, round(self._judgement.measured * len(compiled))))
        scores = self._scores([(c.candidate.options, dict(c.features)) for c in compiled], own)
        order = sorted(range(len(compiled)), key=scores.__getitem__)
        return _with_chance([compiled[position] for position in order], most, self._judgement.chance, rng)

    def _pool(self, trials: Sequence[Trial], rng: random.Random) -> list[MappingOptions]:
        """Candidates that were not tried, each once, in random order."""
        ran = sorted((t for t in trials if t.certain), key=pace)
        best = [t.options for t in ran[: self._judgement.best]] or [self._space.base]
        found = dict.fromkeys(best)
        for options in best[:3]:
            found.update(dict.fromkeys(self._space.neighbours(options)))
        for _ in range(self._judgement.pool // 4):
            found[self._space.crossed(rng.choices(best, k=3), rng)] = None
            found[self._space.mutated(rng.choice(best), rng, self._judgement.mutation)] = None
        for _ in range(self._judgement.pool - len(found)):
            found[self._space.drawn(rng)] = None
        fresh = [options for options in found if not self._proposed.knows(options)]
        rng.shuffle(fresh)
        return fresh

    def _ranked(self, pool: Sequence[MappingOptions], own: Sequence[Example]) -> list[MappingOptions]:
        """The pool without what is hopeless, the most promising first."""
        known = {options: self._known(options) for options in pool}
        estimates = {options: facts[ESTIMATE] for options, facts in known.items()}
        limit = math.log2(self._judgement.hopeless) + min(estimates.values(), default=0.0)
        kept = [options for options in pool if estimates[options] <= limit]
        if len(own) < self._judgement.enough and len(self._others) < self._judgement.enough_others:
            return _unlike(sorted(kept, key=self._expected), known)
        scores = dict(zip(kept, self._scores([(o, known[o]) for o in kept], own), strict=True))
        return _unlike(sorted(kept, key=scores.__getitem__), known)

    def _scores(self, found: Sequence[tuple[MappingOptions, Features]], own: Sequence[Example]) -> list[float]:
        """By what was learned of candidates with these features, from the problem itself and others; low is good."""
        if not found:
            return []
        learned = Ranker(found[0][1], own, self._others, self._seed).scores([features for _, features in found])
        if self._experience is None:
            return learned
        known = len(own) + min(OTHERS_WEIGHT, len(self._others))
        share = self._judgement.trust / (self._judgement.trust + known)
        # A ranker's score counts the same twice, as a time and as the chance to be good.
        expected = [2 * self._expected(options) for options, _ in found]
        return [share * e + (1 - share) * s for e, s in zip(expected, learned, strict=True)]

    def _expected(self, options: MappingOptions) -> float:
        """The binary logarithm of the time over that of the default options, before anything is learned."""
        if options not in self._expectations:
            base = self._space.base
            features, usual = self._known(options), self._known(base)
            known = features[ESTIMATE] - usual[ESTIMATE]
            if self._experience is not None:
                known = ESTIMATE_SHARE * known + self._experience.expected(differences(options, features, base, usual))
            self._expectations[options] = known
        return self._expectations[options]

    def _own_examples(self, trials: Sequence[Trial]) -> list[Example]:
        """What the trials of this problem tell, by the facts known before compilation."""
        found = paces(trials)
        rows = [(self._known(t.options), found[t.compiled.source]) for t in trials if t.compiled.source in found]
        return examples(rows)

    def _known(self, options: MappingOptions) -> Features:
        if options not in self._facts_known:
            self._facts_known[options] = self._facts(options)
        return self._facts_known[options]


def _compiled_examples(trials: Sequence[Trial]) -> list[Example]:
    """What the trials of a problem tell, by the facts that were kept with them."""
    found = paces(trials)
    rows: list[tuple[Features, float]] = []
    for trial in trials:
        if trial.compiled.source in found and trial.outcome is not Outcome.DUPLICATE:
            rows.append((dict(trial.compiled.features), found[trial.compiled.source]))
    return examples(rows)


def _unlike(ranked: Sequence[MappingOptions], known: dict[MappingOptions, Features]) -> list[MappingOptions]:
    """The candidates, with those last that have the signature of ``ALIKE`` before them: likely the same code."""
    seen: Counter[tuple[float, ...]] = Counter()
    first: list[MappingOptions] = []
    again: list[MappingOptions] = []
    for options in ranked:
        mark = signature(known[options])
        (first if seen[mark] < ALIKE else again).append(options)
        seen[mark] += 1
    return [*first, *again]


def _with_chance(ranked: Sequence[Item], count: int, chance: float, rng: random.Random) -> list[Item]:
    """The first ``count`` items, but now and then one from further behind instead of the last of them."""
    chosen, behind = list(ranked[:count]), list(ranked[count:])
    lucky = min(len(behind), sum(rng.random() < chance for _ in chosen))
    return [*chosen[: len(chosen) - lucky], *rng.sample(behind, lucky)]
