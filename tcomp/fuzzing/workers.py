"""Processes in which cases run, so that a crash or a hang ends one case and not the search."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tcomp.errors import TcompError
from tcomp.fuzzing.cases import Case
from tcomp.fuzzing.draws import Draw, Drawn, draw
from tcomp.fuzzing.execution import Outcome, Verdict, execute

ENVIRONMENT: Mapping[str, str] = {"TCOMP_CHECK": "1", "TCOMP_CACHE": "0", "TCOMP_DEBUG": "", "TCOMP_DUMP": ""}
"""Every pass is proved, and nothing comes from, or goes to, the disk."""

CASES_PER_PROCESS = 200
"""Kernels stay loaded until their process ends."""

TIME_LIMIT = "time limit"
"""The kind of a failure that took too long."""

_SHOWN_BYTES = 3000
_START_SECONDS = 60.0
_POLL_SECONDS = 0.5

_PATIENCE = 10.0
"""So many times its limit may go by while a case waits for a processor that others use, or for nothing."""


Answer = Callable[[Draw | Case], Drawn | Outcome]


def answered(request: Draw | Case) -> Drawn | Outcome:
    """A program drawn, or what comes of a case."""
    return draw(request) if isinstance(request, Draw) else execute(request)


@dataclass(frozen=True, slots=True)
class Result:
    """A case, what came of it, and the seconds that it took."""

    case: Case | None
    outcome: Outcome
    seconds: float


class Worker:
    """A process that runs cases one at a time; it is started when there is something to do, and again when it died.

    A case that takes more than ``limit`` seconds of the processor fails.  ``answer`` is what the process does, a
    function that it can import.
    """

    def __init__(self, limit: float, answer: Answer = answered) -> None:
        self._limit = limit
        self._answer = answer
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        handle, name = tempfile.mkstemp(prefix="tcomp-fuzz-", suffix=".log")
        os.close(handle)
        self._log = Path(name)
        self._done = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._log.unlink(missing_ok=True)

    def run(self, case: Case, limit: float | None = None) -> Result:
        """What comes of one case, for which there may be another limit.  Raises TcompError if no process starts."""
        connection = self._ready()
        connection.send(case)
        began = time.monotonic()
        outcome: Outcome = self._receive(connection, self._limit if limit is None else limit)
        result = Result(case, outcome, time.monotonic() - began)
        if outcome.spent:
            self._end()
        return result

    def draw(self, asked: Draw) -> Iterator[Drawn | Result]:
        """A program drawn, then the result of each of its cases; a failure without a case if none could be drawn."""
        connection = self._ready()
        connection.send(asked)
        began = time.monotonic()
        drawn = self._receive(connection, self._limit)
        if isinstance(drawn, Outcome):
            yield Result(None, drawn, time.monotonic() - began)
            return
        yield drawn
        for case in drawn.cases:
            yield self.run(case)

    def kill(self) -> None:
        """End the process with whatever it started; another thread that waits for its answer gets a failure."""
        process = self._process
        if process is not None and process.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()

    def _end(self) -> None:
        self.kill()
        if self._process is not None and self._connection is not None:
            self._process.join()
            self._connection.close()
        self._process = self._connection = None

    def _ready(self) -> Connection:
        if self._connection is None or self._done >= CASES_PER_PROCESS:
            self._end()
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._log, self._answer), daemon=True)
            self._process.start()
            theirs.close()
            self._connection, self._done = ours, 0
            self._await_start(ours)
        self._done += 1
        return self._connection

    def _await_start(self, connection: Connection) -> None:
        failure = self._receive(connection, _START_SECONDS)
        if failure is not None:
            raise TcompError(f"a process for random programs did not start: {failure.detail}")

    def _receive(self, connection: Connection, limit: float) -> Any:
        """The next answer, or the outcome that stands for none."""
        assert self._process is not None and self._process.pid is not None
        before, began = _processor_seconds(self._process.pid), time.monotonic()
        try:
            while not connection.poll(_POLL_SECONDS):
                spent = _processor_seconds(self._process.pid) - before
                if spent > limit or time.monotonic() - began > _PATIENCE * limit:
                    break
            else:
                return connection.recv()
            waited = time.monotonic() - began
            outcome = Outcome(
                Verdict.FAILED, TIME_LIMIT, f"no answer after {spent:.0f} seconds of work in {waited:.0f}"
            )
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            kind = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            outcome = Outcome(Verdict.FAILED, f"the process ended with {kind}", self._last_words())
        self._end()
        return outcome

    def _last_words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-_SHOWN_BYTES:]


def _processor_seconds(process: int) -> float:
    """What a process and the compilers that it ran have taken; 0 for one that has ended.  See proc_pid_stat(5)."""
    try:
        facts = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, facts[11:15])) / os.sysconf("SC_CLK_TCK")


def _serve(connection: Connection, log: Path, answer: Answer) -> None:
    """Answer requests until the connection is closed: what the process runs."""
    os.setsid()
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.update(ENVIRONMENT)
    faulthandler.enable()
    connection.send(None)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        connection.send(answer(request))
