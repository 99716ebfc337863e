"""One mapping option as a search sees it: the values worth trying, and how to move among them."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tcomp.errors import TcompError
from tcomp.mapping.options.declarations import Option

MODEL_SHARE = 0.25
"""How often a random list of sizes is left to the model of the target."""

_TRIES = 100
"""How often a list of sizes is drawn anew because it is illegal."""


class Parameter(Protocol):
    """An option that is searched.  Values are those that ``MappingOptions`` takes."""

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int:
        """How many values there are."""
        ...

    def settled(self, value: object) -> object:
        """The one value that stands for all which give the same code as ``value``."""
        ...

    def drawn(self, rng: random.Random) -> object:
        """A random value."""
        ...

    def mutated(self, value: object, rng: random.Random, rate: float) -> object:
        """The value with each independent part of it drawn anew with probability ``rate``."""
        ...

    def crossed(self, values: Sequence[object], rng: random.Random) -> object:
        """A value each part of which comes from one of some parents, drawn uniformly."""
        ...

    def near(self, value: object) -> Iterator[object]:
        """The values one step away."""
        ...


@dataclass(frozen=True, slots=True)
class Scalar:
    """An option with one value among ``choices``; if it is ``ordered``, a step leads to the next or the last one."""

    name: str
    choices: tuple[object, ...]
    ordered: bool

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.choices)

    def settled(self, value: object) -> object:
        """The value itself."""
        return value

    def drawn(self, rng: random.Random) -> object:
        """Any of the choices."""
        return rng.choice(self.choices)

    def mutated(self, value: object, rng: random.Random, rate: float) -> object:
        """With probability ``rate`` another value."""
        others = [c for c in self.choices if c != value]
        return rng.choice(others) if others and rng.random() < rate else value

    def crossed(self, values: Sequence[object], rng: random.Random) -> object:
        """The value of one parent."""
        return rng.choice(values)

    def near(self, value: object) -> Iterator[object]:
        """The choices beside the value, or all others where they have no order."""
        if not self.ordered or value not in self.choices:
            yield from (c for c in self.choices if c != value)
            return
        position = self.choices.index(value)
        yield from self.choices[max(0, position - 1) : position]
        yield from self.choices[position + 1 : position + 2]


@dataclass(frozen=True, slots=True)
class Sizes:
    """An option that is None (the model chooses) or a list with one of ``positions[p]`` at each position p.

    At each position the values are in their order, the smallest first.  ``missing`` is what a list that ends before a
    position has there; where ``whole`` is given, all numbers from ``whole[p]`` on are the same as 0 at position p.
    ``start`` is a list like the one that the model chooses: a step away from None is a step away from it.  Lists whose
    product exceeds ``most`` are not tried.
    """

    name: str
    option: Option
    positions: tuple[tuple[int, ...], ...]
    missing: int
    whole: tuple[int, ...] | None = None
    start: tuple[int, ...] | None = None
    most: int | None = None

    @property
    def count(self) -> int:
        """How many values there are, illegal ones included."""
        found = 1
        for values in self.positions:
            found *= len(values)
        return found + 1

    def settled(self, value: object) -> object:
        """The list without what lies beyond the last position, and with 0 for what covers all."""
        if value is None:
            return None
        sizes = self._padded(value)
        if self.whole is not None:
            return tuple(0 if s >= whole else s for s, whole in zip(sizes, self.whole, strict=True))
        while len(sizes) > 1 and sizes[-1] == self.missing:
            sizes = sizes[:-1]
        return sizes

    def drawn(self, rng: random.Random) -> object:
        """Now and then None, otherwise any legal list."""
        if rng.random() < MODEL_SHARE:
            return None
        for _ in range(_TRIES):
            found = self.settled(tuple(rng.choice(values) for values in self.positions))
            if self._legal(found):
                return found
        return None

    def mutated(self, value: object, rng: random.Random, rate: float) -> object:
        """With probability ``rate`` a new list; otherwise that at each position."""
        if value is None or rng.random() < rate * MODEL_SHARE:
            return self.drawn(rng) if rng.random() < rate or value is not None else value
        sizes = self._padded(value)
        for _ in range(_TRIES):
            found = self.settled(
                tuple(
                    rng.choice(values) if rng.random() < rate else size
                    for size, values in zip(sizes, self.positions, strict=True)
                )
            )
            if self._legal(found):
                return found
        return value

    def crossed(self, values: Sequence[object], rng: random.Random) -> object:
        """None if the parent drawn for that has it; otherwise at each position the number of one parent's list."""
        chosen = rng.choice(values)
        if chosen is None:
            return None
        lists = [self._padded(v) for v in values if v is not None]
        for _ in range(_TRIES):
            found = self.settled(tuple(rng.choice(sizes) for sizes in zip(*lists, strict=True)))
            if self._legal(found):
                return found
        return chosen

    def near(self, value: object) -> Iterator[object]:
        """Lists of which one number is the next larger or smaller one, and the model's choice."""
        if value is None and self.start is None:
            return
        sizes = self._padded(self.start if value is None else value)
        if value is not None:
            yield None
        for position, size in enumerate(sizes):
            for other in self._beside(position, size):
                found = self.settled((*sizes[:position], other, *sizes[position + 1 :]))
                if found != value and self._legal(found):
                    yield found

    def _beside(self, position: int, size: int) -> Iterator[int]:
        """The numbers before and after ``size``, which need not be among them; 0 stands after all others if it is
        the whole."""
        values = self.positions[position]
        order = [self._rank(v) for v in values]
        at = bisect.bisect_left(order, self._rank(size))
        yield from values[max(0, at - 1) : at]
        after = at + 1 if at < len(values) and values[at] == size else at
        yield from values[after : after + 1]

    def _rank(self, size: int) -> float:
        return float("inf") if size == 0 and self.whole is not None else size

    def _padded(self, value: object) -> tuple[int, ...]:
        assert isinstance(value, tuple)
        count = len(self.positions)
        return (*value[:count], *(self.missing for _ in range(count - len(value))))

    def _legal(self, value: object) -> bool:
        if self.most is not None and isinstance(value, tuple) and math.prod(value) > self.most:
            return False
        try:
            self.option.check(self.name, value)
        except TcompError:
            return False
        return True
