"""The database after kill -9 at every few instructions of SQLite: sound, with all that was said to be kept."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tcomp.tuner.database.database import Database
from tcomp.tuner.database.identity import identity_of
from tcomp.tuner.database.records import Tuned
from tests.tuner.problems import problem, tiled, trial

PROBLEM = problem()
IDENTITY = identity_of(PROBLEM.specialisation, PROBLEM.device)
BEST = Tuned(IDENTITY, "mm", tiled(8), (1.0,), (2.0,), True, 4, 1000.0, "here")
TRIALS = [trial(tiled(n)) for n in (2, 4, 8, 16)]
STEP = 29
"""Instructions of SQLite's machine between two kills; a prime, so that loops are left at other places each time."""


def work(path: Path, told: int) -> None:
    """All that a run writes; after each trial a byte to ``told``."""
    with Database(path) as database:
        run = database.begin(IDENTITY, "mm", "settings")
        for number, one in enumerate(TRIALS):
            database.add(IDENTITY, "mm", one, run, float(number))
            os.write(told, b".")
        database.keep(BEST)
        database.note(run, 4.0, ended=True)
    os.write(told, b"!")


def work_until_killed(path: Path, instruction: int) -> bytes:
    """What a process told that is killed before an instruction of SQLite, if it comes to it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        _kill_at(instruction)
        work(path, theirs)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as told:
        words = told.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) == words.endswith(b"!")
    return words


def _kill_at(instruction: int) -> None:
    connect, count = sqlite3.connect, itertools.count()

    def connected(*arguments: Any, **choices: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **choices)
        connection.set_progress_handler(
            lambda: os.kill(os.getpid(), signal.SIGKILL) if next(count) == instruction else 0, 1
        )
        return connection

    sqlite3.connect = connected


@pytest.mark.long
def test_killed_while_it_writes(tmp_path: Path) -> None:
    for number, instruction in enumerate(itertools.count(0, STEP)):
        path = tmp_path / f"{number}.sqlite3"
        told = work_until_killed(path, instruction)
        check = sqlite3.connect(path)
        assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        check.close()
        with Database(path) as database:
            kept, best = database.trials(IDENTITY), database.best(IDENTITY)
            assert kept == TRIALS[: len(kept)]
            assert told.count(b".") <= len(kept) <= told.count(b".") + 1, instruction
            assert best is None or (best == BEST and kept == TRIALS)
            unfinished = database.unfinished(IDENTITY, "settings")
            assert unfinished is not None or not kept or best is not None, "the next run goes on with this one"
        if told.endswith(b"!"):
            assert best == BEST
            assert number > 30, "it was killed at many places"
            return
