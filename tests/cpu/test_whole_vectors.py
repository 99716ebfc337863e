"""Loops over a few whole vectors, as those behind a register tile, are vectors in the text."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import toolchain

LAYER = """
def f(float(M,K) A, float(K,N) B, float(N) d, float(M) s) -> (O) {
  C(m,n) +=! A(m,k) * B(k,n)
  O(m,n) = relu(C(m,n) + d(n)) / s(m)
}
"""


@pytest.mark.parametrize("columns", [16, 19, 24])
def test_what_follows_a_register_tile(machine: Callable[..., None], columns: int) -> None:
    machine(vector_bytes=32)
    f = tc.define(LAYER)["f"]
    rng = np.random.default_rng(0)
    A, B, d = (rng.integers(-4, 5, s).astype(np.float32) for s in ((19, 8), (8, columns), (columns,)))
    s = 2.0 ** rng.integers(-2, 3, 19).astype(np.float32)
    text = f.compile(A, B, d, s).source
    assert "*(tc_float32_x8 *)&v_O[" in text and "omp simd" not in text
    A[3, 1] = np.nan
    assert np.array_equal(f(A, B, d, s), np.maximum(A @ B + d, 0) / s[:, None], equal_nan=True)


def test_what_needs_more_than_vectors_of_arithmetic_stays_a_loop(machine: Callable[..., None]) -> None:
    machine(vector_bytes=32)
    f = tc.define(LAYER.replace("relu(", "exp("))["f"]
    assert "omp simd" in f.compile(sizes={"M": 16, "K": 8, "N": 16}).source


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("reduction", ["min", "max"])
def test_extrema_of_integers_are_one_instruction(machine: Callable[..., None], reduction: str, dtype: str) -> None:
    """gcc 12 makes a comparison and a blend of their selection."""
    chain = toolchain.find()
    if chain.family is not toolchain.GCC or platform.machine() != "x86_64":
        pytest.skip("about gcc's code for x86-64")
    machine(vector_bytes=32)
    f = tc.define(f"def f({dtype}(M,K) A, {dtype}(K,N) B) -> (C) {{ C(i,j) {reduction}=! A(i,k) + B(k,j) }}")["f"]
    A, B = (np.random.default_rng(7).integers(0, 2**30, s).astype(dtype) for s in ((9, 20), (20, 35)))
    A[2] += np.array(2**31, "uint32").astype(dtype)
    kernel = f.compile(A, B)
    command = (*chain.command, "-mavx2", "-S", *chain.arguments(kernel.source, ()), "-o", "-")
    code = subprocess.run(command, input=kernel.source, text=True, capture_output=True, check=True).stdout
    assert f"vp{reduction}{'u' if dtype == 'uint32' else 's'}d" in code and "vpblendvb" not in code
    np.testing.assert_array_equal(kernel(A, B), getattr(A[:, :, None] + B, reduction)(1))
