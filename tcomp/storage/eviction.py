"""A directory of files that stays below a size: those that were used least recently go.

Looking at every file takes milliseconds, so it is not done for each that is written.  All processes count what they
write by the length of one file; who finds that it stands for a sixteenth of the limit looks.  Nothing depends on the
count being right: if it is lost, somebody looks too early.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tcomp.storage.filelocks import exclusive

COUNTER = ".lock-size"
"""The file whose length counts; it is also locked while files are removed."""

_BLOCK = 4096
"""Bytes for each of which, or part of it, the counter gets longer by one."""

_SHARE = 16
_LONGEST_WAIT = 10.0


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size: int
    unused: float


def note_written(directory: Path, size: int, limit: int, counts: Callable[[str], object]) -> None:
    """Count ``size`` bytes more; remove files if those that ``counts`` is true of take more than ``limit`` bytes.

    Raises OSError.
    """
    counter, most = directory / COUNTER, limit // _SHARE // _BLOCK
    before, after = _lengthen(counter, -(-size // _BLOCK))
    if before and after < most:
        return
    with exclusive(counter, _LONGEST_WAIT):
        # Another process may have looked meanwhile, but not at a new counter.
        if not before or counter.stat().st_size >= most:
            remove_unused(directory, limit - limit // _SHARE, counts)
            os.truncate(counter, 1)


def _lengthen(counter: Path, blocks: int) -> tuple[int, int]:
    """Its length before and afterwards."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(counter, flags, 0o600)
    try:
        before = os.fstat(descriptor).st_size
        os.write(descriptor, bytes(blocks))
        return before, before + blocks
    finally:
        os.close(descriptor)


def remove_unused(directory: Path, limit: int, counts: Callable[[str], object]) -> None:
    """Remove the files that were used least recently until the others take no more than ``limit`` bytes.

    A date in the future is one of a clock that was set back: as far from now as one in the past.
    """
    now = time.time()
    files: list[_File] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if counts(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    files.append(_File(Path(entry.path), status.st_size, abs(now - status.st_mtime)))
    total = sum(file.size for file in files)
    for file in sorted(files, key=lambda file: -file.unused):
        if total <= limit:
            return
        file.path.unlink(missing_ok=True)
        total -= file.size


def mark_used(path: Path) -> None:
    """Make a file the one that was used last."""
    with suppress(OSError):
        os.utime(path, follow_symlinks=False)
