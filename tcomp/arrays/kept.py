"""Memory of results that nobody uses any more, kept for the next results.

A system hands out large memory page by page when it is first written, and allocators give it back as soon as an array
is gone.  Results of some megabytes, made and dropped in a loop, then cost more than what is computed.  So each piece of
memory stays known here, and is handed out again once nothing else refers to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tcomp import debug

Piece = TypeVar("Piece")
Array = TypeVar("Array")

LEAST = 1 << 18
"""Bytes; smaller arrays come from what allocators keep themselves."""

MOST_ASKED = 8
"""How many pieces in use are passed over before a new one is made."""


class KeptMemory(Generic[Piece]):
    """Pieces of memory, in use or not, at most ``TCOMP_KEPT`` MiB of them.

    ``references`` counts what refers to a piece; ``intact`` says whether it still is the memory that was made, for
    libraries can put other memory in its place.  Safe from several threads: whoever asks about a piece has taken it out
    of its row, and puts it back with the new array made.
    """

    def __init__(
        self, references: Callable[[Piece], int], intact: Callable[[Piece], bool], sample: Callable[[], Piece]
    ) -> None:
        self._references = references
        self._intact = intact
        self._rows: dict[Hashable, tuple[int, deque[Piece]]] = {}
        piece = sample()
        self._unused = references(piece)

    def maker(
        self, kind: Hashable, size: int, make: Callable[[int], Piece], array_of: Callable[[Piece], Array]
    ) -> Callable[[], Array]:
        """What gives arrays in pieces of at least ``size`` bytes; pieces of one ``kind`` may stand for each other."""
        whole = size_class(size)
        key = kind, whole

        def array() -> Array:
            _, row = self._rows.get(key) or self._row(key, whole)
            for _ in range(min(len(row), MOST_ASKED)):
                try:
                    piece = row.popleft()
                except IndexError:
                    break
                if self._references(piece) > self._unused:
                    row.append(piece)
                elif self._intact(piece):
                    made = array_of(piece)
                    row.append(piece)
                    return made
            piece = make(whole)
            made = array_of(piece)
            _, row = self._row(key, whole)
            row.append(piece)
            self._forget()
            return made

        return array

    def _row(self, key: Hashable, size: int) -> tuple[int, deque[Piece]]:
        """The row of a key, now the last to be forgotten."""
        found = self._rows.pop(key, None) or (size, deque[Piece]())
        self._rows[key] = found
        return found

    def _forget(self) -> None:
        """Drop pieces until the rest is little enough, of the rows first whose last piece is the oldest."""
        rows = list(self._rows.items())
        held = sum(size * len(row) for _, (size, row) in rows)
        limit = debug.kept_limit()
        for key, (size, row) in rows:
            while held > limit and row:
                row.popleft()
                held -= size
            if not row:
                self._rows.pop(key, None)


def size_class(size: int) -> int:
    """The next number of which at most four bits are not zero: a piece of it wastes at most an eighth."""
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step
