"""Tiles that reach over the end of a problem, of which threads compute what does not exist; and threads with much."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(4)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
NT = "def nt(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
BATCHES = "def batches(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }"
LAYER = """def layer(float(M,K) A, float(N,K) W, float(N) c) -> (C) {
    C(m,n) +=! A(m,k) * W(n,k)
    C(m,n) = fmax(C(m,n) + c(n), 0.0)
}"""
ADDED = "def added(float(M,K) A, float(K,N) B, float(M,N) C) -> (D) { D(m,n) = C(m,n)\n D(m,n) += A(m,k) * B(k,n) }"
CONVOLUTION = "def conv(float(C,H,W) I, float(O,C,3,3) K) -> (R) { R(o,h,w) +=! I(c,h+kh,w+kw) * K(o,c,kh,kw) }"
TILE = tc.MappingOptions(tile_sizes=(64, 64), threads=(16, 16))


def source(text: str, options: tc.MappingOptions | None = None, **sizes: int) -> str:
    (name,) = module = tc.define(text)
    return module[name].compile(sizes=sizes, target="cuda:sm_90", options=options).source


def asked_of_threads(text: str) -> list[str]:
    """The tests of threads below the first comment about a sum of products."""
    sums = text[text.index("+=!") :]
    sums = sums[: sums.index("is stored")]
    return [line.strip() for line in sums.splitlines() if re.search(r"\bif \(.*\bt_", line)]


@NEEDS_COMPILER
@pytest.mark.parametrize("prefetch", [True, False], ids=["ahead", "in turn"])
@pytest.mark.parametrize(
    ("text", "shapes", "tile"),
    [
        (MM, [(70, 50), (50, 66)], (64, 64)),
        (MM, [(65, 33), (33, 68)], (64, 64)),
        (MM, [(97, 20), (20, 36)], (32, 32)),
        (NT, [(33, 96), (40, 96)], (32, 32)),
        (NT, [(50, 31), (35, 31)], (32, 32)),
        (BATCHES, [(3, 20, 37), (3, 37, 24)], (1, 16, 16)),
        (LAYER, [(70, 33), (66, 33), (66,)], (64, 64)),
        (ADDED, [(70, 24), (24, 66), (70, 66)], (64, 64)),
        (CONVOLUTION, [(3, 12, 19), (5, 3, 3, 3)], (4, 4, 16)),
    ],
    ids=["mm", "mm in vectors", "many tiles", "nt", "nt odd", "batches", "layer", "added", "convolution"],
)
def test_results_are_those_of_the_interpreter(
    text: str, shapes: list[tuple[int, ...]], tile: tuple[int, ...], prefetch: bool
) -> None:
    (name,) = module = tc.define(text)
    arrays = [np.random.default_rng(sum(s)).integers(-3, 4, s).astype("float32") for s in shapes]
    options = tc.MappingOptions(tile_sizes=tile, reduction_tile=16, prefetch=prefetch)
    found = module[name](*arrays, target="simulator", options=options)
    np.testing.assert_array_equal(found, module[name].reference(*arrays))


@NEEDS_COMPILER
def test_what_is_not_finite_stays_where_it_belongs() -> None:
    """Rows and columns beyond the end are made of zeros, and of operands that do exist."""
    mm, rng = tc.define(MM).mm, np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (66, 40)).astype("float32"), rng.integers(-3, 4, (40, 70)).astype("float32")
    a[65], b[:, 69] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = mm.reference(a, b)
    np.testing.assert_array_equal(mm(a, b, target="simulator", options=TILE), expected)
    assert np.isfinite(expected[:65, :69]).all()


@pytest.mark.parametrize("sizes", [(250, 201, 77), (256, 250, 64), (130, 64, 64)])
def test_no_thread_is_tested(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    assert asked_of_threads(source(MM, TILE, M=m, N=n, K=k)) == []


@pytest.mark.parametrize(
    "options",
    [
        tc.MappingOptions(tile_sizes=(50, 64), threads=(16, 16)),
        tc.MappingOptions(tile_sizes=(50, 44), threads=(16, 16), distribution="cyclic"),
        tc.MappingOptions(tile_sizes=(37, 20), threads=(8, 8), distribution="blocked"),
        tc.MappingOptions(tile_sizes=(50, 80)),
    ],
    ids=["in vectors", "one by one", "in blocks", "threads by tcomp"],
)
@NEEDS_COMPILER
def test_threads_need_not_divide_their_tile(options: tc.MappingOptions) -> None:
    """They compute what their tile lacks to be whole, from rows and columns of the next tile or from zeros."""
    assert asked_of_threads(source(MM, options, M=120, N=100, K=64)) == []
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (120, 40)).astype("float32"), rng.integers(-3, 4, (40, 100)).astype("float32")
    a[49], b[:, 43] = np.inf, np.nan
    mm = tc.define(MM).mm
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(mm(a, b, target="simulator", options=options), mm.reference(a, b))


class TestSteps:
    """The last tile of steps is run to its end where both operands are zeros there."""

    TILE = tc.MappingOptions(tile_sizes=(32, 32), threads=(8, 8), reduction_tile=16)
    LONGER = "def f(float(M,L) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) where k in 0:K }"

    def loops(self, text: str, **sizes: int) -> list[str]:
        """The bounds of loops over single steps."""
        return re.findall(r"for \(int k_part = 0; k_part < (.*?);", source(text, self.TILE, **sizes))

    @pytest.mark.parametrize("k", [50, 64, 33])
    def test_one_loop_serves_all_tiles(self, k: int) -> None:
        assert self.loops(MM, M=64, N=64, K=k) == ["16"]

    def test_where_one_operand_goes_on_the_number_of_steps_is_looked_at(self) -> None:
        assert len(self.loops(self.LONGER, M=64, N=64, K=50, L=60)) == 2

    @NEEDS_COMPILER
    @pytest.mark.parametrize("longer", [False, True])
    def test_nothing_is_added_beyond_the_last_step(self, longer: bool) -> None:
        f = tc.define(self.LONGER if longer else MM)["f" if longer else "mm"]
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-3, 4, s).astype("float32") for s in ((40, 60 if longer else 50), (50, 36)))
        if longer:
            a[:, 50:] = np.nan
        found = f(a, b, target="simulator", options=self.TILE)
        np.testing.assert_array_equal(found, a[:, :50] @ b)

    @NEEDS_COMPILER
    def test_parts_of_a_reduction_have_whole_tiles_too(self) -> None:
        options = tc.MappingOptions(tile_sizes=(32, 32), threads=(8, 8), reduction_tile=16, split_reduction=3)
        mm, rng = tc.define(MM).mm, np.random.default_rng(0)
        a, b = (rng.integers(-3, 4, s).astype("float32") for s in ((40, 201), (201, 36)))
        np.testing.assert_array_equal(mm(a, b, target="simulator", options=options), a @ b)


def test_zeros_are_fetched_only_for_torn_tiles() -> None:
    through_registers = replace(TILE, stages=1)
    assert "uint4{}" in source(MM, through_registers, M=128, N=68, K=64)
    assert "uint4{}" not in source(MM, through_registers, M=128, N=64, K=64)
    assert "? 16 : 0" in source(MM, TILE, M=128, N=68, K=64)
    assert "? 16 : 0" not in source(MM, TILE, M=128, N=64, K=64)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (tc.MappingOptions(tile_sizes=(64, 64), threads=(16, 16), use_shared_memory=False), "operands are not fetched"),
        (tc.MappingOptions(tile_sizes=(64, 64), threads=(16, 16), use_private_memory=False), "all see the sums"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tests_stay(options: tc.MappingOptions, why: str) -> None:
    assert asked_of_threads(source(MM, options, M=120, N=100, K=64)), why


@NEEDS_COMPILER
def test_steps_that_a_plan_calls_coordinates_are_not_made_up() -> None:
    """The tensors go on where the reduction ends, so these steps would read what it leaves out."""
    mm = tc.define(MM.replace(" }", " where k in 0:K-5 }")).mm
    sizes, options = {"M": 16, "K": 29, "N": 16}, replace(TILE, threads=(8, 8), reduction_tile=16)
    text = mm.compile(sizes=sizes, target="simulator", options=options).stages["barriers"]
    for old, new in (("S0 = [0, 1]", "S0 = [0, 2]"), ("[(k)]", "[((k) mod 16)]")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    a, b = np.ones((16, 29), "float32"), np.ones((29, 16), "float32")
    found = mm.compile(sizes=sizes, target="simulator", options=options, plan=text)(a, b)
    np.testing.assert_array_equal(found, mm.reference(a, b))


@NEEDS_COMPILER
def test_subscripts_that_are_data_are_not_made_up() -> None:
    """Zeros in their place would be outside of a tensor that begins at 3."""
    rows = tc.define("""def rows(float(R,K) A, int32(M) I, float(K,N) B) -> (C) {
        S(r,k) = A(r-3,k) where r in 3:R+3
        C(m,n) +=! S(I(m),k) * B(k,n) }""").rows
    sizes, options = {"M": 18, "K": 8, "N": 16, "R": 9}, replace(TILE, tile_sizes=(16, 16), threads=(8, 8))
    text = rows.compile(sizes=sizes, target="simulator", options=options).stages["barriers"]
    table = """[[copy]]
