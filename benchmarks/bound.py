"""What binding the weights gains: products with few rows and a convolution, with the same arrays bound and not.

    python benchmarks/bound.py [--rounds 15]

Both are called in turn, and each figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tcomp as tc

TEXT = """
def mm(float(M,K) A, float(K,N) W) -> (C) { C(m,n) +=! A(m,k) * W(k,n) }
def linear(float(M,K) A, float(N,K) W) -> (C) { C(m,n) +=! A(m,k) * W(n,k) }
def conv(float(N,C,H,V) A, float(F,C) W) -> (O) { O(n,f,h,v) +=! A(n,c,h,v) * W(f,c) }
def narrow(int8(M,K) A, int8(N,K) W) -> (C) { C(m,n) +=! A(m,k) * W(n,k) }
"""
_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Case:
    """One operation, the shapes of its argument and of its weights, and multiply-adds of a call."""

    name: str
    argument: tuple[int, ...]
    weights: tuple[int, ...]
    products: int


def cases() -> Iterator[Case]:
    """Matrices of 1024 x 1024 with 1 to 64 rows, and a 1x1 convolution of a small image."""
    for name in ("mm", "linear", "narrow"):
        for rows in (1, 2, 4, 8, 16, 32, 64):
            yield Case(name, (rows, 1024), (1024, 1024), rows * 1024 * 1024)
    yield Case("conv", (1, 512, 7, 7), (2048, 512), 2048 * 512 * 49)


def seconds(call: Callable[[], object]) -> float:
    """The time of a call, in a row of calls that takes a hundredth of a second or more."""
    count = 1
    while True:
        begun = time.perf_counter()
        for _ in range(count):
            call()
        took = time.perf_counter() - begun
        if took >= _SECONDS:
            return took / count
        count *= 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    ops, random = tc.define(TEXT, tune="off"), np.random.default_rng(0)
    print(f"{'':24}{'us':>10}{'bound':>10}{'ratio':>8}{'GFLOP/s':>10}")
    for case in cases():
        operation = ops[case.name]
        dtype = np.int8 if case.name == "narrow" else np.float32
        argument, weights = ((9 * random.random(shape)).astype(dtype) for shape in (case.argument, case.weights))
        bound: Any = operation.bind(W=weights)
        np.testing.assert_allclose(bound(argument), operation(argument, weights), rtol=1e-4)
        calls = (functools.partial(operation, argument, weights), functools.partial(bound, argument))
        times = [[seconds(call) for call in calls] for _ in range(rounds)]
        before, after = map(statistics.median, zip(*times, strict=True))
        label = f"{case.name} {' x '.join(map(str, case.argument))}"
        rate = 2e-9 * case.products / after
        print(f"{label:24}{1e6 * before:10.1f}{1e6 * after:10.1f}{before / after:8.2f}{rate:10.1f}", flush=True)


if __name__ == "__main__":
    main()
