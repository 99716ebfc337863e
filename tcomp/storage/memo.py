"""Values that are made once per key, however many threads ask for them, and that survive a fork; the last so many."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tcomp.storage.forks import survive

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST_KEPT = 1000
"""Kernels that an operation keeps, and a process even if no operation does: each takes 15 KB, and 230 KB with the
stages of its compilation."""


@dataclass(slots=True)
class _Making:
    """A value on its way: whoever holds the lock makes it; ``error`` is what came of that, if no value did."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    error: Exception | None = None


class Recent(dict[K, V]):
    """A dict of at most ``limit`` entries: what was put in first goes first.  Reading is as fast as with any dict."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._limit:
            # Another thread may be doing the same.
            with suppress(KeyError, StopIteration, RuntimeError):
                del self[next(iter(self))]


class Memo(Generic[K, V]):
    """A table that makes each missing value once.

    Threads that ask for a value in the making wait for it and share the outcome, an error included; an error is not
    kept, so the next request tries again.  If the thread that makes it is interrupted, one of those who wait takes
    over: nothing but a lock tells that somebody is at work, and a lock is let go of at any interrupt.  A fork leaves
    the child a usable table: what other threads of the parent were making is forgotten there.

    Beyond ``limit`` values the one that was asked for least recently is forgotten; None sets no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()
        self._making: dict[K, _Making] = {}
        survive(self)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made by ``make`` if there is none yet.  Raises what ``make`` raises."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            making = self._making.setdefault(key, _Making())
        with making.lock:
            if making.error is not None:
                raise making.error
            with self._lock:
                if key in self._values:
                    return self._values[key]
            try:
                value = make()
            except Exception as error:
                self._end(key, making)
                making.error = error
                raise
            forgotten = None
            with self._lock:
                self._values[key] = value
                if self._limit is not None and len(self._values) > self._limit:
                    forgotten = self._values.popitem(last=False)
            # What it held goes here, not under the lock.
            del forgotten
            self._end(key, making)
            return value

    def _end(self, key: K, making: _Making) -> None:
        with self._lock:
            if self._making.get(key) is making:
                del self._making[key]

    def known(self, key: K) -> V | None:
        """The value of ``key`` if it is ready."""
        with self._lock:
            return self._values.get(key)

    def values(self) -> list[V]:
        """The values that are ready."""
        with self._lock:
            return list(self._values.values())

    def after_fork(self) -> None:
        """Forget what other threads of the parent were making."""
        self._lock = threading.Lock()
        self._making.clear()
