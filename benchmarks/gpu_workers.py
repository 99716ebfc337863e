"""Parts of the benchmark in processes of their own, so that a kernel that crashes or hangs costs one item, not the run.

After a fault CUDA works again only in a new process: the worker that met it ends, and another one goes on behind it.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

ROOT = Path(__file__).resolve().parents[1]

Status = Literal["done", "failed", "left out"]

_START_SECONDS = 120.0
"""How long a worker may take until its first item: loading torch takes seconds, or much longer on a busy machine."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What workers must know.

    ``target`` is ``cuda:sm_90`` or ``simulator:sm_90``, say.  Timing of one case stops after ``case_seconds``; an item
    that takes longer than ``item_seconds`` is given up.  ``plain_memory`` allocates each array by itself, so that
    compute-sanitizer sees where it ends.  Cases are tuned for ``tune_seconds`` first, if that is not 0.
    """

    target: str
    quick: bool = False
    case_seconds: float = 4.0
    item_seconds: float = 150.0
    plain_memory: bool = False
    tune_seconds: float = 0.0

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on a device."""
        return self.target.startswith("cuda")

    @property
    def architecture(self) -> str:
        """What is compiled for, such as ``sm_90``."""
        return self.target.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an item of a part; ``error`` is empty if it is done."""

    part: str
    item: str
    status: Status
    seconds: float = 0.0
    error: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


Each = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Part:
    """Items for one function of ``gpu_worker``; ``prefix`` is a command that runs the worker's, ``jobs`` how many."""

    name: str
    items: tuple[str, ...]
    settings: Settings
    prefix: tuple[str, ...] = ()
    jobs: int = 1

    def run(self, stop_at: float, each: Each) -> None:
        """Hand every item's outcome to ``each``, one at a time; what is not done at ``stop_at`` is left out."""
        lock = threading.Lock()

        def one_by_one(outcome: Outcome) -> None:
            with lock:
                each(outcome)

        def share(number: int) -> None:
            self._run_all(self.items[number :: self.jobs], stop_at, one_by_one)

        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(share, range(self.jobs)))

    def _run_all(self, items: Sequence[str], stop_at: float, each: Each) -> None:
        """Workers after one another until no item is left."""
        left = list(items)
        while left and time.monotonic() < stop_at:
            before = len(left)
            worker = _Worker(self, left, stop_at, each)
            if not worker.run():
                break
            if len(left) == before:
                each(Outcome(self.name, left.pop(0), "failed", 0.0, f"its process did not start: {worker.messages()}"))
        for item in left:
            each(Outcome(self.name, item, "left out", 0.0, "the time was up"))


class _Worker:
    """One process that works on the items of ``left``, which shrinks."""

    def __init__(self, part: Part, left: list[str], stop_at: float, each: Each) -> None:
        self._part, self._left, self._stop_at, self._each = part, left, stop_at, each
        self._log: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (open as long as the worker)
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            [*part.prefix, sys.executable, "-m", "benchmarks.gpu_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()

    def run(self) -> bool:
        """Until the process ends, or must be ended.  False if the time is up."""
        assert self._process.stdin is not None
        task = {"part": self._part.name, "settings": asdict(self._part.settings), "items": self._left}
        try:
            self._process.stdin.write(json.dumps(task))
            self._process.stdin.close()
        except BrokenPipeError:
            self._process.wait()
            return True
        threading.Thread(target=self._read, daemon=True).start()
        in_time = self._follow()
        self._process.kill()
        self._process.wait()
        return in_time

    def messages(self) -> str:
        """The end of what the process said on stderr."""
        self._log.seek(0)
        return self._log.read()[-1500:].strip()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _follow(self) -> bool:
        """Pass on what the process says.  False if the time is up."""
        current, started = "", time.monotonic()
        while True:
            limit = self._part.settings.item_seconds if current else _START_SECONDS
            until = min(started + limit, self._stop_at)
            try:
                line = self._lines.get(timeout=max(0.1, until - time.monotonic()))
            except queue.Empty:
                if until >= self._stop_at:
                    return False
                if current:
                    self._end(current, "failed", time.monotonic() - started, f"given up after {limit:g} s", {})
                return True
            if line is None:
                if current:
                    code = self._process.wait()
                    why = f"its process ended with status {code}: {self.messages()}"
                    self._end(current, "failed", time.monotonic() - started, why, {})
                return True
            message = json.loads(line)
            if "begin" in message:
                current, started = message["begin"], time.monotonic()
            else:
                self._end(current, message["status"], message["seconds"], message["error"], message["result"])
                current, started = "", time.monotonic()

    def _end(self, item: str, status: Status, seconds: float, error: str, result: Mapping[str, Any]) -> None:
        self._left.remove(item)
        self._each(Outcome(self._part.name, item, status, round(seconds, 3), error, result))
