"""Turns at the processor: threads that wait for a program of others let the next ones work meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HELD = threading.local()


@contextmanager
def working(turns: threading.Semaphore) -> Iterator[None]:
    """Work when there is a turn, and have it during the block."""
    with turns:
        _HELD.turns = turns
        try:
            yield
        finally:
            _HELD.turns = None


@contextmanager
def standing_aside() -> Iterator[None]:
    """Wait for something in the block, and let others have the turn of this thread, if it has one."""
    turns: threading.Semaphore | None = getattr(_HELD, "turns", None)
    if turns is None:
        yield
        return
    turns.release()
    try:
        yield
    finally:
        turns.acquire()
