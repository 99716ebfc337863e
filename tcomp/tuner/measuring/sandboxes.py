"""The sandboxes of this process: kept between jobs, lent to one at a time, ended together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tcomp.debug import CACHE
from tcomp.storage.forks import Renewed
from tcomp.tuner.measuring.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Purpose:
    """What tells sandboxes apart: the work, where its kernels are kept, what is imported first and which variables the
    process gets.

    ``work`` is a word such as "compile".
    """

    work: str
    directory: str
    modules: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


class Sandboxes:
    """Those that have nothing to do are lent again, the last one first, since it may have the right setup."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Purpose, list[Sandbox]] = {}
        self._busy: set[Sandbox] = set()
        self._closing = 0

    @contextmanager
    def lent(self, purpose: Purpose) -> Iterator[Sandbox]:
        """A sandbox for one job."""
        with self._lock:
            idle = self._idle.setdefault(purpose, [])
            sandbox = idle.pop() if idle else _made(purpose)
            self._busy.add(sandbox)
            round_ = self._closing
        try:
            yield sandbox
        finally:
            with self._lock:
                self._busy.discard(sandbox)
                keep = round_ == self._closing
                if keep:
                    self._idle.setdefault(purpose, []).append(sandbox)
            if not keep:
                sandbox.close()

    def close(self) -> None:
        """End all, those at work too; jobs that come later get new ones."""
        with self._lock:
            idle = [sandbox for group in self._idle.values() for sandbox in group]
            busy = list(self._busy)
            self._idle.clear()
            self._closing += 1
        for sandbox in (*busy, *idle):
            sandbox.kill()  # they end at the same time
        for sandbox in idle:
            sandbox.close()


def _made(purpose: Purpose) -> Sandbox:
    variables = {CACHE.name: purpose.directory, "OPENBLAS_NUM_THREADS": "1", "TCOMP_DUMP": "", "TCOMP_DEBUG": ""}
    return Sandbox(variables | dict(purpose.environment), purpose.modules)


_OF_PROCESS = Renewed(Sandboxes)
_of_thread = threading.local()


def use(own: Sandboxes) -> None:
    """Let the calling thread take its sandboxes from there, not from those of the process."""
    _of_thread.sandboxes = own


def sandboxes() -> Sandboxes:
    """Those from which the calling thread takes."""
    own: Sandboxes = getattr(_of_thread, "sandboxes", None) or _OF_PROCESS.value
    return own
