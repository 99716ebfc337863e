"""Tasks for sandboxes: one that works, and one for each way to fail."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tcomp.errors import TcompError
from tcomp.tuner.database.trials import Outcome
from tcomp.tuner.measuring.sandbox import Confines, Isolate, Progress

_ENDLESS = ("loop", "grandchild")


@dataclass(frozen=True, slots=True)
class Counted:
    """A setup that says in which process it was made."""

    number: int = 0

    def prepare(self, isolate: Isolate) -> tuple[int, int]:
        return self.number, os.getpid()


@dataclass(frozen=True, slots=True)
class Busy:
    """A setup that works for some seconds."""

    seconds: float

    def prepare(self, isolate: Isolate) -> tuple[float, int]:
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            pass
        return self.seconds, os.getpid()


@dataclass(frozen=True, slots=True)
class Isolating:
    """A setup that asks a child."""

    def prepare(self, isolate: Isolate) -> object:
        return (
            isolate(lambda _: os.getpid(), Confines(10.0)),
            isolate(lambda _: os.abort(), Confines(10.0)),
            os.getpid(),
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A setup that cannot be made."""

    def prepare(self, isolate: Isolate) -> object:
        raise TcompError("no such problem")


@dataclass(frozen=True, slots=True)
class Tell:
    """What the setup made, and the process that tells it."""

    def run(self, state: object, progress: Progress) -> tuple[object, int]:
        return state, os.getpid()


def refuse() -> None:
    raise TcompError("these options are no good")


def loop() -> None:
    while True:
        pass


def leave_a_grandchild() -> None:
    subprocess.Popen(("sleep", "1000.25"), process_group=0)
    time.sleep(1000)


def write_nonsense() -> None:
    """A message that is none, to whoever listens."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2:
            with suppress(OSError):
                os.write(descriptor, b"\0\0\0\x04abcd")
    time.sleep(1000)


def kill_the_sandbox() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


WAYS: dict[str, Callable[[], object]] = {
    "segmentation fault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(3),
    "python": lambda: 1 // 0,
    "refusal": refuse,
    "memory": lambda: bytearray(1 << 40),
    "chunks": lambda: [bytearray(1 << 20) for _ in range(1 << 20)],
    "loop": loop,
    "grandchild": leave_a_grandchild,
    "nonsense": write_nonsense,
    "sandbox": kill_the_sandbox,
}


@dataclass(frozen=True, slots=True)
class Fail:
    """A way to fail, by name."""

    way: str

    def run(self, state: object, progress: Progress) -> None:
        progress("failing", 1.0 if self.way in _ENDLESS else 60.0)
        WAYS[self.way]()


@dataclass(frozen=True, slots=True)
class Overdue:
    """Something that takes too long, which is said to be ``outcome``."""

    outcome: Outcome

    def run(self, state: object, progress: Progress) -> None:
        progress("waiting", 30.0)
        progress("taking long", 0.2, self.outcome)
        loop()
