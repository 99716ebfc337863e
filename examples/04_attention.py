"""Lesson 4: attention without the matrix of scores.

Attention compares every query with every key: a matrix that grows with the square of the sequence.  Written out step by
step it is six statements; fused by what each tile of the output needs, the scores of a few queries at a time are all
that is ever in memory.  The program is the library's, ``tcomp/library/attention.tc``.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
from pictures import picture

import tcomp as tc

BATCH, HEADS, LENGTH, DEPTH = 2, 4, 384, 32

Array = np.ndarray[Any, np.dtype[Any]]


def attention_with_numpy(Q: Array, K: Array, V: Array, causal: bool) -> Array:
    score = Q @ K.swapaxes(2, 3) / np.sqrt(np.float32(DEPTH))
    if causal:
        score = np.where(np.tri(LENGTH, dtype=bool), score, -np.inf)
    weight = np.exp(score - score.max(axis=3, keepdims=True))
    output: Array = (weight / weight.sum(axis=3, keepdims=True)) @ V
    return output


def main() -> None:
    ops = tc.define(Path(tc.__file__).parent / "library" / "attention.tc")
    print(ops.attention)

    rng = np.random.default_rng(0)
    Q, K, V = (rng.standard_normal((BATCH, HEADS, LENGTH, DEPTH), np.float32) for _ in range(3))
    for operator, causal in ((ops.attention, False), (ops.attention_causal, True)):
        difference = np.abs(operator(Q, K, V) - attention_with_numpy(Q, K, V, causal)).max()
        print(f"{operator.name}: largest difference from NumPy {difference:.1e}")
        assert difference < 1e-5

    kernel = ops.attention.compile(Q, K, V)
    plan = kernel.compilation.plan
    assert len(plan.groups) == 1, "one loop nest"
    print(f"one loop nest of {len(plan.groups[0].clusters)} clusters; what it keeps besides the output:")
    for buffer in plan.buffers.values():
        print(f"  {buffer.storage}: {buffer.shape}, {buffer.bytes:,} bytes per thread, in {buffer.space} memory")
    assert all(buffer.space != "global" for buffer in plan.buffers.values())
    print(f"all the scores would be {4 * BATCH * HEADS * LENGTH**2:,} bytes")

    picture("attention_memory", kernel.draw, "memory")

    kernel(Q, K, V)
    begin = time.perf_counter()
    kernel(Q, K, V)
    ours = time.perf_counter() - begin
    begin = time.perf_counter()
    attention_with_numpy(Q, K, V, causal=False)
    print(f"{1e3 * ours:.1f} ms, with NumPy {1e3 * (time.perf_counter() - begin):.1f} ms")

    if importlib.util.find_spec("torch"):
        torch: Any = importlib.import_module("torch")
        tensors = [torch.from_numpy(x) for x in (Q, K, V)]
        result = ops.attention(*tensors)
        expected = torch.nn.functional.scaled_dot_product_attention(*tensors)
        difference = (result - expected).abs().max()
        print(f"torch tensors in, a {type(result).__name__} out: {difference:.1e} from torch's own")
        assert torch.allclose(result, expected, atol=1e-5)


if __name__ == "__main__":
    main()
