"""Panels from far away that few rows read as they lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

ONE_PIXEL = "def f(float(N,C,H,W) I, float(F,C,1,1) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }"


def copies(channels: int, filters: int, side: int, middle: int) -> bool:
    """Whether images are copied on a processor with a second cache of so many bytes."""
    wide = {"vector_bytes": 64, "datapath_bytes": 64, "registers": 32, "nearest_cache": 48 << 10}
    machine = replace(CPU.machine, **wide, middle_cache=middle)  # type: ignore[arg-type]  # all of them integers
    sizes = Sizes({"N": 2, "C": channels, "H": side, "W": side, "F": filters})
    return bool(lower(define(ONE_PIXEL)["f"], sizes, tc.MappingOptions(), replace(CPU, machine=machine)).plan.copies)


@pytest.mark.parametrize(
    ("channels", "filters", "side", "middle", "copied"),
    [
        (59, 23, 66, 2 << 20, False),
        (59, 200, 66, 2 << 20, True),
        (256, 23, 66, 2 << 20, True),
        (59, 23, 64, 2 << 20, True),
        (59, 23, 66, 512 << 10, True),
    ],
    ids=["few filters", "many filters", "many channels", "planes that collide", "a small second cache"],
)
def test_few_filters_read_large_planes_as_they_lie(
    channels: int, filters: int, side: int, middle: int, copied: bool
) -> None:
    assert copies(channels, filters, side, middle) == copied


@pytest.mark.parametrize("images", [1, 4])
def test_images_that_no_filters_share_are_read_one_at_a_time(images: int) -> None:
    """In rows of a page, as one alone: images side by side in a register tile would be as many streams more."""
    sizes = Sizes({"N": images, "C": 61, "H": 118, "W": 118, "F": 1})
    plan = lower(define(ONE_PIXEL)["f"], sizes, tc.MappingOptions(), CPU).plan
    (group,) = plan.groups
    assert group.sizes[:-1] == (1,) * (images > 1) and 512 < group.sizes[-1] < 2048
    assert not plan.copies


@pytest.mark.parametrize(
    ("channels", "filters", "side"), [(59, 23, 66), (27, 26, 51), (20, 8, 84), (8, 48, 37), (3, 1, 70), (61, 1, 118)]
)
def test_their_results_are_right(channels: int, filters: int, side: int) -> None:
    rng = np.random.default_rng(channels)
    image = rng.integers(-3, 4, (2, channels, side, side)).astype(np.float32)
    kernel = rng.integers(-3, 4, (filters, channels, 1, 1)).astype(np.float32)
    expected = np.einsum("nchw,fc->nfhw", image, kernel[:, :, 0, 0])
    assert (tc.define(ONE_PIXEL)["f"](image, kernel) == expected).all()
