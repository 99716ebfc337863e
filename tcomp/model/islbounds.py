"""Bounds on what isl does for one program, in operations and in time, so that no program makes a compilation hang.

isl counts its operations and gives up at a number set before; nothing stops it at a time, and what an operation costs
differs by a factor of ten and more.  So a step of the compilation is tried with few operations first.  If they are not
enough, it is tried again with more, unless that would take too long at the pace seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import islpy as isl

from tcomp.errors import CompileError, Diagnostic
from tcomp.grammar.tree.function import Function
from tcomp.storage.interrupts import deferred

FIRST_OPERATIONS = 1_000_000
"""What a step may take at the first try.  Attention takes half a million in all its steps."""

MOST_OPERATIONS = 32_000_000
"""What a step may take at the last try; they take half a minute where they are cheap."""

SECONDS = 60.0
"""The processor's time after which no step begins, and no try that would, at the pace of the last one, end later."""

_GROWTH = 4

Value = TypeVar("Value")


class TooComplexError(CompileError):
    """isl has worked on a program as much as it may."""


class Bounds:
    """What is left for one compilation: steps are called through it.

    They may be called several times, so they must not change anything.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._began = time.thread_time()

    def __call__(self, step: Callable[[], Value]) -> Value:
        """The result of a step.  Raises TooComplexError, and whatever the step raises but for isl's refusals."""
        context, operations = isl.DEFAULT_CONTEXT, min(FIRST_OPERATIONS, MOST_OPERATIONS)
        while True:
            before = time.thread_time()
            if before - self._began > SECONDS:
                raise self._too_complex(operations, before - self._began)
            _allow(operations)
            try:
                return step()
            except (isl.Error, TypeError):
                if not gave_up():
                    raise
            now = time.thread_time()
            following = now + _GROWTH * (now - before) - self._began
            if context.aborted() or operations == MOST_OPERATIONS or following > SECONDS:
                raise self._too_complex(operations, now - self._began) from None
            operations = min(_GROWTH * operations, MOST_OPERATIONS)

    def _too_complex(self, operations: int, seconds: float) -> TooComplexError:
        limit = f"{operations} operations in one step, {seconds:.0f} s in all"
        message = f"{self._function.name} is too complex: isl gave up ({limit})"
        return TooComplexError(Diagnostic(message, self._function.source, self._function.definition.span))


@contextmanager
def bounded(function: Function) -> Iterator[Bounds]:
    """Bounds for the steps of one compilation; afterwards isl works without.

    An interrupt makes isl give up at its next operation, and comes when it has.
    """
    context = isl.DEFAULT_CONTEXT
    working = True

    def give_up() -> None:
        if working:
            context.abort()

    with deferred(give_up):
        try:
            yield Bounds(function)
        finally:
            working = False
            context.resume()
            _allow(0)


def attempted(step: Callable[[], Value], operations: int) -> Value | None:
    """The result of a step, or None where it would take isl more operations; not within ``bounded``."""
    _allow(operations)
    try:
        return step()
    except (isl.Error, TypeError):
        if not gave_up():
            raise
        return None
    finally:
        _allow(0)


def _allow(operations: int) -> None:
    """Let isl do so many operations from now on; as many as it takes if it is 0."""
    isl.DEFAULT_CONTEXT.reset_operations()
    isl.DEFAULT_CONTEXT.set_max_operations(operations)


def gave_up() -> bool:
    """Whether isl refuses work: past its limit every operation fails, and not each of them says why."""
    try:
        isl.Set("{ [i] : 0 <= i < 10 }").is_empty()
    except isl.Error:
        return True
    return False
