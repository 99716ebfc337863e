"""Lesson 13: steps that run one after another: the game of life, an edit distance, an LSTM, and a mistake.

A block ``for t in a:b { ... }`` runs its statements for each ``t`` in turn. What a step reads must have been written
before, which tcomp proves. Inside a step everything is as elsewhere: fused, tiled, in vectors and on all threads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pictures import picture

import tcomp as tc

PROGRAMS = Path(__file__).parent / "recurrences"


def program(name: str) -> tc.Operation:
    return tc.define((PROGRAMS / f"{name}.tc").read_text(encoding="utf-8"), f"{name}.tc")[name]


def main() -> None:
    rng = np.random.default_rng(0)

    life = program("life")
    print(life)
    glider = np.zeros((8, 24), np.uint8)
    glider[:3, :3] = [[0, 1, 0], [0, 0, 1], [1, 1, 1]]
    for steps in (0, 20):
        print(f"after {steps} steps:", *("".join(".#"[c] for c in row) for row in life(glider, steps)), sep="\n  ")
    # A glider is one place further after four steps.
    np.testing.assert_array_equal(life(glider, 20), np.roll(glider, (5, 5), (0, 1)))
    picture("life_dates", life.compile(glider, 20).draw, "dates")

    words = [np.frombuffer(word, np.uint8) for word in (b"polyhedron", b"polygon")]
    print("\nfrom polyhedron to polygon:", program("edit_distance")(*words), "edits")

    lstm = program("lstm")
    shapes = ((12, 2, 8), (4, 16, 8), (4, 16, 16), (4, 16), (2, 16), (2, 16))
    arrays = [0.5 * rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    outputs, _ = lstm(*arrays)
    np.testing.assert_allclose(outputs, lstm.reference(*arrays)[0], rtol=1e-4, atol=1e-6)
    kernel = lstm.compile(*arrays)
    print("\nThe LSTM's kernel has a part for what stands before the steps, and one for a step:\n")
    print("\n".join(line for line in kernel.explain().splitlines() if "piece" in line or "loops" in line))

    try:
        mistaken = tc.define("def f(float(N) A) -> (S) { S(0) = A(0) for t in 1:N { S(t) = S(t-1) + S(N-t) } }")
        mistaken.f(np.ones(6, np.float32))
    except tc.CompileError as error:
        print("\nA step that reads what no step has written yet:\n")
        print(error)


if __name__ == "__main__":
    main()
