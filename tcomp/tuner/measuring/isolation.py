"""What a sandbox runs: it forks a child for each task, waits for it, and says what became of it."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import pickle
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, TypeVar

from tcomp.errors import TcompError
from tcomp.tuner.database.trials import Outcome
from tcomp.tuner.measuring.sandbox import ALIVE, Confines, Failure, LostError, Progress, Request

T = TypeVar("T")

_IDLE_SECONDS = 600.0
_GLANCE_SECONDS = 5.0
_START = "starting"
_SHOWN_BYTES = 2000

_PROCESSOR_SECONDS = 3600
"""What a child and the compilers that it starts may take each, should nobody be left to stop them."""

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36

_FIRST_TO_BE_KILLED = "1000"
"""If memory runs out, of all processes; see proc_pid_oom_score_adj(5)."""

_WANT_OF_MEMORY = ("out of memory", "bad_alloc", "cannot allocate memory")

_GARBLED = (
    *(pickle.UnpicklingError, AttributeError, ImportError, IndexError, KeyError),
    *(MemoryError, TypeError, ValueError),
)
"""What reading a message may raise if its writer had lost its mind."""

_END_SECONDS = 5.0
_END_GLANCE_SECONDS = 0.002


def serve(descriptor: int, modules: Sequence[str]) -> None:
    """Answer requests until the connection is closed, the process at its other end is gone, or nothing comes for long.

    ``modules`` are imported first.  Raises ImportError.
    """
    connection: Connection[Any, Any] = Connection(descriptor)
    for name in modules:
        importlib.import_module(name)
    _prctl(_SET_CHILD_SUBREAPER, 1)
    connection.send(None)
    _Server(connection).serve()


class _ClosedError(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class _Note:
    """What a task is about to do, the seconds that it may take, and what has become of it if it takes longer."""

    what: str
    seconds: float
    late: Outcome


class _Server:
    """``_state`` is what the setup made; ``_child`` serves tasks that need none of their own."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._state: Any = None
        self._child: _Child | None = None

    def serve(self) -> None:
        """See the function of that name."""
        parent = os.getppid()
        try:
            with suppress(EOFError, OSError, _ClosedError):
                while self._request_comes(parent):
                    self._connection.send(self._answer(self._connection.recv()))
        finally:
            self._end_child()

    def _request_comes(self, parent: int) -> bool:
        limit = time.monotonic() + _IDLE_SECONDS
        while not self._connection.poll(_GLANCE_SECONDS):
            if os.getppid() != parent or time.monotonic() > limit:
                return False
        return True

    def _answer(self, request: Request[Any, Any]) -> Any:
        setup, task, confines = request.setup, request.task, request.confines
        if setup is not None:
            self._end_child()
            self._state = None
            with _capped(confines.memory):
                self._state = guarded(lambda: setup.prepare(self._isolated))
        if isinstance(self._state, Failure):
            return self._state
        if confines.alone:
            return self._isolated(lambda progress: task.run(self._state, progress), confines)
        if self._child is None:
            self._child = _Child(self._serve_tasks, confines.memory, self._connection)
        with suppress(OSError):
            self._child.link.send(task)
        answer = self._await(self._child, confines.seconds)
        if isinstance(answer, Failure):
            self._end_child()
        return answer

    def _serve_tasks(self, link: Connection[Any, Any]) -> None:
        while True:
            task = link.recv()
            _reply(link, functools.partial(task.run, self._state))

    def _isolated(self, function: Callable[[Progress], T], confines: Confines) -> T | Failure:
        child = _Child(lambda link: _reply(link, function), confines.memory, self._connection)
        try:
            answer: T | Failure = self._await(child, confines.seconds)
            return answer
        finally:
            child.end()

    def _await(self, child: _Child, seconds: float) -> Any:
        """What a child answers; Failure if it dies or takes too long.  Raises _ClosedError."""
        note = _Note(_START, seconds, Outcome.HUNG)
        limit = time.monotonic() + seconds
        while True:
            left = limit - time.monotonic()
            if left <= 0:
                return Failure(note.late, f"{note.what} took more than {note.seconds:.3g} s")
            ready = wait([child.link, self._connection], min(left, _GLANCE_SECONDS))
            if self._connection in ready:
                raise _ClosedError
            if child.link in ready:
                try:
                    message = child.link.recv()
                except (EOFError, OSError):
                    return child.last_words(note.what)
                except _GARBLED:
                    return Failure(Outcome.CRASHED, f"its memory was damaged while {note.what}")
                if not isinstance(message, _Note):
                    return message
                note, limit = message, time.monotonic() + message.seconds
            else:
                self._connection.send(ALIVE)

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


