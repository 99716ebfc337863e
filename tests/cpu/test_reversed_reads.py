"""Reductions that read an operand backwards do so in whole vectors, which they turn."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc


@pytest.mark.parametrize("dtype", ["float", "double", "half"])
def test_sums_of_operands_that_run_against_each_other(dtype: str) -> None:
    f = tc.define(
        f"def f({dtype}(K) A, {dtype}(K) B, int32(K) C) -> (y, z) {{ y +=! A(K-1-k) * B(k) z max=! C(K-1-k) - C(k) }}"
    ).f
    kind = {"float": np.float32, "double": np.float64, "half": np.float16}[dtype]
    for count in (61, 200):
        generator = np.random.default_rng(count)
        a, b = generator.integers(-3, 4, (2, count)).astype(kind)
        c = generator.integers(-99, 99, count).astype(np.int32)
        kernel = f.compile(a, b, c)
        assert "__builtin_shufflevector(*(const tc_int32" in kernel.source
        assert ("__builtin_shufflevector(*(const tc_float" in kernel.source) == (dtype != "half")
        found = kernel(a, b, c)
        assert float(found[0]) == float(a[::-1].astype(np.float64) @ b.astype(np.float64))
        assert int(found[1]) == int((c[::-1] - c).max())
