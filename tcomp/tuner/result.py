"""What a tuning run found: the best options, every trial, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.mapping.options import MappingOptions
from tcomp.tuner.records import median, trial_to_plain
from tcomp.tuner.trials import Outcome, Problem, Trial

FAILED = (Outcome.WRONG, Outcome.CRASHED, Outcome.HUNG, Outcome.OUT_OF_MEMORY)
"""Outcomes that a mapping should never have."""

RAN = (Outcome.MEASURED, Outcome.SLOW)
"""Outcomes of candidates that were run and gave the right result."""

_LEAST_GAIN = 1.01
_LEAST_SHARE = 0.75
_PROVISIONAL_GAIN = 1.05


@dataclass(frozen=True, slots=True)
class Final:
    """Options that were measured in turn with the other finalists: ``times`` has one time a round, in seconds."""

    options: MappingOptions
    times: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median time of a call; infinite where it failed."""
        return median(self.times)


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The outcome of a run for one problem.

    ``best`` are options to give to a call; the default ones where nothing is faster beyond doubt.  ``finals`` were
    measured in turn, the default options first; there are none where the run was interrupted before.  ``history`` has
    every trial of the problem on this machine, those of earlier runs included, of which there are ``earlier``.
    ``seconds`` and ``default_seconds`` are the median times of a call.  ``notes`` are remarks on the machine and on how
    results were checked.
    """

    problem: Problem
    best: MappingOptions
    seconds: float
    default_seconds: float
    finals: tuple[Final, ...]
    history: tuple[Trial, ...]
    earlier: int
    strategy: str
    spent: float
    interrupted: bool
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The def and its sizes."""
        return self.problem.specialisation.label()

    @property
    def speedup(self) -> float:
        """How many times faster than the default options."""
        known = 0 < self.seconds < math.inf and self.default_seconds < math.inf
        return self.default_seconds / self.seconds if known else 1.0

    def count(self, *outcomes: Outcome) -> int:
        """How many trials came out so."""
        return sum(t.outcome in outcomes for t in self.history)

    def summary(self) -> str:
        """The result in at most ten lines."""
        specialisation = self.problem.specialisation
        faster = "nothing faster than the default was found"
        if self.speedup > 1:
            faster = f"{self.speedup:.2f} times as fast as the default, {readable_seconds(self.default_seconds)}"
        lines = [
            f"{self.label} for {specialisation.target} on {self.problem.device}",
            f"  best: {readable_seconds(self.seconds)} a call; {faster}",
            f"  options: {self.best}",
            f"  tried: {self._tried()}",
        ]
        failed = [f"{n} {o.value}" for o in (*FAILED, Outcome.REJECTED) if (n := self.count(o))]
        if failed:
            lines.append(f"  lost: {', '.join(failed)}")
        if self.finals:
            rounds = max(len(f.times) for f in self.finals)
            times = ", ".join(readable_seconds(f.seconds) for f in self.finals)
            lines.append(f"  compared in turn, {rounds} rounds, the default first: {times}")
        how = f"  {self.strategy} search, {self.spent:.0f} s"
        lines.append(f"{how}, interrupted: the finalists were not compared" if self.interrupted else how)
        lines += [f"  note: {note}" for note in self.notes[: 10 - len(lines)]]
        return "\n".join(lines)

    def _tried(self) -> str:
        compiled = sum(t.outcome is not Outcome.REJECTED for t in self.history)
        text = f"{len(self.history)} candidates, {compiled} compiled, {self.count(*RAN)} measured"
        return f"{text}, of which {self.earlier} candidates before this run" if self.earlier else text

    def to_plain(self) -> dict[str, Any]:
        """Everything as JSON has it."""
        specialisation = self.problem.specialisation
        return {
            "def": specialisation.function.name,
            "sizes": dict(specialisation.sizes.values),
            "target": specialisation.target,
            "device": self.problem.device,
            "options": self.best.to_source(),
            "seconds": _finite(self.seconds),
            "default_seconds": _finite(self.default_seconds),
            "speedup": self.speedup,
            "strategy": self.strategy,
            "spent": self.spent,
            "interrupted": self.interrupted,
            "finals": [{"options": f.options.to_source(), "times": list(f.times)} for f in self.finals],
            "earlier": self.earlier,
            "history": [trial_to_plain(t) for t in self.history],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return self.summary()


def decide(finals: Sequence[Final]) -> Final:
    """The winner: the default, which comes first, unless another one is faster in most rounds.

    Times of one round were taken under the same conditions, so their ratios count.
    """
    default = finals[0]
    best, gain = default, _LEAST_GAIN
    for final in finals[1:]:
        ratios = [d / f for d, f in zip(default.times, final.times, strict=False)]
        if not ratios or sum(r > 1 for r in ratios) < _LEAST_SHARE * len(ratios):
            continue
        if statistics.median(ratios) > gain:
            best, gain = final, statistics.median(ratios)
    return best


def relative(trial: Trial, default: float) -> float:
    """The time of a trial in terms of the default's on the same worker, ``default`` where that is not known."""
    baseline = trial.baseline if trial.baseline < math.inf else default
    return trial.seconds / baseline if 0 < baseline < math.inf else trial.seconds


def provisional(trials: Sequence[Trial], default: MappingOptions) -> tuple[Trial | None, Trial | None]:
    """The best trial so far, if it is clearly faster than that of the default, and the latter."""
    ran = [t for t in trials if t.outcome is Outcome.MEASURED]
    reference = next((t for t in reversed(ran) if t.options == default), None)
    if reference is None:
        return None, None
    best = min(ran, key=lambda t: relative(t, reference.seconds))
    return (best if relative(best, reference.seconds) * _PROVISIONAL_GAIN < 1 else reference), reference


def readable_seconds(seconds: float) -> str:
    """A time with a unit; three digits."""
    if seconds == math.inf:
        return "no time"
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _finite(value: float) -> float | None:
    """JSON has no infinity: null stands for it."""
    return value if math.isfinite(value) else None
