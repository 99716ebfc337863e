"""Forks and the end of a process whose threads are at work: what they wait for, and what a child does not keep.

A child has a copy of everything but the other threads.  So locks that they hold are held for ever there, and a pipe or
a locked file that they have open stays open as long as the child lives: whoever waits in the parent for its end waits
for the child, which may in turn wait for that thread.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

V = TypeVar("V")

FORK_SECONDS = 5.0
"""How long a fork waits for a thread that works with isl or starts a process."""


class Survivor(Protocol):
    """What a forked child must put in order before it goes on."""

    def after_fork(self) -> None:
        """Called in the child, while it has one thread."""


_SURVIVORS: weakref.WeakSet[Survivor] = weakref.WeakSet()


def survive(survivor: Survivor) -> None:
    """Have ``after_fork`` called in every child, as long as somebody holds the object."""
    _SURVIVORS.add(survivor)


class Renewed(Generic[V]):
    """A lock or the like that forked children get afresh: in a copy, other threads of the parent may hold it."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self.value = make()
        survive(self)

    def after_fork(self) -> None:
        """The child's own."""
        self.value = self._make()


ISL = Renewed(threading.RLock)
"""Held by the thread that works with isl: its context, bounds on work included, belongs to one at a time."""

_UNDIVIDED = Renewed(threading.RLock)


@contextmanager
def undivided() -> Iterator[None]:
    """Let no fork happen during the block, in which descriptors are open that a child must not have."""
    with _UNDIVIDED.value:
        yield


class Unshared:
    """An open file that forked children close: a lock on it would be theirs, too."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        survive(self)

    @property
    def descriptor(self) -> int:
        """Its number.  Raises OSError if it is not open."""
        if self._descriptor is None:
            raise OSError("it is not open")
        return self._descriptor

    def open(self, path: os.PathLike[str], flags: int, mode: int) -> None:
        """As ``os.open``.  Raises OSError."""
        with undivided():
            self._descriptor = os.open(path, flags, mode)

    def close(self) -> None:
        """Close it, unless that is done."""
        with undivided():
            self.after_fork()

    def after_fork(self) -> None:
        """Close it; the parent's stays open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held = threading.local()


def _wait() -> None:
    """Let no thread of the process work with isl, or start a process, while it forks."""
    locks = (ISL.value, _UNDIVIDED.value)
    _held.locks = [lock for lock in locks if lock.acquire(timeout=FORK_SECONDS)]


def _go_on() -> None:
    for lock in reversed(_held.locks):
        lock.release()


def _renew() -> None:
    for survivor in list(_SURVIVORS):
        survivor.after_fork()


def _end() -> None:
    """Let no daemon thread be inside isl when the interpreter ends: it is unwound where it next needs the interpreter,
    and the objects of isl on the way are destroyed with nobody's lock held.

    Who comes from now on waits for a lock that is never released: a thread that takes the old one again and again would
    always have it before one that waits for it.
    """
    before, never = ISL.value, threading.RLock()
    never.acquire()
    ISL.value = never
    before.acquire(timeout=FORK_SECONDS)


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait, after_in_parent=_go_on, after_in_child=_renew)
