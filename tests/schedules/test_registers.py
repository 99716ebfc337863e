"""Operations of schedules that hold more rows and columns than a processor has registers."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import Machine
from tcomp.runtime import registry
from tcomp.schedules import Schedule

MACHINE = Machine(vector_bytes=32, registers=16, datapath_bytes=32, threads=1, middle_cache=1 << 19)


@pytest.fixture(autouse=True)
def _sixteen_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "this_machine", lambda: MACHINE)


def product(dtype: str, m: int, n: int, k: int, *tile: int) -> Schedule:
    mm = tc.define(f"def mm({dtype}(M,K) A, {dtype}(K,N) B) -> (C) {{ C(m,n) +=! A(m,k) * B(k,n) }}").mm
    made = mm.schedule(sizes={"M": m, "N": n, "K": k})["C"].tile("m", "n", *tile)
    return made.reorder("m_o", "n_o", "k", "m_i", "n_i").tensorize()


def accumulators(kernel: tc.Kernel) -> int:
    """The most accumulators that one register tile of the text has."""
    begun = [len(re.findall(r"\btc_c\d+_\d+ = \{0\}", part)) for part in kernel.source.split("tc_free_registers();")]
    return max(begun)


@pytest.mark.parametrize(
    ("dtype", "sizes", "tile"),
    [
        ("float", (32, 64, 9), (8, 32)),
        ("float", (30, 70, 5), (8, 32)),
        ("float", (14, 48, 7), (7, 24)),
        ("double", (16, 32, 6), (8, 16)),
        ("float", (32, 64, 9), (4, 16)),
    ],
)
def test_tiles_larger_than_the_registers_are_cut(dtype: str, sizes: tuple[int, ...], tile: tuple[int, int]) -> None:
    m, n, k = sizes
    kernel = product(dtype, m, n, k, *tile).compile()
    assert 1 < accumulators(kernel) < MACHINE.registers
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(dtype.replace("float", "f4")) for shape in ((m, k), (k, n)))
    assert np.array_equal(kernel(a, b), a @ b)


def test_sums_of_a_cut_tile_begin_and_end_with_each_part_but_copies_are_made_once() -> None:
    sums = product("float", 32, 64, 16, 8, 32).compilation.plan.buffers["C_acc0"]
    assert math.prod(sums.shape) < 8 * 32
    mmt = tc.define("def mmt(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }").mmt
    start = mmt.schedule(sizes={"M": 64, "N": 64, "K": 32})["C"].tile("m", "n", 8, 32)
    made = start.split("k", 16).reorder("n_o", "m_o", "k_o", "k_i", "m_i", "n_i").tensorize()
    kernel = made.cache_read("B", at="k_o").compile()
    assert [(c.storage, sorted(c.shape)) for c in kernel.compilation.plan.copies] == [("B", [16, 32])]
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 32)).astype("f4") for _ in range(2))
    assert np.array_equal(kernel(a, b), a @ b.T)


def test_what_fits_the_registers_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = product("float", 32, 64, 9, 8, 32).plan
    monkeypatch.setattr(registry, "this_machine", lambda: replace(MACHINE, vector_bytes=64, registers=32))
    whole = product("float", 32, 64, 9, 8, 32).plan
    assert cut is not None
    assert whole is not None
    assert cut.count("floor") > whole.count("floor")
