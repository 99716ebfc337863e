"""GPUs: how many threads share a range that data give."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import fitted


@dataclass(frozen=True, eq=False, repr=False)
class DataRanges:
    """Lanes of ranges that data give, by their mean length."""

    entries_of_a_lane: int = fitted(
        2,
        "entries",
        "What each of the threads that share a range has of it in the mean.",
        machine="none: the simulator",
        how=(
            "2026-11-28: rows of 12 entries touch as many sectors as with 1, in 0.7 of the requests; with 4, 1.3 times "
            "as many sectors"
        ),
    )
    least_of_a_block: int = fitted(
        2048,
        "entries",
        "Mean length from which on all threads of a block share a range.",
        machine="none: no device was at hand",
        how="each then has 8 entries, and the block waits twice",
    )


DATA_RANGES = DataRanges()
