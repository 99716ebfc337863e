"""Whether OpenCL runs here, and operations that are compared on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.opencl.devices import describe_device
from tcomp.errors import TargetError


def _why_not() -> str | None:
    try:
        describe_device()
    except TargetError as error:
        return error.message
    return None


WHY_NOT = _why_not()

NEEDS_DEVICE = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


def assert_same(text: str, *arguments: Any, target: str = "opencl", options: tc.MappingOptions | None = None) -> None:
    """A definition ``f`` gives exactly what the interpreter gives."""
    operation = tc.define(text)["f"]
    found, expected = operation(*arguments, target=target, options=options), operation.reference(*arguments)
    several = isinstance(found, tuple)
    for ours, theirs in zip(found if several else (found,), expected if several else (expected,), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(comparable(ours), comparable(theirs))


def comparable(array: Any) -> Any:
    """Floats in double precision: NumPy knows no NaN of bfloat16."""
    return array.astype(np.float64) if array.dtype.kind in "fV" else array
