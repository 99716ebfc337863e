"""What tuning found, kept in one SQLite file that many processes may use at a time.

Each trial is a transaction of its own, on the disk before the next candidate starts, so whatever ends a process, all
but the candidate in flight is there when it runs again.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcomp.errors import TcompError
from tcomp.tuner.database.identity import Identity
from tcomp.tuner.database.records import (
    Tuned,
    identity_from_plain,
    trial_from_plain,
    trial_to_plain,
    tuned_from_plain,
    tuned_to_plain,
)
from tcomp.tuner.database.trials import Outcome, Trial
from tcomp.version import __version__

FORMAT = 1
_BUSY_SECONDS = 20.0
_RETRY_SECONDS = 0.01

_SCHEMA = """
CREATE TABLE problems (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    program TEXT NOT NULL,
    sizes TEXT NOT NULL,
    strides TEXT NOT NULL,
    target TEXT NOT NULL,
    device TEXT NOT NULL,
    version TEXT NOT NULL,
    label TEXT NOT NULL
);
CREATE TABLE tuned (
    problem INTEGER PRIMARY KEY REFERENCES problems ON DELETE CASCADE,
    options TEXT NOT NULL,
    times TEXT NOT NULL,
    baseline TEXT NOT NULL,
    confirmed INTEGER NOT NULL,
    trials INTEGER NOT NULL,
    at REAL NOT NULL,
    worker TEXT NOT NULL
);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    problem INTEGER NOT NULL REFERENCES problems ON DELETE CASCADE,
    outcome TEXT NOT NULL,
    at REAL NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX trials_of ON trials (problem);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    problem INTEGER NOT NULL REFERENCES problems ON DELETE CASCADE,
    settings TEXT NOT NULL,
    spent REAL NOT NULL,
    ended INTEGER NOT NULL
);
CREATE INDEX runs_of ON runs (problem);
"""

_PROBLEM_COLUMNS = "program, sizes, strides, target, device, version, label"
_JSON_COLUMNS = ("sizes", "strides", "options", "times", "baseline")
_TUNED_COLUMNS = "options, times, baseline, confirmed, trials, at, worker"


class TuningWarning(UserWarning):
    """What tuning found cannot be kept or used; programs still run, with what the model of the target chooses."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of each there are, or were moved or removed."""

    tuned: int = 0
    trials: int = 0


