"""What the tuner's estimate counts for candidates on a CPU: it ranks them, and predicts no times."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, fitted

_CANDIDATES = (
    "2026-11-21: tables of 40 to 70 measured candidates of 55 programs; the best of the first four by "
    "the estimate is 0.90 of the best of all (before 0.88; chance: 0.75)"
)


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Cycles and bandwidths of a common processor."""

    tile_cycles: float = fitted(
        30.0,
        "cycles",
        "To enter a tile.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    row_cycles: float = fitted(
        8.0,
        "cycles",
        "To enter a row of vectors.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    block_cycles: float = fitted(
        12.0,
        "cycles",
        "To enter a register tile.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    fork_cycles: float = fitted(
        10_000.0,
        "cycles",
        "To wake the other threads and to wait for them.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    nearest_bytes: float = fitted(
        128.0,
        "bytes a cycle",
        "From the first cache.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    near_bytes: float = fitted(
        48.0,
        "bytes a cycle",
        "From the second cache.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    middle_bytes: float = fitted(
        24.0,
        "bytes a cycle",
        "From the last cache.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    far_bytes: float = fitted(
        8.0,
        "bytes a cycle",
        "From memory.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    run_bytes: int = fitted(
        128,
        "bytes",
        "What a jump in memory costs.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    overlap: float = fitted(
        0.6,
        "of the shorter time",
        "What does not hide behind the longer of arithmetic and memory.",
        machine=NOT_RECORDED,
        how=_CANDIDATES,
    )
    middle_cache: int = fitted(
        1 << 20,
        "bytes",
        "A common second cache.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    least_parallel: int = fitted(
        32768,
        "instances",
        "Of fewer one thread runs all.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


ESTIMATE = Estimate()
