"""Subscripts that compilers may take for comparisons, in loops that they make vectors of."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc

PLACES = {
    "a remainder of what may be negative": "A((i - 3) % 2)",
    "a quotient of what may be negative": "A(-((i - 3) / N))",
    "a remainder of data": "A(D(i) % 2)",
    "a quotient of data": "A(-(D(i) / 4))",
    "comparisons": "A(int32(D(i) > 0 && E(i) > 0))",
    "one comparison or another": "A(int32(D(i) > 0 || F(i) > 0.5))",
    "a choice": "A(D(i) > 0 && E(i) > 0 ? 1 : 0)",
    "choices multiplied": "A((D(i) > 0 ? 1 : 0) * (E(i) > 0 ? 1 : 0))",
    "a step back": "A(3 - 2 * ((D(i) > 0 ? 1 : 0) * (E(i) > 0 ? 1 : 0)))",
    "where an index is": "A((i % 2 != 0 ? 1 : 0) * (i > 2 ? 1 : 0))",
    "a repeated image": "repeat_image(B)(i - 3)",
    "a mirrored interior": "mirror_interior(B)(i - 3)",
    "a mirrored image": "mirror_image(B)(i - 3)",
}


@pytest.mark.parametrize("count", [4, 5, 8, 16, 64])
@pytest.mark.parametrize("place", PLACES)
def test_elements_are_the_right_ones(place: str, count: int) -> None:
    inputs = "float(M) A, float(Q) B, int(N) D, int(N) E, float(N) F"
    f = tc.define(f"def f({inputs}) -> (O) {{ O(i) = {PLACES[place]} where i in 0:N }}")["f"]
    numbers = np.random.default_rng(count)
    whole = [numbers.integers(-2, 3, count).astype(np.int32) for _ in range(2)]
    arguments = (np.arange(1, 8, dtype=np.float32), np.float32([8, 9]), *whole, numbers.random(count, dtype=np.float32))
    np.testing.assert_array_equal(f(*arguments), f.reference(*arguments))


def test_choices_between_strides_stay_contiguous() -> None:
    """What moves with the index in every case is no comparison, and stays plain to the compiler."""
    f = tc.define("def f(float(N,M) X) -> (O) { O(n,i) = X(n, i < M/2 ? i + M/2 : i - M/2) where i in 0:M }")["f"]
    X = np.random.default_rng(1).random((3, 64), dtype=np.float32)
    assert "tc_hidden" not in f.compile(X).source
    np.testing.assert_array_equal(f(X), np.roll(X, 32, axis=1))
