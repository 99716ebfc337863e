"""A fuzzer for the front end that is guided by the coverage of the front end's own code.

``python -m tests.hostile.fuzz_parser --seconds 600 --seed 1`` mutates texts, keeps those that take a step between two
lines of ``tcomp.grammar`` that no text before has taken, and mutates these further.  It prints how many texts it
tried, what became of them, and how much of the front end they reach; the exit status is 1 if a text was treated as it
should not be.  Such texts are written to ``--keep``.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tcomp import grammar
from tests.hostile.texts import judge, mutated, seeds, soup

_FOLDER = Path(grammar.__file__).resolve().parent
_HANG_SECONDS = 20.0
_QUIET_CALLS, _SAMPLE = 100, 16
_WATCHED = 4
"""One text in so many is watched, which makes it take eight times as long."""

Step = tuple[CodeType, int, int]
"""A function, a line of it, and the line that ran next; 0 stands for its start."""


class Coverage:
    """The steps that the front end has taken so far.

    Watching costs far more than running, so a function that has been called ``_QUIET_CALLS`` times without a new step
    is watched in one call of ``_SAMPLE`` from then on.
    """

    def __init__(self) -> None:
        self.reached: set[Step] = set()
        self._ours: dict[CodeType, bool] = {}
        self._quiet: dict[CodeType, int] = {}

    def is_new(self, run: Callable[[], object]) -> bool:
        """Call a function; whether it takes steps that no call before has been seen to take."""
        before = len(self.reached)
        sys.settrace(self._enter)
        try:
            run()
        finally:
            sys.settrace(None)
        return len(self.reached) > before

    def lines(self) -> int:
        """How many lines of the front end have run."""
        return len({(code.co_filename, line) for code, _, line in self.reached})

    def _enter(self, frame: FrameType, event: str, value: object) -> Any:
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            ours = self._ours[code] = _FOLDER in Path(code.co_filename).resolve().parents
        if not ours:
            return None
        quiet = self._quiet[code] = self._quiet.get(code, 0) + 1
        if quiet > _QUIET_CALLS and quiet % _SAMPLE:
            return None
        reached, last = self.reached, 0

        def follow(frame: FrameType, event: str, value: object) -> Any:
            nonlocal last
            if event == "line":
                step = (code, last, last := frame.f_lineno)
                if step not in reached:
                    reached.add(step)
                    self._quiet[code] = 0
            return follow

        return follow


def executable_lines() -> int:
    """How many lines of the front end could run."""
    found: set[tuple[str, int]] = set()
    for path in _FOLDER.rglob("*.py"):
        stack = [compile(path.read_text(encoding="utf-8"), str(path), "exec")]
        while stack:
            code = stack.pop()
            inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
            stack += inner
            if code.co_flags & 0x2:  # CO_NEWLOCALS: a function, not a module or a class
                found |= {(str(path), line) for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
    return len(found)


@dataclass(slots=True)
class Campaign:
    """What a run of the fuzzer has found."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    pool: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    slowest: float = 0.0

    @property
    def tried(self) -> int:
        """How many texts were judged."""
        return self.outcomes.total()

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        covered = (
            f"{self.coverage.lines()} of {executable_lines()} lines, {len(self.coverage.reached)} steps between lines"
        )
        return (
            f"fuzz_parser: {self.tried} texts, {outcomes}; {len(self.failures)} failures\n"
            f"fuzz_parser: reached {covered}; {len(self.pool)} texts kept; slowest {1e3 * self.slowest:.0f} ms"
        )


class HangError(Exception):
    """A text took too long."""


def fuzz(start: Sequence[str], seed: int, seconds: float = math.inf, texts: float = math.inf) -> Campaign:
    """Try the texts of ``start`` and what mutation makes of them, for so long or so many.

    The same seed tries the same texts in the same order.
    """
    campaign, rng = Campaign(), random.Random(seed)
    end = time.monotonic() + seconds
    for text in start:
        if time.monotonic() < end:
            _attempt(campaign, text, rng, watched=True)
    while time.monotonic() < end and campaign.tried < texts:
        if rng.random() < 0.02:
            text = soup(rng)
        else:
            recent = campaign.pool[-200:] if rng.random() < 0.5 else campaign.pool
            text = mutated(rng, rng.choice(recent or start), start)
        _attempt(campaign, text, rng, watched=campaign.tried % _WATCHED == 0)
    return campaign


def _attempt(campaign: Campaign, text: str, rng: random.Random, watched: bool) -> None:
    def run() -> None:
        campaign.outcomes[judge(text, rng)] += 1

    begin = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, _HANG_SECONDS)
    try:
        if not watched:
            run()
        elif campaign.coverage.is_new(run):
            campaign.pool.append(text)
    except Exception:  # noqa: BLE001  (whatever it is, it is what the fuzzer looks for)
        campaign.outcomes["failed"] += 1
        campaign.failures.append((text, traceback.format_exc()))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    campaign.slowest = max(campaign.slowest, time.perf_counter() - begin)


def _hang(number: int, frame: FrameType | None) -> None:
    raise HangError(f"more than {_HANG_SECONDS:.0f} seconds")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the fuzzer; the exit status is 1 if it found a failure."""
    parser = argparse.ArgumentParser(description="Fuzz the front end of tcomp, guided by its coverage.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="write texts that fail to this directory")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGALRM, _hang)
    campaign = fuzz(seeds(), arguments.seed, arguments.seconds)
    for number, (text, failure) in enumerate(campaign.failures):
        sys.stdout.write(f"--- failure {number}\n{text!r}\n{failure}\n")
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / f"failure{number}.tc").write_text(text, encoding="utf-8", errors="surrogatepass")
    sys.stdout.write(f"{campaign}\n")
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())
