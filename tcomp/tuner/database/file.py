"""Where the database lies, and whether its file is believed.

It is if it is a regular file of this user that nobody else may write.  One that is damaged is moved aside when a run
starts, and a new one begun.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
import warnings
from contextlib import suppress
from pathlib import Path

from tcomp import debug
from tcomp.storage.cache import store
from tcomp.storage.filelocks import exclusive
from tcomp.tuner.database.database import FORMAT, Database, TuningWarning
from tcomp.tuner.database.identity import Identity
from tcomp.tuner.database.records import Tuned

_NAME = f"tuned-v{FORMAT}.sqlite3"
_LOCK = ".lock-tuned"
_LONGEST_WAIT = 60.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


def open_database() -> Database:
    """The database that the environment asks for, for a run: in memory, with a warning, where the file cannot serve."""
    path = database_path()
    if path is None:
        return Database()
    try:
        with exclusive(path.with_name(_LOCK), _LONGEST_WAIT):
            return _opened(path)
    except (OSError, sqlite3.Error) as error:
        _warn(f"cannot keep what tuning finds in {path}: {getattr(error, 'strerror', None) or error}")
        return Database()


def _opened(path: Path) -> Database:
    """Raises OSError or sqlite3.Error if the file cannot serve; one that is damaged is moved aside first."""
    try:
        return _sound(path)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) not in _DAMAGED:
            raise
        aside = path.with_name(f"{path.stem}-damaged-{time.time_ns()}{path.suffix}")
        path.replace(aside)
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
        _warn(f"{path} is damaged ({error}) and was moved to {aside.name}; tuning starts a new one")
        return _sound(path)


def _sound(path: Path) -> Database:
    """Raises sqlite3.DatabaseError if the file's structure is damaged."""
    database = _own(path)
    try:
        database.check()
    except BaseException:
        database.close()
        raise
    return database


def is_there() -> bool:
    """Whether there is a file to look into: telling what a program is takes longer than asking that."""
    path = database_path()
    return path is not None and path.exists()


def look_up(identity: Identity) -> Tuned | None:
    """What is known of this, for a call: nothing where there is no file, or none that can be used."""
    path = database_path()
    if path is None or not path.exists():
        return None
    try:
        with _own(path) as database:
            return database.best(identity)
    except (OSError, sqlite3.Error) as error:
        _warn(f"cannot look for tuned options in {path}: {getattr(error, 'strerror', None) or error}")
        return None


def database_path() -> Path | None:
    """The file that the environment asks for: ``TCOMP_TUNED``, else one beside the cache; None if there is none."""
    if not debug.tuned_enabled():
        return None
    chosen = debug.tuned_file()
    if chosen is not None:
        return chosen.absolute()
    directory = store().directory
    return None if directory is None else directory.parent / _NAME


def _own(path: Path) -> Database:
    """The database in a file that nobody else may write.  Raises OSError or sqlite3.Error."""
    _check_own(path)
    return Database(path)


def _check_own(path: Path) -> None:
    """Raises OSError unless a file is absent, or a regular one of this user that nobody else may write."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise OSError(0, "others may have written it")
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _warn(message: str) -> None:
    warnings.warn(message, TuningWarning, stacklevel=3)
