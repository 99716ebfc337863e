"""Try random programs until the time is over; make what fails small, and keep it."""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from tcomp.errors import TcompError
from tcomp.fuzzing.cases import Case
from tcomp.fuzzing.draws import Draw, Drawn
from tcomp.fuzzing.execution import Outcome, Verdict
from tcomp.fuzzing.reduction import reduce_case
from tcomp.fuzzing.workers import TIME_LIMIT, Answer, Result, Worker, answered
from tcomp.storage.wholefiles import write_whole

_REDUCED_PER_KIND = 3
"""Failures of a kind that are made small; the others are counted."""

_HANGING_SECONDS = 20.0
"""What a smaller case must take for one that took too long; there is no time for many longer ones."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What to try: programs of a seed on some targets, in ``jobs`` processes, for so many seconds.

    It ends after so many ``programs``, too, unless that is None.  A case may take ``limit`` seconds of the processor,
    and making a failure small ``reduction_seconds``.  Reproducers are written to ``keep``; None writes none.
    With ``matrices`` programs begin with large products of 16-bit floats, with ``operands`` with those of a type.
    """

    seconds: float
    seed: int
    targets: tuple[str, ...]
    jobs: int
    keep: Path | None
    limit: float
    reduction_seconds: float
    programs: int | None = None
    matrices: bool = False
    operands: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure, as small as it got; ``text`` is its reproducer, and ``path`` where that was written, if it was."""

    number: int
    outcome: Outcome
    text: str
    path: Path | None


@dataclass(slots=True)
class Tally:
    """What has been tried, and what came of it; ``used`` counts for each target what of the compiler was reached."""

    programs: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    used: dict[str, Counter[str]] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def __str__(self) -> str:
        runs = ", ".join(f"{count} {target}" for target, count in sorted(self.runs.items())) or "none"
        return (
            f"{self.programs} programs, {self.runs.total()} runs ({runs}), {self.refused.total()} refused, "
            f"{self.failed.total()} failures"
        )


class Campaign:
    """One search; ``say`` is given lines to show, ``answer`` is what its processes do."""

    def __init__(self, settings: Settings, say: Say, answer: Answer = answered) -> None:
        self.settings = settings
        self._answer = answer
        self.tally = Tally()
        self.failures: list[Failure] = []
        self._say = say
        self._numbers: Iterator[int] = itertools.count()
        self._lock = threading.Lock()
        self._end = 0.0
        self._stopped = False
        self._workers: list[Worker] = []

    def run(self, report_every: float) -> Tally:
        """Try programs until the time is over, telling the counts every so many seconds.  Raises TcompError."""
        if self.settings.keep is not None:
            make_directory(self.settings.keep)
        self._end = time.monotonic() + self.settings.seconds
        with ThreadPoolExecutor(self.settings.jobs) as pool:
            searches = [pool.submit(self._search) for _ in range(self.settings.jobs)]
            try:
                self._watch(report_every, lambda: all(s.done() for s in searches))
            except BaseException:
                self._stopped = True
                for worker in self._workers:
                    worker.kill()
                raise
        for search in searches:
            search.result()
        return self.tally

    def _watch(self, report_every: float, finished: Callable[[], bool]) -> None:
        following = time.monotonic() + report_every
        while not finished():
            time.sleep(0.2)
            if time.monotonic() >= following:
                following += report_every
                with self._lock:
                    self._say(str(self.tally))

    def _over(self) -> bool:
        return self._stopped or time.monotonic() >= self._end

    def _search(self) -> None:
        """What one thread does, with a process of its own."""
        with Worker(self.settings.limit, self._answer) as worker:
            self._workers.append(worker)
            while not self._over():
                with self._lock:
                    number = next(self._numbers)
                if self.settings.programs is not None and number >= self.settings.programs:
                    return
                settings = self.settings
                asked = Draw(settings.seed, number, settings.targets, settings.matrices, settings.operands)
                for event in worker.draw(asked):
                    if self._stopped:
                        return
                    self._note(event)
                    if isinstance(event, Result) and event.outcome.verdict in (Verdict.FAILED, Verdict.INVALID):
                        self._keep(number, event, worker)

    def _note(self, event: Drawn | Result) -> None:
        with self._lock:
            if isinstance(event, Drawn):
                self.tally.programs += 1
                self.tally.features.update(event.features)
                self.tally.attempts.update(event.attempts)
                return
            if event.case is not None:
                target = event.case.target.partition(":")[0]
                self.tally.runs[target] += 1
                self.tally.used.setdefault(target, Counter()).update(event.outcome.used)
            self.tally.slowest = max(self.tally.slowest, event.seconds)
            if event.outcome.verdict is Verdict.REFUSED:
                self.tally.refused[event.outcome.kind] += 1

    def _keep(self, number: int, result: Result, worker: Worker) -> None:
        """Count a failure, make it small unless there are enough like it, and write it down."""
        kind = result.outcome.kind
        with self._lock:
            self.tally.failed[kind] += 1
            enough = self.tally.failed[kind] > _REDUCED_PER_KIND
        remarks = f"{kind}\nseed {self.settings.seed}, program {number}"
        if result.case is None or enough:
            text = f"{remarks}\n{result.outcome.detail}" if result.case is None else result.case.text(remarks)
            failure = Failure(number, result.outcome, text, None)
        else:
            self._say(f"failure: {kind} (seed {self.settings.seed}, program {number}); making it small")
            end = time.monotonic() + self.settings.reduction_seconds
            failing = Failing(result.case, result.outcome)
            small = reduced(failing, worker, lambda: self._stopped or time.monotonic() >= end)
            text = small.case.text(f"{remarks}\n{small.outcome.detail}")
            failure = Failure(number, small.outcome, text, self._write(kind, text))
        with self._lock:
            self.failures.append(failure)
        if not enough:
            self._say(failure.text if failure.path is None else f"{failure.path}\n{failure.text}")

    def _write(self, kind: str, text: str) -> Path | None:
        if self.settings.keep is None:
            return None
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        words = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")[:50]
        path = self.settings.keep / f"{words}-{digest}.tc"
        try:
            write_whole(path, text.encode())
        except OSError as error:
            raise TcompError(f"cannot write {path}: {error.strerror}") from None
        return path


@dataclass(frozen=True, slots=True)
class Failing:
    """A failing case and what comes of it."""

    case: Case
    outcome: Outcome


def reduced(failing: Failing, worker: Worker, over: Callable[[], bool]) -> Failing:
    """The smallest case found until it is over that fails in the same way; the case itself if it fails no more."""
    last = failing.outcome
    limit = _HANGING_SECONDS if failing.outcome.kind == TIME_LIMIT else None

    def fails(candidate: Case) -> bool:
        nonlocal last
        outcome = worker.run(candidate, limit).outcome
        if (outcome.verdict, outcome.kind) != (failing.outcome.verdict, failing.outcome.kind):
            return False
        last = outcome
        return True

    if not fails(failing.case):
        return Failing(failing.case, replace(last, detail=f"{last.detail}\nit did not fail a second time"))
    smallest = reduce_case(failing.case, fails, over)
    return Failing(smallest, last)


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TcompError(f"cannot make the directory {path}: {error.strerror}") from None
