"""Fusion on a CPU: what is computed where it is read, and what is computed ahead."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, fitted

_OUTLINED = (
    "2026-11-23, with computing ahead as a whole, against torch: exp(A(m,k)) * B(k,n) 1.2, before 0.09; "
    "how the number was found: not recorded"
)


@dataclass(frozen=True, eq=False, repr=False)
class Fusion:
    """Which clusters share a tile."""

    tile_bytes: int = fitted(
        256 * 1024,
        "bytes",
        "What the intermediates of one tile may occupy: a quarter of a second cache of 1 MiB.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    few_tiles: int = fitted(
        4,
        "tiles",
        "With fewer most threads of any processor have nothing to do.",
        machine="two threads; processor not recorded",
        how="2026-11-21: cross entropy of 256 rows of 1000 takes 0.041 ms, before 0.068",
    )
    rows: int = fitted(
        64,
        "rows",
        "Lower tiles of two contractions in a row share too little of what each reads of its other operand.",
        machine="Xeon (AVX-512, second caches of 2 MiB), two threads",
        how="2026-11-25: B x 512 times 512 x 1024 times 1024 x 512 in tiles of 16 rows takes 1.5 to 1.7 times as long",
    )
    panel_share: float = fitted(
        0.5,
        "of the second cache",
        "What of an operand is no larger stays there from tile to tile.",
        machine="Xeon (AVX-512, second caches of 2 MiB), two threads",
        how="2026-11-25: with operands of 256 KiB one nest takes as long as two, with 2 MiB 1.6 times as long",
    )
    kept_share: float = fitted(
        0.5,
        "of the second cache",
        "What two clusters of a tile read alike stays there from one to the other if it is no more.",
        machine="Zen 4 (AVX-512, second caches of 1 MiB), two threads",
        how="2026-11-25: cross entropy of 512 rows of 10000 in tiles of 8 rows: median 0.6 of two nests",
    )


FUSION = Fusion()


@dataclass(frozen=True, eq=False, repr=False)
class Sharing:
    """Which nests run as one over the outer loops that they share."""

    share: float = fitted(
        0.75,
        "of the second cache",
        "What several of the nests touch at one point of these loops takes no more.",
        machine="Zen 4 (AVX-512, second caches of 1 MiB), two threads",
        how="2026-11-25: backward of attention (0.7 MiB a head) takes 0.84 of the time, gated 0.9",
    )
    left_share: float = fitted(
        0.5,
        "of a thread's share of the last cache",
        "What parts of sums leave at one point takes no more, or no more than the share of the second cache: it is "
        "written once and read once.",
        machine="Zen 3 (second caches of 512 KiB, 32 MiB shared by two threads)",
        how="2026-11-28: attention of 1 x 16384 x 64, 40 parts that leave 0.7 MiB, takes 0.93 of the time of two nests",
    )
    least_points: int = fitted(
        4,
        "points a thread",
        "With fewer threads wait for the last one.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )
    most_groups: int = fitted(
        16,
        "groups",
        "Of one nest: what they touch is looked at again for each that joins.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )
    balance: float = fitted(
        0.9,
        "of the time",
        "So much of it all threads have something to do.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )


NESTING = Sharing()


@dataclass(frozen=True, eq=False, repr=False)
class Rescaling:
    """When weights that are relative to a maximum are computed in parts, as those of attention."""

    least_steps: int = fitted(
        1024,
        "weights a row",
        "Shorter rows stay in a cache.",
        machine="Zen 4, two threads",
        how="2026-11-25: against torch, 12 x 512 of 64 with whole rows reaches 1.15, 12 x 1024 with parts 1.1",
    )
    bytes_of_a_weight: int = fitted(
        1024,
        "bytes of the second cache",
        "With fewer for each weight of a row, shorter rows than least_steps do not stay there.",
        machine="Zen 3 (second caches of 512 KiB), two threads",
        how="2026-11-28: 12 x 512 of 64 reaches 0.97 of torch with whole rows, 1.11 with parts",
    )
    least_hidden_steps: int = fitted(
        256,
        "weights a row",
        "As least_steps, where a condition on indices hides some: parts of which a row sees none are left out.",
        machine="Zen 3, two threads",
        how="2026-11-28: causal, 12 x 256 of 64 takes 0.72 of the time in parts, 12 x 512 0.57, 12 x 1024 0.5",
    )
    part: int = fitted(
        256,
        "weights",
        "Those of a row that are computed together, at least.",
        machine="Zen 4, two threads",
        how="2026-11-25: 12 x 2048 of 64 takes 73 ms, with 128 weights 87, with 512 from 73 to 75",
    )
    most_parts: int = fitted(
        96,
        "parts",
        "What they leave of 64 rows is read again; of fewer the weights do not stay in the second cache.",
        machine="Zen 3 (second caches of 512 KiB, 32 MiB shared by two threads), two threads",
        how=(
            "2026-11-29, beside other work, of the time with 40: 1 x 16384 of 64 (64 parts) 0.93 to 1.05, 1 x 20480 "
            "0.86, 1 x 24576 0.61, 1 x 32768 0.84; 2026-11-25, two threads of a Zen 4: 1 x 16384 takes 0.93 with 40 of "
            "the time with 32"
        ),
    )


RESCALING = Rescaling()


@dataclass(frozen=True, eq=False, repr=False)
class Inlining:
    """When a value is computed where it is read."""

    most_operations: int = fitted(
        24,
        "operations and reads an element",
        "Up to so many computing waits for memory anyway.",
        machine="Zen 3, vectors of 32 bytes",
        how=(
            "2026-11-23: images of 16 and 64 MiB: two passes of three taps (21 operations) take 0.7 to 0.85 of "
            "the time, of four taps (36) 1.0 to 1.35"
        ),
    )
    division: int = fitted(
        8,
        "operations",
        "As how many a division counts.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    extremum: int = fitted(
        2,
        "operations",
        "As how many a minimum or a maximum counts.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    function: int = fitted(
        16,
        "operations",
        "As how many another function counts.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    expensive: int = fitted(
        8,
        "operations",
        "From so many on a value is worth being kept.",
        machine="Zen 3, two threads",
        how=_OUTLINED,
    )


INLINING = Inlining()


@dataclass(frozen=True, eq=False, repr=False)
class Outlining:
    """When values are computed ahead of the statements that use them."""

    least_reuse: int = fitted(
        4,
        "instances",
        "Uses of a value from which on it is worth a loop of its own.",
        machine="Zen 3, two threads",
        how=_OUTLINED,
    )
    least_room: int = fitted(
        1 << 22,
        "bytes",
        "What values may always take; else they take no more than the tensors of a call do.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    least_shared: int = fitted(
        384,
        "results",
        (
            "How many use an element at least for which it is worth to be brought next to those of the steps "
            "beside it, where rows, or some steps, are neighbours, which share what a line of memory brings."
        ),
        machine="Zen 3, one thread",
        how=(
            "2026-11-23: products with a transposed first operand of more than half a megabyte take 0.65 to "
            "0.95 of the time with 512 columns and more, 0.88 to 1.05 with 256; smaller operands gain nothing"
        ),
    )
    least_shared_alone: int = fitted(
        48,
        "results",
        "The same where rows and steps are no neighbours.",
        machine="Zen 3, one thread",
        how=(
            "2026-11-23: with batches innermost half of twelve programs drawn at random took 0.25 to 0.6 of the "
            "time, the others 0.8 to 1.05"
        ),
    )
    neighbours: int = fitted(
        8,
        "elements",
        "How many neighbours rows or steps are at least.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


OUTLINING = Outlining()


@dataclass(frozen=True, eq=False, repr=False)
class Distributing:
    """When the terms of a sum of products become contractions of their own."""

    least_steps: int = fitted(
        8,
        "steps",
        "Each term loads and stores its sums.",
        machine="Xeon (Granite Rapids, AVX-512), one thread, beside other work",
        how=(
            "2026-11-26: two products of 64 to 2048 rows and columns, floats and doubles, take 1/1.1 to 1/2.2 of the "
            "time of their sum with 8 steps, 1/0.9 to 1/2 with 4"
        ),
    )


DISTRIBUTING = Distributing()


@dataclass(frozen=True, eq=False, repr=False)
class Mirroring:
    """When half of a product of a tensor with itself is computed, and the other half copied."""

    least_side: int = fitted(
        128,
        "rows",
        "Rows, and columns, of results: tiles on the diagonal are computed whole.",
        machine="Zen 4, one thread, beside other work",
        how="2026-11-27: 128 rows of 2000 steps take 0.56 to 0.65 of the time, 256 of 300 0.62 to 0.67",
    )
    least_steps: int = fitted(
        64,
        "steps",
        "Steps of a sum: what is copied instead is turned.",
        machine="Zen 4, one thread, beside other work",
        how="2026-11-27: 1000 rows of 64 steps take 0.65 to 0.74 of the time, 512 of 128 0.83 to 0.98",
    )


MIRRORING = Mirroring()


@dataclass(frozen=True, eq=False, repr=False)
class Unfolding:
    """When the windows of a contraction are copied ahead, so that indices which run together lie together."""

    copied: float = fitted(
        12.0,
        "multiply-adds",
        "Copying a vector of a window, whose runs are short.",
        machine="Zen 4, two threads",
        how="2026-11-25: 8 x 16 x 18 x 18 floats in windows of 3x3 take 0.035 ms, 4.7 million products after it 0.062",
    )
    turned: float = fitted(
        48.0,
        "multiply-adds",
        "Copying a vector whose elements lie apart.",
        machine="Granite Rapids, one thread",
        how=(
            "2026-11-26: turning takes 0.5 to 1 ns an element; with 12, of nine random contractions that changed five "
            "took 1.04 to 9 times as long, with 48 of eleven three 1.01 to 1.18 times, the others 0.08 to 0.8"
        ),
    )
    most: float = fitted(
        0.7,
        "times the cost",
        "So much of it is left at most, for what is estimated is not that exact.",
        machine="Zen 4, two threads",
        how="2026-11-25: weight gradients of locally connected layers are estimated at 0.3 of the time",
    )
    least_room: int = fitted(
        1 << 22,
        "bytes",
        "What copies may always take; else they take no more than the tensors of a call do.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


UNFOLDING = Unfolding()
