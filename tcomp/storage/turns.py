"""Turns at the processor: threads that wait for a program of others let the next ones work meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HELD = threading.local()


@contextmanager
def working(turns: threading.Semaphore) -> Iterator[None]:
    """Work when there is a turn, and have it during the block, or until this thread stands aside."""
    turns.acquire()
    _HELD.turns = turns
    try:
        yield
    finally:
        stand_aside()


def stand_aside() -> None:
    """Let others have the turn of this thread, if it has one, before it waits.

    It does not ask for a turn again: those who have all turns may wait for what this thread makes.
    """
    turns: threading.Semaphore | None = getattr(_HELD, "turns", None)
    _HELD.turns = None
    if turns is not None:
        turns.release()
