"""Correct kernels run correctly in every order, and nothing is found in them."""

from __future__ import annotations

import numpy as np
import pytest

from tcomp.backends.simulator.simulation import Order, Settings
from tests.cuda.simulated import EXAMPLES, NEEDS_COMPILER, Example

pytestmark = NEEDS_COMPILER


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_correct_kernels_are_not_accused(example: Example, order: Order) -> None:
    for seed in range(3 if order == "random" else 1):
        report, results, expected = example.run(Settings(order, seed))
        assert not report.findings, str(report)
        assert report.status == 0
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, right)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_counting_changes_nothing(example: Example) -> None:
    report, results, expected = example.run(Settings(counting=True))
    assert not report.findings, str(report)
    assert [k.kernel for k in report.kernels] == [launch.kernel for launch in example.launches]
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, right)
