"""Products by warpgroups on a device of capability 9.0, fed by threads and by tensor copies: run this first.

No device had run either when they were written.  ``pytest -s`` prints times beside those of CuPy's product.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.devices import cuda_device, current_place
from tests.cuda.test_matrices import TEXTS, arrays_for

SIZES = [(128, 256, 512), (130, 72, 200), (97, 131, 200), (1024, 2048, 4096)]
ROUNDS = 20
"""What is wrong with waits shows now and then."""


@pytest.fixture
def hopper(cupy: Any) -> Any:
    """CuPy, where the device is of the one generation that has these instructions."""
    if cuda_device(current_place().device).capability != (9, 0):
        pytest.skip("warpgroups are for devices of capability 9.0")
    return cupy


@pytest.mark.parametrize(
    "options",
    [
        "warpgroups=false",
        "route=async",
        "route=tensor",
        "route=tensor,blocks=2x2,split_reduction=1",
        "route=tensor,persistent=3,tile_sizes=64x64,split_reduction=1",
        "route=tensor,persistent=2,tile_sizes=128x128,stages=3,order=2,split_reduction=1",
    ],
)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", ["nn", "nt", "batches", "with what follows"])
def test_results_are_right_every_time(hopper: Any, name: str, sizes: tuple[int, int, int], options: str) -> None:
    text, shapes = TEXTS[name]
    operation, arrays = tc.define(text).f, arrays_for(shapes(*sizes))
    expected, on_device = operation.reference(*arrays), [hopper.asarray(a) for a in arrays]
    chosen = tc.MappingOptions.from_text(options)
    for _ in range(ROUNDS):
        result = operation(*on_device, target="cuda", options=chosen)
        np.testing.assert_array_equal(hopper.asnumpy(result), expected)


@pytest.mark.parametrize("given", ["warpgroups=false", "route=async", "route=tensor,persistent=0", "route=tensor"])
def test_the_time_of_4096(hopper: Any, given: str) -> None:
    a, b = (hopper.asarray(x) for x in arrays_for([(4096, 4096), (4096, 4096)]))
    operation, options = tc.define(TEXTS["nn"][0]).f, tc.MappingOptions.from_text(given)

    def best(call: Any) -> float:
        times = []
        for _ in range(ROUNDS):
            begin, end = hopper.cuda.Event(), hopper.cuda.Event()
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(hopper.cuda.get_elapsed_time(begin, end))
        return min(times)

    own = best(lambda: operation(a, b, target="cuda", options=options))
    peer = best(lambda: hopper.matmul(a, b))
    sys.stdout.write(f"\n{given}: {own:.3f} ms, CuPy {peer:.3f} ms, ratio {peer / own:.2f}\n")
    assert own > 0
