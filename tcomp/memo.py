"""Values that are made once per key, however many threads ask for them, and that survive a fork."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

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
        _SURVIVORS.add(self)

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

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._making.clear()


class Renewed(Generic[V]):
    """A lock or the like that forked children get afresh: in a copy, other threads of the parent may hold it."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self.value = make()
        _SURVIVORS.add(self)

    def _after_fork(self) -> None:
        self.value = self._make()


_SURVIVORS: weakref.WeakSet[Memo[Any, Any] | Renewed[Any]] = weakref.WeakSet()

ISL = Renewed(threading.RLock)
"""Held by the thread that works with isl: its context, bounds on work included, belongs to one at a time."""


FORK_SECONDS = 5.0
"""How long a fork waits for a thread that works with isl."""

_forking = threading.local()


def _wait_for_isl() -> None:
    """Let no thread work with isl while the process forks: the child would have that work half done, and locked."""
    lock = ISL.value
    _forking.held = lock if lock.acquire(timeout=FORK_SECONDS) else None


def _go_on() -> None:
    if _forking.held is not None:
        _forking.held.release()


def _renew() -> None:
    for survivor in list(_SURVIVORS):
        survivor._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_isl, after_in_parent=_go_on, after_in_child=_renew)
