"""Times of calls in this process, and how much of the processors others took meanwhile."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

Clock = Callable[[], float]
"""Seconds since some moment."""

TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds between two values of a counter of ``/proc/stat``."""

NOISY = 0.06
"""The share of the processors' time that others may take in a chunk that counts as quiet."""

_WARM_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Calls in a row: milliseconds of the median and the least, their number, and others' share of the processors."""

    median_ms: float
    least_ms: float
    calls: int
    foreign: float

    @property
    def quiet(self) -> bool:
        """Whether the machine worked for us alone."""
        return self.foreign <= NOISY


@dataclass(frozen=True, slots=True)
class Times:
    """What chunks say together: the median of their medians, the least of all calls.

    ``noisy`` says that fewer than half of the chunks were quiet; only quiet ones count where there are so many.
    """

    median_ms: float
    least_ms: float
    calls: int
    chunks: int
    noisy: bool


def times_of(chunks: Sequence[Chunk]) -> Times:
    """The times of one implementation."""
    quiet = [chunk for chunk in chunks if chunk.quiet]
    noisy = 2 * len(quiet) < len(chunks)
    counted = chunks if noisy else quiet
    return Times(
        statistics.median(chunk.median_ms for chunk in counted),
        min(chunk.least_ms for chunk in counted),
        sum(chunk.calls for chunk in counted),
        len(chunks),
        noisy,
    )


def busy_seconds(statistics_text: str, processors: Iterable[int]) -> float:
    """Seconds that processors have worked for anyone, or been withheld by the host, by the text of ``/proc/stat``."""
    wanted = {f"cpu{number}" for number in processors}
    ticks = 0
    for line in statistics_text.splitlines():
        name, *counts = line.split()
        if name in wanted:
            user, nice, system, _idle, _waiting, *interrupts_and_steal = map(int, counts[:8])
            ticks += user + nice + system + sum(interrupts_and_steal)
    return ticks * TICK


def foreign_share(busy: float, own: float, wall: float, processors: int) -> float:
    """Others' share of the time of ``processors`` in ``wall`` seconds.

    Counters are rounded to ticks, so up to a tick per processor is not held against anybody.
    """
    if wall <= 0:
        return 0.0
    return max(0.0, busy - own - processors * TICK) / (wall * processors)


class Load:
    """Others' share of this process's processors since the last question."""

    def __init__(self) -> None:
        self._processors = os.sched_getaffinity(0)
        self._busy, self._own, self._wall = self._now()

    def _now(self) -> tuple[float, float, float]:
        text = Path("/proc/stat").read_text(encoding="ascii")
        return busy_seconds(text, self._processors), time.process_time(), time.monotonic()

    def share(self) -> float:
        """0 where only this process has worked, 1 where it had nothing."""
        busy, own, wall = self._now()
        found = foreign_share(busy - self._busy, own - self._own, wall - self._wall, len(self._processors))
        self._busy, self._own, self._wall = busy, own, wall
        return found


def run_chunk(
    call: Callable[[], object],
    seconds: float,
    clock: Clock = time.perf_counter,
    load: Callable[[], float] | None = None,
) -> Chunk:
    """Call for ``seconds``, at least once, behind a few calls that warm caches and wake threads up.

    A call that takes longer than a chunk is not warmed up: it is the chunk.
    """
    share = load or Load().share
    collecting = gc.isenabled()
    gc.disable()
    try:
        share()
        start = clock()
        call()
        durations = [clock() - start]
        if durations[0] < seconds:
            while clock() < start + _WARM_SHARE * seconds:
                call()
            share()
            durations = _durations(call, seconds, clock)
        foreign = share()
    finally:
        if collecting:
            gc.enable()
    return Chunk(1e3 * statistics.median(durations), 1e3 * min(durations), len(durations), foreign)


def _durations(call: Callable[[], object], seconds: float, clock: Clock) -> list[float]:
    durations: list[float] = []
    end = clock()
    until = end + seconds
    while end < until:
        start = clock()
        call()
        end = clock()
        durations.append(end - start)
    return durations


def until_quiet(first: Chunk, measure: Callable[[], Chunk], times: int, may_repeat: Callable[[], bool]) -> Chunk:
    """The first chunk if it was quiet, else the quietest of it and others.

    Others are measured until one is quiet, at most so many ``times``, and as long as ``may_repeat()``.
    """
    best = first
    for _ in range(times):
        if best.quiet or not may_repeat():
            break
        best = min(best, measure(), key=lambda chunk: chunk.foreign)
    return best
