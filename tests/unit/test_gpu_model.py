"""The model that ranks tiles of contractions: facts that hold whatever its constants are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tcomp import grammar
from tcomp.mapping.gpu.model import TileShape, contraction_seconds, resident_blocks
from tcomp.mapping.gpu.tiles import GpuTiles
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import schedule
from tcomp.model.build import build
from tcomp.model.terms.sizes import Sizes

H100 = gpu_of("sm_90")
TILE = TileShape(64, 64, 256, (4, 4), 16, 4)


def test_what_does_not_fit_takes_for_ever() -> None:
    assert contraction_seconds(H100, replace(TILE, steps=4096), 100, 1024) == math.inf
    assert contraction_seconds(H100, replace(TILE, share=(16, 16)), 100, 1024) == math.inf
    assert resident_blocks(H100, replace(TILE, threads=1024)) <= 2


def test_wide_elements_take_two_registers() -> None:
    """A thread has 255 registers: 16 x 8 sums of double precision would take them all."""
    whole = replace(TILE, threads=128, share=(16, 8))
    assert resident_blocks(H100, whole) > 0
    assert resident_blocks(H100, replace(whole, itemsize=8)) == 0
    assert resident_blocks(H100, replace(whole, itemsize=8, share=(8, 8))) > 0


def test_a_wave_costs_the_same_however_full_it_is() -> None:
    large = TileShape(128, 128, 256, (8, 8), 16, 4)
    one = contraction_seconds(H100, large, H100.multiprocessors, 1 << 20)
    assert contraction_seconds(H100, large, H100.multiprocessors // 2, 1 << 20) == pytest.approx(one)
    assert contraction_seconds(H100, large, H100.multiprocessors + 1, 1 << 20) > 1.2 * one


def test_larger_shares_read_less_from_shared_memory() -> None:
    small = contraction_seconds(H100, replace(TILE, share=(2, 2)), H100.multiprocessors, 4096)
    assert contraction_seconds(H100, replace(TILE, share=(8, 8)), H100.multiprocessors, 4096) < small


@pytest.mark.parametrize(
    ("sizes", "smallest", "largest"),
    [((4096, 4096, 4096), 128 * 128, 128 * 128), ((64, 64, 64), 1, 32 * 32), ((1024, 1024, 1024), 32 * 32, 128 * 128)],
)
def test_tiles_grow_with_the_problem(sizes: tuple[int, int, int], smallest: int, largest: int) -> None:
    text = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }"
    scop = build(grammar.define(text)["mm"], Sizes(dict(zip(("M", "N", "K"), sizes, strict=True))))
    cluster = schedule(scop).clusters[0]
    tile = GpuTiles(H100)(scop, cluster, (0, 1), MappingOptions())
    assert smallest <= math.prod(tile) <= largest
