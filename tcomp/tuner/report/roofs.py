"""What a machine can do at most, and what a program asks of it: the numbers of a roofline.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.driver import Compilation
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.choices import NVIDIA_TARGETS
from tcomp.mapping.tiles.flops import flops_of
from tcomp.storage.cache import store
from tcomp.tuner.database.trials import Problem

_PRODUCT = 768
_COPIED_BYTES = 64 << 20
_SECONDS, _SAMPLES = 0.15, 5
"""How long a rate is measured, and how often at least."""

_KIND = "roof"


@dataclass(frozen=True, slots=True)
class Roofs:
    """Floating-point operations and bytes per second that a device reaches at most; ``source`` says who says so."""

    flops: float
    bandwidth: float
    source: str


@dataclass(frozen=True, slots=True)
class Work:
    """What one call of a program comes to: operations, and the bytes of its inputs and outputs, each moved once."""

    flops: int
    bytes: int


def work_of(compilation: Compilation) -> Work:
    """The work of a compiled program, without what a mapping computes more than once."""
    first = next(iter(compilation.plans.values()))
    moved = sum(s.bytes for s in compilation.scop.storages.values() if s.role != "temporary")
    return Work(sum(flops_of(first).values()), moved)


def roofs_of(problem: Problem) -> Roofs:
    """The roofs of the device of a problem: those of a GPU from its data sheet, those of this processor by trying."""
    kind, _, architecture = problem.specialisation.target.partition(":")
    if architecture and kind in NVIDIA_TARGETS:
        gpu = gpu_of(architecture)
        return Roofs(gpu.flops, gpu.bandwidth, f"the data sheet of a {gpu.name}")
    wide = any(t.dtype.name == "double" for t in problem.specialisation.function.outputs)
    dtype = np.dtype(np.float64 if wide else np.float32)
    source = f"the best that NumPy's product of {dtype.name} matrices and its copies of arrays ever reached here"
    flops = best_ever(f"{problem.device}: product of {dtype.name}", _product_rate(dtype))
    return Roofs(flops, best_ever(f"{problem.device}: copy", _copy_rate()), source)


def best_ever(what: str, rate: float) -> float:
    """The largest rate measured here so far, kept beside the kernels: a busy machine shows less than it can."""
    key = hashlib.sha256(what.encode()).hexdigest()
    kept = store().get(_KIND, key)
    known = float(kept) if kept is not None else 0.0
    if rate > known:
        store().put(_KIND, key, what, repr(rate).encode())
    return max(rate, known)


@functools.cache
def _product_rate(dtype: np.dtype[Any]) -> float:
    a = np.ones((_PRODUCT, _PRODUCT), dtype)
    c = np.empty_like(a)
    return 2.0 * _PRODUCT**3 / _fastest(lambda: np.matmul(a, a, out=c))


@functools.cache
def _copy_rate() -> float:
    threads = this_machine().threads
    part = _COPIED_BYTES // 8 // threads
    pairs = [(np.ones(part), np.zeros(part)) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        seconds = _fastest(lambda: list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs)))
    return 2.0 * 8 * part * threads / seconds


def _fastest(call: Callable[[], object]) -> float:
    """Seconds of the fastest call; the first, which touches fresh pages and wakes threads, does not count."""
    call()
    samples: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(samples) < _SAMPLES or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    return min(samples)
