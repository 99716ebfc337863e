"""Compilation while Python looks for no cycles of garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python's collector rest meanwhile, for all threads, unless it does already.

    What is read from the cache, or planned, stays for long and has next to no cycles.  Looking for some among all that
    a process with PyTorch has takes longer than reading.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
