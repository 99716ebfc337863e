"""A program, what it takes, and a function of PyTorch that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Values:
    """Random numbers from ``lowest`` to ``highest`` of a shape; ``kind`` is a NumPy type."""

    shape: tuple[int, ...]
    lowest: float = -1.0
    highest: float = 1.0
    kind: str = "f8"

    def draw(self, rng: np.random.Generator) -> Any:
        if self.kind[0] in "iu":
            return rng.integers(int(self.lowest), int(self.highest), self.shape).astype(self.kind)
        if self.kind == "?":
            return rng.integers(0, 2, self.shape).astype(bool)
        return np.asarray(rng.uniform(self.lowest, self.highest, self.shape), self.kind)


@dataclass(frozen=True, slots=True)
class Case:
    """``inputs`` are values to draw or numbers for constants; ``torch`` takes tensors in their place."""

    text: str
    inputs: Sequence[Values | int]
    torch: Callable[..., Any]

    def arguments(self, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        return [given.draw(rng) if isinstance(given, Values) else given for given in self.inputs]


def real(*shape: int) -> Values:
    return Values(shape)


def positive(*shape: int) -> Values:
    return Values(shape, 0.3, 1.7)


def whole(below: int, *shape: int) -> Values:
    return Values(shape, 0, below, "i4")


def truth(*shape: int) -> Values:
    return Values(shape, kind="?")
