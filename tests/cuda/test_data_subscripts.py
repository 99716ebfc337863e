"""Subscripts that depend on data in CUDA kernels: as wide as the data, whole in what they are multiplied by, checked
wherever the element lies."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tcomp as tc
from tests.cuda.simulated import NEEDS_COMPILER
from tests.programs import integers

pytestmark = NEEDS_COMPILER

T = integers(8, 4)
FAR = np.array([3, (1 << 32) + 1, -(1 << 40), 7], np.int64)


@pytest.mark.parametrize("boundary", ["constant_exterior(T, 5)", "repeat_edge(T)", "repeat_image(T)", "mirror_image(T)",
                                      "mirror_interior(T)"])  # fmt: skip
def test_reads_outside_take_the_data_as_wide_as_they_are(boundary: str) -> None:
    text = f"def f(float(M,K) T, int64(N) I) -> (O) {{ O(i,k) = {boundary}(I(i), k) where k in 0:K }}"
    f = tc.define(text).f
    np.testing.assert_array_equal(f(T, FAR, target="simulator"), f.reference(T, FAR))


def test_what_32_bits_do_not_hold_is_outside() -> None:
    f = tc.define("def f(float(M,K) T, int64(N) I) -> (O) { O(i,k) = T(I(i), k) }").f
    with pytest.raises(tc.ShapeError, match=r"I\(i\) of T in dimension 0 is 4294967297 at i = 1"):
        f(T, FAR[:2].copy(), target="simulator")


@pytest.mark.parametrize("subscript", ["I(i) + 1", "6 - I(i)", "I(i) > 2 ? I(i) : 7 - I(i)"])
@pytest.mark.parametrize("read", ["T", "constant_exterior(T, 0)"])
def test_a_subscript_is_multiplied_as_a_whole(subscript: str, read: str) -> None:
    f = tc.define(f"def f(float(M,K) T, int32(N) I) -> (O) {{ O(i,k) = {read}({subscript}, k) where k in 0:K }}").f
    places = np.array([0, 3, 2, 5, 1], np.int32)
    for unchecked in (False, True):
        found = f(T, places, target="simulator", unchecked=unchecked)
        np.testing.assert_array_equal(found, f.reference(T, places))


@pytest.mark.parametrize("value", ["X(b,m) + 1", "+=! X(b,m)"])
def test_subscripts_of_what_lies_in_shared_memory_are_checked(value: str) -> None:
    first = f"T(b,m) = {value}" if value[0] == "X" else f"T(b,m) {value}"
    f = tc.define(f"def f(float(B,M) X, int32(B,N) I) -> (O) {{ {first} O(b,i) = T(b, I(b,i)) }}").f
    x, places = integers(8, 64), integers(8, 64, low=0, high=64, dtype=np.int32)
    spaces = {b.space for b in f.compile(x, places, target="simulator").compilation.plan.buffers.values()}
    assert spaces & {"shared", "block"}
    np.testing.assert_array_equal(f(x, places, target="simulator"), f.reference(x, places))
    for wrong in (64, -1):
        bad = places.copy()
        bad[2, 5] = wrong
        with pytest.raises(tc.ShapeError, match=rf"in dimension 1 is {wrong} at b = 2, i = 5, but must lie in 0..63"):
            f(x, bad, target="simulator")


def test_extents_that_32_bits_do_not_hold_are_compared_whole() -> None:
    row = np.broadcast_to(np.int8(3), (1 << 32,))
    f = tc.define("def f(int8(M) T, int64(N) I) -> (O) { O(i) = T(I(i)) }").f
    np.testing.assert_array_equal(f(row, np.array([0, 5, (1 << 32) - 1]), target="simulator"), np.full(3, 3, np.int8))
    with pytest.raises(tc.ShapeError, match=r"is 4294967296 at i = 0, but must lie in 0..4294967295"):
        f(row, np.array([1 << 32]), target="simulator")


@pytest.mark.parametrize("value", [(1 << 64) - 1, 1 << 63, 8])
@pytest.mark.parametrize("target", ["cpu", "simulator", "interpreter"])
def test_what_has_no_sign_is_told_without_one(value: int, target: str) -> None:
    f = tc.define("def f(float(M,K) T, uint64(N) I) -> (O) { O(i,k) = T(I(i), k) where k in 0:K }").f
    places = np.array([3, value], np.uint64)
    run = f.reference if target == "interpreter" else functools.partial(f, target=target)
    with pytest.raises(tc.ShapeError, match=rf" {value} (at i = 1|of dimension 0 of 'T' is outside)"):
        run(T, places)
