"""Lesson 15: the six orders of a matrix product, and how Tensor Comprehensions gets from one to a fast kernel.

All orders add the same products.  What differs is how far apart in memory one iteration is from the next, so how often
a cache has what is read.  A simulator of a small cache counts misses: sets of lines, of which the one that was not used
for longest goes.  Then the way of the figure in "Tensor Comprehensions" (Vasilache et al., 2018): sums started before
all else, started where they are needed (fused), in tiles, with the loops inside a tile below the sum (sunk), and on the
blocks and threads of a GPU (mapped).
"""

from __future__ import annotations

import itertools
import time

import numpy as np
from pictures import picture

import tcomp as tc
from tcomp.schedules import Schedule

PROGRAM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SMALL, LARGE = 28, 256


class Cache:
    """A cache of so many sets with as many lines each, of 64 bytes; counts what it does not have."""

    def __init__(self, sets: int = 8, ways: int = 4) -> None:
        self.sets: list[list[int]] = [[] for _ in range(sets)]
        self.ways = ways
        self.misses = 0

    def touch(self, address: int) -> None:
        line = address // 64
        lines = self.sets[line % len(self.sets)]
        if line in lines:
            lines.remove(line)
        else:
            self.misses += 1
            del lines[: len(lines) + 1 - self.ways]
        lines.append(line)


def misses(order: tuple[str, ...], n: int) -> int:
    """What a cache of 2 KiB misses in a product of n x n matrices of floats, in an order of the loops."""
    cache = Cache()
    for point in itertools.product(range(n), repeat=3):
        at = dict(zip(order, point, strict=True))
        m, n_, k = at["m"], at["n"], at["k"]
        cache.touch(4 * (m * n + k))
        cache.touch(4 * (n * n + k * n + n_))
        cache.touch(4 * (2 * n * n + m * n + n_))
    return cache.misses


def milliseconds(kernel: tc.Kernel, *arrays: np.ndarray) -> float:
    """The least time of three calls."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        kernel(*arrays)
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def figure(s: Schedule) -> dict[str, Schedule]:
    """The steps of the figure on a processor."""
    fused = s["C"]
    tiled = fused.tile("m", "n", 8, 32)
    sunk = tiled.reorder("m_o", "n_o", "k", "m_i", "n_i")
    return {
        "the default tree": fused.reorder("k", "m", "n"),
        "fused": fused,
        "fused and tiled": tiled,
        "fused, tiled and sunk": sunk,
        "fused, tiled, sunk and mapped to registers": sunk.tensorize(),
    }


def main() -> None:
    mm = tc.define(PROGRAM).mm
    a, b = (np.random.default_rng(n).integers(-4, 5, (LARGE, LARGE)).astype("f4") for n in range(2))
    s = mm.schedule(sizes={"M": LARGE, "N": LARGE, "K": LARGE})
    small = mm.schedule(sizes={"M": 8, "N": 8, "K": 8})
    print(f"order   misses of {SMALL}^3      time of {LARGE}^3")
    for order in itertools.permutations("mnk"):
        kernel = s["C"].reorder(*order).compile()
        assert np.array_equal(kernel(a, b), a @ b)
        print(f"  {''.join(order)}  {misses(order, SMALL):12,}  {milliseconds(kernel, a, b):13.1f} ms")
        picture(f"mm_{''.join(order)}", small["C"].reorder(*order).draw, "dates")

    for number, (name, schedule) in enumerate(figure(s).items()):
        kernel = schedule.compile()
        assert np.array_equal(kernel(a, b), a @ b), name
        print(f"\n{name}: {milliseconds(kernel, a, b):.2f} ms\n{schedule}", end="")
        picture(f"mm_{number}", schedule.draw, "tree")

    gpu = mm.schedule(sizes={"M": LARGE, "N": LARGE, "K": LARGE}, target="cuda:sm_90")
    mapped = gpu["C"].tile("m", "n", 64, 64).threads(16, 16).split("k", 16)
    launch = mapped.compilation.source.launches[0]
    print(f"\nfused, tiled, sunk and mapped to a GPU: {launch.kernel}, grid {launch.grid}, block {launch.block}")
    print(mapped.compilation.nest)
    picture("mm_threads", mapped.draw, "threads")


if __name__ == "__main__":
    main()
