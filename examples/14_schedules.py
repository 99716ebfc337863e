"""Lesson 14: schedules by hand.

The program says what a blur is; each schedule says in which order it is computed. Eight of them are those that
Halide's authors show (Ragan-Kelley et al., PLDI 2013): they differ in how often a row of the first stage is computed,
in how far apart it is written and read, and in what runs at the same time. Every step is proved; a wrong one is
refused with two instances that show it. Then three loops of which each reads what the one before wrote run in step,
shifted against each other, so that a value is used while it is in the cache.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import tcomp as tc
from tcomp.schedules import Schedule

PROGRAM = """
def blur(float(H,W) I) -> (O) {
  B(y,x) = (I(y,x) + I(y,x+1) + I(y,x+2)) / 3
  O(y,x) = (B(y,x) + B(y+1,x) + B(y+2,x)) / 3
}
def ping_pong(float(N) A) -> (D) {
  B(i) = A(i) + A(i+1)
  C(i) = B(i) * B(i+1)
  D(i) = C(i) - C(i+1)
}
"""
SIZES = {"H": 770, "W": 1026}


def blurs(s: Schedule) -> dict[str, Schedule]:
    """The eight schedules of a blur."""
    tiled = s["O"].tile("y", "x", 32, 256)
    strips = s["O"].split("y", 64)
    return {
        "breadth first": s,
        "full inline": s["B"].inline(),
        "computed again for each row": s["B"].compute_at("O", "y"),
        "sliding window": s["B"].compute_at("O", "y", store_at="root"),
        "tiled": tiled["B"].compute_at("O", "x_o"),
        "sliding window in strips": strips["B"].compute_at("O", "y_i", store_at="y_o"),
        "strips on threads": strips["O"].parallel("y_o")["B"].compute_at("O", "y_i", store_at="y_o"),
        "tiled, threads and vectors": (
            tiled["O"].parallel("y_o").vectorize("x_i")["B"].compute_at("O", "x_o").vectorize("x")
        ),
    }


def seconds(kernel: tc.Kernel, *arrays: np.ndarray) -> float:
    """The least time of ten calls."""
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        kernel(*arrays)
        times.append(time.perf_counter() - begin)
    return min(times)


def draw(schedules: dict[str, Schedule]) -> None:
    """When each iteration runs in each of them, and of a tiled one which iterations are in which tile."""
    try:
        for name, schedule in schedules.items():
            file = "_".join(name.replace(",", "").split())
            print(f"picture: {schedule.draw('dates').save(f'out/blur_{file}.svg')}")
        written = [schedules["tiled"].draw(what).save(f"out/blur_{what}.svg") for what in ("domain", "order")]
    except tc.TargetError as error:
        print(f"no pictures: {error.message}")
    else:
        print(f"pictures: {', '.join(map(str, written))}")


def main() -> None:
    ops = tc.define(PROGRAM)
    Path("out").mkdir(exist_ok=True)
    image = np.random.default_rng(0).random((SIZES["H"], SIZES["W"]), "f4")
    wanted = ops.blur(image)
    print("blur: what is computed once in memory of its own, and what a call takes")
    for name, schedule in blurs(ops.blur.schedule(sizes=SIZES)).items():
        kernel = schedule.compile()
        assert np.allclose(kernel(image), wanted, rtol=1e-5), name
        buffers = [f"{b.storage} {list(b.shape)} in {b.space}" for b in kernel.compilation.plan.buffers.values()]
        print(f"  {1e3 * seconds(kernel, image):6.2f} ms  {name}; {', '.join(buffers) or 'nothing is kept'}")
    chosen = blurs(ops.blur.schedule(sizes=SIZES))["tiled, threads and vectors"]
    draw(blurs(ops.blur.schedule(sizes={"H": 18, "W": 26})))
    print(f"\nThe last one as loops:\n{chosen}\nand as source:\n{chosen.source()}")

    s = ops.ping_pong.schedule(sizes={"N": 1 << 16})
    fused = s["C"].compute_at("D", "i", shift=-1)["B"].compute_at("D", "i", shift=-2)
    a = np.random.default_rng(1).random(1 << 16, "f4")
    assert np.allclose(fused.compile()(a), s.compile()(a), rtol=1e-4, atol=1e-6)
    print(f"Three loops in step:\n{fused}")
    try:
        s["C"].compute_at("D", "i", shift=-1)["B"].compute_at("D", "i", shift=-1)
    except tc.LegalityError as error:
        print(f"One iteration too late: {error.message.split(' (')[0]}")
    else:
        raise AssertionError("B would come too late")


if __name__ == "__main__":
    main()
