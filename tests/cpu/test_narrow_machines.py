"""Products where vectors and caches are smaller: sixteen registers, half a megabyte in the second cache."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import Machine, this_machine

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def integers(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng([0, *shape]).integers(-3, 4, shape).astype(np.float32)


def use(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: machine)


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


def test_no_constant_of_another_loop_takes_the_register_of_an_accumulator() -> None:
    """A strided convolution packs its columns with a permutation, which gcc would hold through the register tiles."""
    text = "def f(float(C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(f,h,w) +=! I(c,2*h+kh,2*w+kw) * K(f,c,kh,kw) }"
    kernel = tc.define(text)["f"].compile(sizes={"C": 3, "H": 37, "W": 37, "F": 16, "KH": 7, "KW": 7})
    lines = [line.strip() for line in kernel.source.splitlines()]
    tiles = [line for line in lines if line == "tc_free_registers();" or " tc_c0_0 = " in line]
    assert len(tiles) >= 2 and all(line == "tc_free_registers();" for line in tiles[::2])
    image, K = integers((3, 37, 37)), integers((16, 3, 7, 7))
    windows = np.lib.stride_tricks.sliding_window_view(image, (7, 7), (1, 2))[:, ::2, ::2]
    assert (kernel(image, K) == np.einsum("chwxy,fcxy->fhw", windows, K)).all()


def test_windows_that_stay_near_are_read_in_wider_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a block of the reduction reads counts, not all of it: else 20 columns would be cut into 16 and 4."""
    use(monkeypatch, replace(this_machine(), vector_bytes=32, registers=16, datapath_bytes=32, nearest_cache=32 << 10))
    f = tc.define("def f(float(C,H,W) I, float(Y,X,C,F) K) -> (O) { O(f,h,w) +=! I(c,h+y,w+x) * K(y,x,c,f) }")["f"]
    kernel = f.compile(sizes={"C": 100, "H": 24, "W": 24, "Y": 5, "X": 5, "F": 50})
    assert "tc_c3_2 += " in kernel.source and "tc_c5_1 += " not in kernel.source
    image, K = integers((100, 24, 24)), integers((5, 5, 100, 50))
    windows = np.lib.stride_tricks.sliding_window_view(image, (5, 5), axis=(1, 2))
    assert (kernel(image, K) == np.einsum("chwyx,yxcf->fhw", windows, K, optimize=True)).all()
