"""The search: one number at a time, halved and doubled, kept where the programs that it changes get faster.

A descent along coordinates, as in J. Bilmes et al., "Optimizing matrix multiply using PHiPAC", ICS 1997, section 4.
Kernels are compared by samples taken in turn, since the speed of a machine changes from second to second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tcomp.calibration.trials import FACTORS, TRIALS, Trial
from tcomp.mapping.machines.fitted.replacing import FARTHEST, Number, replace_numbers, replaced, shipped

Kernel = TypeVar("Kernel")

LEAST_GAIN = 0.03
"""What a number must gain in the geometric mean of the programs that it changes."""

MOST_LOSS = 0.03
"""What no program may lose by it."""

MOST_CHANGED = FARTHEST // 2
"""How many times more or less than the shipped one a number may become."""


class Workshop(Protocol[Kernel]):
    """Makes kernels under the numbers that hold, and compares them."""

    def kernel(self, program: str) -> Kernel:
        """The kernel of a program; equal to another one where its machine code would be."""
        ...

    def ratio(self, kernel: Kernel, reference: Kernel) -> float:
        """The time of a kernel as a multiple of the time of another."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """A value that was tried, the ratios of the programs that it changed, and whether it stays."""

    number: str
    value: Number
    ratios: Mapping[str, float]
    stays: bool

    @property
    def mean(self) -> float:
        """The geometric mean of the ratios; 1 where nothing changed."""
        return math.exp(sum(map(math.log, self.ratios.values())) / len(self.ratios)) if self.ratios else 1.0


@dataclass(slots=True)
class Search(Generic[Kernel]):
    """Goes through the trials until so many seconds have passed; ``watch`` is told of each step."""

    workshop: Workshop[Kernel]
    seconds: float
    watch: Callable[[Step], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    steps: list[Step] = field(default_factory=list)

    def run(self, trials: Sequence[Trial] = TRIALS) -> Mapping[str, Number]:
        """The numbers that stay, by name; those of the process are as they were."""
        end, found = self.clock() + self.seconds, dict[str, Number]()
        with _restored():
            replace_numbers({})
            for trial in trials:
                if self.clock() >= end:
                    break
                self._try(trial, found, end)
        return found

    @property
    def gains(self) -> Mapping[str, float]:
        """What is left of the time by the numbers that stay, each beside those before it."""
        gains: dict[str, float] = {}
        for step in self.steps:
            if step.stays:
                gains[step.number] = gains.get(step.number, 1.0) * step.mean
        return gains

    def _try(self, trial: Trial, found: dict[str, Number], end: float) -> None:
        """Go from the number that holds in either direction, on as long as it gains."""
        for factor in FACTORS:
            gained = False
            while self.clock() < end and self._stays(trial, factor, found):
                gained = True
            if gained:
                return

    def _stays(self, trial: Trial, factor: float, found: dict[str, Number]) -> bool:
        value = _changed(trial.number, found, factor)
        if value is None:
            return False
        references = {name: self.workshop.kernel(name) for name in trial.programs}
        replace_numbers({**found, trial.number: value})
        kernels = {name: self.workshop.kernel(name) for name in trial.programs}
        changed = [name for name in trial.programs if kernels[name] != references[name]]
        ratios = {name: self.workshop.ratio(kernels[name], references[name]) for name in changed}
        stays = _is_better(ratios)
        if stays:
            # What was lucky once is not so twice.
            again = {name: self.workshop.ratio(kernels[name], references[name]) for name in changed}
            ratios = {name: max(ratio, again[name]) for name, ratio in ratios.items()}
            stays = _is_better(ratios)
        step = Step(trial.number, value, ratios, stays)
        self.steps.append(step)
        self.watch(step)
        if stays:
            found[trial.number] = value
        replace_numbers(found)
        return stays


def _is_better(ratios: Mapping[str, float]) -> bool:
    if not ratios or max(ratios.values()) > 1.0 + MOST_LOSS:
        return False
    mean = sum(map(math.log, ratios.values())) / len(ratios)
    return mean < math.log(1.0 - LEAST_GAIN)


def _changed(number: str, found: Mapping[str, Number], factor: float) -> Number | None:
    """A part or a multiple of what holds; None where it would be the same, or too far from what was shipped."""
    original = shipped()[number]
    current = found.get(number, original)
    value = type(original)(current * factor)
    near = original / MOST_CHANGED <= value <= original * MOST_CHANGED
    return value if near and value != current and value > 0 else None


@contextmanager
def _restored() -> Iterator[None]:
    before = replaced()
    try:
        yield
    finally:
        replace_numbers(before)
