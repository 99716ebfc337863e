"""Tiles on their way while others are worked on, vectors from and to memory, and what threads hand to each other."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.gpu.fetches import prefetch as deviceprefetch
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.mapping.gpu import tiles as gputiles
from tcomp.mapping.gpu.dealing import tile_of_steps
from tcomp.mapping.gpu.model import Work, parts_of_contraction
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.plan.values import Copy

pytestmark = pytest.mark.sweep(5)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
NT = "def nt(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
BATCHES = "def batches(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }"
CONVOLUTION = "def convolution(float(C,H,W) I, float(O,C,3,3) K) -> (R) { R(o,h,w) +=! I(c,h+kh,w+kw) * K(o,c,kh,kw) }"
HALVES = MM.replace("float(", "float16(")
HANDED_ON = """def handed_on(float(N) A) -> (T, S) {
    T(0) = A(2)
    T(1) = A(0)
    S(i) = A(i) + T(1)
}"""


def integers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(dtype)


def source(text: str, options: tc.MappingOptions | None = None, **sizes: int) -> str:
    (name,) = module = tc.define(text)
    return module[name].compile(sizes=sizes, target="cuda:sm_90", options=options).source


@pytest.mark.parametrize("prefetch", [True, False], ids=["ahead", "in turn"])
@pytest.mark.parametrize("order", ["cyclic", "vectors", "blocked"])
@pytest.mark.parametrize(
    ("text", "shapes", "dtype"),
    [
        (MM, [(70, 50), (50, 68)], "float32"),
        (NT, [(33, 96), (40, 96)], "float32"),
        (BATCHES, [(3, 20, 37), (3, 37, 24)], "float32"),
        (CONVOLUTION, [(5, 14, 13), (8, 5, 3, 3)], "float32"),
        (HALVES, [(48, 40), (40, 64)], "float16"),
    ],
    ids=["mm", "nt", "batches", "convolution", "halves"],
)
def test_results_are_those_of_the_interpreter(
    text: str, shapes: list[tuple[int, ...]], dtype: str, order: str, prefetch: bool
) -> None:
    (name,) = module = tc.define(text)
    arrays = [integers(*shape, dtype=dtype) for shape in shapes]
    options = tc.MappingOptions(reduction_tile=16, distribution=order, prefetch=prefetch, stages=1)
    found = module[name](*arrays, target="simulator", options=options)
    np.testing.assert_array_equal(found, module[name].reference(*arrays))


def test_threads_may_have_longer_runs_of_elements_than_one_access_reads() -> None:
    mm, a, b = tc.define(MM).mm, integers(40, 16), integers(16, 80)
    options = tc.MappingOptions(tile_sizes=(40, 80), threads=(2, 1), reduction_tile=8, distribution="blocked")
    np.testing.assert_array_equal(mm(a, b, target="simulator", options=options), a @ b)


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_of_a_reduction_are_asked_for_in_advance_too(parts: int) -> None:
    options = tc.MappingOptions(split_reduction=parts, reduction_tile=16, tile_sizes=(32, 32), stages=1)
    mm = tc.define(MM).mm
    a, b = integers(40, 131), integers(131, 36)
    np.testing.assert_array_equal(mm(a, b, target="simulator", options=options), a @ b)


def test_the_next_tile_is_asked_for_between_the_barrier_and_the_arithmetic() -> None:
    text = source(MM, tc.MappingOptions(reduction_tile=16, stages=1), M=128, N=128, K=128)
    loop = text[text.index("// tiles of steps") :]
    places = [loop.index(mark) for mark in ("// store ", "if (k_tile < 7)", "// ask for ", "// C(m, n) +=!")]
    assert places == sorted(places) and loop.count("__syncthreads();") == 2
    assert "ask for" not in source(MM, tc.MappingOptions(reduction_tile=16, prefetch=False), M=128, N=128, K=128)
    assert "ask for" not in source(MM, tc.MappingOptions(reduction_tile=64), M=128, N=128, K=64), "there is no next one"


def test_what_the_kernel_writes_is_not_asked_for_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan of tcomp fetches that, but one by hand may."""
    asked: list[str] = []

    def written(writer: KernelWriter, copy: Copy) -> bool:
        found = is_written(writer, copy)
        asked.append(f"{copy.storage} {found} {is_written(writer, replace(copy, storage='C'))}")
        return copy.storage == "B"

    is_written = deviceprefetch._is_written
    monkeypatch.setattr(deviceprefetch, "_is_written", written)
    monkeypatch.setenv("TCOMP_CACHE", "0")
    text = source(MM, tc.MappingOptions(reduction_tile=16, stages=1), M=96, N=128, K=144)
    assert "ask for" not in text and "// fetch" in text
    assert set(asked) <= {"A False True", "B False True"} and asked


