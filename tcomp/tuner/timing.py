"""How long a call takes, by a clock on a machine on which other things happen."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 2e-4
"""Calls that are shorter are timed several at once: the clock and the loop take a tenth of a microsecond."""

_LEAST_CALLS, _MOST_SAMPLES = 2, 200
_WAITING_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is spent on the time of one candidate.

    Samples are taken until the median is known to ``precision`` (half the width of its 95 % confidence interval,
    relative), but at least ``least`` and no longer than ``seconds``.  A candidate that takes more than ``slow`` times
    as long as the best is given up after its first runs; one that is ``near`` times the best or more gets ``least``
    samples only.
    """

    seconds: float = 0.15
    least: int = 7
    precision: float = 0.005
    slow: float = 3.0
    near: float = 1.3


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of single calls, in the order in which they were taken, and the share of samples that were disturbed."""

    seconds: tuple[float, ...]
    disturbed: float

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def timed(call: Callable[[], object], restore: Callable[[], object], effort: Effort, best: float) -> Times:
    """Times of calls with warm caches: each follows another on the same arrays, as in a loop of the user's.

    ``restore`` puts back what calls change, outside the time.  A sample during which a thread of this process waited
    for a processor counts only if there are too few others.
    """
    started = time.perf_counter()
    restore()
    once = math.inf
    for _ in range(_LEAST_CALLS):
        once = min(once, _seconds(call, 1))
        if once > effort.slow * best:
            return Times((once,), 0.0)
    calls = max(1, math.ceil(SAMPLE_SECONDS / max(once, 1e-9)))
    quiet: list[float] = []
    disturbed: list[float] = []
    waited = _waited()
    while not _enough(quiet, effort, best):
        if time.perf_counter() - started > effort.seconds and len(quiet) + len(disturbed) >= effort.least:
            break
        restore()
        seconds = _seconds(call, calls)
        before, waited = waited, _waited()
        (quiet if waited - before <= _WAITING_SHARE * seconds * calls else disturbed).append(seconds)
    share = len(disturbed) / (len(quiet) + len(disturbed))
    if len(quiet) < effort.least:
        fastest = sorted(disturbed)[: effort.least - len(quiet)]
        quiet += fastest
    return Times(tuple(quiet), share)


def _seconds(call: Callable[[], object], calls: int) -> float:
    """The mean time of some calls."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def _enough(samples: Sequence[float], effort: Effort, best: float) -> bool:
    if len(samples) < effort.least:
        return False
    if len(samples) >= _MOST_SAMPLES or min(samples) > effort.near * best:
        return True
    low, high = confidence(samples)
    return high - low <= 2 * effort.precision * statistics.median(samples)


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
