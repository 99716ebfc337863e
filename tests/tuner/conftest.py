"""What the tests of the tuner share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tcomp.runtime.registry import TARGETS
from tests.tuner.faulty import FAULTY, TARGET


@pytest.fixture(autouse=True, scope="module")
def faulty_target() -> Iterator[None]:
    """A target with faults, for as long as the tests of a module run."""
    TARGETS[TARGET] = FAULTY
    yield
    del TARGETS[TARGET]
