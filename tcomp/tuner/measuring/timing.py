"""How long a call takes, compared with another call, on a machine whose speed changes and on which others work, too.

A virtual processor may be half as fast in the next second, and that shows in the time of whatever runs on it.  So each
sample of a candidate is taken next to one of the default options.  On a machine where others are at work, their ratio
spreads by 1 to 3 % where times spread by 2 to 13 % (``benchmarks/measuring.py``).
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SAMPLE_SECONDS = 2e-4
"""Calls that are shorter are timed several at once: the clock and the loop take a tenth of a microsecond."""

_WARM_SECONDS = 0.003
_FEWEST, _MOST_SAMPLES = 2, 200
_LONGEST_SECONDS = 1.0

_ALONE_SECONDS, _FEWEST_ALONE = 0.1, 5
"""How long a call is timed that is compared with no other, and how often at least."""

_ATTEMPTS = 3
_WAITING_SHARE = 0.02
_PATIENCE = 4.0
"""So many times the usual seconds are spent where samples are disturbed."""

_DEAR_REFERENCE = 4.0

_WOKEN_SECONDS = 5e-4
"""Calls that are shorter come after a call that is not timed: threads that have slept since the last sample wake up."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is spent on the time of one candidate.

    Samples are taken until the ratio to the default options is known to ``precision`` (half the width of the 95 %
    confidence interval of its median, relative), or is surely ``near`` times the best or more; but at least ``least``,
    and no longer than ``seconds``.  A candidate that takes more than ``slow`` times as long as the best is given up
    after its first calls.  ``priority`` says whether the process may run before all others if these disturb it.
    """

    seconds: float = 0.06
    least: int = 7
    precision: float = 0.01
    slow: float = 3.0
    near: float = 1.1
    priority: bool = True

    def enough(self, pair: float) -> int:
        """The least number of samples where one of both takes so many seconds: fewer if that takes long."""
        return min(self.least, max(_FEWEST, int(_LONGEST_SECONDS / pair)))


class Stopwatch(Protocol):
    """Times a kernel: the seconds of one call, as the mean of ``calls`` that follow one another.

    If they are several, they follow one that is not timed.
    """

    def __call__(self, calls: int) -> float: ...


def stopwatch_of(call: Callable[[], object]) -> Stopwatch:
    """Times a call, several after one that is not timed."""

    def stopwatch(calls: int) -> float:
        if calls > 1:
            call()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    return stopwatch


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of single calls of a candidate and, next to them, of the reference, in order.

    ``disturbed`` is the share of samples during which this process waited for a processor.  Where it is so large that
    disturbed samples had to be taken, too, the times are ``doubtful``: two threads wait more often than one.
    """

    seconds: tuple[float, ...]
    reference: tuple[float, ...]
    disturbed: float
    doubtful: bool = False

    @property
    def baseline(self) -> float:
        """The median of the reference."""
        return statistics.median(self.reference)

    @property
    def ratio(self) -> float:
        """The candidate's median as a multiple of the reference's."""
        return statistics.median(self.seconds) / self.baseline


def compared(candidate: Stopwatch, reference: Stopwatch, usual: float, effort: Effort, best: float) -> Times:
    """Times of a candidate and a reference, with warm caches: call follows call on the same arrays, as in a loop.

    ``usual`` is what ``warm`` has found for the reference, ``best`` the least ratio so far.  Where most samples are
    disturbed, they are taken again with priority, if the system permits it.  Disturbed samples count only if there are
    too few others.
    """
    once, quiet = _undisturbed(candidate)
    if not quiet and effort.priority and take_priority():
        usual = warm(reference)
        once, quiet = _undisturbed(candidate)
    if quiet and once > effort.slow * best * usual:
        return Times((once,), (usual,), 0.0)
    pairs = _sampled(candidate, reference, once, usual, effort, best)
    least = effort.enough(once + usual)
    if len(pairs.quiet) < max(least, len(pairs.disturbed)) and effort.priority and take_priority():
        pairs = _sampled(candidate, reference, once, usual, effort, best)
    return pairs.times(least)


def _sampled(
    candidate: Stopwatch, reference: Stopwatch, once: float, usual: float, effort: Effort, best: float
) -> _Pairs:
    """Samples until they suffice, or the time is over; ``once`` and ``usual`` are the seconds of a call of either."""
    pairs = _Pairs(_Sampler(candidate, once), _Sampler(reference, usual))
    least = effort.enough(once + usual)
    begin = time.perf_counter()
    while not _known(pairs.quiet, least, effort, best):
        seconds = time.perf_counter() - begin
        limit = effort.seconds * (1.0 if len(pairs.quiet) >= least else _PATIENCE)
        if seconds > limit and len(pairs.quiet) + len(pairs.disturbed) >= least:
            break
        pairs.take()
    return pairs


def sampled(stopwatch: Stopwatch) -> tuple[float, ...]:
    """Seconds of a warm call, in samples that follow one another; those that nothing disturbed, if they are enough."""
    sampler = _Sampler(stopwatch, warm(stopwatch))
    quiet: list[float] = []
    every: list[float] = []
    end = time.perf_counter() + _ALONE_SECONDS
    while len(every) < _FEWEST_ALONE or time.perf_counter() < end:
        seconds, undisturbed = sampler.sample()
        every.append(seconds)
        quiet += [seconds] * undisturbed
    return tuple(quiet if len(quiet) >= _FEWEST_ALONE else every)


