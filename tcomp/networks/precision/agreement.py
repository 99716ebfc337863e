"""How far the results of one network are from those of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Agreement:
    """``error`` is relative, in the norm of all results; ``same`` is the share of rows whose largest element is at
    the same place in both, rows being those of the last axis.  ``worst`` is the layer whose own results are farthest
    from those in floats, errors of layers before it among them, and ``worst_error`` how far; "" where nobody looked."""

    error: float
    same: float
    worst: str = ""
    worst_error: float = 0.0

    def __str__(self) -> str:
        told = f"{self.error:.2g} of the norm from the results in floats, {self.same:.1%} with the same largest element"
        return f"{told}; worst layer {self.worst}, {self.worst_error:.2g}" if self.worst else told


def as_inputs(sample: Any) -> tuple[Any, ...]:
    """One input of a network, or several, as arguments of a call."""
    return tuple(sample) if isinstance(sample, (tuple, list)) else (sample,)


def agreement(exact: Callable[..., Any], other: Callable[..., Any], data: Iterable[Any]) -> Agreement:
    """How far ``other(x)`` is from ``exact(x)`` for some inputs, each an array or a tuple of several."""
    wrong = size = same = rows = 0.0
    for sample in data:
        found = [f(*as_inputs(sample)) for f in (exact, other)]
        pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in found), strict=True)
        for first, second in ((np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs):
            wrong += float(((first - second) ** 2).sum())
            size += float((first**2).sum())
            if first.ndim:
                equal = first.argmax(-1) == second.argmax(-1)
                same, rows = same + float(equal.sum()), rows + equal.size
    return Agreement((wrong / size) ** 0.5 if size else 0.0, same / rows if rows else 1.0)
