"""Reductions of few steps, and rows that do not fill vectors but follow one another in memory."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc

Array = np.ndarray[Any, np.dtype[Any]]

SERIAL = tc.MappingOptions(parallel=False)
TYPES = {"float": "f4", "double": "f8", "int32": "i4"}

FLAT = "def f(float(A,B,C) X, float(A,B,C) Y) -> (Z) { Z(a,b,c) = X(a,b,c) * Y(a,b,c) + X(a,b,c) }"


def integers(*shape: int, dtype: str = "f4", seed: int = 0) -> Array:
    low = 0 if dtype.startswith("u") else -3
    return np.random.default_rng([seed, *shape]).integers(low, 4, shape).astype(dtype)


def loops(source: str) -> int:
    """Loops of a kernel over instances."""
    return len(re.findall(r"for \(long c\d+ =", source))


def loops_of(stage: str) -> int:
    """Loops of a nest as it was planned."""
    return stage.count("for ")


def agrees(operation: tc.Operation, *arrays: Array) -> None:
    got, wanted = operation(*arrays, options=SERIAL), operation.reference(*arrays)
    pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_contiguous_loops_are_one() -> None:
    kernel = tc.define(FLAT)["f"].compile(sizes={"A": 512, "B": 2, "C": 2}, options=SERIAL)
    assert loops(kernel.source) == 2, "the tiles, and one loop over all elements of one"
    large = tc.define(FLAT)["f"].compile(sizes={"A": 16384, "B": 2, "C": 2}, options=SERIAL)
    assert "sizes = [512, 2, 2]" in large.stages["pack"], "as long as a tile of the flat array would be"
    X, Y = integers(512, 2, 2), integers(512, 2, 2, seed=1)
    assert np.array_equal(kernel(X, Y), X * Y + X)


@pytest.mark.parametrize(
    ("value", "joined"),
    [
        ("X(b,a)", False),
        ("X(a,b) + b", False),
        ("X(a,b) + Y(b)", False),
        ("b > 3 ? X(a,b) : 0.0", False),
        ("constant_exterior(X, 0)(a,b+1)", False),
        ("X(a/2,b)", False),
        ("X(15-a,15-b)", True),
        ("X(a,b) + Y(3)", True),
    ],
)
def test_only_loops_that_move_alike_are_joined(value: str, joined: bool) -> None:
    text = f"def f(float(N,N) X, float(N) Y) -> (Z) {{ Z(a,b) = {value} where a in 0:N, b in 0:N }}"
    kernel = tc.define(text)["f"].compile(sizes={"N": 16}, options=replace(SERIAL, tile_sizes=(0, 0)))
    assert (loops(kernel.source) < loops_of(kernel.stages["loops"])) == joined, kernel.source
    agrees(tc.define(text)["f"], integers(16, 16), integers(16))


def test_arrays_with_gaps_keep_their_loops() -> None:
    operation = tc.define(FLAT)["f"]
    X = integers(9, 3, 8)[:, :, ::2]
    for Y in (integers(9, 3, 4, seed=1), integers(3, 9, 4).swapaxes(0, 1), integers(9, 3, 4)[::-1, ::-1, ::-1]):
        agrees(operation, X, Y)
        agrees(operation, Y, X)
        agrees(operation, Y, Y)


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
