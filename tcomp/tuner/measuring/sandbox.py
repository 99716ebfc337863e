"""A process in which tasks run one at a time, each in a child of its own: a crash or a hang ends one task only.

It is a subprocess and no child of ``multiprocessing``, so that it also works where those are forbidden, as in the
workers of Dask.  ``tcomp.tuner.measuring.isolation`` is what it runs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar

from tcomp.errors import TcompError
from tcomp.storage.forks import undivided
from tcomp.storage.interrupts import deferred
from tcomp.tuner.database.trials import Outcome

State = TypeVar("State")
StateIn = TypeVar("StateIn", contravariant=True)
StateOut = TypeVar("StateOut", covariant=True)
AnswerOut = TypeVar("AnswerOut", covariant=True)
Answer = TypeVar("Answer")

ALIVE = Ellipsis
"""The sign of life: a constant that pickling keeps."""

_ATTEMPTS = 2
_PROGRAM = """\
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from tcomp.tuner.measuring.isolation import serve
serve(int(sys.argv[2]), json.loads(sys.argv[3]))
os._exit(0)  # taking the interpreter down would take a tenth of a second
"""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds for which a sandbox may be silent and do nothing, while it is to ``start`` and while it is to ``answer``,
    before it is given up, and those in which it must ``end`` when nobody needs it any more, before it is killed."""

    start: float = 60.0
    answer: float = 60.0
    end: float = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer."""

    outcome: Outcome
    message: str


class LostError(TcompError):
    """What a task raises to say what became of it."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Confines:
    """What a task may use.

    ``seconds`` is the wall time until it first reports progress; ``memory`` the bytes that it may take for itself, and
    the setup before it, None for no limit; ``alone`` says that it gets a child of its own, where otherwise one child
    serves until the first failure, as a CUDA context is slow to make.
    """

    seconds: float
    memory: int | None = None
    alone: bool = True


class Progress(Protocol):
    """What a task calls when it begins something.

    ``what`` says what that is, ``seconds`` how long it may take, and ``late`` what has become of a task that takes
    longer.
    """

    def __call__(self, what: str, seconds: float, late: Outcome = Outcome.HUNG) -> None: ...


class Isolate(Protocol):
    """Runs a function in a child, which has a copy of the sandbox's memory; the answer is sent back."""

    def __call__(self, function: Callable[[Progress], Answer], confines: Confines) -> Answer | Failure: ...


class Setup(Protocol[StateOut]):
    """What many tasks need, made once in the sandbox and inherited by the children; equal ones make the same."""

    def prepare(self, isolate: Isolate) -> StateOut:
        """Make it.  Raises TcompError."""
        ...


class Task(Protocol[StateIn, AnswerOut]):
    """Something to do in a child; it is sent there, and so is its answer."""

    def run(self, state: StateIn, progress: Progress) -> AnswerOut:
        """Do it.  Raises TcompError; LostError for what is more than a refusal."""
        ...


@dataclass(frozen=True, slots=True)
class Request(Generic[State, Answer]):
    """What a sandbox is sent; ``setup`` is None where it has the one that the task needs."""

    setup: Setup[State] | None
    task: Task[State, Answer]
    confines: Confines


