"""What the simulator says that a device would take: it ranks kernels, and grows with what they do."""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.simulator import compiler
from tcomp.backends.simulator.cost import kernel_seconds
from tcomp.backends.simulator.report import AccessCounts, KernelCounts
from tcomp.backends.source import Launch
from tcomp.mapping.machines.fitted.gpu import DEVICE
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.tiles.flops import flops_of
from tcomp.runtime.registry import estimate_of

H100 = gpu_of("sm_90")
LAUNCH = Launch("k", (H100.multiprocessors, 1, 1), (256, 1, 1), 0, ())


def access(space: str = "global", sectors: int = 0, wavefronts: int = 0) -> AccessCounts:
    assert space in ("global", "shared")
    return AccessCounts(1, "S", "", "A", space, "read", 4, 1, 32, sectors, sectors, wavefronts, wavefronts)


def seconds(*accesses: AccessCounts, launch: Launch = LAUNCH, barriers: float = 0.0, flops: int = 0) -> float:
    counts = KernelCounts("k", launch.grid, launch.block, prod(launch.grid), barriers, 0, None, accesses)
    return kernel_seconds(H100, launch, counts, flops)


def test_a_kernel_takes_its_launch_and_one_latency_at_least() -> None:
    assert DEVICE.launch_seconds < seconds() < 2 * DEVICE.launch_seconds


def test_arithmetic_and_traffic_overlap() -> None:
    arithmetic, traffic = seconds(flops=10**12), seconds(access(sectors=10**9))
    assert seconds(access(sectors=10**9), flops=10**12) == max(arithmetic, traffic)
    assert arithmetic == pytest.approx(10**12 / H100.flops, rel=0.01)


def test_bank_conflicts_cost() -> None:
    few, many = (seconds(access("shared", wavefronts=n), flops=10**9) for n in (10**6, 10**9))
    assert many > 10 * few


def test_barriers_cost() -> None:
    assert seconds(barriers=64.0) > seconds(barriers=8.0) > seconds(barriers=2.0)


def test_one_block_more_than_there_are_multiprocessors_costs_as_much_as_twice_as_many() -> None:
    whole = seconds(flops=10**12)
    more = replace(LAUNCH, grid=(H100.multiprocessors + 1, 1, 1))
    assert seconds(launch=more, flops=10**12 * (H100.multiprocessors + 1) // H100.multiprocessors) > 1.9 * whole


def test_threads_that_fill_no_warp_are_wasted() -> None:
    narrow = replace(LAUNCH, block=(16, 1, 1))
    assert seconds(launch=narrow, flops=10**12) > 1.9 * seconds(flops=10**12)


def test_what_cannot_be_launched_takes_for_ever_and_nothing_takes_nothing() -> None:
    assert seconds(launch=replace(LAUNCH, shared_bytes=1 << 20)) == inf
    assert seconds(launch=replace(LAUNCH, grid=(0, 1, 1))) == 0


def test_an_estimate_runs_the_kernels_and_is_the_same_each_time() -> None:
    if compiler.why_not():
        pytest.skip(str(compiler.why_not()))
    operation = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").mm
    estimate = estimate_of("simulator:sm_90")
    assert estimate is not None
    taken = {}
    for threads in ((16, 16), (1, 1)):
        options = tc.MappingOptions(tile_sizes=(16, 16), threads=threads)
        sizes = {"M": 64, "N": 64, "K": 32}
        made = operation.compile(sizes=sizes, target="simulator:sm_90", options=options).compilation
        arrays = np.ones((64, 32), np.float32), np.ones((32, 64), np.float32), np.zeros((64, 64), np.float32)
        addresses = [array.ctypes.data for array in arrays]
        taken[threads] = {estimate(made.source, flops_of(made.plan), addresses) for _ in range(2)}
        assert (arrays[2] == 32).all()
    assert all(len(found) == 1 for found in taken.values())
    assert min(taken[1, 1]) > min(taken[16, 16]), "one thread asks for each element by itself"


def test_targets_with_a_clock_have_no_estimate() -> None:
    assert estimate_of("cpu") is None
    assert estimate_of("cuda:sm_90") is None