class Database:
    """Tuned results, trials and runs.  Use as a context manager, in one thread."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Open the file, made if need be; None keeps everything in memory.  Raises sqlite3.Error."""
        self.path = None if path is None else Path(path)
        self._warned = False
        self.lost: dict[Identity, str] = {}
        """Why the last result that was to be kept for these is not."""
        self._connection = _connected(":memory:" if self.path is None else self.path)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if self._format() == 0:
            _write_ahead(connection)
            with _transaction(connection):
                # Another process may have been faster.
                if self._format() == 0:
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {FORMAT}")
        if self._format() != FORMAT:
            raise sqlite3.DatabaseError(f"it has format {self._format()}, and this version of tcomp reads {FORMAT}")

    def _format(self) -> int:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def best(self, identity: Identity) -> Tuned | None:
        """What is known of exactly this."""
        found = self._tuned("WHERE key = ?", (identity.key,))
        return found[0] if found else None

    def known(self, identity: Identity) -> Tuned | None:
        """The same for a run: nothing, and a warning, if the file was damaged meanwhile."""
        try:
            return self.best(identity)
        except sqlite3.Error as error:
            self._warn(error)
            return None

    def tuned(self) -> list[Tuned]:
        """Everything, latest first."""
        return self._tuned("ORDER BY at DESC", ())

    def near(self, identity: Identity, count: int) -> list[Tuned]:
        """Results for the same program and kind of target, nearest sizes first; this identity itself excluded."""
        kind = identity.target.partition(":")[0]
        found = self._tuned(
            "WHERE program = ? AND (target = ? OR target LIKE ? || ':%') AND key != ?",
            (identity.program, kind, kind, identity.key),
        )
        return sorted(found, key=lambda tuned: _distance(identity, tuned.identity))[:count]

    def _tuned(self, rest: str, values: Sequence[object]) -> list[Tuned]:
        query = f"SELECT {_PROBLEM_COLUMNS}, {_TUNED_COLUMNS} FROM tuned JOIN problems ON problems.id = problem {rest}"
        return [t for row in self._connection.execute(query, values) for t in _decoded(row)]

    def keep(self, tuned: Tuned) -> None:
        """Make this the best known for its identity."""
        plain = tuned_to_plain(tuned)
        values = [json.dumps(plain[name]) for name in ("options", "times", "baseline")]

        def write() -> None:
            problem = self._problem(tuned.identity, tuned.label)
            self._connection.execute(
                f"INSERT OR REPLACE INTO tuned (problem, {_TUNED_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (problem, *values, tuned.confirmed, tuned.trials, tuned.when, tuned.worker),
            )

        self.lost.pop(tuned.identity, None)
        error = self._keep(write)
        if error is not None:
            self.lost[tuned.identity] = str(error)

    def add(self, identity: Identity, label: str, trial: Trial, run: int | None = None, spent: float = 0.0) -> None:
        """Keep a trial, and what the run that made it has spent by now, in seconds."""
        record = json.dumps(trial_to_plain(trial))

        def write() -> None:
            if run is not None:
                self._connection.execute("UPDATE runs SET spent = ? WHERE id = ?", (spent, run))
            self._connection.execute(
                "INSERT INTO trials (problem, outcome, at, record) VALUES (?, ?, ?, ?)",
                (self._problem(identity, label), trial.outcome.value, trial.when, record),
            )

        self._keep(write)

    def trials(self, identity: Identity) -> list[Trial]:
        """Every trial of exactly this, in order."""
        query = "SELECT record FROM trials JOIN problems ON problems.id = problem WHERE key = ? ORDER BY trials.id"
        return [t for (record,) in self._connection.execute(query, (identity.key,)) for t in _decoded_trial(record)]

    def related(self, identity: Identity, count: int, latest: int) -> list[tuple[Identity, list[Trial]]]:
        """Trials that ran of other problems on the same target and device: of at most so many problems, those tried
        last first, the latest trials of each, in order."""
        query = (
            f"SELECT {_PROBLEM_COLUMNS} FROM problems JOIN trials ON problems.id = problem "
            "WHERE target = ? AND device = ? AND version = ? AND key != ? "
            "GROUP BY problems.id ORDER BY MAX(trials.id) DESC LIMIT ?"
        )
        values = (identity.target, identity.device, identity.version, identity.key, count)
        found = [i for row in self._connection.execute(query, values).fetchall() for i in _identities(row)]
        return [(other, self._ran(other, latest)) for other in found]

    def _ran(self, identity: Identity, latest: int) -> list[Trial]:
        query = (
            "SELECT record FROM trials JOIN problems ON problems.id = problem WHERE key = ? AND outcome IN (?, ?) "
            "ORDER BY trials.id DESC LIMIT ?"
        )
        values = (identity.key, Outcome.MEASURED.value, Outcome.SLOW.value, latest)
        found = [t for (record,) in self._connection.execute(query, values) for t in _decoded_trial(record)]
        return found[::-1]

    def unfinished(self, identity: Identity, settings: str) -> tuple[int, float] | None:
        """The number of a run with these settings that has not ended, and the seconds it spent; the latest."""
        query = (
            "SELECT runs.id, spent FROM runs JOIN problems ON problems.id = problem "
            "WHERE key = ? AND settings = ? AND NOT ended AND typeof(spent) = 'real' ORDER BY runs.id DESC LIMIT 1"
        )
        found = self._connection.execute(query, (identity.key, settings)).fetchone()
        return None if found is None else (int(found[0]), float(found[1]))

    def begin(self, identity: Identity, label: str, settings: str) -> int:
        """Note a new run and return its number, which follows from the time: one that was pruned may still work."""
        number = time.time_ns()

        def write() -> None:
            nonlocal number
            problem = self._problem(identity, label)
            (last,) = self._connection.execute("SELECT MAX(id) FROM runs").fetchone()
            number = max(number, (last or 0) + 1)
            insert = "INSERT INTO runs (id, problem, settings, spent, ended) VALUES (?, ?, ?, 0, 0)"
            self._connection.execute(insert, (number, problem, settings))

        self._keep(write)
        return number

    def note(self, run: int, spent: float, *, ended: bool = False) -> None:
        """Note how many seconds a run has spent, and whether it is over."""
        update = "UPDATE runs SET spent = ?, ended = ? WHERE id = ?"
        self._keep(lambda: self._connection.execute(update, (spent, ended, run)))

    def lock(self, run: int) -> Path | None:
        """The file to lock while working on a run; None in memory, which nobody shares."""
        return None if self.path is None else self.path.with_name(f".lock-run-{run}")

    def prune(self, *, trials: bool = False, everything: bool = False) -> Counts:
        """Remove what other versions of tcomp found; with ``trials`` all trials, too.  Returns how many.

        Raises TcompError.
        """
        connection = self._connection
        before = self.counts()
        try:
            with _transaction(connection):
                if everything:
                    connection.execute("DELETE FROM problems")
                else:
                    connection.execute("DELETE FROM problems WHERE version != ?", (__version__,))
                    if trials:
                        connection.execute("DELETE FROM trials")
                        connection.execute("DELETE FROM runs")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise TcompError(f"cannot prune {self.path}: {error}") from None
        after = self.counts()
        return Counts(before.tuned - after.tuned, before.trials - after.trials)

    def check(self) -> None:
        """Raises sqlite3.DatabaseError if the file's structure is damaged."""
        (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            error = sqlite3.DatabaseError(str(found).replace("\n", " "))
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

    def counts(self) -> Counts:
        """How much there is."""
        (results,) = self._connection.execute("SELECT COUNT(*) FROM tuned").fetchone()
        (trials,) = self._connection.execute("SELECT COUNT(*) FROM trials").fetchone()
        return Counts(results, trials)

    def _problem(self, identity: Identity, label: str) -> int:
        """The row of an identity, made if need be."""
        sizes, strides = json.dumps(dict(identity.sizes)), json.dumps(dict(identity.strides))
        facts = (identity.program, sizes, strides, identity.target, identity.device, identity.version, label)
        self._connection.execute(
            f"INSERT OR IGNORE INTO problems (key, {_PROBLEM_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (identity.key, *facts),
        )
        query = "SELECT id FROM problems WHERE key = ?"
        return int(self._connection.execute(query, (identity.key,)).fetchone()[0])

    def _keep(self, write: Callable[[], object]) -> sqlite3.Error | None:
        """Write in a transaction; a warning, once, and the error if that is not possible, for a run goes on without.

        There may be no room, somebody else may write all the time, or the file may be damaged.
        """
        try:
            with _transaction(self._connection):
                write()
        except sqlite3.Error as error:
            self._warn(error)
            return error
        return None

    def _warn(self, error: sqlite3.Error) -> None:
        if not self._warned:
            self._warned = True
            message = f"cannot keep what tuning finds in {self.path or 'memory'}: {error}"
            warnings.warn(message, TuningWarning, stacklevel=4)


def _connected(path: Path | str) -> sqlite3.Connection:
    """Transactions begin where the code says so."""
    return sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Have the file keep a log.  SQLite does not wait for another process that is writing meanwhile."""
    limit = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > limit:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        # An interrupt may come when it has just begun, or is just over.
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _identities(row: Sequence[Any]) -> Iterator[Identity]:
    """The identity in a row, if it is sound."""
    with suppress(TcompError):
        yield identity_from_plain(_plain(_PROBLEM_COLUMNS, row))


def _decoded(row: Sequence[Any]) -> Iterator[Tuned]:
    """The result in a row; nothing if it is not sound, as where an option was dropped since."""
    with suppress(TcompError):
        plain = _plain(f"{_PROBLEM_COLUMNS}, {_TUNED_COLUMNS}", row)
        yield tuned_from_plain(plain | {"confirmed": bool(plain["confirmed"]), "when": plain["at"]})


def _decoded_trial(record: object) -> Iterator[Trial]:
    with suppress(TcompError):
        yield trial_from_plain(_loaded(record))


def _plain(columns: str, row: Sequence[Any]) -> dict[str, Any]:
    """A row by the names of its columns, of which some are JSON.  Raises TcompError."""
    plain = dict(zip(columns.split(", "), row, strict=True))
    return plain | {name: _loaded(plain[name]) for name in _JSON_COLUMNS if name in plain}


def _loaded(text: object) -> Any:
    """What JSON says.  Raises TcompError: SQLite keeps whatever somebody writes into a column."""
    if not isinstance(text, str):
        raise TcompError("not a text")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TcompError(f"not JSON: {error}") from None


def _distance(one: Identity, other: Identity) -> tuple[bool, bool, float]:
    """How unlike two fixings of one program are: device and target first, then sizes by their ratios."""
    sizes = dict(other.sizes)
    apart = sum(abs(math.log2(max(1, abs(v)) / max(1, abs(sizes.get(name, 1))))) for name, v in one.sizes)
    return one.target != other.target, one.device != other.device, apart
