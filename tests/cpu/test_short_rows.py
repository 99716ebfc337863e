"""Reductions of few steps, and rows that do not fill vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc

Array = np.ndarray[Any, np.dtype[Any]]

SERIAL = tc.MappingOptions(parallel=False)
TYPES = {"float": "f4", "double": "f8", "int32": "i4"}


def integers(*shape: int, dtype: str = "f4", seed: int = 0) -> Array:
    low = 0 if dtype.startswith("u") else -3
    return np.random.default_rng([seed, *shape]).integers(low, 4, shape).astype(dtype)


def agrees(operation: tc.Operation, *arrays: Array) -> None:
    got, wanted = operation(*arrays, options=SERIAL), operation.reference(*arrays)
    pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
def test_short_reductions_of_a_middle_dimension(dtype: str) -> None:
    text = f"""def f({dtype}(A,B,C) X) -> (p, q, r, s, t) {{
      p(a,c) +=! X(a,b,c)
      q(a,c) *=! X(a,b,c)
      r(a,c) max=! X(a,b,c) - X(a,0,c)
      s(a,c) min=! X(a,b,c)
      t(a,c) = s(a,c) + r(a,c) }}"""
    agrees(tc.define(text)["f"], integers(5, 3, 37, dtype=TYPES[dtype]))


@pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")
def test_sums_of_a_tile_never_leave_registers() -> None:
    operation = tc.define("def f(float(A,B,C) X) -> (Y) { Y(a,c) max=! X(a,b,c) }")["f"]
    kernel = operation.compile(sizes={"A": 8, "B": 5, "C": 32}, options=SERIAL)
    assert kernel.source.count("v_Y_acc0[") == 1, "it is declared, and neither set nor copied"
    both = tc.define("def f(float(A,B,C) X) -> (Y, Z) { Y(a,c) max=! X(a,b,c)  Z(a,c) = 2 * Y(a,c) }")["f"]
    agrees(both, integers(8, 5, 32))
    again = tc.define("def f(float(A,B,C) X) -> (float(A,C) Y) { Y(a,c) += X(a,b,c) * Y(a,c) }")["f"]
    X, Y = integers(8, 5, 32), integers(8, 32)
    out = Y.copy()
    again(X, out=out, options=SERIAL)
    assert np.array_equal(out, Y + (X * Y[:, None]).sum(1))
