"""Times of kernels that are not there: what is taken for the ratio of two, whatever the machine does meanwhile."""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tcomp.tuner.measuring import timing
from tcomp.tuner.measuring.timing import Effort, Stopwatch, Times, confidence, warm

EFFORT = Effort(seconds=0.1)


class Machine:
    """One on which time passes only in calls; ``speed`` gives the factor by which the next one is slower."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, speed: Iterator[float] | None = None) -> None:
        self.now = 0.0
        self.waited = 0.0
        self.calls = 0
        self.permits = False
        self.prior = False
        self._speed = speed or itertools.repeat(1.0)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(timing, "_waited", lambda: self.waited)
        monkeypatch.setattr(timing, "take_priority", self._take_priority)

    def _take_priority(self) -> bool:
        self.prior = self.permits and not self.prior
        return self.prior

    def kernel(self, seconds: float, waits: Callable[[], float] = lambda: 0.0) -> Stopwatch:
        def stopwatch(calls: int) -> float:
            waiting = 0.0 if self.prior else waits()
            self.waited += waiting
            taken = seconds * calls * next(self._speed) + waiting
            self.now += taken
            self.calls += calls
            return taken / calls

        return stopwatch


def compared(candidate: Stopwatch, reference: Stopwatch, effort: Effort, best: float) -> Times:
    return timing.compared(candidate, reference, warm(reference), effort, best)


def test_the_ratio_of_steady_kernels_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    times = compared(machine.kernel(1e-3), machine.kernel(2e-3), EFFORT, math.inf)
    assert times.ratio == pytest.approx(0.5)
    assert len(times.seconds) == EFFORT.least
    assert times.disturbed == 0


def test_a_machine_that_changes_speed_changes_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes from fast to half as fast and back, slowly in comparison with a call."""
    speed = (1.5 + 0.5 * math.sin(n / 12) for n in itertools.count())
    machine = Machine(monkeypatch, speed)
    times = compared(machine.kernel(9e-5), machine.kernel(1e-4), EFFORT, math.inf)
    assert times.ratio == pytest.approx(0.9, rel=0.03)
    assert max(times.seconds) > 1.3 * min(times.seconds), "the times themselves do change"


def test_noise_is_averaged_out_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(0)
    machine = Machine(monkeypatch, iter(lambda: 1 + draws.expovariate(10), None))
    times = compared(machine.kernel(1e-3), machine.kernel(1e-3), EFFORT, math.inf)
    assert times.ratio == pytest.approx(1, rel=0.05)
    assert len(times.seconds) > EFFORT.least
    assert machine.now < 2 * EFFORT.seconds


def test_a_slow_candidate_is_given_up_after_its_first_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    times = compared(machine.kernel(1.0), machine.kernel(1e-3), EFFORT, 0.9)
    assert times.ratio == pytest.approx(1000)
    assert machine.now < 3


def test_a_candidate_that_is_surely_worse_gets_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(0)
    machine = Machine(monkeypatch, iter(lambda: 1 + draws.expovariate(20), None))
    worse = compared(machine.kernel(1.5e-3), machine.kernel(1e-3), EFFORT, 1.0)
    equal = compared(machine.kernel(1e-3), machine.kernel(1e-3), EFFORT, 1.0)
    assert len(worse.seconds) == EFFORT.least < len(equal.seconds)


def test_a_short_call_is_timed_many_times_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    compared(machine.kernel(1e-7), machine.kernel(1e-7), EFFORT, math.inf)
    assert machine.now > 2 * EFFORT.least * timing.SAMPLE_SECONDS * 0.99


def test_of_a_slow_reference_few_samples_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    times = compared(machine.kernel(1e-3), machine.kernel(0.1), EFFORT, math.inf)
    assert times.ratio == pytest.approx(0.01)
    assert machine.now < 0.5


def test_long_calls_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    times = compared(machine.kernel(1.0), machine.kernel(2.0), EFFORT, math.inf)
    assert times.ratio == pytest.approx(0.5)
    assert machine.calls <= 6


def test_disturbed_samples_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third call has to wait for a processor, for longer than it takes."""
    waits = itertools.cycle([5e-3, 0.0, 0.0])
    machine = Machine(monkeypatch)
    times = compared(machine.kernel(1e-3, lambda: next(waits)), machine.kernel(1e-3), EFFORT, math.inf)
    assert times.ratio == pytest.approx(1)
    assert 0.2 < times.disturbed < 0.5
    assert not times.doubtful


def test_what_is_compared_with_a_disturbed_reference_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the default options on two threads beside a candidate on one, while others keep one of two processors busy."""
    machine = Machine(monkeypatch)
    times = compared(machine.kernel(1e-3), machine.kernel(1e-4, lambda: 1e-2), EFFORT, math.inf)
    assert times.doubtful
    assert times.disturbed == 1


def test_a_reference_that_looked_slow_at_first_is_timed_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call after a pause takes ten times as long; what is told of the reference was taken on a busy machine."""
    machine = Machine(monkeypatch)
    plain = machine.kernel(2e-5)

    def reference(calls: int) -> float:
        return 10 * plain(1) if calls == 1 else plain(calls)

    times = timing.compared(plain, reference, 1e-2, EFFORT, math.inf)
    assert times.ratio == pytest.approx(1)


def test_where_all_samples_are_disturbed_the_fastest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(0)
    machine = Machine(monkeypatch)

    def waits() -> float:
        return draws.uniform(1e-4, 1e-2)

    times = compared(machine.kernel(2e-3, waits), machine.kernel(1e-3, waits), EFFORT, math.inf)
    assert times.disturbed == 1
    assert times.doubtful
    assert len(times.seconds) == len(times.reference) == EFFORT.least
    assert max(times.seconds) < 7e-3


def test_with_priority_nothing_is_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(0)
    machine = Machine(monkeypatch)
    machine.permits = True

    def waits() -> float:
        return draws.uniform(1e-4, 1e-2)

    times = compared(machine.kernel(2e-3, waits), machine.kernel(1e-3, waits), EFFORT, math.inf)
    assert machine.prior
    assert times.disturbed == 0
    assert times.ratio == pytest.approx(2)


def test_priority_is_taken_for_all_threads_and_once() -> None:
    """In a process of its own, which may be refused it."""
    program = """
import os, threading, time
from tcomp.tuner.measuring.timing import take_priority
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
threading.Thread(target=time.sleep, args=(1,)).start()
taken = take_priority()
policies = {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}
assert policies == ({os.SCHED_RR} if taken else {os.SCHED_OTHER}), policies
assert not take_priority()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_a_candidate_is_not_given_up_for_what_others_did(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = itertools.chain([1.0] * 2, itertools.repeat(0.0))
    machine = Machine(monkeypatch)
    times = compared(machine.kernel(1e-3, lambda: next(waits)), machine.kernel(1e-3), EFFORT, 1.0)
    assert times.ratio == pytest.approx(1)


def test_the_confidence_interval_holds_the_median_as_often_as_it_says() -> None:
    draws = random.Random(0)
    held = 0
    for _ in range(1000):
        low, high = confidence([draws.expovariate(1) for _ in range(20)])
        held += low <= math.log(2) <= high
    assert held >= 930