def test_a_block_accumulates_its_part_in_registers() -> None:
    text = source(MM, tc.MappingOptions(split_reduction=4, tile_sizes=(64, 64)), M=64, N=64, K=1024)
    assert re.search(r"float C_acc0_parts_acc\[4\]\[4\];", text)
    assert not re.search(r"C_acc0_parts\[[^]]*\] \+=", text)


class TestStores:
    def test_neighbours_leave_together(self) -> None:
        assert "tc_put16(&C[" in source(MM, tc.MappingOptions(tile_sizes=(64, 64)), M=512, N=512, K=64)

    def test_rows_that_are_no_whole_vectors_do_not(self) -> None:
        assert "tc_put" not in source(MM, tc.MappingOptions(tile_sizes=(64, 64)), M=512, N=509, K=64)

    @pytest.mark.parametrize("offset", [0, 1, 2, 3])
    def test_results_may_begin_anywhere(self, offset: int) -> None:
        mm, a, b = tc.define(MM).mm, integers(64, 24), integers(24, 64)
        room = np.full(64 * 64 + 8, 7, np.float32)
        out = room[offset : offset + 64 * 64].reshape(64, 64)
        options = tc.MappingOptions(tile_sizes=(64, 64), threads=(16, 16))
        assert "tc_put16" in mm.compile(a, b, out=out, target="simulator", options=options).source
        mm(a, b, out=out, target="simulator", options=options)
        np.testing.assert_array_equal(out, a @ b)
        assert (room[:offset] == 7).all() and (room[offset + 64 * 64 :] == 7).all()

    def test_the_element_that_a_statement_reads_again_is_stored_at_once(self) -> None:
        text = """def f(float(M,K) A, float(K,N) B, float(M,N) D) -> (C) {
            C(m,n) +=! A(m,k) * B(k,n)
            C(m,n) = C(m,n) * D(m,n) }"""
        a, b, d = integers(64, 40), integers(40, 64), integers(64, 64)
        found = tc.define(text).f(a, b, d, target="simulator", options=tc.MappingOptions(tile_sizes=(64, 64)))
        np.testing.assert_array_equal(found, (a @ b) * d)


class TestHandedOn:
    """On a device, a restricted pointer let reads move to before the barrier behind which others have written."""

    def test_what_threads_hand_to_each_other_is_not_restricted(self) -> None:
        kernel = tc.define(HANDED_ON).handed_on.compile(sizes={"N": 4}, target="cuda:sm_90")
        handed = [text for text in kernel.source.split("extern")[1:] if "T[1]" in text.split("{", 1)[1]]
        assert handed and all(re.search(r"float \*T\b", text) for text in handed)
        assert all("*__restrict__ S" in text for text in handed if "S[" in text)

    def test_machine_code_reads_behind_the_barrier(self) -> None:
        kernel = tc.define(HANDED_ON).handed_on.compile(sizes={"N": 4}, target="cuda:sm_90")
        ptx = compile_image(kernel.compilation.source, "sm_90").ptx
        body = next(part for part in ptx.split(".entry")[1:] if "bar.warp.sync" in part or "bar.sync" in part)
        barrier = re.search(r"bar\.(warp\.)?sync", body)
        assert barrier
        stored = re.search(r"st\.global\.\w+\s+\[(%rd\d+)\+4\]", body[: barrier.start()])
        assert stored
        read = re.compile(rf"ld\.global\.\w+\s+%\w+, \[{stored[1]}\+4\]")
        assert read.search(body[barrier.end() :]) and not read.search(body[: barrier.start()])


