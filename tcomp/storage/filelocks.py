"""Locks between processes: one file each, let go of by the system if its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tcomp.storage.forks import Unshared

_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05


@contextmanager
def exclusive(path: Path, seconds: float) -> Iterator[None]:
    """Wait for a lock and hold it during the block.

    What it protects must be right without it: after ``seconds``, or where files cannot be locked, the block runs
    unprotected.  Threads exclude each other like processes.
    """
    file = Unshared()
    try:
        with suppress(OSError):
            file.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            _acquire(file.descriptor, seconds)
        yield
    finally:
        with suppress(OSError):
            # Closing alone would leave the lock to children that a C library forked meanwhile.
            fcntl.flock(file.descriptor, fcntl.LOCK_UN)
        file.close()


@contextmanager
def claimed(path: Path | None) -> Iterator[bool]:
    """Hold a lock during the block if nobody else holds it, without waiting; the block is told whether.

    Where files cannot be locked, or without a path, everybody gets it.  The file is removed at the end.
    """
    file = Unshared()
    free = True
    try:
        if path is not None:
            with suppress(OSError):
                file.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                free = _try(file.descriptor)
        yield free
    finally:
        with suppress(OSError):
            if free and path is not None:
                path.unlink(missing_ok=True)
                fcntl.flock(file.descriptor, fcntl.LOCK_UN)
        file.close()


def _try(descriptor: int) -> bool:
    """Whether the lock was free, and is ours now.  Raises OSError where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(descriptor: int, seconds: float) -> None:
    """Raises OSError where there are no locks."""
    limit = time.monotonic() + seconds
    wait = _FIRST_WAIT
    while time.monotonic() < limit:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            return
