"""What the inner loops of machine code hold: the gates of speed that need no device, only NVIDIA's tools."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools import nvrtc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.source import Source
from tcomp.errors import TargetError
from tests.cuda.machine_code import Loop, busiest_loop, counted, innermost_loops, loops_of
from tests.cuda.simulated import NEEDS_COMPILER

ATTENTION = """def attention(float(B,Q,D) q, float(B,K,D) k, float(B,K,D) v) -> (O, m) {
  s(b,i,j) +=! q(b,i,d) * k(b,j,d)
  m(b,i) max=! s(b,i,j)
  e(b,i,j) = exp((s(b,i,j) - m(b,i)) * 0.125)
  l(b,i) +=! e(b,i,j)
  a(b,i,d) +=! e(b,i,j) * v(b,j,d)
  O(b,i,d) = a(b,i,d) / l(b,i)
}"""
LARGE = {"B": 16, "Q": 1024, "K": 1024, "D": 64}

TWO_LOOPS = """\
.text.f:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E R2, desc[UR4][R2.64] ;
.L_x_0:
        /*0020*/                   FFMA R0, R0, R2, R3 ;
        /*0030*/              @!P0 FFMA R0, R0, R2, R3 ;
        /*0040*/              @P0  BRA `(.L_x_0) ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   EXIT ;
.L_x_2:
        /*0070*/                   BRA `(.L_x_2);
"""


def source(text: str, sizes: dict[str, int], options: tc.MappingOptions | None = None) -> Source:
    """The CUDA text of a program at some sizes."""
    (name,) = module = tc.define(text)
    return module[name].compile(sizes=sizes, target="cuda:sm_90", options=options).compilation.source


def product(text: str, sizes: dict[str, int]) -> Loop:
    """The loop of machine code that multiplies most."""
    return busiest_loop([loop for loops in loops_of(source(text, sizes)).values() for loop in loops], "FFMA")


def test_innermost_loops_are_told_from_those_around_them() -> None:
    (loop,) = innermost_loops(TWO_LOOPS)["f"]
    assert loop.counts == {"FFMA": 2, "BRA": 1} and loop.total == 3
    assert loop.count("FFMA", "BRA") == 3 and loop.count("FF") == 0


class TestReductionsThatLeaveTheirKernel:
    """Attention's scores, which the next kernel reads."""

    def test_sums_are_in_registers(self) -> None:
        loop = product(ATTENTION, LARGE)
        assert loop.count("FFMA") >= 128
        assert loop.count("STG") == 0
        # 16 bytes at a time into shared memory, and in fours where an array begins elsewhere.
        assert loop.count("LDG") <= 20

    def test_no_element_is_combined_in_memory(self) -> None:
        text = source(ATTENTION, LARGE).text
        assert re.search(r"float s_acc0_apart\[16\]\[8\];", text)
        assert not re.search(r"\bs_acc\[[^]]*\] [+]=", text)

    @NEEDS_COMPILER
    @pytest.mark.parametrize("reduction", ["+", "*", "max", "min"])
    def test_results_are_those_of_the_interpreter(self, reduction: str) -> None:
        text = f"""def f(float(M,K) A, float(K,N) B) -> (T, C) {{
            s(m,n) {reduction}=! A(m,k) + B(k,n)
            T(m) +=! s(m,n)
            C(n) max=! s(m,n) }}"""
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-1, 2, shape).astype(np.float32) for shape in ((37, 5), (5, 41)))
        f = tc.define(text).f
        kernel = f.compile(a, b, target="simulator")
        assert kernel.compilation.plan.apart == ("S0",)
        for found, expected in zip(f(a, b, target="simulator"), f.reference(a, b), strict=True):
            np.testing.assert_array_equal(found, expected)

    def test_what_stays_in_its_kernel_has_one_storage(self) -> None:
        text = "def f(float(M,K) A) -> (C) { s(m) +=! A(m,k)\n C(m) = 2 * s(m) }"
        plan = tc.define(text).f.compile(sizes={"M": 64, "K": 32}, target="cuda:sm_90").compilation.plan
        assert plan.apart == () and len(plan.groups) == 1