class _Child:
    """A forked process that runs ``body`` on its end of a connection; ``link`` is the other end."""

    def __init__(
        self, body: Callable[[Connection[Any, Any]], None], memory: int | None, foreign: Connection[Any, Any]
    ) -> None:
        self._errors = os.memfd_create("tcomp-words")
        self.link, theirs = Pipe()
        self.process = os.fork()
        if self.process:
            theirs.close()
            return
        status = 1
        try:
            foreign.close()
            self.link.close()
            self._settle(memory)
            body(theirs)
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)

    def _settle(self, memory: int | None) -> None:
        """What the child does first: it dies with its parent, and says what it says where the parent finds it."""
        _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(self._errors, stream.fileno())
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_BE_KILLED)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _lower(resource.RLIMIT_CPU, _PROCESSOR_SECONDS)
        if memory is not None:
            _lower(resource.RLIMIT_AS, _address_space() + memory)

    def last_words(self, what: str) -> Failure:
        """Why it ended, which it has, or is about to."""
        code = self._exit_code()
        size = os.fstat(self._errors).st_size
        words = os.pread(self._errors, _SHOWN_BYTES, max(0, size - _SHOWN_BYTES)).decode(errors="replace").strip()
        last = words.splitlines()[-1] if words else ""
        if code is None:
            return Failure(Outcome.HUNG, f"it did not end after {what}")
        if code == -signal.SIGKILL:
            return Failure(Outcome.OUT_OF_MEMORY, f"killed while {what}, as the system does when memory runs out")
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        outcome = Outcome.OUT_OF_MEMORY if _wants_memory(words) else Outcome.CRASHED
        return Failure(outcome, f"{how} while {what}{f': {last}' if last else ''}")

    def _exit_code(self) -> int | None:
        """As subprocesses have it; None if it does not end."""
        limit = time.monotonic() + _END_SECONDS
        while time.monotonic() < limit:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                self.process = 0
                return os.waitstatus_to_exitcode(status)
            time.sleep(_END_GLANCE_SECONDS)
        return None

    def end(self) -> None:
        """Kill it and all that it started."""
        self.link.close()
        os.close(self._errors)
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            self.process = 0
        # Compilers that it left behind are now children of this process, which has no others.
        while orphans := _children():
            for orphan in orphans:
                with suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(orphan, 0)


def _reply(link: Connection[Any, Any], function: Callable[[Progress], Any]) -> None:
    """Send what a function gives, or the Failure that stands for what it raises."""

    def progress(what: str, seconds: float, late: Outcome = Outcome.HUNG) -> None:
        link.send(_Note(what, seconds, late))

    link.send(guarded(lambda: function(progress)))


def guarded(function: Callable[[], T]) -> T | Failure:
    """What a function gives; a Failure if it raises MemoryError, or TcompError, the way in which programs refuse."""
    try:
        return function()
    except MemoryError as error:
        return Failure(Outcome.OUT_OF_MEMORY, str(error) or "there is too little memory")
    except LostError as error:
        return Failure(error.outcome, error.message)
    except TcompError as error:
        message = "; ".join(diagnostic.message for diagnostic in error.diagnostics)
        short = isinstance(error.__context__, MemoryError) or _wants_memory(message)
        return Failure(Outcome.OUT_OF_MEMORY if short else Outcome.REJECTED, message)


def _wants_memory(text: str) -> bool:
    return any(words in text.lower() for words in _WANT_OF_MEMORY)


def _children() -> list[int]:
    found: list[int] = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return found


def _address_space() -> int:
    """Bytes of this process; see proc_pid_statm(5)."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextmanager
def _capped(memory: int | None) -> Iterator[None]:
    """Let this process take so many bytes more during the block."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    if memory is not None:
        _lower(resource.RLIMIT_AS, _address_space() + memory)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _lower(limit: int, value: int) -> None:
    """Set a soft limit; the hard one stays."""
    _, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _prctl(option: int, value: int) -> None:
    """See prctl(2); where there is none, nothing happens."""
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
