"""Addresses of NumPy arrays are those that NumPy tells."""

from __future__ import annotations

import numpy as np
import pytest

from tcomp.arrays import addresses as dataaddress
from tcomp.arrays.addresses import data_address

_WHOLE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


@pytest.mark.parametrize(
    "array",
    [
        _WHOLE,
        _WHOLE[1:, 2:, 1],
        _WHOLE[::-1, :, ::-2],
        _WHOLE.T,
        np.broadcast_to(np.float64(3), (4, 5)),
        np.zeros(()),
        np.zeros((0, 4)),
        np.zeros(9, np.uint8)[1:].view(np.float64),
        np.frombuffer(b"read-only bytes!", np.int32),
        _WHOLE.view(type("Plain", (np.ndarray,), {})),
    ],
)
def test_address_is_the_one_that_numpy_tells(array: np.ndarray) -> None:
    assert data_address(array) == array.ctypes.data


def test_the_structure_behind_arrays_is_read_here() -> None:
    """On this interpreter; elsewhere NumPy is asked."""
    assert data_address is dataaddress._read
