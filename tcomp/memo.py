"""Values that are made once per key, however many threads ask for them, and that survive a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tcomp.forks import survive

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Making:
    """A value on its way: whoever holds the lock makes it; ``error`` is what came of that, if no value did."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    error: Exception | None = None


class Memo(Generic[K, V]):
    """A table that makes each missing value once.

    Threads that ask for a value in the making wait for it and share the outcome, an error included; an error is not
    kept, so the next request tries again.  If the thread that makes it is interrupted, one of those who wait takes
    over: nothing but a lock tells that somebody is at work, and a lock is let go of at any interrupt.  A fork leaves
    the child a usable table: what other threads of the parent were making is forgotten there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[K, V] = {}
        self._making: dict[K, _Making] = {}
        survive(self)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made by ``make`` if there is none yet.  Raises what ``make`` raises."""
        with self._lock:
            if key in self._values:
                return self._values[key]
            making = self._making.setdefault(key, _Making())
        with making.lock:
            if making.error is not None:
                raise making.error
            if key in self._values:
                return self._values[key]
            try:
                value = make()
            except Exception as error:
                self._end(key, making)
                making.error = error
                raise
            with self._lock:
                self._values[key] = value
            self._end(key, making)
            return value

    def _end(self, key: K, making: _Making) -> None:
        with self._lock:
            if self._making.get(key) is making:
                del self._making[key]

    def values(self) -> list[V]:
        """The values that are ready."""
        with self._lock:
            return list(self._values.values())

    def after_fork(self) -> None:
        """Forget what other threads of the parent were making."""
        self._lock = threading.Lock()
        self._making.clear()
