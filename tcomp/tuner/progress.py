"""Where a run is, for whoever watches it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from tcomp.mapping.options.options import MappingOptions


class Phase(enum.Enum):
    """What a run is doing."""

    COMPILING = "compiling"
    MEASURING = "measuring"
    COMPARING = "comparing the best"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is.

    ``compiled`` candidates gave code that was not known yet.  ``default``, ``best`` and ``median`` are seconds of a
    call, infinite as long as there is none; ``options`` are those of the best.  ``end`` is when the time is spent, as
    ``time.monotonic`` has it.  ``curve`` is, after each measured candidate, the time of the best so far as a multiple
    of the default's.
    """

    label: str
    phase: Phase
    generation: int
    compiled: int
    measured: int
    failed: int
    default: float
    best: float
    median: float
    options: MappingOptions
    curve: tuple[float, ...]
    end: float


Watch = Callable[[Progress], None]


def ignore(_: Progress) -> None:
    """Watch nothing."""
