"""Tests of this folder need a CUDA device and CuPy; they are skipped where either is missing."""

from __future__ import annotations

from typing import Any

import pytest

from tcomp.arrays.devices import device_count
from tcomp.errors import TargetError


@pytest.fixture(scope="session")
def device_total() -> int:
    """How many devices there are; skips where there is none."""
    try:
        return device_count()
    except TargetError as error:
        pytest.skip(error.message)


@pytest.fixture
def cupy(device_total: int) -> Any:
    """CuPy, on a machine with a device."""
    return pytest.importorskip("cupy")


@pytest.fixture
def torch(device_total: int) -> Any:
    """torch, where it sees a device."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch sees no CUDA device")
    return module
