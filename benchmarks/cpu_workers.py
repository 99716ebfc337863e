"""Processes with one peer each, asked in turn; one that hangs or dies is started again."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from benchmarks.gpu_workers import ROOT

_START_SECONDS = 600.0
"""How long importing a peer may take: a minute for TVM, or much longer on a busy machine."""

Reply = dict[str, Any]


class WorkerError(Exception):
    """A request that came to nothing: the peer raised, its process ended, or the time was up."""


class MissingPeerError(WorkerError):
    """The peer is not installed."""


class Worker:
    """A peer's process; it starts with the first request.  ``folder`` is for what peers keep on disk."""

    def __init__(self, peer: str, threads: int, folder: Path) -> None:
        self.peer, self.version = peer, ""
        self._threads, self._folder, self._log = threads, folder, folder / "stderr.txt"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def start(self) -> None:
        """Start the process if there is none.  Raises MissingPeerError if the peer is not installed."""
        if self._process is not None:
            return
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.cpu_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=os.environ | _environment(self._folder),
            )
        self._lines = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        self.version = self._ask({"peer": self.peer, "threads": self._threads}, _START_SECONDS)["version"]

    def ask(self, do: str, within: float, **values: Any) -> Reply:
        """The reply to a request, ``within`` so many seconds.  Raises WorkerError."""
        self.start()
        return self._ask({"do": do} | values, within)

    def _ask(self, request: Reply, seconds: float) -> Reply:
        assert self._process is not None and self._process.stdin is not None
        line: str | None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=seconds)
        except BrokenPipeError:
            line = None
        except queue.Empty:
            self.stop()
            raise WorkerError(f"given up after {seconds:.0f} s") from None
        except KeyboardInterrupt:
            self.stop()
            raise
        if line is None:
            raise WorkerError(f"its process ended with status {self._process.wait()}: {self._end_of_log()}")
        reply: Reply = json.loads(line)
        if reply["error"]:
            raise (MissingPeerError if reply.get("missing") else WorkerError)(reply["error"])
        return reply

    def _end_of_log(self) -> str:
        """The last of what the process said on stderr; the process is done with."""
        self.stop()
        return self._log.read_text(encoding="utf-8", errors="replace")[-1500:].strip()

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process = None


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


def _environment(folder: Path) -> Mapping[str, str]:
    """Caches of our own, so that first calls compile; no pool of compiling processes that work on the side."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {
        "PYTHONPATH": path,
        "TCOMP_CACHE": str(folder / "tcomp"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
    }