storage = "S_1"
mark = "phase1_1"
statement = "S1"
reads = [0]
shape = [9, 8]
lower = "{ [i0, i1] -> [(3), (0)] }"
order = [0, 1]
padding = 0
vector = 1

[[copy]]"""
    kernel = rows.compile(sizes=sizes, target="simulator", options=options, plan=text.replace("[[copy]]", table, 1))
    assert re.search(r"S_1__tile\[tc_check\(I_tile", kernel.source)
    a, i, b = np.ones((9, 8), "float32"), np.arange(18, dtype="int32") % 9 + 3, np.ones((8, 16), "float32")
    np.testing.assert_array_equal(kernel(a, i, b), rows.reference(a, i, b))


class TestWideThreads:
    def test_large_tiles_are_dealt_to_few_threads(self) -> None:
        text = source(MM, M=4096, N=4096, K=4096)
        assert "__launch_bounds__(128, 1)" in text and "float C_acc[16][8];" in text
        assert "k_part < 16;" in text
        text = source(MM, tc.MappingOptions(stages=1), M=4096, N=4096, K=4096)
        assert "k_part < 8;" in text, "what is on its way takes registers"

    def test_not_where_sums_take_two_registers(self) -> None:
        text = source(MM.replace("float(", "double("), tc.MappingOptions(tile_sizes=(128, 128)), M=512, N=512, K=512)
        assert "__launch_bounds__(256, 1)" in text and re.search(r"double \w+\[8\]\[8\];", text)

    def test_copies_that_the_user_wants_are_made(self) -> None:
        tiles = tc.MappingOptions(tile_sizes=(128, 128))
        few = source(MM, tc.MappingOptions(tile_sizes=(128, 128), unroll=128), M=512, N=512, K=512)
        assert few.count("#pragma unroll") < source(MM, tiles, M=512, N=512, K=512).count("#pragma unroll")

    @NEEDS_COMPILER
    def test_results_are_those_of_the_interpreter(self) -> None:
        mm, rng = tc.define(MM).mm, np.random.default_rng(0)
        a, b = rng.integers(-3, 4, (130, 27)).astype("float32"), rng.integers(-3, 4, (27, 200)).astype("float32")
        options = tc.MappingOptions(tile_sizes=(128, 128))
        np.testing.assert_array_equal(mm(a, b, target="simulator", options=options), a @ b)
