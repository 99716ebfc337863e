"""What a repeated call costs the host, against a bare CuPy launch of the very same kernel and the library's own add."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import tcomp as tc
from benchmarks.gpu_workers import Settings
from tcomp.arrays.devices import cupy_module

ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"
ELEMENTS = 256
LIBRARIES = ("cupy", "torch")

_CALLS = 200
"""In a row; fewer than the device queues, so that none waits for the device."""

_ROUNDS = 50


def prepare(settings: Settings) -> Callable[[str], dict[str, Any]]:
    """What measures calls with the arrays of a library."""
    return lambda library: measure(library, settings)


def measure(library: str, settings: Settings) -> dict[str, Any]:
    """Microseconds of a call by what is called: the median of interleaved rounds, and the least."""
    cupy = cupy_module()
    a, b, c, own = _arrays(library)
    operation = tc.define(ADD, tune="off").add
    kernel = operation.compile(sizes={"N": ELEMENTS}, target=settings.target)
    source = kernel.compilation.source
    (launch,) = source.launches
    by_name = {"A": cupy.from_dlpack(a), "B": cupy.from_dlpack(b), "C": cupy.from_dlpack(c)}
    raw = cupy.RawKernel(source.text, launch.kernel)
    arguments = tuple(by_name[name] for name in launch.arguments)
    calls: dict[str, Callable[[], Any]] = {
        "bare cupy.RawKernel": lambda: raw(launch.grid, launch.block, arguments),
        "kernel(A, B, out=C)": lambda: kernel(a, b, out=c),
        "ops.add(A, B, out=C)": lambda: operation(a, b, out=c),
        "ops.add(A, B)": lambda: operation(a, b),
        f"{library}.add(A, B, out=C)": lambda: own(a, b, out=c),
    }
    for name, call in calls.items():
        by_name["C"].fill(0)
        result = call()
        checked = by_name["C"] if name != "ops.add(A, B)" else cupy.from_dlpack(result)
        if not bool((checked == 3).all()):
            raise AssertionError(f"{name} gives a wrong result")
    times = interleaved(calls, cupy.cuda.Device().synchronize, _CALLS, 5 if settings.quick else _ROUNDS)
    return {
        name: {"median_us": round(statistics.median(runs), 3), "least_us": round(min(runs), 3)}
        for name, runs in times.items()
    }


def interleaved(
    calls: dict[str, Callable[[], Any]], settle: Callable[[], Any], count: int, rounds: int
) -> dict[str, list[float]]:
    """Microseconds a call, for each round of ``count`` calls in a row; ``settle`` waits for the device in between."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            settle()
            start = time.perf_counter()
            for _ in range(count):
                call()
            taken = time.perf_counter() - start
            if number:  # The first round is the warm-up.
                times[name].append(1e6 * taken / count)
    settle()
    return times


def _arrays(library: str) -> tuple[Any, Any, Any, Callable[..., Any]]:
    """Ones, twos, room for the sum, and the library's own addition."""
    if library == "cupy":
        cupy = cupy_module()
        a = cupy.ones(ELEMENTS, "float32")
        return a, 2 * a, cupy.zeros_like(a), cupy.add
    import torch  # noqa: PLC0415  (optional, and slow to load)

    one = torch.ones(ELEMENTS, device="cuda")
    return one, 2 * one, torch.zeros_like(one), torch.add
