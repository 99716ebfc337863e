"""What kernels would take on a device, from what the simulator counted: an estimate that ranks, not a prediction.

A kernel takes the longest of arithmetic, traffic between the multiprocessors and the second-level cache, and passes
over shared memory, each slowed by multiprocessors that have nothing to do; then what its blocks wait for memory, turn
after turn; and its launch.  The constants are those by which tiles are chosen (``tcomp.mapping.machines.fitted.gpu``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tcomp.backends.cuda.tools.occupancy import occupancy
from tcomp.backends.simulator.report import KernelCounts, SimulationError
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.backends.source import Launch, Source
from tcomp.mapping.machines.fitted.gpu import DEVICE
from tcomp.mapping.machines.gpu import SECTOR_BYTES, WARP, Gpu, gpu_of

_FLOPS_IN_A_PASS = 256
"""What a multiprocessor computes while its shared memory serves one wavefront: a cycle of 128 multiply-adds."""

_BARRIERS_IN_A_STEP = 2
_COUNTED_BLOCKS = 64


def estimated_seconds(architecture: str, source: Source, flops: Mapping[str, int], addresses: Sequence[int]) -> float:
    """What the kernels would take on the device of an architecture, found by running them on the simulator.

    ``flops`` are the floating-point operations of each statement, ``addresses`` one for each argument of the source;
    outputs are written.  Raises SimulationError if there is anything wrong with the kernels, and TargetError if they
    cannot be simulated here.
    """
    report = load(source).run(addresses, None, Settings(counting=True, counted_blocks=_COUNTED_BLOCKS))
    if report.findings:
        raise SimulationError(report)
    gpu = gpu_of(architecture)
    return sum(
        kernel_seconds(gpu, launch, counts, sum(flops.get(name, 0) for name in {name for _, name in launch.lines}))
        for launch, counts in zip(source.launches, report.kernels, strict=True)
    )


def kernel_seconds(gpu: Gpu, launch: Launch, counts: KernelCounts, flops: int) -> float:
    """What one kernel takes, of whose statements ``flops`` are the floating-point operations.

    Registers are unknown here; as many are assumed as a small tile takes.
    """
    blocks, threads = math.prod(launch.grid), math.prod(launch.block)
    resident = occupancy(gpu, threads, DEVICE.base_registers, launch.shared_bytes).blocks
    if not blocks or not resident:
        return math.inf if blocks else 0.0
    busy = blocks / (gpu.multiprocessors * -(-blocks // gpu.multiprocessors))
    lanes = threads / (WARP * -(-threads // WARP))
    arithmetic = flops / (gpu.flops * busy * lanes)
    passes = sum(a.wavefronts for a in counts.select("shared")) * _FLOPS_IN_A_PASS / (gpu.flops * busy)
    traffic = counts.global_sectors * SECTOR_BYTES / (DEVICE.l2_advantage * gpu.bandwidth)
    turns = -(-blocks // (gpu.multiprocessors * resident))
    steps = max(1.0, counts.barriers / _BARRIERS_IN_A_STEP)
    return DEVICE.launch_seconds + max(arithmetic, passes, traffic) + turns * steps * DEVICE.step_latency
