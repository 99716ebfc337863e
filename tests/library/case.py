"""What a library operator must give: arguments, and the results that NumPy or torch computes for them in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One call: ``arguments`` as the operator takes them, ``expected`` one array per output."""

    arguments: tuple[Any, ...]
    expected: tuple[Array, ...]


Cases = Iterator[Case]


def case(*arguments: Any, expect: Any) -> Case:
    """A case from arrays or torch tensors; ``expect`` is one result, or a tuple of several."""
    results = expect if isinstance(expect, tuple) else (expect,)
    return Case(arguments, tuple(np.asarray(result) for result in results))


class Draw:
    """Random data of one seed: ``draw(2, 3)`` is float32 from a normal distribution, of shape (2, 3)."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> Array:
        return np.asarray(self._rng.standard_normal(shape), np.float32)

    def positive(self, *shape: int) -> Array:
        """float32 between 0.5 and 2."""
        return np.asarray(self._rng.uniform(0.5, 2, shape), np.float32)

    def below(self, limit: int, *shape: int, dtype: type[np.generic] = np.int32) -> Array:
        """Integers from 0 to ``limit`` - 1."""
        return self._rng.integers(0, limit, shape).astype(dtype)


def exact(array: Array) -> Array:
    """The same numbers in float64."""
    return array.astype(np.float64)


def tensor(array: Array) -> Any:
    """The same numbers as a torch tensor in float64; skips the test where torch is missing."""
    return pytest.importorskip("torch").from_numpy(exact(array))


def functional() -> Any:
    """``torch.nn.functional``; skips the test where torch is missing."""
    return pytest.importorskip("torch.nn.functional")
