"""Bits of indices in subscripts are divisions to ranges and proofs; what is moved by a mirrored index begins there."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc

SUBSCRIPTS = {
    "i ^ 5": lambda i: i ^ 5, "6 & i": lambda i: 6 & i, "i | 9": lambda i: i | 9, "i >> 2": lambda i: i >> 2,
    "(i & -4) + 3 - (i & 3)": lambda i: (i & -4) + 3 - (i & 3), "~i & 15": lambda i: ~i & 15,
    "(i + 16 >> 1) ^ 8": lambda i: (i + 16 >> 1) ^ 8, "(i << 1) % 16": lambda i: (i << 1) % 16,
    "i >> 31": lambda i: i >> 31, "(i >> 2) << (i & 1)": lambda i: (i >> 2) << (i & 1),
    "15 >> i / 4": lambda i: 15 >> i // 4, "i & int32(4294967302)": lambda i: i & 6,
}  # fmt: skip


def test_they_may_be_subscripts() -> None:
    text = "\n".join(
        f"def f{n}(float(N) X) -> (O) {{ O(i) = X({s}) where i in 0:16 }}" for n, s in enumerate(SUBSCRIPTS)
    )
    ops, x = tc.define(text), np.arange(16, dtype=np.float32)
    for name, subscript in zip(ops, SUBSCRIPTS.values(), strict=True):
        expected = x[subscript(np.arange(16))]
        np.testing.assert_array_equal(ops[name].reference(x), expected)
        np.testing.assert_array_equal(ops[name](x), expected)


def test_ranges_follow_from_them() -> None:
    f = tc.define("def f(float(N) X) -> (O) { O(i ^ 1) = X(i) }").f
    np.testing.assert_array_equal(f(np.arange(6, dtype=np.float32)), [1, 0, 3, 2, 5, 4])
    up = tc.define("def f(float(N) X) -> (O) { O(i) = X(i << 1) }").f
    np.testing.assert_array_equal(up(np.arange(7, dtype=np.float32)), [0, 2, 4, 6])
    with pytest.raises(tc.CompileError, match=r"handed out with elements that no statement writes, such as O\(4\)"):
        f(np.arange(5, dtype=np.float32))


def test_a_mirrored_index_begins_where_it_writes_first() -> None:
    f = tc.define("def f(float(N) A) -> (O) { O(N-i) = A(i) }").f
    np.testing.assert_array_equal(f(np.arange(4, dtype=np.float32)), [3, 2, 1, 0])
    between = tc.define("def f(float(N) A) -> (O) { T(N-i) = A(i)  O(i) = T(i+1) where i in 0:N }").f
    np.testing.assert_array_equal(between(np.arange(4, dtype=np.float32)), [3, 2, 1, 0])


@pytest.mark.parametrize(
    ("subscript", "most"), [("i ^ i/2", 15), ("1 << i/4", 8), ("i & i*i", 15), ("~(-1 - (i ^ i/2))", 15)]
)
def test_of_two_indices_they_have_bounds(subscript: str, most: int) -> None:
    f = tc.define(f"def f(float(N) X) -> (O) {{ O(i) = X({subscript}) where i in 0:16 }}").f
    x = np.arange(most + 1, dtype=np.float32)
    i = np.arange(16)
    np.testing.assert_array_equal(f(x), x[eval(subscript.replace("/", "//"), {"i": i})])
    with pytest.raises(tc.ShapeError, match=f"may lie anywhere from -?[0-9]+ to {most} "):
        f(x[:-1])
