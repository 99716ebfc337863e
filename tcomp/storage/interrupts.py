"""Ctrl-C at a moment that suits: an exception inside a callback of a C library is lost, and the library corrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred(notify: Callable[[], object] | None = None) -> Iterator[None]:
    """Keep the handlers of SIGINT and SIGTERM waiting until the block ends, whatever it ends with.

    ``notify`` is called when a signal arrives, to bring the end about.  Signals whose handler is not a function of
    Python's are left alone, and so are those of other threads than the main one, which get none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)
        if notify is not None:
            notify()

    replaced = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                replaced[number] = handler
                signal.signal(number, remember)
        yield
    finally:
        for number, handler in reversed(replaced.items()):
            signal.signal(number, handler)
        for arrival in dict.fromkeys(arrived):
            signal.raise_signal(arrival)
