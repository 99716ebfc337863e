"""Products of parts of a tensor that are taken off another part of it, as blocks of factorisations do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

BELOW = """
def f(float(N,N) A) -> (X) {{
  X(i,j) = A(i,j)
  s(i,j) +=! X(i,p) * X(p,j) where i in {low}:N, j in {low}:N, p in 0:{steps}
  X(i,j) = X(i,j) - s(i,j) where i in {low}:N, j in {low}:N
}}
"""
BLOCKS = """
def f(float(N,N) A) -> (X) {
  X(i,j) = A(i,j)
  for c in 0:(N+B-1)/B {
    s(i,j) +=! X(i,p) * X(p,j) where i in min((c+1)*B, N):N, j in min((c+1)*B, N):N, p in c*B:min((c+1)*B, N)
    X(i,j) = X(i,j) - s(i,j) where i in min((c+1)*B, N):N, j in min((c+1)*B, N):N
  }
}
"""


def plan_of(text: str, size: int) -> Plan:
    return lower(define(text)["f"], Sizes({"N": size}), tc.MappingOptions(), CPU).plan


def integers(size: int) -> np.ndarray[Any, np.dtype[Any]]:
    return np.random.default_rng(size).integers(-2, 3, (size, size)).astype(np.float32)


def test_what_is_read_beside_what_is_written_is_packed_and_finished_in_register_tiles() -> None:
    plan = plan_of(BELOW.format(low=64, steps=64), 1200)
    assert [copy.storage for copy in plan.copies] == ["X"]
    (sums,) = (b for b in plan.buffers.values() if b.space == "tile")
    assert sums.shape[0] * sums.shape[1] < 1000
    assert sum({"S1i", "S1", "S2"} <= {*c.statements} for c in plan.clusters) == 1


def test_what_is_read_and_written_is_neither_packed_nor_written_before_all_have_read_it() -> None:
    plan = plan_of(BELOW.format(low=64, steps=65), 1200)
    assert not any({"S1", "S2"} <= {*c.statements} for c in plan.clusters)


@pytest.mark.parametrize(("low", "steps"), [(8, 8), (8, 9), (1, 1), (30, 33), (30, 5), (0, 7)])
@pytest.mark.parametrize("size", [37, 64, 131])
def test_sums_that_are_taken_off_are_right(size: int, low: int, steps: int) -> None:
    A = integers(size)
    expected = A.copy()
    expected[low:, low:] -= A[low:, :steps] @ A[:steps, low:]
    assert (tc.define(BELOW.format(low=low, steps=steps))["f"](A) == expected).all()


@pytest.mark.parametrize(("size", "block"), [(40, 8), (43, 8), (33, 16), (7, 8), (16, 1)])
def test_blocks_are_right(size: int, block: int) -> None:
    A = integers(size).astype(np.float64) / 4
    expected = A.copy()
    for k in range(0, size, block):
        to = k + block
        expected[to:, to:] -= expected[to:, k:to] @ expected[k:to, to:]
    text = BLOCKS.replace("float", "double").replace("B", str(block)).replace(f"{block}LOCKS", "BLOCKS")
    assert np.allclose(tc.define(text)["f"](A), expected, rtol=1e-12, atol=1e-12 * abs(expected).max())


def test_a_block_of_steps_has_as_many_as_run_at_once(machine: Callable[..., None]) -> None:
    """Steps of all blocks together are too many for one panel, those of one are not: sums are set to zero, and taken
    off, in a register tile, which is fetched once though it is read and written."""
    machine(vector_bytes=32)
    text = tc.define(BLOCKS.replace("B", "64"))["f"].compile(sizes={"N": 1200}).source
    assert re.search(r"\*\(tc_float32_x8 \*\)&v_X\[.*\] = \(\*\(const tc_float32_x8 \*\)&v_X\[", text)
    assert "tc_c0_0 = {0};" in text and "tc_behind1_v_X" in text and "tc_behind2" not in text