class TestWholeTiles:
    """Products stand in loops without tests, whatever threads and tiles divide."""

    BATCHES = "def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }"
    MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"

    @pytest.mark.parametrize(("k", "n"), [(90, 80), (80, 90)])
    def test_threads_that_divide_no_side(self, k: int, n: int) -> None:
        loop = product(self.BATCHES, {"B": 64, "M": 100, "K": k, "N": n})
        assert loop.count("LDS") * 24 <= 11 * loop.count("FFMA")
        assert loop.count("ISETP") == 1, "that of the loop itself"

    def test_the_last_tile_of_steps_has_no_loop_of_its_own(self) -> None:
        (loop,) = (x for x in loops_of(source(self.MM, {"M": 777, "N": 777, "K": 777}))["f_0"] if x.count("FFMA"))
        assert loop.count("FFMA") == 1024 and loop.share("FFMA") > 0.8

    @pytest.mark.parametrize(("side", "share"), [(4096, 0.91), (777, 0.88)])
    def test_what_runs_for_sixteen_steps_is_multiply_adds(self, side: int, share: float) -> None:
        """The loop over 8 steps runs twice in that over tiles, which has one barrier and stores nothing itself."""
        sizes = {"M": side, "N": side, "K": side}
        outer, inner = counted(source(self.MM, sizes), "f_0", "FFMA"), product(self.MM, sizes)
        assert inner.count("FFMA") == 1024
        assert 2048 / (outer.total + inner.total) >= share
        assert outer.count("BAR") == 1 and outer.count("STS", "LDL", "STL") == 0


class TestJoinedRows:
    """Rows of 26 floats are no whole vectors, but 72 of them in a row are."""

    BATCHES = "def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }"
    COLUMNS = "def f(float(B,K,M) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,k,m) * Y(b,k,n) }"

    def test_everything_is_fetched_in_vectors(self) -> None:
        loops = loops_of(source(self.BATCHES, {"B": 500, "M": 26, "K": 72, "N": 26}))["f_0"]
        assert sum(x.count("LDG") for x in loops) == sum(x.count("LDG.E.128") for x in loops) > 0

    @pytest.mark.parametrize(
        ("text", "sizes", "joined"),
        [
            (BATCHES, {"B": 500, "M": 26, "K": 72, "N": 26}, True),
            (COLUMNS, {"B": 500, "M": 26, "K": 72, "N": 26}, True),
            (BATCHES, {"B": 500, "M": 26, "K": 71, "N": 26}, False),
        ],
        ids=["columns of one", "columns of both", "an odd number of rows"],
    )
    def test_only_where_all_vectors_are_whole(self, text: str, sizes: dict[str, int], joined: bool) -> None:
        plan = tc.define(text).f.compile(sizes=sizes, target="cuda:sm_90").compilation.plan
        (copy,) = (c for c in plan.copies if c.storage == "Y")
        assert (copy.vector, copy.shape[-1] % 4) == ((4, 2) if joined else (1, 2))
        assert copy.padding == 0 or not joined

    @NEEDS_COMPILER
    @pytest.mark.parametrize("text", [BATCHES, COLUMNS], ids=["rows", "columns"])
    @pytest.mark.parametrize(("k", "steps"), [(72, None), (72, 36), (70, 20), (38, 16)])
    def test_results_are_those_of_the_interpreter(self, text: str, k: int, steps: int | None) -> None:
        f, rng = tc.define(text).f, np.random.default_rng(0)
        first = (3, 26, k) if text == self.BATCHES else (3, k, 26)
        x, y = (rng.integers(-3, 4, shape).astype(np.float32) for shape in (first, (3, k, 26)))
        options = tc.MappingOptions(reduction_tile=steps)
        np.testing.assert_array_equal(f(x, y, target="simulator", options=options), f.reference(x, y))


class TestExtrema:
    """``max`` and ``min`` of floats, which are NaN where an operand is."""

    TEXT = "def f(float(N,D) I) -> (O) { O(n) max=! I(n,d) }"

    def test_one_instruction_each(self) -> None:
        loop = busiest_loop(next(iter(loops_of(source(self.TEXT, {"N": 4096, "D": 1 << 20})).values())), "FMNMX")
        assert loop.count("FMNMX") == 4 * loop.count("LDG.E.128") >= 16
        assert loop.count("FSETP", "FSEL") == 0

    @pytest.mark.parametrize(("architecture", "single"), [("sm_75", False), ("sm_80", True), ("sm_90", True)])
    def test_architectures_without_the_instruction_compare(self, architecture: str, single: bool) -> None:
        try:
            nvrtc.find()
        except TargetError as error:
            pytest.skip(error.message)
        ptx = compile_image(source(self.TEXT, {"N": 64, "D": 100}), architecture).ptx
        assert ("max.NaN.f32" in ptx) == single


class TestRowsBesideAContraction:
    """Row sums and maxima of a tile, with the threads of the block for all rows of it at a time."""

    def test_each_row_has_a_warp(self) -> None:
        text = source(ATTENTION, LARGE).text
        sums = text[text.index("// l(b, i) +=! e(b, i, j)") :]
        assert "8 x 32 threads, 32 to an element" in sums.splitlines()[0]
        assert "__syncthreads" not in sums[: sums.index("// a starts")]

    def test_few_rows_have_all_threads(self) -> None:
        text = source("def f(float(N,D) I) -> (O) { O(n) +=! I(n,d) }", {"N": 512, "D": 1024}).text
        assert "256 to an element" in text
