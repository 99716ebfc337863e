"""What of a schedule is left open among some values, and the measurements that choose."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tcomp.schedules.errors import ScheduleError

if TYPE_CHECKING:
    from tcomp.schedules.schedule import Schedule

_LEAST_SECONDS = 0.02
"""How long a variant runs before its time counts."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A number or a name that is one of ``values``; the first of them until something else is chosen."""

    name: str
    values: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"s.choice({self.name!r}, {list(self.values)!r})"


def choice_of(name: str, values: Sequence[Any]) -> Choice:
    """Raises ScheduleError."""
    if not isinstance(name, str) or not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise ScheduleError('a choice has a name and some values: s.choice("w", [128, 256])')
    return Choice(name, tuple(values))


def combinations(choices: Mapping[str, Choice]) -> Iterator[dict[str, Any]]:
    """Every combination of values."""
    for values in itertools.product(*(c.values for c in choices.values())):
        yield dict(zip(choices, values, strict=True))


@dataclass(frozen=True, slots=True)
class Measured:
    """The variants of a schedule with their seconds, the fastest first; what is not legal is left out."""

    rows: tuple[tuple[dict[str, Any], float], ...]
    best: Schedule

    def __str__(self) -> str:
        return "".join(f"{1e6 * seconds:10.1f} us  {values}\n" for values, seconds in self.rows)


def seconds_of(run: Callable[[], object]) -> float:
    """The least time of a call, of calls for some hundredths of a second."""
    run()
    best, end = float("inf"), time.perf_counter() + _LEAST_SECONDS
    while True:
        begin = time.perf_counter()
        run()
        now = time.perf_counter()
        best = min(best, now - begin)
        if now > end:
            return best
