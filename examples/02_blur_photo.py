"""Lesson 2: pipelines of image filters, fused.

Two photographs that come with scikit-learn are blurred and searched for edges.  Each filter is one def of several
statements.  The intermediate images of the edges never exist as a whole: the compiler computes a few rows of them, uses
those, and moves on.  Of the blur, whose second pass copies what it reads together with the border, it finds that one
image stored in between costs less; its plan says so.  At the border ``repeat_edge`` reads the nearest pixel.

    python examples/02_blur_photo.py [DIRECTORY]        writes PNG files there, to ./out by default
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pictures import picture
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_sample_image

import tcomp as tc

PROGRAM = """
# A separable blur of a colour photograph with an odd number of weights: first along rows, then along columns.
def blur(uint8(H,W,3) photo, float(K) weight) -> (uint8(H,W,3) result) {
  across(h,w,c) +=! repeat_edge(photo)(h,w+k-K/2,c) * weight(k)  where h in 0:H, w in 0:W, c in 0:3
  down(h,w,c)   +=! repeat_edge(across)(h+k-K/2,w,c) * weight(k) where h in 0:H, w in 0:W, c in 0:3
  result(h,w,c)  =  uint8(down(h,w,c) + 0.5)
}
# Sobel's edge detector: brightness, its derivatives smoothed the other way, and the length of the gradient.
def edges(uint8(H,W,3) photo) -> (uint8(H,W) result) {
  grey(h,w)   = (77 * float(photo(h,w,0)) + 150 * float(photo(h,w,1)) + 29 * float(photo(h,w,2))) / 256
  smooth(h,w) = repeat_edge(grey)(h-1,w) + 2 * grey(h,w) + repeat_edge(grey)(h+1,w)
  slope(h,w)  = repeat_edge(grey)(h+1,w) - repeat_edge(grey)(h-1,w) where h in 0:H, w in 0:W
  gx(h,w)     = repeat_edge(smooth)(h,w+1) - repeat_edge(smooth)(h,w-1) where h in 0:H, w in 0:W
  gy(h,w)     = repeat_edge(slope)(h,w-1) + 2 * slope(h,w) + repeat_edge(slope)(h,w+1)
  result(h,w) = uint8(fmin(sqrt(gx(h,w) * gx(h,w) + gy(h,w) * gy(h,w)), 255))
}
"""

WEIGHT = np.array([1, 8, 28, 56, 70, 56, 28, 8, 1], np.float32) / 256
"""Binomial weights: products and sums with 8-bit pixels are exact in float32, so results can be compared bit by bit."""

TILES = tc.MappingOptions().tile(16)
"""16 rows at a time, each as wide as the picture, so that few rows of intermediate images are computed twice."""

Array = np.ndarray[Any, np.dtype[Any]]


def blur_with_scipy(photo: Array) -> Array:
    across = ndimage.correlate1d(photo.astype(np.float32), WEIGHT, axis=1, mode="nearest")
    down: Array = ndimage.correlate1d(across, WEIGHT, axis=0, mode="nearest")
    return (down + 0.5).astype(np.uint8)


def edges_with_scipy(photo: Array) -> Array:
    grey = photo.astype(np.float32) @ np.array([77, 150, 29], np.float32) / 256
    gx, gy = (ndimage.sobel(grey, axis=axis, mode="nearest") for axis in (1, 0))
    length: Array = np.hypot(gx, gy)
    return np.fmin(length, 255).astype(np.uint8)


def milliseconds(function: Callable[[], Array], repeats: int = 5) -> float:
    """The best of several runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def main(directory: Path) -> None:
    ops = tc.define(PROGRAM)
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("china", "flower"):
        photo = load_sample_image(f"{name}.jpg")
        blurred, edges = ops.blur(photo, WEIGHT, options=TILES), ops.edges(photo, options=TILES)

        assert np.array_equal(blurred, blur_with_scipy(photo))
        difference = np.abs(edges.astype(int) - edges_with_scipy(photo))
        assert difference.max() <= 1
        print(f"{name}.jpg {photo.shape}: blur equals SciPy's in all {blurred.size:,} values; edges differ by at most")
        print(f"  {difference.max()} of 255, in {np.count_nonzero(difference)} of {edges.size:,} pixels")

        for label, image in (("blur", blurred), ("edges", edges)):
            path = directory / f"{name}_{label}.png"
            Image.fromarray(image).save(path)
            print(f"  wrote {path}")

    for label, ours, theirs in (
        ("blur", lambda: ops.blur(photo, WEIGHT, options=TILES), lambda: blur_with_scipy(photo)),
        ("edges", lambda: ops.edges(photo, options=TILES), lambda: edges_with_scipy(photo)),
    ):
        print(f"{label}: {milliseconds(ours):.1f} ms, with SciPy {milliseconds(theirs):.1f} ms")
    blur, edges_kernel = ops.blur.compile(photo, WEIGHT, options=TILES), ops.edges.compile(photo, options=TILES)
    plan = edges_kernel.compilation.plan
    assert len(plan.groups) == 1, "all statements are in one loop nest"
    assert all(buffer.space != "global" for buffer in plan.buffers.values()), "no intermediate image is stored"
    for kernel in (blur, edges_kernel):
        plan = kernel.compilation.plan
        print(f"{kernel!r} has {len(plan.groups)} loop nests and keeps of its intermediate images:")
        for buffer in plan.buffers.values():
            print(f"  {buffer.storage}: {buffer.shape} {buffer.dtype} in {buffer.space} memory")
        for note in plan.notes:
            print(f"  {note}")
    picture("edges_memory", edges_kernel.draw, "memory")
    picture("edges_domain", ops.edges.compile(photo[:20, :24], options="tile=8x8").draw, "domain")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
