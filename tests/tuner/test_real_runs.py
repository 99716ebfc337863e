"""``tcomp tune`` as a user starts it, killed, interrupted and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tcomp.tuner.database_file import open_database
from tests.tuner.problems import MM

COMMAND = ("-m", "tcomp", "tune", "mm.tc", "--sizes", "M=40,N=40,K=40", "--budget", "600", "--strategy", "random")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TCOMP_TUNED", str(tmp_path / "tuned.sqlite3"))
    monkeypatch.setenv("TCOMP_PRINT_TUNING", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "mm.tc").write_text(MM)
    return tmp_path


def started(folder: Path) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, *COMMAND],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(done: Callable[[], bool]) -> None:
    limit = time.monotonic() + 120
    while not done():
        assert time.monotonic() < limit
        time.sleep(0.05)


def kept() -> int:
    with open_database() as database:
        return database.counts().trials


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


def test_killed_and_interrupted_runs_leave_nothing_behind_and_go_on(folder: Path) -> None:
    first = started(folder)
    wait_until(lambda: kept() >= 3)
    first.kill()
    first.communicate()
    wait_until(lambda: not alive(first.pid))
    before = kept()
    assert before >= 3

    second = started(folder)
    wait_until(lambda: kept() >= before + 3)
    second.send_signal(signal.SIGINT)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 130, err
    wait_until(lambda: not alive(second.pid))
    assert f"{before} candidates before this run" in out
    assert "interrupted" in out
    assert "Traceback" not in err
    assert "tcomp: mm(M=40, K=40, N=40): " in err
    assert "MappingOptions(" in err
    with open_database() as database:
        (run,) = database._connection.execute("SELECT settings, spent, ended FROM runs").fetchall()
    assert run[0] == "600.0 s, random, seed 0"
    assert 0 < run[1] < 200
    assert not run[2]
    # What was killed could not clean up; what was interrupted did.
    assert len(list(folder.glob("tcomp-tune-*"))) == 1
