"""Finished work kept between processes: one checked file per entry, in a directory that only the user can write.

An entry is a line of JSON (kind, key, label, size, digest) and then the payload.  It is written to a temporary file and
renamed into place, so a reader finds a whole entry or none, whoever else writes and whenever a process is killed.  It
is believed only if it is a regular file of this user that nobody else may write and its digest fits; anything else
counts as absent and is made again.  Locks only save work: without them two processes may make the same entry.  Entries
that were used least recently make room for new ones (``eviction.py``).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import tarfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import platformdirs

from tcomp import debug
from tcomp.errors import TcompError
from tcomp.storage.entries import (
    FORMAT,
    LARGEST_ENTRY,
    LARGEST_HEADER,
    DamagedError,
    header,
    read_into,
    read_own,
    unpack,
    write,
)
from tcomp.storage.eviction import mark_used, note_written
from tcomp.storage.filelocks import exclusive
from tcomp.storage.interrupts import deferred
from tcomp.storage.memo import Memo
from tcomp.storage.wholefiles import whole_file

Payload = TypeVar("Payload")

_LARGEST_ARCHIVE = 1 << 30
_MOST_MEMBERS = 100_000
_AROUND_MEMBER = 2 * tarfile.BLOCKSIZE + tarfile.RECORDSIZE
"""Most bytes of an archive for a header, for filling up the last block, and behind the last member."""

_TOO_MUCH = "the cache has more than an import takes; a smaller TCOMP_CACHE_SIZE, or `tcomp cache clear`, makes it less"
_STALE_SECONDS = 3600.0
_LONGEST_TURN = 120.0
_FILE_NAME = re.compile(r"([a-z]+)-([0-9a-f]{64})\Z")


class CacheWarning(UserWarning):
    """The cache on disk cannot be used; kernels still run, but every process compiles them anew."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept result: ``label`` says of what; ``size`` is in bytes, on disk; ``age`` in seconds since it was used."""

    kind: str
    key: str
    label: str
    size: int
    age: float


