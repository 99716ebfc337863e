"""Panels that a thread keeps from one tile to the next: which are kept, and that what is kept is right."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

Array = np.ndarray[Any, np.dtype[Any]]
WITH_DOTS = replace(CPU, machine=replace(CPU.machine, dots="avx512_vnni", widens=True, bfloat16=True))

PRODUCTS: dict[str, tuple[str, str, tuple[int, ...], tuple[str, ...]]] = {
    "matrix": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        "mk,kn->mn", (24, 128), ("p_B_of_S0_for_c1",),
    ),
    "transposed": (
        "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        "mk,nk->mn", (24, 32), ("p_B_of_S0_for_c1",),
    ),
    "batches": (
        "def f(float(B,M,K) X, float(B,N,K) Y) -> (C) { C(b,m,n) +=! X(b,m,k) * Y(b,n,k) }",
        "bmk,bnk->bmn", (1, 24, 32), ("p_Y_of_S0_for_c0", "p_Y_of_S0_for_c2"),
    ),
    "bytes": (
        "def f(int8(M,K) A, int8(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        "mk,kn->mn", (24, 32), ("p_B_of_S0_for_c1",),
    ),
    "bfloat16": (
        "def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (C) { C(m,n) +=! float(A(m,k)) * float(B(k,n)) }",
        "mk,kn->mn", (24, 32), ("p_B_of_S0_for_c1",),
    ),
}  # fmt: skip
SIZES = {"b": 3, "m": 75, "n": 1100, "k": 70}
BORDERED = """
def f(float(C,H,W) X, float(F,C,R,S) K) -> (O) {
  O(f,h,w) +=! constant_exterior(X, 3)(c,h+r-1,w+s-1) * K(f,c,r,s) where h in 0:H, w in 0:W
}"""
CHAIN = """
def f(float(M,K) A, float(K,L) B, float(L,N) D) -> (E, C) {
  E(m,l) +=! A(m,k) * B(k,l)
  C(m,n) +=! E(m,l) * D(l,n)
}"""


def integers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).integers(-3, 4, shape).astype(dtype)


def text_of(text: str, sizes: dict[str, int], options: tc.MappingOptions) -> str:
    """A kernel's C text, on a processor that has every instruction."""
    return lower(define(text)["f"], Sizes(sizes), options, WITH_DOTS).source.text


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("form", PRODUCTS)
def test_tiles_that_read_the_same_panel_fill_it_once(form: str, parallel: bool) -> None:
    text, _, tiles, kept = PRODUCTS[form]
    options = tc.MappingOptions(tile_sizes=tiles, parallel=parallel)
    sizes = {name: SIZES[name.lower()] for name in define(text)["f"].sizes}
    source = text_of(text, sizes, options)
    assert all(f" {name} = c" in source for name in kept)
    loops = [line for line in source.split("\n") if "const long c" in line or "for (long c" in line]
    order = [next(n for n, line in enumerate(loops) if f"long c{d} = " in line) for d in range(len(tiles))]
    assert max(order) == order[-2], "rows are the innermost loop over tiles"


def test_what_lies_in_memory_is_not_read_again_for_every_panel() -> None:
    """A tall matrix passes by once, and its panels are filled for every tile."""
    options, order = tc.MappingOptions(tile_sizes=(512, 32)), {}
    for rows in (1024, 200000):
        source = text_of(PRODUCTS["transposed"][0], {"M": rows, "K": 70, "N": 1024}, options)
        order[rows] = re.findall(r"const long (c\d) = \(?tile", source)
    assert order == {1024: ["c1", "c0"], 200000: ["c0", "c1"]}


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("form", PRODUCTS)
def test_what_is_kept_is_right(form: str, parallel: bool) -> None:
    """The next call, with other numbers in the panel, fills it anew."""
    text, subscripts, tiles, _ = PRODUCTS[form]
    first, second = (tuple(SIZES[i] for i in operand) for operand in subscripts.split("->")[0].split(","))
    dtype = {"bytes": np.int8, "bfloat16": ml_dtypes.bfloat16}.get(form, np.float32)
    f, options = tc.define(text)["f"], tc.MappingOptions(tile_sizes=tiles, parallel=parallel)
    A = integers(first, dtype)
    for seed in range(2):
        B = integers(second, dtype, seed)
        expected = np.einsum(subscripts, A.astype(np.int32), B.astype(np.int32), optimize=True)
        np.testing.assert_array_equal(f(A, B, options=options), expected)


