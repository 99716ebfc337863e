"""Attention and its gradients on GPUs: what a block takes in a turn."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import fitted


@dataclass(frozen=True, eq=False, repr=False)
class Turns:
    """Attention in one kernel: what a block takes in a turn, and who has what of it."""

    rows: int = fitted(
        64,
        "rows",
        "Queries of a block.",
        machine="none: no device was at hand",
        how="as FlashAttention has it; 64 x 64 scores and 64 x 64 sums are 64 registers of each of 128 threads",
    )
    steps: int = fitted(
        64,
        "steps",
        "Keys of a turn.",
        machine="none: no device was at hand",
        how="as FlashAttention has it",
    )
    threads: tuple[int, int] = fitted(
        (8, 16),
        "threads along rows, along steps and columns",
        "Half a warp has a row, so that its maximum needs shuffles alone.",
        machine="none: no device was at hand",
        how="8 x 4 scores a thread: 12 reads of shared memory for 32 multiply-adds",
    )
    steps_by_warps: int = fitted(
        128,
        "channels",
        "Of queries and keys that warps multiply at a time.",
        machine="none: no device was at hand",
        how="those of most heads: 16 KiB of each for 64 of them",
    )
    neighbours: int = fitted(
        4,
        "elements",
        "Neighbouring rows, steps or columns of a thread: 16 bytes.",
        machine="none: no device was at hand",
        how="the widest access of shared memory",
    )
    least_steps: int = fitted(
        128,
        "steps",
        "Fewer keys take two kernels or three, which hold all scores of a row.",
        machine="none: no device was at hand",
        how="two turns",
    )
    least_rows: int = fitted(
        16,
        "rows",
        "With fewer queries most threads of a block would rest.",
        machine="none: no device was at hand",
        how="two rows for each of 8 threads",
    )
    blocks_of_parts: int = fitted(
        4,
        "blocks of a multiprocessor",
        "So many share the keys of few queries.",
        machine="none: no device was at hand",
        how="an A100 then has 8 KiB of keys under way on each multiprocessor, as its memory needs",
    )
    least_part: int = fitted(
        128,
        "steps",
        "Keys that a block has at least, of few queries.",
        machine="none: no device was at hand",
        how="64 KiB of keys and values of 128 halves, beside a few hundred bytes that the part leaves",
    )
    most_columns: int = fitted(
        256,
        "columns",
        "Sums of a row that threads keep in registers: 128 of each at most.",
        machine="none: no device was at hand",
        how="as many as a product's tile has",
    )


TURNS = Turns()
