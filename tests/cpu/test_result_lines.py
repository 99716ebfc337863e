"""Lines of results that register tiles fetch before they write them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.contractions.resultlines import fetched_lines

FETCHED = re.compile(r"__builtin_prefetch\((\w+) \+ (\d+), 1\);")
STORED = re.compile(r"\*\(tc_float32_x(\d+) \*\)\(tc_r \+ (\d+)\) =")
CONVOLUTION = "def f(float(N,C,H,W) I, float(F,C,3,3) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }"


@pytest.mark.parametrize(
    ("runs", "fetched"),
    [
        ([(0, 1)], [0]),
        ([(0, 16)], [0, 15]),
        ([(0, 48)], [0, 16, 32, 47]),
        ([(100, 31), (0, 31)], [0, 16, 30, 100, 116, 130]),
        ([(0, 4), (4, 4), (8, 4)], [0, 11]),
        ([(0, 4), (10, 4), (40, 4)], [0, 13, 40, 43]),
    ],
)
def test_every_line_of_the_runs_is_touched_once(runs: list[tuple[int, int]], fetched: list[int]) -> None:
    lines = [*fetched_lines("p", runs, 4)]
    assert [int(FETCHED.fullmatch(line)[2]) for line in lines if FETCHED.fullmatch(line)] == fetched  # type: ignore[index]
    for start in range(16):
        touched = {(start + element) // 16 for element in fetched}
        assert {(start + e) // 16 for first, count in runs for e in range(first, first + count)} <= touched


@pytest.mark.parametrize(("filters", "far"), [(4, False), (150, True)])
def test_results_that_are_far_are_fetched(filters: int, far: bool) -> None:
    sizes = {"N": 1, "C": 3, "H": 41, "W": 40, "F": filters}
    kernel = tc.define(CONVOLUTION)["f"].compile(sizes=sizes)
    assert bool(FETCHED.search(kernel.source)) == far


def test_fetched_lines_lie_within_the_results() -> None:
    sizes = {"N": 1, "C": 2, "H": 67, "W": 55, "F": 70}
    f = tc.define(CONVOLUTION)["f"]
    image, kernel = (
        np.random.default_rng(0).integers(-3, 4, s).astype(np.float32) for s in ((1, 2, 67, 55), (70, 2, 3, 3))
    )
    source = f.compile(sizes=sizes).source
    tiles = [tile for tile in source.split("tc_free_registers();")[1:] if FETCHED.search(tile)]
    assert tiles
    for tile in tiles:
        stores = [(int(at), int(lanes)) for lanes, at in STORED.findall(tile)]
        places = [int(at) for _, at in FETCHED.findall(tile)]
        assert min(places) == min(at for at, _ in stores)
        assert max(places) == max(at + lanes for at, lanes in stores) - 1
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))
    assert (f(image, kernel) == np.einsum("nchwxy,fcxy->nfhw", windows, kernel)).all()