def test_bytes_of_bfloat16_need_what_is_known_of_the_panel() -> None:
    """The element nearest to zero is found while a panel is filled, and asked for by all tiles that read it."""
    text, _, tiles, _ = PRODUCTS["bfloat16"]
    f, options = tc.define(text)["f"], tc.MappingOptions(tile_sizes=tiles)
    A, B = np.full((75, 70), 2.0**-60, ml_dtypes.bfloat16), np.full((70, 1100), 2.0**-75, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(f(A, B, options=options), np.full((75, 1100), 70 * 2.0**-135, np.float32))


def test_a_boundary_around_a_kept_panel_is_set_with_it() -> None:
    X, K = integers((16, 34, 34)), integers((32, 16, 3, 3))
    options = tc.MappingOptions(tile_sizes=(8, 8, 16))
    source = text_of(BORDERED, {"C": 16, "H": 34, "W": 34, "F": 32, "R": 3, "S": 3}, options)
    assert "p_X_of_S0_group0_filled = 1;" in source
    padded = np.pad(X, ((0, 0), (1, 1), (1, 1)), constant_values=3)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    expected = np.einsum("chwrs,fcrs->fhw", windows, K)
    np.testing.assert_array_equal(tc.define(BORDERED)["f"](X, K, options=options), expected)


def test_panels_of_what_tiles_write_are_filled_in_each() -> None:
    """The second product reads what the first one of the same tile leaves."""
    A, B, D = integers((40, 20)), integers((20, 48)), integers((48, 60))
    E, C = tc.define(CHAIN)["f"](A, B, D)
    np.testing.assert_array_equal(E, A @ B)
    np.testing.assert_array_equal(C, A @ B @ D)
    for sizes in ({"M": 40, "K": 20, "L": 48, "N": 60}, {"M": 400, "K": 200, "L": 480, "N": 600}):
        assert "p_E_of_S1_filled" not in text_of(CHAIN, sizes, tc.MappingOptions())


ATTENTION = """
def f(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V) -> (O) {
  s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
  m(b,i) max=! s(b,i,j)
  p(b,i,j) = exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))
  z(b,i) +=! p(b,i,j)
  O(b,i,e) +=! p(b,i,j) * V(b,j,e)
  O(b,i,e) = O(b,i,e) / z(b,i)
}"""


@pytest.mark.parametrize(
    ("last_cache", "heads", "kept"), [(32 << 20, 3, True), (1 << 16, 3, False), (32 << 20, 1, True)]
)
def test_tiles_of_several_groups_keep_all_boxes(last_cache: int, heads: int, kept: bool) -> None:
    """Each box has a number, which tells its head; where a thread has little of the last cache, none is kept."""
    target = replace(WITH_DOTS, machine=replace(WITH_DOTS.machine, last_cache=last_cache))
    sizes = Sizes({"B": heads, "L": 1000, "S": 1300, "D": 64, "E": 64})
    source = lower(define(ATTENTION)["f"], sizes, tc.MappingOptions(), target).source
    counted = re.search(r"long p_K_of_S0_filled\[(\d+)\] = \{0\};", source.text)
    assert (counted is not None) == kept
    if counted is not None:
        (box,) = re.findall(r"p_K_of_S0 = .*\* (\d+)L\);", source.text)
        last = int(counted[1]) * int(box) * target.machine.threads
        begins = int(re.findall(r"p_K_of_S0 = \(float \*\)\(scratch \+ (\d+)L", source.text)[0])
        assert begins + last <= source.scratch_bytes


def test_boxes_are_kept_while_their_numbers_have_room_on_a_stack() -> None:
    target = replace(WITH_DOTS, machine=replace(WITH_DOTS.machine, last_cache=1 << 30))
    for keys, kept in ((30000, True), (300000, False)):
        sizes = Sizes({"B": 1, "L": 1000, "S": keys, "D": 64, "E": 64})
        text = lower(define(ATTENTION)["f"], sizes, tc.MappingOptions(), target).source.text
        assert ("p_K_of_S0_filled[" in text) == kept


@pytest.mark.parametrize("parallel", [True, False])
def test_kept_boxes_are_those_of_the_head_and_of_the_call(parallel: bool) -> None:
    rng, f = np.random.default_rng(3), tc.define(ATTENTION)["f"]
    options = tc.MappingOptions(parallel=parallel)
    Q, V = (rng.standard_normal((3, n, 40), np.float32) for n in (600, 1300))
    for _ in range(2):
        K = rng.standard_normal((3, 1300, 40), np.float32)
        scores = np.einsum("bid,bjd->bij", Q, K, dtype=np.float64) * 40**-0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = np.einsum("bij,bje->bie", weights, V) / weights.sum(-1)[..., None]
        np.testing.assert_allclose(f(Q, K, V, options=options), expected, rtol=2e-5, atol=2e-6)
