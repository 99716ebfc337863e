"""What the parts of the tuner hand to one another: a problem, candidates for it, and what became of each."""

from __future__ import annotations

import enum
import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from tcomp.mapping.options.options import MappingOptions
from tcomp.runtime.specialisation import Specialisation

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Problem:
    """One def for one set of sizes, strides and one target: what options are sought for.

    ``specialisation`` holds the default options.  ``device`` is the model of processor or GPU that runs it.  Inputs are
    made up from ``seed``, or are ``given``, one array or ``const`` value per parameter, where their content decides
    what a program reads.
    """

    specialisation: Specialisation
    device: str
    seed: int = 0
    given: tuple[Array | int, ...] | None = field(default=None, compare=False, repr=False)

    def with_options(self, options: MappingOptions) -> Specialisation:
        """What a candidate's kernel is made from."""
        return replace(self.specialisation, options=options)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Options to try.  ``origin`` is a word for how the search came to them: default, named, stored, crossover, ..."""

    options: MappingOptions
    origin: str


class Outcome(enum.Enum):
    """What became of a candidate; only one that was ``MEASURED`` has a time."""

    MEASURED = "measured"
    REJECTED = "rejected"
    """The compiler refused the options, or the program under them."""
    DUPLICATE = "duplicate"
    """Its source is that of an earlier candidate, whose trial says all."""
    SKIPPED = "skipped"
    """Compiled, but the model thought it not worth measuring."""
    SLOW = "slow"
    """Given up after a first run several times slower than the best."""
    WRONG = "wrong"
    CRASHED = "crashed"
    HUNG = "hung"
    OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A candidate after compilation, as the strategies see it.

    ``source`` is a digest of the kernel's text, equal for candidates that give the same code.  ``features`` are named
    facts about the mapping and the code, in any unit, the same names for all candidates of a target.  ``seconds`` is
    what compiling took.  ``message`` says why there is no kernel, and ``failure`` in which way: ``REJECTED``,
    ``CRASHED``, ``HUNG`` or ``OUT_OF_MEMORY``; where there is one they are empty and None.
    """

    candidate: Candidate
    source: str
    features: tuple[tuple[str, float], ...]
    seconds: float
    message: str = ""
    failure: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and what became of it.

    ``times`` are seconds of single calls, warm, in the order in which they were taken.  ``worker`` names the machine
    and device that measured; ``when`` is seconds since the epoch.  ``baseline`` is the median time of the default
    options there, sampled in turn with ``times``; it is infinite where that is not known.  What was measured on a busy
    machine may be ``doubtful``: then it teaches and decides nothing.
    """

    compiled: Compiled
    outcome: Outcome
    times: tuple[float, ...] = ()
    message: str = ""
    worker: str = ""
    when: float = 0.0
    generation: int = 0
    baseline: float = math.inf
    doubtful: bool = False

    @property
    def certain(self) -> bool:
        """Whether there is a time, and nothing makes it doubtful."""
        return self.outcome is Outcome.MEASURED and not self.doubtful

    @property
    def options(self) -> MappingOptions:
        """The options tried."""
        return self.compiled.candidate.options

    @property
    def seconds(self) -> float:
        """The median time of a call; infinite where there is none."""
        return statistics.median(self.times) if self.times else math.inf

    @property
    def ratio(self) -> float:
        """The time as a multiple of the default options'; infinite where there is none.

        By this, trials compare whatever the machine, and however fast it was at the moment.
        """
        return self.seconds / self.baseline if self.baseline < math.inf else math.inf


class Strategy(Protocol):
    """A way to search.  It sees every trial so far, so that a resumed run goes on where it was."""

    def propose(self, trials: Sequence[Trial], count: int) -> Sequence[Candidate]:
        """At most ``count`` candidates to compile, none of which was tried; none where the space is exhausted."""
        ...

    def select(self, compiled: Sequence[Compiled], trials: Sequence[Trial], count: int) -> Sequence[Compiled]:
        """Those of the compiled candidates to measure, at most ``count``, most promising first."""
        ...


def digest(text: str) -> str:
    """What stands for a text as a key."""
    return hashlib.sha256(text.encode()).hexdigest()
