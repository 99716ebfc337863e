"""What a tuning run found: the best options, every trial, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.records import median, trial_to_plain
from tcomp.tuner.database.trials import Outcome, Problem, Trial
from tcomp.tuner.report.wording import readable_seconds

FAILED = (Outcome.WRONG, Outcome.CRASHED, Outcome.HUNG, Outcome.OUT_OF_MEMORY)
"""Outcomes that a mapping should never have."""

RAN = (Outcome.MEASURED, Outcome.SLOW)
"""Outcomes of candidates that were run and gave the right result."""

_LEAST_GAIN = 1.02
_LEAST_SHARE = 0.75
_PROVISIONAL_GAIN = 1.05


LEAST_ROUNDS = 2
"""Rounds of a comparison of finalists, and those of them that others may not disturb, at least."""


@dataclass(frozen=True, slots=True)
class Final:
    """A finalist: measured again in rounds, in each in turn with the default options.

    ``times`` and ``baselines`` have the seconds of a call of both in each round; they are empty if it failed.  Rounds
    that others disturbed are left out; there are ``disturbed`` of them.
    """

    options: MappingOptions
    times: tuple[float, ...]
    baselines: tuple[float, ...]
    disturbed: int = 0

    @property
    def seconds(self) -> float:
        """The median time of a call; infinite where it failed."""
        return median(self.times)

    @property
    def gains(self) -> tuple[float, ...]:
        """How many times faster than the default options, round by round."""
        return tuple(d / t for d, t in zip(self.baselines, self.times, strict=True))

    @property
    def gain(self) -> float:
        """The median of the gains; 0 where it failed."""
        return statistics.median(self.gains) if self.times else 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a run for one problem.

    ``best`` are options to give to a call; the default ones where nothing is faster beyond doubt.  ``finals`` are the
    candidates that were compared at the end; there are none where the run was interrupted before, or nothing came near
    the default options.  ``history`` has every trial of the problem on this machine, those of earlier runs included, of
    which there are ``earlier``.  ``seconds`` and ``default_seconds`` are the median times of a call.  ``notes`` are
    remarks on the machine and on how results were checked.
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

    @property
    def undecided(self) -> bool:
        """Whether the run went to its end, but others kept the machine too busy to tell what is faster."""
        if self.interrupted:
            return False
        if self.finals:
            return any(f.disturbed for f in self.finals) and not any(f.times for f in self.finals)
        return all(t.doubtful for t in self.history if t.outcome is Outcome.MEASURED)

    def count(self, *outcomes: Outcome) -> int:
        """How many trials came out so."""
        return sum(t.outcome in outcomes for t in self.history)

    def summary(self) -> str:
        """The result in at most ten lines."""
        specialisation = self.problem.specialisation
        lines = [
            f"{self.label} for {specialisation.target} on {self.problem.device}",
            f"  {self._found()}",
            f"  options: {self.best}",
            f"  tried: {self._tried()}",
        ]
        failed = [f"{n} {o.value}" for o in (*FAILED, Outcome.REJECTED) if (n := self.count(o))]
        if failed:
            lines.append(f"  lost: {', '.join(failed)}")
        if self.undecided:
            lines.append("  undecided: the machine was too busy to tell what is faster; tune again when it is not")
        elif self.finals:
            rounds = max(len(f.times) for f in self.finals)
            gains = ", ".join(f"{f.gain:.2f}" for f in self.finals)
            counted = "1 round" if rounds == 1 else f"{rounds} rounds"
            lines.append(f"  finalists, in turn with the default, {counted}: {gains} times as fast")
        how = f"  {self.strategy} search, {self.spent:.0f} s"
        lines.append(f"{how}, interrupted: the finalists were not compared" if self.interrupted else how)
        lines += [f"  note: {note}" for note in self.notes[: 10 - len(lines)]]
        return "\n".join(lines)

    def _found(self) -> str:
        if self.seconds == math.inf:
            return "nothing was measured"
        faster = f"{self.speedup:.2f} times as fast as the default, {readable_seconds(self.default_seconds)}"
        gain = faster if self.speedup > 1 else "nothing faster than the default was found"
        return f"best: {readable_seconds(self.seconds)} a call; {gain}"

    def _tried(self) -> str:
        kernels = len({t.compiled.source for t in self.history if t.compiled.source})
        different = "1 kernel" if kernels == 1 else f"{kernels} different kernels"
        text = f"{_candidates(len(self.history))}, {different}, {self.count(*RAN)} measured"
        return f"{text}; {_candidates(self.earlier)} before this run" if self.earlier else text

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
            "undecided": self.undecided,
            "finals": [
                {"options": f.options.to_source(), "times": list(f.times), "default_times": list(f.baselines)}
                for f in self.finals
            ],
            "earlier": self.earlier,
            "history": [trial_to_plain(t) for t in self.history],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return self.summary()


def decide(finals: Sequence[Final]) -> Final | None:
    """The finalist with the largest gain, if it is faster than the default options in most rounds.

    Times of one round were taken under the same conditions, so their ratios count.
    """
    clear = [f for f in finals if f.times and sum(g > 1 for g in f.gains) >= _LEAST_SHARE * len(f.gains)]
    best = max(clear, key=lambda f: f.gain, default=None)
    return best if best is not None and best.gain > _LEAST_GAIN else None


def provisional(trials: Sequence[Trial]) -> Trial | None:
    """The best trial so far, if it is clearly faster than the default options."""
    best = min((t for t in trials if t.certain), key=lambda t: t.ratio, default=None)
    return best if best is not None and best.ratio * _PROVISIONAL_GAIN < 1 else None


def _candidates(count: int) -> str:
    return "1 candidate" if count == 1 else f"{count} candidates"


def _finite(value: float) -> float | None:
    """JSON has no infinity: null stands for it."""
    return value if math.isfinite(value) else None
