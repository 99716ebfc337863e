"""Compilers that never end, to be interrupted."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def places(folder: Path) -> dict[str, str | None]:
    """Variables that name a cache and a directory for temporary files of the test's own."""
    (folder / "scratch").mkdir()
    return {"TCOMP_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "scratch")}


def sleeping_compiler(folder: Path) -> Path:
    """A compiler that leaves its process number in ``compiling`` and does not end."""
    path = folder / "sleeping-cc"
    path.write_text(
        f'#!/bin/sh\ncase "$1" in --version) exec gcc "$@";; esac\nsleep 600 & echo $! $$ > {folder}/compiling; wait\n'
    )
    path.chmod(0o755)
    return path


def wait_for(path: Path) -> list[int]:
    """The process numbers that a file will hold."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if path.exists() and path.read_text().endswith("\n"):
            return [int(word) for word in path.read_text().split()]
        time.sleep(0.01)
    raise AssertionError(f"{path.name} never came")


def is_running(process: int) -> bool:
    """Whether a process exists and is not one that merely waits to be reaped."""
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.02)
    return True


def kill(processes: list[int]) -> None:
    """End processes that may have ended."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
