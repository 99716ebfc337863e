"""Lesson 6: look inside a compilation, and steer it.

Every stage between the program and the C code is a value that prints as text.  Mapping options choose tile sizes and
how much is fused; whatever they are, the results are the same.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from pictures import picture

import tcomp as tc

SIZES = {"N": 2048, "D": 512}

CHOICES = {
    "by the model": tc.MappingOptions(),
    "small tiles": tc.MappingOptions().tile(4, 32),
    "nothing fused": tc.MappingOptions(fusion_strategy="min"),
    "one thread": tc.MappingOptions(parallel=False),
}


def main() -> None:
    softmax = tc.define(Path(tc.__file__).parent / "library" / "softmax.tc").softmax
    for name, state in tc.targets().items():
        print(f"target {name}: {state}")

    # Compiling for sizes alone needs no arrays.
    kernel = softmax.compile(sizes=SIZES)
    print()
    print(kernel.explain())
    for stage, text in kernel.stages.items():
        print(f"stage {stage}: {len(text.splitlines())} lines")
    print("\nthe program as it was checked:")
    print(kernel.stages["function"])

    picture("softmax_tree", kernel.draw, "tree")
    picture("softmax_loops", kernel.draw, "loops")

    # The same stages as a folder of files, with a script that repeats the compilation.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TCOMP_DUMP"] = folder
        softmax.compile(sizes={"N": 100, "D": 30})
        del os.environ["TCOMP_DUMP"]
        for path in sorted(Path(folder).rglob("*.*")):
            if path.is_file():
                print(f"dumped {path.name}: {path.stat().st_size:,} bytes")

    X = np.random.default_rng(0).standard_normal((SIZES["N"], SIZES["D"]), np.float32)
    expected = softmax.reference(X)
    print()
    for name, options in CHOICES.items():
        kernel = softmax.compile(X, options=options)
        assert np.allclose(kernel(X), expected, rtol=1e-5)
        begin = time.perf_counter()
        kernel(X)
        elapsed = time.perf_counter() - begin
        plan = kernel.compilation.plan
        stored = sum(buffer.bytes for buffer in plan.buffers.values() if buffer.space == "global")
        print(f"{name}: {len(plan.groups)} loop nests, {stored:,} bytes of temporaries stored, {1e3 * elapsed:.2f} ms")
    print(f"\noptions as JSON: {CHOICES['small tiles'].to_json()}")
    assert tc.MappingOptions.from_json(CHOICES["small tiles"].to_json()) == CHOICES["small tiles"]


if __name__ == "__main__":
    main()
