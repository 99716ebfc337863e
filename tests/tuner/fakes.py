"""A workshop that runs nothing: the time of a mapping follows from its tile sizes, and some fail in a chosen way."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial
from tcomp.tuner.report.found import Final


def seconds_of(options: MappingOptions) -> float:
    """1 ms for the default; less the nearer the first tile size is to 100."""
    if options.tile_sizes is None:
        return 1e-3
    return 0.25e-3 + 1e-5 * abs(options.tile_sizes[0] - 100)


@dataclass(slots=True)
class FakeWorkshop:
    """``planted`` says what becomes of options; ``pause`` is what a candidate takes; ``interrupt_after`` measured ones
    somebody presses Ctrl-C."""

    planted: dict[MappingOptions, Outcome] = field(default_factory=dict)
    pause: float = 0.0
    interrupt_after: int | None = None
    finals: dict[MappingOptions, float] = field(default_factory=dict)
    measured: list[MappingOptions] = field(default_factory=list)
    compiled: list[MappingOptions] = field(default_factory=list)
    compared: list[MappingOptions] = field(default_factory=list)
    notes: tuple[str, ...] = ("nothing was measured",)

    def compile(self, candidates: Sequence[Candidate]) -> Generator[Compiled, None, None]:
        for candidate in candidates:
            self.compiled.append(candidate.options)
            outcome = self.planted.get(candidate.options)
            failed = outcome if outcome is Outcome.REJECTED else None
            message = "planted" if failed else ""
            tiles = candidate.options.tile_sizes
            yield Compiled(candidate, f"tiles {tiles}", (("tile", float((tiles or (0,))[0])),), 0.01, message, failed)

    def measure(self, compiled: Sequence[Compiled], best: float) -> Generator[Trial, None, None]:
        for one in compiled:
            if self.interrupt_after is not None and len(self.measured) >= self.interrupt_after:
                raise KeyboardInterrupt
            time.sleep(self.pause)
            self.measured.append(one.candidate.options)
            outcome = self.planted.get(one.candidate.options, Outcome.MEASURED)
            taken = seconds_of(one.candidate.options)
            usual = seconds_of(MappingOptions())
            times = (taken, taken * 1.01, taken * 0.99) if outcome is Outcome.MEASURED else ()
            yield Trial(one, outcome, times, "" if times else "planted", "fake", baseline=usual)

    def compare(self, finalists: Sequence[Compiled], seconds: float) -> Sequence[Final]:
        self.compared = [f.candidate.options for f in finalists]
        usual = (seconds_of(MappingOptions()),) * 8
        return [Final(o, (self.finals.get(o, seconds_of(o)),) * 8, usual) for o in self.compared]


@dataclass(slots=True)
class Listed:
    """A strategy that proposes what it is given, and measures all but what it leaves out."""

    options: Sequence[MappingOptions]
    left_out: Sequence[MappingOptions] = ()

    def propose(self, trials: Sequence[Trial], count: int) -> Sequence[Candidate]:
        tried = {t.options for t in trials}
        return [Candidate(o, "listed") for o in islice((o for o in self.options if o not in tried), count)]

    def select(self, compiled: Sequence[Compiled], trials: Sequence[Trial], count: int) -> Sequence[Compiled]:
        return [c for c in compiled if c.candidate.options not in self.left_out][:count]
