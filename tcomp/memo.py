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
    """A value on its way: ``done`` is set when the thread that makes it has a value or an error, or gave up."""

    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class Memo(Generic[K, V]):
    """A table that makes each missing value once.

    Threads that ask for a value in the making wait for it and share the outcome, an error included; an error is not
    kept, so the next request tries again.  A fork leaves the child a usable table: what other threads of the parent
    were making is forgotten there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[K, V] = {}
        self._making: dict[K, _Making] = {}
        _SURVIVORS.add(self)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made by ``make`` if there is none yet.  Raises what ``make`` raises."""
        mine = _Making()
        try:
            while True:
                with self._lock:
                    if key in self._values:
                        return self._values[key]
                    making = self._making.setdefault(key, mine)
                if making is mine:
                    value = make()
                    with self._lock:
                        self._values[key] = value
                    return value
                making.done.wait()
                if making.error is not None:
                    raise making.error
        except Exception as error:
            mine.error = error
            raise
        finally:
            # After an interrupt there is neither value nor error: those who wait start over.
            with self._lock:
                if self._making.get(key) is mine:
                    del self._making[key]
            mine.done.set()

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


def _renew() -> None:
    for survivor in list(_SURVIVORS):
        survivor._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
