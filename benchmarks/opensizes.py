"""Kernels with an open size beside kernels for that very size, on the CPU: ``python -m benchmarks.opensizes``.

Prints, for each workload and size, both times in microseconds, the least of seven interleaved rounds, and their ratio;
then the geometric mean of all ratios, what the first call of a size takes, and what a repeated call costs more.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tcomp as tc

TEXTS: Mapping[str, tuple[str, Mapping[str, int], int, tuple[int, ...]]] = {
    "mm": (
        "def f(float(N,K) A, float(K,M) B) -> (C) { C(n,m) +=! A(n,k) * B(k,m) }",
        {"K": 512, "M": 512}, 2048, (1000, 256, 64, 17),
    ),
    "softmax": (
        ("def f(float(N,D) X) -> (Y) { m(n) max=! X(n,d)  e(n,d) = exp(X(n,d) - m(n))  s(n) +=! e(n,d)"
        "  Y(n,d) = e(n,d) / s(n) }"),
        {"D": 1000}, 4096, (2000, 512, 64, 5),
    ),
    "layer_norm": (
        ("def f(float(N,D) X, float(D) g, float(D) b) -> (Y) { m(n) +=! X(n,d) / D"
        "  v(n) +=! (X(n,d) - m(n)) * (X(n,d) - m(n)) / D"
        "  Y(n,d) = (X(n,d) - m(n)) * rsqrt(v(n) + 1e-5) * g(d) + b(d) }"),
        {"D": 768}, 4096, (2000, 512, 64, 5),
    ),
    "conv": (
        "def f(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }",
        {"C": 32, "H": 30, "W": 30, "F": 32, "KH": 3, "KW": 3}, 64, (50, 16, 4, 1),
    ),
    "pool": (
        "def f(float(N,C,H,W) I) -> (O) { O(n,c,h,w) max=! I(n,c,2*h+i,2*w+j) where i in 0:2, j in 0:2 }",
        {"C": 32, "H": 56, "W": 56}, 64, (50, 16, 4, 1),
    ),
    "attention": (
        ("def f(float(N,D) Q, float(S,D) K, float(S,E) V) -> (O) { w(l,s) +=! Q(l,d) * K(s,d)  m(l) max=! w(l,s)"
        "  e(l,s) = exp(w(l,s) - m(l))  z(l) +=! e(l,s)  O(l,v) +=! e(l,s) * V(s,v)  O(l,v) = O(l,v) / z(l) }"),
        {"D": 64, "S": 512, "E": 64}, 2048, (1000, 256, 64, 17),
    ),
    "mlp": (
        ("def f(float(N,I) X, float(I,H) W, float(H,O) V) -> (Z) { h(n,j) +=! X(n,i) * W(i,j)  r(n,j) = relu(h(n,j))"
        "  Z(n,o) +=! r(n,j) * V(j,o) }"),
        {"I": 256, "H": 512, "O": 128}, 2048, (1000, 256, 64, 17),
    ),
    "column_sums": ("def f(float(N,D) X) -> (Y) { Y(d) +=! X(n,d) }", {"D": 512}, 4096, (3000, 512, 64, 5)),
    "add": (
        "def f(float(N,D) X, float(N,D) Y) -> (Z) { Z(n,d) = 2.0 * X(n,d) + Y(n,d) }",
        {"D": 1000}, 4096, (2000, 512, 64, 5),
    ),
    "dot": ("def f(float(N) X, float(N) Y) -> (S) { S +=! X(i) * Y(i) }", {}, 1 << 22, (3000000, 300000, 30000, 3000)),
    "batched_mm": (
        "def f(float(N,I,K) A, float(N,K,J) B) -> (C) { C(n,i,j) +=! A(n,i,k) * B(n,k,j) }",
        {"I": 64, "K": 64, "J": 64}, 256, (200, 64, 16, 2),
    ),
    "embedding": (
        "def f(float(V,D) T, int(N) i) -> (O) { O(n,d) = T(i(n),d) }",
        {"V": 10000, "D": 128}, 65536, (30000, 4096, 256, 16),
    ),
    "gelu": (
        "def f(float(N,D) X) -> (Y) { Y(n,d) = 0.5 * X(n,d) * (1.0 + erf(X(n,d) * 0.70710678)) }",
        {"D": 768}, 4096, (2000, 512, 64, 5),
    ),
}  # fmt: skip
"""For each workload the program, its fixed sizes, the largest N, and the values that are measured."""

ROUNDS = 7
SECONDS = 0.02
"""What a round of one kernel takes, about."""


def arrays(operation: tc.Operation, sizes: Mapping[str, int]) -> list[Any]:
    """Made-up arguments."""
    rng = np.random.default_rng(0)
    shapes = [tuple(sizes[str(dim)] for dim in p.dims or ()) for p in operation.function.definition.inputs]
    kinds = [tensor.dtype.is_float for tensor in operation.function.inputs]
    return [
        rng.standard_normal(shape).astype("float32") if is_float else rng.integers(0, 10000, shape).astype("int32")
        for shape, is_float in zip(shapes, kinds, strict=True)
    ]


def least(call: Callable[[], object], count: int) -> float:
    """The least seconds of some calls."""
    best = math.inf
    for _ in range(count):
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return best


def measured(name: str) -> list[tuple[int, float, float, float]]:
    """For each size: N, seconds with sizes that are fixed and open, and of the first call of this open size."""
    text, sizes, largest, values = TEXTS[name]
    fixed, opened = tc.define(text).f, tc.define(text, dynamic={"N": tc.range(1, largest)}).f
    opened(*arrays(opened, {**sizes, "N": largest // 2 + 1}))
    rows = []
    for n in values:
        given = arrays(fixed, {**sizes, "N": n})
        first = least(lambda given=given: opened(*given), 1)
        assert np.allclose(fixed(*given), opened(*given), rtol=1e-2, atol=1e-2)
        count = max(3, min(200, int(SECONDS / least(lambda given=given: fixed(*given), 3))))
        pairs = [
            (least(lambda given=given: fixed(*given), count), least(lambda given=given: opened(*given), count))
            for _ in range(ROUNDS)
        ]
        rows.append((n, min(a for a, _ in pairs), min(b for _, b in pairs), first))
    return rows


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *TEXTS], help="workloads; by default all")
    ratios: list[float] = []
    firsts: list[float] = []
    for name in parser.parse_args().names or TEXTS:
        for n, one, other, first in measured(name):
            ratios.append(one / other)
            firsts.append(first - other)
            print(f"{name:12} N={n:<8} {1e6 * one:10.1f} {1e6 * other:10.1f} {one / other:6.2f}", flush=True)
    print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")
    print(f"first call of a size: {1e3 * sorted(firsts)[len(firsts) // 2]:.1f} ms more, in the median")


if __name__ == "__main__":
    main()
