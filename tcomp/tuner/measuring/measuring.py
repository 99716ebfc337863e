"""What a measuring sandbox does with a candidate: verify it, time it next to the default options, verify it again."""

from __future__ import annotations

import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tcomp.backends.simulator.report import SimulationError
from tcomp.mapping.options.options import MappingOptions
from tcomp.storage.filelocks import exclusive
from tcomp.tuner.database.trials import Outcome
from tcomp.tuner.measuring.preparation import Limits, Prepared, Subject
from tcomp.tuner.measuring.sandbox import LostError, Progress
from tcomp.tuner.measuring.timing import Effort, compared, warm

_LEAST_PATIENCE = 2.0
"""Seconds that a call may always take."""

_PATIENCE = 10.0
"""So many times the usual may take what is known to end: the machine may slow down, or others need it."""

_LATE = 2.0
"""A first call is given up when it takes so many times as long as a candidate that is slow."""

_ENDLESS = 100.0
"""One that takes so many times as long as the best does not seem to end."""

_LONGEST_TURN = 30.0
"""Seconds for which a measurement waits for another one on this machine."""

_LONG_CALL = 0.05
"""Seconds of a first call from which on it tells how long others take: what is done only once is a small part."""

BUSY = "the machine was busy, so that some times are doubtful"
"""The remark on a measurement most of whose samples were disturbed."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds of single calls of a candidate, and the median of the default options, measured in turn with it.

    A candidate that is ``slow`` was given up early, and has no times.  Times are ``doubtful`` where others kept the
    processors too busy to tell.
    """

    times: tuple[float, ...]
    baseline: float
    message: str = ""
    slow: bool = False
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """The task of a measuring sandbox.

    ``best`` is the least time so far as a multiple of the default options', infinite where there is none.  Measurements
    with the same ``turn``, a word for what they need for themselves, wait for one another.
    """

    options: MappingOptions
    best: float
    effort: Effort
    limits: Limits
    turn: str

    def run(self, state: Prepared, progress: Progress) -> Measurement:
        """Raises TcompError if the kernel does not compile or run, and LostError if its results are wrong."""
        progress("loading kernels", 2 * self.limits.compile)
        subject = Subject(state, self.options)
        if state.usual is not None:
            progress("being simulated", self.limits.simulate)
            return Measurement((_simulated(subject),), state.usual, state.note)
        default = Subject(state, state.problem.specialisation.options)
        progress("waiting for its turn", 2 * _LONGEST_TURN)
        with exclusive(_turnstile(self.turn), _LONGEST_TURN):
            return self._measured(subject, default, state.note, progress)

    def _measured(self, subject: Subject, default: Subject, note: str, progress: Progress) -> Measurement:
        progress("calling the default options' kernel", _PATIENCE * self.limits.call)
        usual = warm(default.seconds)
        best = self.best * usual
        patience = max(_LEAST_PATIENCE, min(self.limits.call, _LATE * self.effort.slow * best))
        progress("its first call", patience, Outcome.SLOW if patience < _ENDLESS * best < math.inf else Outcome.HUNG)
        begin = time.perf_counter()
        subject.call()
        first = time.perf_counter() - begin
        progress("verifying it", self.limits.call)
        _verify(subject, "")
        if first > max(_LONG_CALL, _LATE * self.effort.slow * best):
            return self._slow(first / usual, usual)
        progress("timing it", _PATIENCE * self.effort.seconds + 2 * self.effort.least * (patience + usual))
        times = compared(subject.seconds, default.seconds, usual, self.effort, self.best)
        if times.ratio > self.effort.slow * self.best:
            return self._slow(times.ratio, times.baseline)
        progress("verifying it again", self.limits.call + patience)
        if not subject.called_as_first:
            subject.call()
        _verify(subject, "at first right, later wrong: ")
        notes = [note] if note else []
        if times.doubtful:
            notes.append(BUSY)
        return Measurement(times.seconds, times.baseline, "; ".join(notes), doubtful=times.doubtful)

    def _slow(self, ratio: float, baseline: float) -> Measurement:
        message = f"{ratio:.3g} times the default options' time; the best takes {self.best:.3g} times that"
        return Measurement((), baseline, message, slow=True)


def _simulated(subject: Subject) -> float:
    """What a candidate would take on a device.  Raises LostError for a wrong result."""
    try:
        seconds = subject.estimate()
    except SimulationError as error:
        raise LostError(Outcome.WRONG, error.message) from None
    _verify(subject, "")
    return math.inf if seconds is None else seconds


def _verify(subject: Subject, when: str) -> None:
    mistake = subject.mistake()
    if mistake:
        raise LostError(Outcome.WRONG, f"{when}{mistake}")


def _turnstile(turn: str) -> Path:
    """The lock that measurements of this user on this machine take in turn."""
    return Path(tempfile.gettempdir(), f"tcomp-measuring-{os.geteuid()}-{turn}.lock")