class Store:
    """Entries in one directory, or in none, where nothing is found and nothing kept.

    No method but ``clear``, ``export_to`` and ``import_from`` raises: a cache that cannot be used is the same as an
    empty one, but for a ``CacheWarning``, given once.
    """

    def __init__(self, directory: Path | None, limit: int | None = None) -> None:
        """``limit`` is how many bytes the entries may take; None sets none."""
        self.directory = directory
        self.limit = limit
        self._warned = False

    def get(self, kind: str, key: str) -> bytes | None:
        """The payload of an entry; None if there is none or it is not to be trusted."""
        return self._read(f"{kind}-{key}", lambda path: unpack(read_own(path), kind, key)[1])

    def get_into(self, kind: str, key: str, room: memoryview) -> bool:
        """Read the payload of an entry into memory of bytes; False if there is none of this size that is to be trusted.

        Then what was in the memory is there still, or zeros are.
        """
        return self._read(f"{kind}-{key}", lambda path: read_into(path, kind, key, room)) is not None

    def _read(self, name: str, read: Callable[[Path], Payload]) -> Payload | None:
        """What ``read`` makes of a file; None if there is none, or it raises OSError or DamagedError."""
        if self.directory is None:
            return None
        path = self.directory / name
        try:
            found = read(path)
            mark_used(path)
            return found
        except FileNotFoundError:
            return None
        except (OSError, DamagedError) as error:
            debug.log(1, f"cache entry {path} is not used: {error}")
            return None

    @contextmanager
    def turn(self, kind: str, key: str) -> Iterator[None]:
        """Hold off other processes that want to make the same entry: who gets here later finds it made.

        For some minutes at most, and not where the directory cannot be written.  256 locks serve all entries, so a
        turn must not be taken within another.
        """
        if self.directory is None:
            yield
            return
        number = hashlib.sha256(f"{kind}-{key}".encode()).hexdigest()[:2]
        with exclusive(self.directory / f".lock-{number}", _LONGEST_TURN):
            yield

    def takes(self, size: int) -> bool:
        """Whether a payload of so many bytes may be kept."""
        return self.directory is not None and size + LARGEST_HEADER <= LARGEST_ENTRY

    def put(self, kind: str, key: str, label: str, payload: bytes | memoryview) -> bool:
        """Keep a payload, in place of an entry that is there; False if that was not possible."""
        if self.directory is None or not self.takes(len(payload)):
            return False
        try:
            # Somebody may have cleared the directory above.
            for path in (self.directory.parent, self.directory):
                path.mkdir(exist_ok=True, mode=0o700)
            with deferred():
                self._write(f"{kind}-{key}", header(kind, key, label, payload), payload)
        except OSError as error:
            if not self._warned:
                self._warned = True
                _warn(f"cannot keep compiled kernels in {self.directory}: {error.strerror or error}")
            return False
        return True

    def entries(self) -> Iterator[Entry]:
        """Every entry whose file is the user's own and has a readable header."""
        now = time.time()
        for path in self._files():
            with suppress(OSError, DamagedError):
                status = path.stat(follow_symlinks=False)
                header, _ = unpack(read_own(path))
                yield Entry(header["kind"], header["key"], header["label"], status.st_size, now - status.st_mtime)

    def clear(self) -> int:
        """Remove every entry, damaged ones included; returns how many.  Raises TcompError."""
        paths = self._files()
        try:
            for path in paths:
                path.unlink(missing_ok=True)
            if self.directory is not None:
                _sweep(self.directory, 0.0)
                for lock in self.directory.glob(".lock-*"):
                    lock.unlink(missing_ok=True)
        except OSError as error:
            raise TcompError(f"cannot clear {self.directory}: {error.strerror or error}") from None
        return len(paths)

    def export_to(self, archive: Path) -> int:
        """Write every sound entry to a new ``.tar.gz``; returns how many.

        Raises TcompError, also where there is more than an import would take.
        """
        count = 0
        try:
            with whole_file(archive) as file, tarfile.open(archive, "w:gz", file, compresslevel=6) as tar:
                for path in self._files():
                    with suppress(FileNotFoundError, DamagedError, PermissionError):
                        content = read_own(path)
                        unpack(content)
                        end = tar.offset + len(content) + _AROUND_MEMBER
                        if end > _LARGEST_ARCHIVE or count == _MOST_MEMBERS:
                            raise TcompError(f"cannot write {archive}: {_TOO_MUCH}")
                        member = tarfile.TarInfo(path.name)
                        member.size = len(content)
                        tar.addfile(member, BytesIO(content))
                        count += 1
        except OSError as error:
            raise TcompError(f"cannot write {archive}: {error.strerror or error}") from None
        return count

    def import_from(self, archive: Path) -> int:
        """Take over the entries of an archive that ``export_to`` wrote; returns how many were sound.

        Entries hold machine code: import only what you would run.  Raises TcompError.
        """
        if self.directory is None:
            raise TcompError("there is no cache directory to import into")
        count = 0
        try:
            with _Unpacked(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as tar:
                for number, member in enumerate(tar):
                    if number >= _MOST_MEMBERS:
                        raise tarfile.ReadError(f"it has more than {_MOST_MEMBERS} members")
                    count += self._take(tar, member)
        except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
            known = str(error) if isinstance(error, tarfile.TarError) else getattr(error, "strerror", None)
            raise TcompError(f"cannot import {archive}: {known or 'it is no archive of kernels'}") from None
        return count

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
        """Keep what a member of an archive holds, if that is a sound entry.  Raises OSError."""
        assert self.directory is not None
        if member.size < 0:
            raise tarfile.ReadError("a member has a negative size")
        named = _FILE_NAME.match(member.name)
        stream = tar.extractfile(member) if named and member.isreg() and not member.issparse() else None
        if named is None or stream is None or member.size > LARGEST_ENTRY:
            return False
        content = stream.read()
        try:
            unpack(content, named[1], named[2])
        except DamagedError:
            return False
        self._write(member.name, content)
        return True

    def _write(self, name: str, *parts: bytes | memoryview) -> None:
        """Make an entry, and room for it.  Raises OSError."""
        assert self.directory is not None
        write(self.directory, name, parts)
        with suppress(OSError):
            if self.limit is not None:
                note_written(self.directory, sum(map(len, parts)), self.limit, _FILE_NAME.match)

    def _files(self) -> list[Path]:
        if self.directory is None:
            return []
        with suppress(OSError):
            return sorted(path for path in self.directory.iterdir() if _FILE_NAME.match(path.name))
        return []


class _Unpacked(gzip.GzipFile):
    """The content of a ``.gz`` file.  Raises OSError at 1 GiB, for a few bytes can stand for any number of them."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= LARGEST_ENTRY:
            raise OSError("a header has a size that no export writes")
        self._check(self.tell() + size)
        return super().read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._check(offset)
        return super().seek(offset, whence)

    def _check(self, offset: int) -> None:
        if offset > _LARGEST_ARCHIVE:
            raise OSError(f"it unpacks to more than {_LARGEST_ARCHIVE >> 20} MiB")


def _sweep(directory: Path, older_than: float) -> None:
    """Remove what killed processes left half-written; a date in the future is one of a clock that was set back."""
    now = time.time()
    for path in directory.glob(".draft-*"):
        with suppress(OSError):
            if abs(now - path.stat(follow_symlinks=False).st_mtime) >= older_than:
                path.unlink()


_STORES: Memo[tuple[Path | None, int | None], Store] = Memo()


def store() -> Store:
    """The cache that the environment asks for: ``TCOMP_CACHE``, else the platform's directory for caches."""
    if not debug.cache_enabled():
        return _STORES.get((None, None), lambda: Store(None))
    limit = debug.cache_limit()
    try:
        base = (debug.cache_directory() or platformdirs.user_cache_path("tcomp")).absolute()
    except (OSError, RuntimeError) as error:
        # The working directory is gone, or nobody knows where this user's home is.
        message = f"no cache: {getattr(error, 'strerror', None) or error}"
        return _STORES.get((Path(), None), lambda: _without(message))
    return _STORES.get((base, limit), lambda: _opened(base, limit))


def _opened(base: Path, limit: int | None) -> Store:
    """The store below ``base``; one without a directory, and a warning, if that cannot serve."""
    try:
        return Store(_prepared(base), limit)
    except OSError as error:
        return _without(f"no cache in {base}: {error.strerror or error}")


def _without(message: str) -> Store:
    _warn(message)
    return Store(None)


def _prepared(base: Path) -> Path:
    """The directory for entries below ``base``, made if need be.  Raises OSError if it cannot serve."""
    if "~" in base.parts:
        raise FileNotFoundError(0, "there is no home directory")
    directory = base / f"v{FORMAT}"
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.mkdir(exist_ok=True, mode=0o700)
    for path in (base, directory):
        _check_safe(path)
    _sweep(directory, _STALE_SECONDS)
    return directory


def _check_safe(path: Path) -> None:
    """Raises PermissionError if another user may put files into a directory, or put another in its place."""
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise PermissionError(0, f"{path} belongs to another user")
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise PermissionError(0, f"others may write {path} (chmod go-w mends that)")


def _warn(message: str) -> None:
    warnings.warn(f"{message}; kernels are compiled anew in each process", CacheWarning, stacklevel=2)
