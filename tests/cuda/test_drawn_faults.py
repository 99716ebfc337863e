"""Programs that random drawing found, whose plans the proof refused: they run and are right."""

from __future__ import annotations

import numpy as np

import tcomp as tc
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = NEEDS_COMPILER

OVERWRITTEN = """
def f(int8(K, M) A, int8(K) B) -> (T) {
    T(i) = B(i)
    T(i) += T(i) * A(r, s) where i in 0:K - 1, r in 0:K, s in 0:3
}
"""
"""Threads that share a reduction have read what one of them overwrites."""

MOVING = """
def f(float(N, M) A) -> (T) {
    T(i, j) = A(i, j) where i in 0:N, j in 0:100
    for t in 1:4 {
        T(N - 1 - i, j + w) min= T(i, (2 * t + i) % 100) where i in 0:N, j in 0:99, w in 0:2
    }
}
"""
"""A box that begins elsewhere at each step."""


def _agrees(text: str, *inputs: np.ndarray) -> None:
    f = tc.define(text).f
    np.testing.assert_array_equal(f(*inputs, target="simulator:sm_90"), f.reference(*inputs))


def test_what_a_shared_reduction_reads_is_overwritten_behind_its_barrier() -> None:
    rng = np.random.default_rng(0)
    _agrees(OVERWRITTEN, rng.integers(-3, 4, (144, 64)).astype(np.int8), rng.integers(-3, 4, 144).astype(np.int8))


def test_boxes_that_move_with_the_steps_are_fetched_in_vectors_only_where_these_are_whole() -> None:
    _agrees(MOVING, np.random.default_rng(1).standard_normal((64, 100), np.float32))
