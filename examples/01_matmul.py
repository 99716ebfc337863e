"""Lesson 1: write what each element is, and call it.

A def names its inputs with their sizes, its outputs, and what each element of an output is.  Indices are not
declared: ``m`` and ``n`` name the element, ``k`` is on the right only, so it is summed over, and every range follows
from the sizes.
"""

from __future__ import annotations

import time

import numpy as np
from pictures import picture

import tcomp as tc

PROGRAM = """
def matmul(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n)
}
def energies(float(M,K) A) -> (length, largest) {
  length(m)  +=!   A(m,k) * A(m,k)
  length(m)   =    sqrt(length(m))
  largest(m) max=! abs(A(m,k))
}
"""


def main() -> None:
    ops = tc.define(PROGRAM)
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 200), np.float32)
    B = rng.standard_normal((200, 250), np.float32)

    begin = time.perf_counter()
    C = ops.matmul(A, B)
    first = time.perf_counter() - begin
    print(f"matmul: {A.shape} x {B.shape} -> {C.shape} {C.dtype}, first call {1e3 * first:.0f} ms with compilation")

    # The kernel is kept, and results may go into an array that is already there.
    begin = time.perf_counter()
    result = ops.matmul(A, B, out=C)
    again = time.perf_counter() - begin
    assert result is C
    print(f"again, with out=: {1e3 * again:.2f} ms")

    difference = np.abs(C - A.astype(np.float64) @ B).max()
    print(f"largest difference from NumPy in float64: {difference:.1e}")
    assert difference < 1e-4

    # Any strides are read as they lie: a transposed view is another kernel, not a copy.
    square = ops.matmul(A.T, A)
    assert np.allclose(square, A.T @ A, rtol=1e-4, atol=1e-3)
    print(f"a transposed view: {A.T.shape} x {A.shape} -> {square.shape}")

    # What one tile of the result reads and writes.
    picture("matmul_footprint", ops.matmul.compile(A, B).draw, "footprint")

    # Several outputs come as a tuple.
    length, largest = ops.energies(A)
    assert np.allclose(length, np.linalg.norm(A, axis=1), rtol=1e-5)
    assert np.array_equal(largest, np.abs(A).max(axis=1))
    print(f"two outputs: {length.shape} and {largest.shape}")


if __name__ == "__main__":
    main()
