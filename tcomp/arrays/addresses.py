"""Where the data of a NumPy array is, read without the objects that NumPy makes to tell it.

``array.ctypes.data`` builds two objects, which takes longer than all else in a call of a small kernel.  The address is
the first field of the C structure behind an array, right after the head that all objects have (NumPy C-API,
``PyArrayObject``); ``id`` is where that structure is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

NumpyArray = np.ndarray[Any, np.dtype[Any]]

_HEAD = object.__basicsize__
_field_at = ctypes.c_size_t.from_address


def _read(array: NumpyArray) -> int:
    return _field_at(id(array) + _HEAD).value


def _asked(array: NumpyArray) -> int:
    return array.ctypes.data


def _is_laid_out_so() -> bool:
    """Whether arrays of this NumPy, in this interpreter, have the structure that ``_read`` expects."""
    whole = np.zeros((3, 5))
    return all(_read(a) == _asked(a) for a in (whole, whole[1:, 2:], whole[::-1], np.zeros(()), np.zeros(7, np.uint8)))


data_address: Callable[[NumpyArray], int] = _read if _is_laid_out_so() else _asked
"""The address of the element with index zero."""
