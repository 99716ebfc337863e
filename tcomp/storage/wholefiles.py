"""Files that people name: read within bounds, and written so that what was there stays until all of the new is."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LARGEST_TEXT = 1 << 28
"""Bytes of a text that is read: devices never end."""

_PART = 1 << 20
"""Bytes that are read at a time, so that a short file takes no more room."""

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
"""What systems say where a file may be written, but nothing may be made beside it or take its place: its folder or its
owner is another's, or it alone is mounted there."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or send the content to the pipe or device of that name.  Raises OSError; see ``whole_file``."""
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to be written in the block, or the pipe or device of that name.

    The new content takes the old one's place when the disk has all of it.  Where that is not possible, but the file
    itself may be written, it is written where it is.  Raises OSError; the file is then as it was.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    target = _resolved(path)
    # No longer than any name, and unlike any that a killed process has left.
    draft = target.with_name(f".{os.urandom(8).hex()}.new")
    try:
        file = draft.open("xb")
    except OSError as error:
        if error.errno not in _REFUSED or not target.exists():
            raise
        with target.open("wb") as there:
            yield there
        return
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _take_place(draft, target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _resolved(path: Path) -> Path:
    """Raises OSError."""
    try:
        return path.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no file can have this name: {error}") from None


def _take_place(draft: Path, target: Path) -> None:
    """Make a draft the file, with the rights of the one that is there.  Raises OSError."""
    try:
        with suppress(FileNotFoundError):
            status = target.stat()
            if (status.st_uid, status.st_gid) != (draft.stat().st_uid, draft.stat().st_gid):
                os.chown(draft, status.st_uid, status.st_gid)
            shutil.copymode(target, draft)
        draft.replace(target)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        with draft.open("rb") as new, target.open("wb") as there:
            shutil.copyfileobj(new, there)
        draft.unlink()


def read_bounded(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """The content of a file, pipe or device.  Raises OSError; also if it is longer than ``most`` bytes."""
    with path.open("rb") as file:
        return read_stream(file, most)


def read_stream(file: BinaryIO, most: int = LARGEST_TEXT) -> bytes:
    """The rest of an open file.  Raises OSError; also if it is longer than ``most`` bytes."""
    content = bytearray()
    while len(content) <= most:
        wanted = min(_PART, most + 1 - len(content))
        part = file.read(wanted)
        content += part
        if len(part) < wanted:
            return bytes(content)
    raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB")
