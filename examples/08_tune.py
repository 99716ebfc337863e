"""Lesson 8: let the machine say what is fast.

Tuning compiles candidates, compares their results with the interpreter, measures them, and keeps the best.  Calls pick
it up by themselves, in this process and in all later ones.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np

import tcomp as tc

PROGRAM = """
def depthwise(float(C,H,W) image, float(C,KH,KW) filter) -> (out) {
    out(c,h,w) +=! image(c,h+kh,w+kw) * filter(c,kh,kw)
}
"""

BUDGET = 8.0


def microseconds(operation: tc.Operation, *arrays: np.ndarray, options: tc.MappingOptions | None = None) -> float:
    """The best time of some calls."""
    best = float("inf")
    for _ in range(30):
        begin = time.perf_counter()
        operation(*arrays, options=options)
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best


def main() -> None:
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((64, 58, 58), np.float32), rng.standard_normal((64, 3, 3), np.float32)
    depthwise = tc.define(PROGRAM).depthwise

    result = depthwise.tune(*arrays, budget=BUDGET)
    print(result)
    outcomes = Counter(trial.outcome.value for trial in result.history)
    print(f"outcomes: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.most_common())}")

    # The three best as source to paste; a trial knows where its options came from and what a call took.
    ran = sorted((trial for trial in result.history if trial.times), key=lambda trial: trial.ratio)
    for trial in ran[:3]:
        print(f"{1e6 * trial.seconds:.0f} us, {trial.compiled.candidate.origin}: {trial.options}")

    # A call without options uses what was found; so does a program that differs in names alone.
    assert depthwise.compile(*arrays).specialisation.options == result.best
    renamed = tc.define(PROGRAM.replace("depthwise", "stencil").replace("image", "grid")).stencil
    assert renamed.compile(*arrays).specialisation.options == result.best
    assert np.allclose(depthwise(*arrays), depthwise.reference(*arrays), atol=1e-4)
    default = microseconds(depthwise, *arrays, options=tc.MappingOptions())
    print(f"a call takes {microseconds(depthwise, *arrays):.0f} us, {default:.0f} us with the default options")

    # Who wants none of this says so.
    assert tc.define(PROGRAM, tune="off").depthwise.compile(*arrays).specialisation.options == tc.MappingOptions()

    Path("out").mkdir(exist_ok=True)
    result.report("out/tuning.html")
    try:
        print(f"picture: {result.draw().save('out/tuning.svg')}")
    except tc.TargetError as error:
        print(f"no picture: {error.message}")
    print(f"wrote out/tuning.html, {Path('out/tuning.html').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
