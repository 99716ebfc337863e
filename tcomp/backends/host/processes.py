"""Compilers as processes: a directory of their own, and bounds on how long they take and how much they say."""

from __future__ import annotations

import functools
import os
import platform
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tcomp.errors import TargetError
from tcomp.storage.forks import undivided
from tcomp.storage.interrupts import deferred

_SHOWN_LINES = 12
_HEARD_BYTES = 1 << 16
_GLANCE_SECONDS = 0.2
_STALE_SECONDS = 86400.0
_PREFIX = "tcomp-work-"
_WORK_DIRECTORY = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}\Z")


@functools.cache
def _settle_standard_library() -> None:
    """Do before the first fork what the standard library does once in a process, under locks.

    A child that is forked while another thread is at it would wait for those locks for ever.
    """
    platform.processor()
    with suppress(OSError):
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX)
        os.close(descriptor)
        Path(name).unlink()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_settle_standard_library)


@contextmanager
def work_directory() -> Iterator[Path]:
    """A new directory for a compiler's files, gone afterwards whatever happens; what a killed process could not
    remove, a later one does after a day.  Raises TargetError."""
    path = None
    try:
        with deferred():
            path = _new_directory()
        _sweep(path.parent)
        yield path
    finally:
        if path is not None:
            with deferred():
                shutil.rmtree(path, ignore_errors=True)


def _new_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError:
        try:
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/dev/shm"))
        except OSError as error:
            raise TargetError(f"there is no directory for temporary files: {error.strerror or error}") from None


@functools.cache
def _sweep(folder: Path) -> None:
    """Remove the work directories of this user that nobody works in any more, once in a process."""
    now = time.time()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _WORK_DIRECTORY.match(entry.name) and entry.is_dir(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                # A date in the future is one of a clock that was set back.
                if status.st_uid == os.geteuid() and abs(now - status.st_mtime) > _STALE_SECONDS:
                    shutil.rmtree(entry.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Running:
    """A process at work, and its standard error, or all it prints."""

    _process: subprocess.Popen[bytes]
    _stream: IO[bytes]

    def finished(self, seconds: float) -> tuple[int, str]:
        """Its exit status and first messages.  Raises TargetError if it takes more than so many seconds from now."""
        limit = time.monotonic() + seconds
        try:
            heard = _hear(self._process, self._stream, limit)
            status = self._process.wait(max(limit - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired as error:
            raise TargetError(f"{error.cmd[0]} did not finish within {seconds:.0f} seconds; it was stopped") from None
        return status, "\n".join(heard.decode(errors="replace").strip().splitlines()[:_SHOWN_LINES])


@contextmanager
def started(
    command: tuple[str, ...], text: str, environment: Mapping[str, str], *, output: bool = False
) -> Iterator[Running]:
    """A process that gets ``text`` as its input, and whose messages are heard, or all that it prints: its ``output``.

    It runs in a process group of its own, of which nothing is left after the block.  Raises TargetError if the process
    does not start, or not end.
    """
    process = None
    try:
        with deferred():
            process = _start(command, text, environment, output)
        stream = process.stdout if output else process.stderr
        assert stream is not None
        yield Running(process, stream)
    finally:
        if process is not None:
            with deferred():
                _end(process)


def run(
    command: tuple[str, ...], text: str, seconds: float, environment: Mapping[str, str], *, output: bool = False
) -> tuple[int, str]:
    """Exit status and first messages of a process (``started``) that may take so many seconds.  Raises TargetError."""
    with started(command, text, environment, output=output) as process:
        return process.finished(seconds)


def _start(
    command: tuple[str, ...], text: str, environment: Mapping[str, str], output: bool
) -> subprocess.Popen[bytes]:
    # A child that is forked meanwhile would keep open the pipes on whose end this process and the new one wait.
    try:
        # Python 3.11.2 leaves what it opens for DEVNULL open if there are no descriptors for a pipe.
        with undivided(), _file(text.encode()) as file, Path(os.devnull).open("wb") as nowhere:
            return subprocess.Popen(
                command,
                stdin=file,
                stdout=subprocess.PIPE if output else nowhere,
                stderr=subprocess.STDOUT if output else subprocess.PIPE,
                bufsize=0,
                env=environment,
                process_group=0,
            )
    except OSError as error:
        raise TargetError(f"cannot start {command[0]}: {error.strerror or error}") from None


@contextmanager
def _file(content: bytes) -> Iterator[IO[bytes]]:
    """A nameless file, open at its beginning.  Raises OSError."""
    with os.fdopen(_nameless(), "w+b") as file:
        file.write(content)
        file.seek(0)
        yield file


def _nameless() -> int:
    """The descriptor of a new file in memory, or of a temporary one where there are none.  Raises OSError."""
    with suppress(OSError, AttributeError):
        return os.memfd_create("tcomp-text")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _hear(process: subprocess.Popen[bytes], stream: IO[bytes], limit: float) -> bytes:
    """The first of what comes, until the process has closed its ``stream``, or has ended though a process that it left
    behind keeps the stream open.  Raises TimeoutExpired."""
    heard = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            remaining = limit - time.monotonic()
            if remaining <= 0:
                raise subprocess.TimeoutExpired(process.args, 0.0)
            if selector.select(min(remaining, _GLANCE_SECONDS)):
                chunk = os.read(stream.fileno(), _HEARD_BYTES)
                if not chunk:
                    return bytes(heard)
                heard += chunk[: _HEARD_BYTES - len(heard)]
            elif process.poll() is not None:
                return bytes(heard)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that still runs, with its children, and let go of what it held."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait()
