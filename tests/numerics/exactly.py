"""Sums and products without rounding errors, to judge float64 by; and data that are hard on sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_SPLIT = 2.0**27 + 1


def exact_sum(terms: Array) -> float:
    """The sum of float64 numbers, rounded once."""
    return math.fsum(terms.tolist())


def exact_dot(a: Array, b: Array) -> float:
    """The sum of products, rounded once: each product is the sum of two numbers, after T. J. Dekker (1971)."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    product = x * y
    x_high, y_high = _high(x), _high(y)
    x_low, y_low = x - x_high, y - y_high
    rest = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return exact_sum(np.concatenate([product, rest]))


def _high(x: Array) -> Array:
    scaled = _SPLIT * x
    return np.asarray(scaled - (scaled - x))


def random_signs(rng: np.random.Generator, count: int) -> Array:
    return rng.standard_normal(count)


def one_sign(rng: np.random.Generator, count: int) -> Array:
    return rng.uniform(0.5, 1.5, count)


def cancelling(rng: np.random.Generator, count: int) -> Array:
    """Terms in pairs that nearly cancel, shuffled: the sum is far smaller than its terms."""
    half = rng.uniform(1, 2, count // 2)
    pairs = np.concatenate([half, -half * (1 + 1e-3 * rng.standard_normal(half.size)), rng.uniform(1, 2, count % 2)])
    return rng.permutation(pairs)


def huge_and_small(rng: np.random.Generator, count: int) -> Array:
    """Magnitudes over eight decades, either sign."""
    return 10 ** rng.uniform(-4, 4, count) * rng.choice([-1.0, 1.0], count)


def sorted_terms(rng: np.random.Generator, count: int) -> Array:
    """First all negative terms, then all positive ones: partial sums grow and shrink again."""
    return np.sort(rng.standard_normal(count))


def all_alike(rng: np.random.Generator, count: int) -> Array:
    """One number that no binary fraction equals: rounding errors are no longer random."""
    return np.full(count, rng.uniform(0.1, 0.2))


RANDOM = {"random signs": random_signs, "one sign": one_sign, "cancelling": cancelling, "mixed": huge_and_small}
"""Data in random order, as the probabilistic models have it."""

ADVERSARIAL = {"sorted": sorted_terms, "all alike": all_alike}
"""Data of which only the worst case is known."""

DATA = RANDOM | ADVERSARIAL
