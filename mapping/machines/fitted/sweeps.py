"""Reductions whose elements data choose, when threads share these and look through all instances each."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, fitted

_LOOKED_THROUGH = (
    "2026-11-27, the processor's time of both threads beside other work, and of one thread that does not look: as many "
    "floats into 10^5 elements 0.18 ms and 0.08, into 10^6 1.97 and 1.80, 10^6 into 300,000 1.14 and 1.31"
)


@dataclass(frozen=True, eq=False, repr=False)
class Sweeps:
    """When threads share elements that data choose, and how many of them."""

    least_bytes: int = fitted(
        1 << 20,
        "bytes of elements",
        "On a processor: to reach nearer elements takes no longer than to see whose they are.",
        machine="Zen 4, two threads",
        how=_LOOKED_THROUGH,
    )
    most: int = fitted(
        32,
        "stretches",
        "On a processor: more threads would mostly look.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )
    least_on_gpu: int = fitted(
        256,
        "instances",
        "On a GPU: one thread runs fewer by itself.",
        machine="none: no device was at hand",
        how="chosen, not measured",
    )
    threads_per_sweeper: int = fitted(
        16,
        "threads",
        "On a GPU: of so many that could run one looks. More warps take turns at looking, fewer wait at each element.",
        machine="none: no device was at hand",
        how="counted: a warp issues some four instructions for what it sees, and waits some 700 cycles at its own",
    )


SWEEPS = Sweeps()
