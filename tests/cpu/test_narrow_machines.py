"""Products where vectors and caches are smaller: sixteen registers, half a megabyte in the second cache."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machine import Machine, this_machine

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def integers(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng([0, *shape]).integers(-3, 4, shape).astype(np.float32)


def use(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr("tcomp.registry.this_machine", lambda: machine)


@pytest.mark.parametrize(("middle", "packs"), [(1 << 19, True), (1 << 20, False)])
def test_columns_are_brought_together_sooner_where_less_of_them_stays_near(
    middle: int, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, replace(this_machine(), middle_cache=middle))
    kernel = tc.define(MATMUL)["f"].compile(sizes={"M": 300, "K": 500, "N": 500})
    assert bool(kernel.compilation.plan.copies) == packs
    A, B = integers((300, 500)), integers((500, 500))
    assert (kernel(A, B) == A @ B).all()


@pytest.mark.parametrize("rows", [1, 2, 64, 200])
def test_vectors_that_several_rows_use_are_read_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """gcc would read them for every multiplication, and there are ports for two reads a cycle."""
    use(monkeypatch, replace(this_machine(), vector_bytes=32, registers=16, datapath_bytes=32))
    kernel = tc.define(MATMUL)["f"].compile(sizes={"M": rows, "K": 64, "N": 64})
    loads = re.findall(r"tc_b0_\d+ = \*\(const (volatile )?tc_float32_x8 \*\)", kernel.source)
    assert loads and all(bool(load) == (rows > 1) for load in loads)
    A, B = integers((rows, 64)), integers((64, 64))
    assert (kernel(A, B) == A @ B).all()