class Sandbox:
    """A process for tasks; it is started when there is something to do, and again after it died.

    ``environment`` is added to the variables of this process; ``modules`` are imported there before anything else, such
    as one that adds a target.  One thread at a time may ``run``; any may ``kill``.
    """

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str] = ()) -> None:
        self._environment = dict(environment)
        self._modules = tuple(modules)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._setup: object = None
        self._started = False
        self._closed = False
        self.patience = Patience()

    def run(self, setup: Setup[State], task: Task[State, Answer], confines: Confines) -> Answer | Failure:
        """The answer of a task, or why there is none.  Raises TcompError if no process starts.

        A sandbox that is killed from outside loses nothing: the task is then run once more.
        """
        failure = Failure(Outcome.CRASHED, "its sandbox was closed")
        for _ in range(_ATTEMPTS):
            connection = self._connected()
            if connection is None:
                return failure
            try:
                known = self._setup == setup
                connection.send(Request(None if known else setup, task, confines))
                self._setup = setup
                answer: Answer | Failure = self._receive(connection, self.patience.answer)
                return answer
            except (EOFError, OSError) as error:
                self._forget()
                failure = Failure(Outcome.CRASHED, f"its sandbox died ({error or 'without a word'})")
        return failure

    def _receive(self, connection: Connection[Any, Any], silent: float) -> Any:
        """The next answer.  Raises EOFError if the sandbox has died, or is silent and idle for so many seconds.

        While a task runs it gives signs of life; while it makes a setup, it works.
        """
        worked = 0
        while True:
            if not connection.poll(silent):
                before, worked = worked, self._work()
                if worked == before:
                    raise EOFError("it did not answer")
                continue
            message = connection.recv()
            if message is not ALIVE:
                return message

    def _work(self) -> int:
        """Ticks of the processor that the process has had; see proc_pid_stat(5)."""
        process = self._process
        if process is None:
            return 0
        try:
            facts = Path(f"/proc/{process.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return 0
        return int(facts[11]) + int(facts[12])

    def kill(self) -> None:
        """End the process and whatever runs in it, for good; a thread that waits for an answer gets a Failure."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as ours:
                    ours.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the process, which must have nothing to do."""
        self.kill()
        self._forget()

    def _forget(self) -> bool:
        """End the process; whether the sandbox was closed, too."""
        with self._lock:
            self._end()
            return self._closed

    def _end(self) -> None:
        """A sandbox whose connection is closed ends by itself, and ends what it started; killing it would not.

        One that has not begun to work has started nothing.
        """
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        started, self._started = self._started, False
        self._setup = None
        if connection is not None:
            connection.close()
        if process is not None:
            if not started:
                process.kill()
            try:
                process.wait(self.patience.end)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _connected(self) -> Connection[Any, Any] | None:
        """The connection to the process, which is started if need be; None once the sandbox is closed.

        Raises TcompError.
        """
        with os.fdopen(os.memfd_create("tcomp-sandbox"), "w+b") as errors:
            with self._lock:
                if self._closed:
                    return None
                if self._connection is not None:
                    return self._connection
                connection = self._open(errors)
            try:
                # Whoever closes the sandbox meanwhile need not wait for the start.
                self._started = self._receive(connection, self.patience.start) is None
            except (EOFError, OSError):
                self._started = False
            if self._started:
                return connection
            if self._forget():
                return None
            errors.seek(0)
            words = errors.read().decode(errors="replace").strip().splitlines()
            message = words[-1] if words else "it ends without a word"
            raise TcompError(f"no sandbox for candidates starts: {message}")

    def _open(self, errors: IO[bytes]) -> Connection[Any, Any]:
        """Start the process, which writes to ``errors`` why it cannot go on.  Raises TcompError."""
        # A child that is forked meanwhile would keep the sandbox's end of the connection open.
        with undivided():
            ours, theirs = socket.socketpair()
            arguments = (
                json.dumps([str(folder) for folder in sys.path]),
                str(theirs.fileno()),
                json.dumps(self._modules),
            )
            try:
                with deferred(), theirs:
                    self._process = subprocess.Popen(
                        (sys.executable, "-P", "-c", _PROGRAM, *arguments),
                        stdin=subprocess.DEVNULL,
                        stdout=errors,
                        stderr=errors,
                        env=os.environ | self._environment,
                        pass_fds=(theirs.fileno(),),
                        start_new_session=True,
                    )
            except OSError as error:
                ours.close()
                raise TcompError(f"no sandbox for candidates starts: {error.strerror or error}") from None
            self._connection = Connection(ours.detach())
            return self._connection