class TestModel:
    @pytest.mark.parametrize("extent", [1, 7, 16, 50, 64, 100, 1000, 1021])
    @pytest.mark.parametrize("most", [1, 5, 16, 24, 85, 128])
    def test_tiles_of_steps(self, extent: int, most: int) -> None:
        size = tile_of_steps(extent, most)
        assert 1 <= size <= min(most, extent)
        assert size == extent or size <= 8 or size % 8 == 0
        assert 2 * size > min(most, extent) or -(-extent // size) <= 2 * -(-extent // most)

    def test_what_leaves_a_device_idle_is_split(self) -> None:
        gpu = gpu_of("sm_90")
        assert parts_of_contraction(gpu, Work(1, 128, 1024, 1024, 4), 16) > 1
        assert parts_of_contraction(gpu, Work(1, 4096, 4096, 4096, 4), 16) == 1
        assert parts_of_contraction(gpu, Work(500, 26, 26, 72, 4), 16) == 1
        assert parts_of_contraction(gpu, Work(1, 128, 1024, 1024, 4), 2) <= 2


class TestNarrowTiles:
    """Attention's scores in tiles of one row, as their softmax has them, would read all keys again for each row."""

    TEXT = """def attention(float(Q,D) q, float(K,D) k, float(K,D) v) -> (O) {
        s(i,j) +=! q(i,d) * k(j,d)
        m(i) max=! s(i,j)
        e(i,j) = exp(s(i,j) - m(i))
        l(i) +=! e(i,j)
        a(i,d) +=! e(i,j) * v(j,d)
        O(i,d) = a(i,d) / l(i) }"""

    def test_many_scores_have_tiles_of_their_own(self) -> None:
        # Without private memory for sums, keys do not come in turns.
        attention, options = tc.define(self.TEXT).attention, tc.MappingOptions(use_private_memory=False)
        large, small = (
            attention.compile(sizes={"Q": n, "K": n, "D": 64}, target="cuda:sm_90", options=options).compilation
            for n in (1024, 64)
        )
        first = large.source.launches[0]
        assert math.prod(first.grid) < 1024 and "their tiles are too narrow" in " ".join(large.plan.notes)
        assert not any("too narrow" in note for note in small.plan.notes)

    def test_results_are_those_of_the_interpreter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gputiles, "DEVICE", replace(gputiles.DEVICE, launch_seconds=-1.0))
        monkeypatch.setenv("TCOMP_CACHE", "0")
        attention = tc.define(self.TEXT).attention
        arrays = [np.random.default_rng(n).standard_normal((n, 16)).astype(np.float32) for n in (33, 41, 41)]
        found = attention(*arrays, target="simulator:sm_80")
        np.testing.assert_allclose(found, attention.reference(*arrays), rtol=1e-5, atol=1e-6)


def test_rounds_of_a_copy_have_a_name_of_their_own() -> None:
    """The index r of the program, moved to the next tile, was called as the rounds around it."""
    head = "def f(half(P,K) A, half(R,N,K) B, float(M) z) -> (float(M,N) C)"
    text = head + " { C(m,n) +=! A(m+r,k) * B(r,n,k) where m in 0:M }"
    options = tc.MappingOptions(reduction_tile=128, tile_sizes=(128, 64))
    A, B, z = integers(67, 72, dtype="float16"), integers(3, 200, 72, dtype="float16"), np.zeros(65, np.float32)
    kernel = tc.define(text).f.compile(A, B, z, target="simulator:sm_90", options=options)
    expected = sum(A[r : r + 65].astype(np.float32) @ B[r].T.astype(np.float32) for r in range(3))
    np.testing.assert_array_equal(kernel(A, B, z), expected)
