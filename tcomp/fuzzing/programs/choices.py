"""Where a random program gets its decisions from: whole numbers, of which the smallest stands for the simplest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Choices:
    """Decisions made by ``integer(low, high)``, both ends included; hypothesis shrinks them towards ``low``."""

    integer: Callable[[int, int], int]

    def pick(self, items: Sequence[Item]) -> Item:
        """One of some items, the simplest first."""
        return items[self.integer(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        """True in so many cases of a hundred; False is the simpler answer."""
        return self.integer(0, 99) >= 100 - percent
