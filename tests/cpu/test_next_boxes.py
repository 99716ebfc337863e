"""What register tiles fetch while they run: the box of a panel that is read next, and what follows them in memory."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.contractions.aheadpanels import NextBox
from tcomp.backends.c.loops.nests import Nest
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.loops.ir import Block, Execute, For, Number
from tcomp.model.terms.sizes import Part, Sizes
from tests.targets import CPU

LINEAR = "def f(float(M,K) A, float(K,N) W) -> (C) { C(m,n) +=! A(m,k) * W(k,n) }"
RESIDUAL = """
def f(float(M,K) A, float(K,N) W, float(M,N) R, float(N) b) -> (C) {
  T(m,n) +=! A(m,k) * W(k,n)
  C(m,n) = max(T(m,n) + b(n) + R(m,n), 0.0)
}"""
BEHIND = re.compile(r"__builtin_prefetch\(tc_behind\d+_v_(\w+) \+ (\d+), (\d)\);")


def kernel(text: str, sizes: dict[str, int], *bound: str, middle_cache: int = 1 << 18) -> str:
    backend = replace(CPU, machine=replace(CPU.machine, middle_cache=middle_cache))
    part = Part(bound) if bound else None
    return lower(define(text)["f"], Sizes(sizes, part=part), tc.MappingOptions(), backend).source.text


@pytest.mark.parametrize(("middle_cache", "far"), [(1 << 18, True), (1 << 22, False)])
def test_boxes_are_fetched_where_all_of_them_are_far(middle_cache: int, far: bool) -> None:
    text = kernel(LINEAR, {"M": 96, "N": 256, "K": 300}, "W", middle_cache=middle_cache)
    assert ("tc_next" in text) == far
    assert "packed + " in text


def test_panels_that_are_not_packed_ahead_have_no_next_box() -> None:
    assert "tc_next" not in kernel(LINEAR, {"M": 96, "N": 256, "K": 300})


def test_a_box_that_one_register_tile_reads_is_not_fetched() -> None:
    """It is then read as fast as it could be fetched."""
    assert "tc_next" not in kernel(LINEAR, {"M": 5, "N": 256, "K": 300}, "W")


@pytest.mark.parametrize(("bytes_of_box", "counts", "steps"), [(19200, (4,), 300), (640, (7, 3), 20), (64, (2,), 1)])
def test_every_line_of_the_next_box_is_fetched(bytes_of_box: int, counts: tuple[int, ...], steps: int) -> None:
    tiles = tuple(For(f"c{d}", Number(0), Number(count), 1, Block(())) for d, count in enumerate(counts))
    call = Execute("S0", ())
    column, step = (For(name, Number(0), Number(n), 1, call) for name, n in (("j", 16), ("k", steps)))
    found = NextBox("p + 1000L", bytes_of_box, tiles).fetched(Nest((), step, (step,), None, column, call))
    assert found is not None
    apart = [int(n) for n in re.findall(r"\* (\d+)L", found[0])]
    each = int(re.findall(r"\+= (\d+);", found[1])[0])
    places = np.zeros((*counts, steps), int) + np.arange(steps) * each
    for d, distance in enumerate(apart):
        places += np.arange(counts[d]).reshape([-1 if e == d else 1 for e in range(len(counts) + 1)]) * distance
    assert set(range(-(-bytes_of_box // 64))) <= set((places // 64).ravel().tolist())


def test_more_than_a_line_in_each_step_is_not_fetched() -> None:
    tile, call = For("c0", Number(0), Number(2), 1, Block(())), Execute("S0", ())
    column, step = (For(name, Number(0), Number(n), 1, call) for name, n in (("j", 16), ("k", 10)))
    assert NextBox("p", 2000, (tile,)).fetched(Nest((), step, (step,), None, column, call)) is None


@pytest.mark.parametrize(("middle_cache", "far"), [(1 << 15, True), (1 << 22, False)])
def test_what_follows_a_register_tile_is_fetched_where_it_is_far(middle_cache: int, far: bool) -> None:
    text = kernel(RESIDUAL, {"M": 144, "N": 160, "K": 40}, middle_cache=middle_cache)
    found = {(name, written) for name, _, written in BEHIND.findall(text)}
    assert found == ({("R", "0"), ("C", "1")} if far else set())


def test_lines_behind_are_those_of_the_register_tile() -> None:
    text = kernel(RESIDUAL, {"M": 144, "N": 160, "K": 40}, middle_cache=1 << 15)
    tiles = text.split("/* cluster0 */")[1:]
    assert tiles
    for tile in tiles:
        (elements,) = {int(n) for n in re.findall(r"float v_T_acc0\[(\d+)\]", tile)}
        places = [int(at) for name, at, _ in BEHIND.findall(tile) if name == "R"]
        columns = sorted({at % 160 for at in places})
        rows = elements // (columns[-1] + 1)
        assert places == [160 * row + column for row in range(rows) for column in columns]


def test_results_are_those_of_the_program() -> None:
    sizes = {"M": 300, "N": 500, "K": 40}
    A, W, R, b = (np.random.default_rng(n).integers(-3, 4, s).astype("f4") for n, s in enumerate(
        ((300, 40), (40, 500), (300, 500), (500,))))  # fmt: skip
    f = tc.define(RESIDUAL)["f"]
    assert BEHIND.search(kernel(RESIDUAL, sizes))
    assert (f.bind(W=W)(A, R=R, b=b) == np.maximum(A @ W + b + R, 0)).all()


POINTS = "def f(float(C,H,W) I, float(F,C) K) -> (O) { O(f,h,w) +=! I(c,2*h,2*w) * K(f,c) where h in 0:H/2, w in 0:20 }"
NEXT = re.compile(r"__builtin_prefetch\(tc_[ab] \+ (\d+)\);")


@pytest.mark.parametrize(("middle_cache", "fetched"), [(1 << 16, {20, 36}), (1 << 22, set())])
def test_rows_of_the_next_tile_are_fetched_where_they_are_far(middle_cache: int, fetched: set[int]) -> None:
    """Ten points in a row of the image, each second element: two lines."""
    text = kernel(POINTS, {"C": 48, "H": 34, "W": 40, "F": 18}, middle_cache=middle_cache)
    assert {int(at) for at in NEXT.findall(text)} == fetched


def test_rows_whose_steps_are_near_each_other_are_not_fetched() -> None:
    assert not NEXT.search(kernel(LINEAR, {"M": 300, "N": 48, "K": 300}, middle_cache=1 << 15))


GRAM = """
def f(double(K,M) A) -> (C) {
  x(k,i) = 2 * A(k,i)
  C(i,j) +=! x(k,i) * x(k,j)
}"""


@pytest.mark.parametrize(("rows", "fetched"), [(402, {12}), (78, set())])
def test_rows_that_are_read_again_are_fetched_a_line_ahead_if_there_is_room(rows: int, fetched: set[int]) -> None:
    """Six rows are less than a line of doubles, so that every other tile begins with one of its own.

    A block has 40 steps where tiles are high, and 200 where they are low, for which the nearest cache is too small.
    """
    machine = replace(CPU.machine, vector_bytes=32, datapath_bytes=32, registers=16, middle_cache=1 << 19)
    options = tc.MappingOptions(tile_sizes=(rows, 64))
    source = lower(define(GRAM)["f"], Sizes({"M": 1200, "K": 1400}), options, replace(CPU, machine=machine)).source.text
    assert {int(at) for at in NEXT.findall(source)} == fetched


@pytest.mark.parametrize("sizes", [(203, 131), (64, 517), (7, 1030)])
def test_products_of_temporaries_down_their_columns_are_right(sizes: tuple[int, int]) -> None:
    A = np.random.default_rng(0).integers(-3, 4, sizes).astype("f8")
    assert (tc.define(GRAM)["f"](A) == 4 * A.T @ A).all()
