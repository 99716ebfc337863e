"""How tiles are dealt to the threads of a block, and what these do between two barriers."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deal:
    """How one coordinate of a tile is dealt to threads.

    Position ``u`` of a tile of ``extent`` belongs to thread ``u / vector % threads`` along ``dimension`` of the thread
    shape (None: one thread has it all) and is element ``u / (vector * threads) * vector + u % vector`` of that thread.
    A vector of 1 deals cyclically; one as long as a thread's share deals in blocks.
    """

    extent: int
    threads: int
    vector: int
    dimension: int | None

    @property
    def chunks(self) -> int:
        """Rounds of dealing."""
        return -(-self.extent // (self.threads * self.vector))

    @property
    def elements(self) -> int:
        """Elements that one thread has at most."""
        return self.chunks * self.vector


@dataclass(frozen=True, slots=True)
class Share:
    """A reduction index at ``position`` of the update, which ``threads`` share along ``dimension`` of their shape.

    Each takes ``vector`` neighbouring steps at a time: step ``i`` belongs to thread ``i / vector % threads``.
    """

    position: int
    threads: int
    dimension: int
    vector: int = 1


@dataclass(frozen=True, slots=True)
class Dealt:
    """How one cluster runs on the threads of a block.

    ``form`` is "pointwise", "serial" (each thread reduces its own elements) or "shared" (threads reduce together).
    ``deals`` has one entry per coordinate, ``shares`` the reduction indices of the form "shared"; ``shape`` are the
    extents of the threads, outermost first.
    """

    form: str
    deals: tuple[Deal, ...]
    shares: tuple[Share, ...]
    shape: tuple[int, ...]

    @property
    def threads(self) -> int:
        """Threads in all."""
        return math.prod(self.shape)

    @property
    def box(self) -> tuple[int, ...]:
        """The extents of the tile, one per coordinate."""
        return tuple(d.extent for d in self.deals)

    @property
    def elements(self) -> int:
        """Elements of the tile that one thread has at most."""
        return math.prod(d.elements for d in self.deals)

    @property
    def group(self) -> int:
        """Neighbouring threads that share one reduction."""
        return math.prod(s.threads for s in self.shares)


@dataclass(frozen=True, slots=True)
class Phase:
    """What the threads of a block do between two places where they may wait for each other: all below ``mark``.

    ``shape`` are the extents of the threads that the phase was dealt to, outermost first; the band below the mark has
    one member for each of ``dimensions``, and threads whose other coordinates are not 0 rest, unless all of them do
    the same ``everywhere``, each on copies of its own.  A reduction that threads share leaves its result so in all of
    them.  The mark ``lanes`` stands below that band.
    """

    mark: str
    lanes: str
    cluster: int
    shape: tuple[int, ...]
    dimensions: tuple[int, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    everywhere: bool = False
