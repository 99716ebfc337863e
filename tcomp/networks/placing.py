"""Where results lie: offsets in one block of memory, which values share that are alive at different times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ALIGNMENT = 64

_SPAN = 16
"""Steps that values are looked up by."""


@dataclass(frozen=True, slots=True)
class Life:
    """A value of so many bytes, from the step that writes it to the last one that reads it, both included."""

    name: str
    bytes: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Places:
    """The offset of each value, and the bytes of all."""

    offsets: Mapping[str, int]
    bytes: int


def place(lives: Iterable[Life]) -> Places:
    """Largest first, each at the lowest offset where it meets nothing that is alive with it."""
    placed: list[tuple[int, int, Life]] = []
    near: dict[int, set[int]] = {}  # by spans of steps: a value meets those of its own spans only
    for life in sorted(lives, key=lambda v: (-_room(v), v.first, v.name)):
        offset, spans = 0, range(life.first // _SPAN, life.last // _SPAN + 1)
        others = set().union(*(near.get(span, ()) for span in spans))
        for start, end, other in sorted((placed[k] for k in others), key=lambda p: p[0]):
            if life.meets(other) and offset < end and start < offset + _room(life):
                offset = end
        for span in spans:
            near.setdefault(span, set()).add(len(placed))
        placed.append((offset, offset + _room(life), life))
    return Places({life.name: start for start, _, life in placed}, max((end for _, end, _ in placed), default=0))


def apart(lives: Iterable[Life]) -> Places:
    """One behind the other."""
    offsets, end = {}, 0
    for life in lives:
        offsets[life.name] = end
        end += _room(life)
    return Places(offsets, end)


def overlap(lives: Iterable[Life], places: Places) -> tuple[str, str] | None:
    """Two values that are alive together and share bytes, if there are any."""
    alive: list[Life] = []
    for life in sorted(lives, key=lambda v: v.first):
        start = places.offsets[life.name]
        alive = [other for other in alive if other.last >= life.first]
        for other in alive:
            begin = places.offsets[other.name]
            if start < begin + other.bytes and begin < start + life.bytes:
                return other.name, life.name
        alive.append(life)
    return None


def most_alive(lives: Iterable[Life]) -> int:
    """The most bytes that are alive at one step: no placement takes less."""
    every = list(lives)
    steps = {life.first for life in every}
    return max((sum(_room(v) for v in every if v.first <= step <= v.last) for step in steps), default=0)


def _room(life: Life) -> int:
    return max(1, -(-life.bytes // ALIGNMENT)) * ALIGNMENT
