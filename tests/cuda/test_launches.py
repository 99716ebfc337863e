"""Grids and blocks are no larger than devices take, and threads no larger than registers, whatever the options."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.dialect import CUDA_C
from tcomp.backends.gpu.blocks import LARGEST_GRID, BlockLoop, grid_of
from tcomp.loops.ir import Number
from tcomp.mapping.options.choices import MOST_THREADS
from tests.cuda.simulated import NEEDS_COMPILER
from tests.programs import integers

pytestmark = pytest.mark.sweep(3)

COPY = "def f(int8(A,B,C,D,E) X) -> (Y) { Y(a,b,c,d,e) = X(a,b,c,d,e) + X(b,a,c,d,e) }"
PAIRS = "def f(float(A,B,C,D) X) -> (Y) { Y(a,b,c) +=! X(a,b,c,d) * X(a,b,0,d) }"
ROWS = "def f(float(M,N,K) X) -> (S) { S(m,n) +=! X(m,n,k) }"


@pytest.mark.parametrize("extent", [300, 65_536])
def test_loops_that_share_an_axis_fit_it(extent: int) -> None:
    sizes = {"A": extent, "B": extent, "C": 2, "D": 2, "E": 2048}
    kernel = tc.define(COPY).f.compile(sizes=sizes, target="cuda:sm_90")
    (launch,) = kernel.compilation.source.launches
    assert launch.grid[2] > 60_000
    assert all(count <= most for count, most in zip(launch.grid, LARGEST_GRID, strict=True))


@NEEDS_COMPILER
@pytest.mark.parametrize("blocks", [(1,), (2, 2, 1), (3, 1, 2), (1, 2, 5), (2, 3, 7), (5, 5, 13), (9, 9, 1000)])
def test_blocks_take_the_tiles_of_such_loops_in_turn(blocks: tuple[int, ...]) -> None:
    for text, shape in ((COPY, (5, 5, 3, 2, 3)), (PAIRS, (3, 4, 5, 40))):
        options = tc.MappingOptions(tile_sizes=(1, 1, 1, 1, 1), blocks=blocks)
        operator, x = tc.define(text).f, integers(*shape).astype(np.int8 if text == COPY else np.float32)
        kernel = operator.compile(x, target="simulator", options=options)
        for launch in kernel.compilation.source.launches:
            assert all(count <= most for count, most in zip(launch.grid, blocks, strict=False))
        np.testing.assert_array_equal(operator(x, target="simulator", options=options), operator.reference(x))


@pytest.mark.parametrize(("blocks", "index"), [(2**16, "int"), (2**17, "long long"), (2**30, "long long")])
def test_a_loop_of_blocks_ends_within_its_integers(blocks: int, index: str) -> None:
    """Behind the last tile the iterator goes on by the number of blocks."""
    options = tc.MappingOptions(tile_sizes=(1,), blocks=(blocks,))
    text = "def f(uint8(N) A) -> (B) { B(i) = A(i) }"
    kernel = tc.define(text).f.compile(sizes={"N": 2**31 - 2**16 - 1}, target="cuda:sm_90", options=options)
    assert kernel.compilation.source.launches[0].grid == (blocks, 1, 1)
    assert f"for ({index} b_i = blockIdx.x; b_i <= {2**31 - 2**16 - 2}; b_i += gridDim.x)" in kernel.source


def test_strides_of_loops_that_share_an_axis() -> None:
    loops = [
        BlockLoop(name, Number(1), Number(12), step, (), 1, 11)
        for name, step in (("a", 2), ("b", 5), ("c", 1), ("d", 1))
    ]
    mapped, grid = grid_of(CUDA_C, loops, None)
    assert grid == (11, 11, 18)
    assert [line for m in mapped[:2] for line in m.lines("int")] == [
        "const int a = 1 + 2 * (blockIdx.z / 3);",
        "const int b = 1 + 5 * (blockIdx.z % 3);",
    ]
    mapped, grid = grid_of(CUDA_C, loops, (11, 11, 4))
    assert grid == (11, 11, 3)
    assert mapped[0].lines("int") == ["for (int a = 1 + 2 * (blockIdx.z / 3); a <= 11; a += 2 * 1) {"]


@NEEDS_COMPILER
@pytest.mark.parametrize("blocks", [None, (2, 2)])
@pytest.mark.parametrize("columns", ["2*floor((i1)/8) + (floor((i0)/8) mod 2)", "3*floor((i1)/8) - floor((i0)/8)"])
def test_every_other_tile_from_one_that_differs_from_row_to_row(columns: str, blocks: tuple[int, ...] | None) -> None:
    """As plans by hand may count tiles."""
    operator = tc.define("def f(float(M,N) A) -> (B) { B(m,n) = 2 * A(m,n) }").f
    options = tc.MappingOptions(tile_sizes=(8, 8), threads=(8, 4), blocks=blocks)
    text = operator.compile(sizes={"M": 20, "N": 40}, target="simulator", options=options).stages["barriers"]
    row = "S0[i0, i1] -> [(floor((i1)/8))]"
    assert text.count(row) == 1
    plan = text.replace(row, f"S0[i0, i1] -> [({columns})]")
    kernel = operator.compile(sizes={"M": 20, "N": 40}, target="simulator", options=options, plan=plan)
    x = integers(20, 40)
    np.testing.assert_array_equal(kernel(x), 2 * x)


@NEEDS_COMPILER
@pytest.mark.parametrize("threads", [(1, 1024), (2, 512), (2, 2, 64), (4, 256), (1024,)])
def test_threads_that_share_a_reduction_leave_no_more_to_elements_than_blocks_have(threads: tuple[int, ...]) -> None:
    options = tc.MappingOptions(tile_sizes=(256, 2), threads=threads)
    operator, x = tc.define(ROWS).f, integers(256, 2, 35)
    kernel = operator.compile(x, target="simulator", options=options)
    (launch,) = kernel.compilation.source.launches
    assert math.prod(launch.block) <= 1024
    assert all(count <= most for count, most in zip(launch.block, MOST_THREADS, strict=True))
    np.testing.assert_array_equal(operator(x, target="simulator", options=options), operator.reference(x))


@pytest.mark.parametrize(("threads", "resident"), [(13, 16), (32, 16), (33, 8), (64, 8), (96, 5), (100, 4), (1024, 1)])
def test_whole_warps_share_the_registers(threads: int, resident: int) -> None:
    """With 15 blocks of 33 threads, which fill 30 warps, a thread had 68 registers instead of 128."""
    kernel = tc.define("def f(float(N) X) -> (Y) { Y(i) = X(i) + 1 }").f.compile(
        sizes={"N": 4096}, target="cuda:sm_90", options=tc.MappingOptions(tile_sizes=(1024,), threads=(threads,))
    )
    assert f"__launch_bounds__({threads}, {resident})" in kernel.source


@pytest.mark.parametrize(("extents", "unrolled"), [((15, 17), 6), ((16, 16), 0)])
def test_arrays_that_registers_cannot_hold_are_not_unrolled(extents: tuple[int, int], unrolled: int) -> None:
    text = "def f(float(N,H,W) X) -> (Y) { Y(n,h,w) +=! X(n,h + k,w) where k in 0:5, h in 0:H-4 }"
    kernel = tc.define(text).f.compile(
        sizes={"N": extents[0], "H": extents[1] + 4, "W": 64},
        target="cuda:sm_90",
        options=tc.MappingOptions(tile_sizes=(0, 0, 64), threads=(64,), unroll=1),
    )
    assert kernel.source.count("#pragma unroll") == unrolled


@NEEDS_COMPILER
@pytest.mark.parametrize(("threads", "private"), [((8, 8), True), ((2, 2), False), ((1,), False)])
def test_threads_keep_no_more_than_the_driver_sets_aside(threads: tuple[int, ...], private: bool) -> None:
    """Local memory is reserved for every thread that a device can hold: 64 KiB for each are 17 GiB."""
    text = "def f(float(M,K) A, float(K,N) B) -> (D) { C(m,n) +=! A(m,k) * B(k,n)  D(m,n) = relu(C(m,n)) }"
    operator, options = tc.define(text).f, tc.MappingOptions(tile_sizes=(0, 0), threads=threads)
    a, b = integers(96, 20, seed=1), integers(20, 96, seed=2)
    kernel = operator.compile(a, b, target="simulator", options=options)
    assert (kernel.compilation.plan.buffers["C_acc0"].space == "private") is private
    np.testing.assert_array_equal(operator(a, b, target="simulator", options=options), operator.reference(a, b))
