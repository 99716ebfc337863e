"""``tcomp tune`` as a user starts it, killed, interrupted and started again.

    python tests/tuner/test_real_runs.py --kills 20

kills more often, at any moment from the start of the process on.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
COMMAND = ("-m", "tcomp", "tune", "mm.tc", "--sizes", "M=40,N=40,K=40", "--budget", "600", "--strategy", "random")
SPARE = 0.3
"""Seconds after the last trial that a test waits for, within which it kills."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the database has: its trials as they were written, and the settings, seconds and ends of its runs."""

    trials: tuple[tuple[int, str], ...] = ()
    runs: tuple[tuple[str, float, int], ...] = ()


def kept(folder: Path) -> Kept:
    """Read by nothing of tcomp's; checks that the file is sound."""
    if not (folder / "tuned.sqlite3").exists():
        return Kept()
    with closing(sqlite3.connect(folder / "tuned.sqlite3", timeout=20)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'runs'").fetchone()
        if not tables:
            return Kept()
        trials = tuple(connection.execute("SELECT id, record FROM trials ORDER BY id"))
        return Kept(trials, tuple(connection.execute("SELECT settings, spent, ended FROM runs")))


def started(folder: Path) -> subprocess.Popen[str]:
    (folder / "mm.tc").write_text(MM)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    changes = {"TCOMP_TUNED": "tuned.sqlite3", "TCOMP_PRINT_TUNING": "1", "TMPDIR": str(folder), "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, *COMMAND],
        cwd=folder,
        env=os.environ | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(done: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    limit = time.monotonic() + 120
    while not done():
        assert time.monotonic() < limit
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


def alive(session: int) -> bool:
    """Whether a process of a session is left; see proc_pid_stat(5)."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            facts = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(facts[3]) == session and facts[0] != "Z":
            return True
    return False


Wait = Callable[[subprocess.Popen[str], int], None]
"""Waits for the moment to kill a process that has begun with so many trials."""


def killed_again_and_again(folder: Path, waits: Iterable[Wait]) -> Kept:
    """Start the command again and again, and kill it after each of the waits.

    What was kept stays as it is, the command goes on with its run, and nothing that it started outlives it.
    """
    before = Kept()
    for wait in waits:
        process = started(folder)
        wait(process, len(before.trials))
        seen = kept(folder)
        process.kill()
        _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, err
        wait_until(lambda process=process: not alive(process.pid))  # type: ignore[misc]
        after = kept(folder)
        assert after.trials[: len(seen.trials)] == seen.trials
        assert seen.trials[: len(before.trials)] == before.trials
        assert [(s, e) for s, _, e in after.runs] in ([("600.0 s, random, seed 0", 0)], [])
        assert sum(spent for _, spent, _ in after.runs) >= sum(spent for _, spent, _ in before.runs)
        before = after
    return before


def interrupted(folder: Path, before: Kept) -> None:
    """Start the command once more, and end it by Ctrl-C: it has gone on where it was, and leaves nothing behind."""
    folders = len(list(folder.glob("tcomp-tune-*")))
    last = started(folder)
    wait_until(lambda: len(kept(folder).trials) >= len(before.trials) + 3, last)
    last.send_signal(signal.SIGINT)
    out, err = last.communicate(timeout=60)
    assert last.returncode == 130, err
    wait_until(lambda: not alive(last.pid))
    assert not before.trials or f"{len(before.trials)} candidate" in out
    assert not before.trials or "before this run" in out
    assert "interrupted" in out
    assert "Traceback" not in err
    assert "tcomp: mm(M=40, K=40, N=40): " in err
    assert "MappingOptions(" in err
    ((settings, spent, ended),) = kept(folder).runs
    assert (settings, ended) == ("600.0 s, random, seed 0", 0)
    assert sum(spent for _, spent, _ in before.runs) < spent < 300
    # What was killed could not clean up; what was interrupted did.
    assert len(list(folder.glob("tcomp-tune-*"))) == folders


@pytest.mark.long
def test_killed_and_interrupted_runs_lose_nothing_leave_nothing_and_go_on(tmp_path: Path) -> None:
    rng = random.Random(os.getpid())

    def measured(process: subprocess.Popen[str], before: int) -> None:
        wait_until(lambda: len(kept(tmp_path).trials) >= before + 2, process)
        time.sleep(rng.uniform(0.0, SPARE))

    found = killed_again_and_again(tmp_path, [measured, measured])
    assert len(found.trials) >= 4
    assert len(list(tmp_path.glob("tcomp-tune-*"))) == 2
    interrupted(tmp_path, found)


def main() -> None:
    """Kill at any moment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--longest", type=float, default=8.0, help="seconds after which a process is killed at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)

    def some_time(_process: subprocess.Popen[str], _before: int) -> None:
        time.sleep(rng.uniform(0.0, options.longest))

    # A shell lets what it starts in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tcomp-test-") as name:
        found = killed_again_and_again(Path(name), [some_time] * options.kills)
        interrupted(Path(name), found)
        trials, spent = len(found.trials), sum(spent for _, spent, _ in found.runs)
        sys.stdout.write(f"killed {options.kills} times: {trials} trials of {spent:.1f} s kept, and gone on with\n")


if __name__ == "__main__":
    main()
