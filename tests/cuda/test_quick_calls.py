"""Calls that repeat one that was checked, on CuPy's stand-in: what the quick way takes, and what it leaves."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.matching import device_matcher
from tests.cuda.fake_cupy import held, ndarray
from tests.cuda.fake_devices import ADD, VALUES, FakeDevices, N


def test_a_test_for_arrays_like_some() -> None:
    wide = np.arange(4 * N, dtype=np.float32).reshape(2, 2 * N)
    a, b = held(wide[0, :N], 1), held(wide[:, ::2], 1)
    match = device_matcher(ndarray, (a, 3, b), (3, 3))
    assert match is not None
    assert match((a, 3, b)) == (a.data.ptr, b.data.ptr)
    assert match((held(wide[1, :N], 1), 3, b)) == (a.data.ptr + 8 * N, b.data.ptr)
    odd = np.zeros(4 * N + 2, np.uint8)[2 : 4 * N + 2].view(np.float32)
    others = {
        "another device": (held(wide[0, :N], 0), 3, b),
        "a longer one": (held(wide[0, : N + 1], 1), 3, b),
        "with gaps": (held(wide[0, ::2], 1), 3, b),
        "other strides": (a, 3, held(wide.reshape(2, 2 * N)[:, :N], 1)),
        "another type": (held(wide[0, :N].view(np.int32), 1), 3, b),
        "another number": (a, 4, b),
        "no array": (VALUES, 3, b),
        "too few": (a, 3),
        "not aligned": (held(odd, 1), 3, b),
    }
    assert {name: match(arguments) for name, arguments in others.items()} == dict.fromkeys(others)
    assert device_matcher(ndarray, (a, VALUES), (3, 3)) is None


def test_results_may_be_given_again_and_again(two: FakeDevices) -> None:
    operation, on = tc.define(ADD).add, two.cupy.on
    a, out = on(VALUES), on(np.zeros(N, np.float32))
    for factor in range(4):
        a.host[:] = factor * VALUES
        two.cupy.events.clear()
        assert operation(a, a, out=out) is out
        assert out.host.tolist() == (2 * factor * VALUES).tolist()
        assert [e[0] for e in two.cupy.events if e[0] != "load"] == ["launch"]
    with pytest.raises(tc.ShapeError, match="output C shares memory with input A"):
        operation(out, a, out=out)
    with pytest.raises(tc.ShapeError, match=r"expected shape|C is declared|dimension"):
        operation(a, a, out=on(np.zeros(N + 1, np.float32)))
    with pytest.raises(tc.ShapeError, match="expected an array on cuda:0"):
        operation(a, on(VALUES, 1), out=out)
    kernel = operation.compile(a, a)
    for _ in range(3):
        assert kernel(a, a, out=(out,)) is out and kernel(a, B=a, out=out) is out
