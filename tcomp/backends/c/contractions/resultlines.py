"""The lines of memory that a register tile writes, fetched before its first step.

A store to a line that is not near waits for the line, and stores leave the processor in order: where a tile writes
short pieces of rows that lie far apart, which nothing fetches ahead, they wait one after another.  The steps of the
reduction are time enough to fetch them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tcomp.mapping.machines.cpu import LINE_BYTES, Machine
from tcomp.mapping.machines.fitted.cputext import RESULT_LINES
from tcomp.mapping.plan.values import Plan


def are_far(plan: Plan, machine: Machine, storage: str) -> bool:
    """Whether results lie in memory, and in more of it than the nearest cache holds."""
    there = plan.scop.storages[storage]
    if there.role == "temporary" and plan.buffers[storage].space != "global":
        return False
    return there.bytes > RESULT_LINES.near_share * machine.nearest_cache


def fetched_lines(pointer: str, runs: Iterable[tuple[int, int]], itemsize: int) -> Iterator[str]:
    """The C statements that fetch ``runs`` to write there: the first elements behind a pointer, and how many."""
    line = LINE_BYTES // itemsize
    for first, end in _together(runs, line):
        yield from (_fetched(pointer, element) for element in range(first, end - 1, line))
        yield _fetched(pointer, end - 1)


def _together(runs: Iterable[tuple[int, int]], line: int) -> Iterator[tuple[int, int]]:
    """The first elements of runs and their ends, those that are no line apart as one."""
    first, end = None, 0
    for start, count in sorted(runs):
        if first is not None and start >= end + line:
            yield first, end
            first = None
        first = start if first is None else first
        end = max(end, start + count)
    if first is not None:
        yield first, end


def _fetched(pointer: str, element: int) -> str:
    return f"__builtin_prefetch({pointer} + {element}, 1);"