def take_priority() -> bool:
    """Let the threads of this process run before those of all ordinary ones; False where they may not, or do already.

    See sched(7); the system keeps a twentieth of the time for others.
    """
    if os.sched_getscheduler(0) == os.SCHED_RR:
        return False
    try:
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    return True


def _undisturbed(stopwatch: Stopwatch) -> tuple[float, bool]:
    """The time of the fastest warm call, and whether nothing disturbed it; if something does, it is tried again."""
    fastest = math.inf
    for _ in range(_ATTEMPTS):
        begin, waited = time.perf_counter(), _waited()
        fastest = min(fastest, warm(stopwatch))
        if _waited() - waited <= _WAITING_SHARE * (time.perf_counter() - begin):
            return fastest, True
    return fastest, False


def warm(stopwatch: Stopwatch) -> float:
    """Call until caches, clocks and threads have settled; the time of the fastest call."""
    end = time.perf_counter() + _WARM_SECONDS
    fastest = stopwatch(1)
    while time.perf_counter() < end:
        fastest = min(fastest, stopwatch(1))
    return fastest


Pair = tuple[float, float]
"""Seconds of the candidate and of the reference."""


class _Pairs:
    """Samples of candidate and reference in turn; a sample of a reference that takes much longer serves for several.

    A pair is quiet if both of its samples are.
    """

    def __init__(self, candidate: _Sampler, reference: _Sampler) -> None:
        self.quiet: list[Pair] = []
        self.disturbed: list[Pair] = []
        self._candidate, self._reference = candidate, reference
        self._latest, self._latest_quiet, self._served = math.nan, False, 0

    def take(self) -> None:
        """One sample more."""
        if not self._latest_quiet or self._served >= _interval(self._reference.seconds, self._candidate.seconds):
            self._latest, self._latest_quiet = self._reference.sample()
            self._served = 0
        self._served += 1
        seconds, quiet = self._candidate.sample()
        (self.quiet if quiet and self._latest_quiet else self.disturbed).append((seconds, self._latest))

    def times(self, least: int) -> Times:
        """The quiet samples; if they are fewer than ``least``, the fastest of all, each for itself."""
        share = len(self.disturbed) / (len(self.quiet) + len(self.disturbed))
        if len(self.quiet) >= least:
            return Times(tuple(c for c, _ in self.quiet), tuple(r for _, r in self.quiet), share)
        both = [*self.quiet, *self.disturbed]
        fastest = tuple(sorted(c for c, _ in both)[:least]), tuple(sorted(r for _, r in both)[:least])
        return Times(*fastest, share, doubtful=True)


class _Sampler:
    """Samples of one kernel, whose call takes about so many ``seconds``.

    That is at first what a few calls have shown, of which others may have disturbed each.
    """

    def __init__(self, stopwatch: Stopwatch, seconds: float) -> None:
        self.seconds = seconds
        self._stopwatch = stopwatch

    def sample(self) -> tuple[float, bool]:
        """The seconds of a call, and whether nothing disturbed it."""
        begin, waited = time.perf_counter(), _waited()
        seconds = self._stopwatch(_calls(self.seconds))
        quiet = _waited() - waited <= _WAITING_SHARE * (time.perf_counter() - begin)
        if quiet:
            self.seconds = min(self.seconds, seconds)
        return seconds, quiet


def _calls(once: float) -> int:
    """How many calls make a sample; before more than one, a stopwatch makes one more."""
    return max(1 if once > _WOKEN_SECONDS else 2, math.ceil(SAMPLE_SECONDS / max(once, 1e-9)))


def _interval(usual: float, once: float) -> int:
    return max(1, math.floor(usual / (_DEAR_REFERENCE * max(once, SAMPLE_SECONDS))))


def _known(pairs: Sequence[Pair], least: int, effort: Effort, best: float) -> bool:
    if len(pairs) < least:
        return False
    ratios = [seconds / reference for seconds, reference in pairs]
    low, high = confidence(ratios)
    precise = high - low <= 2 * effort.precision * statistics.median(ratios)
    return precise or low > effort.near * best or len(pairs) >= _MOST_SAMPLES


def confidence(samples: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median, from order statistics; from 6 samples on it is one.

    J.-Y. Le Boudec, "Performance Evaluation of Computer and Communication Systems", EPFL Press 2010, section 2.2.
    """
    ordered, n = sorted(samples), len(samples)
    reach = 0.98 * math.sqrt(n)
    low = max(0, math.floor(n / 2 - reach) - 1)
    high = min(n - 1, math.ceil(n / 2 + reach))
    return ordered[low], ordered[high]


def _waited() -> float:
    """Seconds for which threads of this process have waited for a processor that others had; see proc_pid_schedstat(5).

    0 where the system does not say.
    """
    total = 0
    with suppress(OSError, IndexError, ValueError):
        for thread in Path("/proc/self/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[1])
    return total * 1e-9
