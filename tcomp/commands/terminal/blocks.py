"""A sign of life while kernels are simulated: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import Progress

from tcomp import debug

_SECONDS_OF_SILENCE = 1.0
_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_BETWEEN_LINES = 10.0


class BlocksDisplay:
    """Shows on stderr, from a thread of its own, how many blocks have run.

    ``done`` gives that number and how many are to run.  Nothing is shown of what takes less than a second.
    """

    def __init__(self, done: Callable[[], tuple[int, int]]) -> None:
        self._done = done
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> BlocksDisplay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        if self._over.wait(_SECONDS_OF_SILENCE):
            return
        console = Console(stderr=True)
        if console.is_terminal:
            self._draw(console)
        else:
            self._tell()

    def _draw(self, console: Console) -> None:
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task("simulating blocks")
            while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
                run, count = self._done()
                bar.update(task, completed=run, total=count)

    def _tell(self) -> None:
        begun = time.monotonic()
        while not self._over.wait(_SECONDS_BETWEEN_LINES):
            run, count = self._done()
            debug.say(f"simulated {run} of {count} blocks of a kernel in {time.monotonic() - begun:.0f} s")
