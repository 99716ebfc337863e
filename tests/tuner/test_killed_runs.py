"""Runs that are killed: nothing that was measured is lost, the file stays sound, the next run goes on."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tcomp.tuner.database.database import Database
from tcomp.tuner.database.file import open_database
from tcomp.tuner.database.identity import identity_of
from tcomp.tuner.database.trials import Outcome
from tests.tuner import killed

KILLS = 20
CONTEXT = multiprocessing.get_context("forkserver")
IDENTITY = identity_of(killed.PROBLEM.specialisation, killed.PROBLEM.device)


class Running:
    """A run in a process of its own, with what it told."""

    def __init__(self, path: Path, count: int = len(killed.CANDIDATES)) -> None:
        ours, theirs = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=killed.search, args=(path, theirs, count), daemon=True)
        self.process.start()
        theirs.close()
        self._told: Connection = ours
        self.measured, self.done = 0, False
        self.left: list[float] = []

    def wait(self, seconds: float) -> None:
        """Listen for so long, after the first word."""
        limit: float | None = None
        while not self.done and (limit is None or time.monotonic() < limit):
            if self._told.poll(0.01 if limit else 60.0):
                self._hear()
                limit = limit or time.monotonic() + seconds

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        while self._told.poll():
            try:
                self._hear()
            except EOFError:
                return

    def _hear(self) -> None:
        message = self._told.recv()
        if message is None:
            self.done = True
        else:
            self.measured, left = message
            self.left.append(left)


def sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    CONTEXT.set_forkserver_preload(["tests.tuner.killed"])
    monkeypatch.setenv("TCOMP_TUNED", str(tmp_path / "tuned.sqlite3"))
    return tmp_path / "tuned.sqlite3"


@pytest.mark.long
def test_kill_9_twenty_times(path: Path) -> None:
    rng = random.Random(1)
    measured = 0
    spent = 0.0
    for _ in range(KILLS):
        running = Running(path)
        running.wait(rng.uniform(0.0, 0.15))
        assert not running.done
        running.kill()
        assert sound(path)
        with open_database() as database:
            trials = database.trials(IDENTITY)
            # Told is what is on the disk; a candidate may have been kept before it was told.
            assert running.measured <= len(trials) <= running.measured + 1
            assert len(trials) >= measured
            kept = database.best(IDENTITY)
            unfinished = database.unfinished(IDENTITY, str(killed.SETTINGS))
        assert [t.options for t in trials] == killed.CANDIDATES[: len(trials)]
        assert {t.outcome for t in trials} <= {Outcome.MEASURED}
        if len(trials) > 2:
            assert kept is not None
            assert not kept.confirmed
        assert running.left[0] <= killed.SETTINGS.budget - spent
        assert unfinished is not None
        assert unfinished[1] >= spent
        spent = unfinished[1]
        measured = len(trials)
    assert measured > KILLS


def test_the_run_after_the_last_kill_ends_well(path: Path) -> None:
    running = Running(path)
    running.wait(0.1)
    running.kill()
    with Database(path) as database:
        unfinished = database.unfinished(IDENTITY, str(killed.SETTINGS))
    assert unfinished is not None
    last = Running(path, running.measured + 60)
    last.wait(60.0)
    assert last.done
    assert last.left[0] <= killed.SETTINGS.budget - unfinished[1]
    with Database(path) as database:
        best = database.best(IDENTITY)
        assert best is not None
        assert best.confirmed
        assert best.options.tile_sizes == (100,)
        assert database.unfinished(IDENTITY, str(killed.SETTINGS)) is None


def test_two_processes_tune_the_same_problem(path: Path) -> None:
    both = [Running(path), Running(path, 60)]
    both[0].wait(0.5)
    both[1].wait(0.0)
    both[0].kill()
    both[1].wait(60.0)
    assert both[1].done
    assert sound(path)
    with Database(path) as database:
        trials = database.trials(IDENTITY)
        best = database.best(IDENTITY)
    assert len(trials) >= max(60, both[0].measured)
    assert best is not None
    assert best.options.tile_sizes == (100,)


def test_a_kill_leaves_no_lock(path: Path) -> None:
    running = Running(path)
    running.wait(0.05)
    running.kill()
    begin = time.monotonic()
    with open_database() as database:
        found = database.unfinished(IDENTITY, str(killed.SETTINGS))
    assert found is not None
    assert 0.0 < found[1] < killed.SETTINGS.budget
    assert time.monotonic() - begin < 10.0
