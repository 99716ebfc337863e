"""Bound arguments on devices that are not there: what kernels are launched on, and where arrays may lie."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcomp as tc
from tests.cuda.fake_cupy import ndarray
from tests.cuda.fake_devices import ADD, VALUES, FakeDevices, N


def test_a_bound_array_is_copied_and_handed_to_every_launch(one: FakeDevices) -> None:
    weights = one.cupy.on(VALUES)
    bound = tc.define(ADD).add.bind(B=weights)
    weights.host[...] = -1
    for number in range(3):
        result = bound(one.cupy.on(VALUES + number))
        assert type(result) is ndarray
        np.testing.assert_array_equal(result.host, 2 * VALUES + number)
    assert [event[0] for event in one.cupy.events].count("launch") == 3
    assert len(one.compiled) == 1


def test_arrays_lie_where_the_bound_ones_do(two: FakeDevices) -> None:
    here, there = two.cupy.on(VALUES), two.cupy.on(VALUES, 1)
    bound = tc.define(ADD).add.bind(B=there)
    np.testing.assert_array_equal(bound(two.cupy.on(VALUES, 1)).host, 2 * VALUES)
    with pytest.raises(tc.ShapeError, match=re.escape("input A: expected an array on cuda:1")):
        bound(here)
    with pytest.raises(tc.ShapeError, match=re.escape("input B: expected an array on cuda:0 like the others")):
        tc.define(ADD).add.bind(A=here, B=there)
    with pytest.raises(tc.ShapeError, match="expected an array in the memory of a CUDA device"):
        bound(np.zeros(N, np.float32))
