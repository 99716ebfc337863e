"""Tiles on a CPU: which loop runs along vectors, how large tiles are, and what threads share."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, fitted

_ROW_BY_ROW = (
    "2026-11-22, row by row instead of in strips: sums down 1024x4096 take 0.13 ms, before 0.20; "
    "4099x1031 is as it was; how the number was found: not recorded"
)
_FAR_STRIDES = (
    "2026-11-22: with 512 KiB in the second cache products of 500^3 to 1000^3 gain up to half; with twice as much "
    "nothing was gained below a page"
)


@dataclass(frozen=True, eq=False, repr=False)
class Caches:
    """What the caches of a processor mean for the choices of the passes."""

    last_share: float = fitted(
        0.75,
        "of the last cache",
        "Tensors of a call that take so much or more count as lying in memory: others use the cache, too.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    large_middle: int = fitted(
        1 << 20,
        "bytes of the second cache",
        "From so many on lines that lie apart come fast enough.",
        machine="Zen 3, Zen 5",
        how=_FAR_STRIDES,
    )
    far_stride: int = fitted(
        1024,
        "bytes",
        "Steps of a column so far apart have their lines brought together: a quarter of a page.",
        machine="Zen 3",
        how=_FAR_STRIDES,
    )
    far_stride_if_large: int = fitted(
        4096,
        "bytes",
        "The same where the second cache is large: a page.",
        machine="Zen 5",
        how=_FAR_STRIDES,
    )


CACHES = Caches()


@dataclass(frozen=True, eq=False, repr=False)
class Vectors:
    """Which loop becomes the vector loop, and which the rows of a register tile."""

    lanes: int = fitted(
        16,
        "lanes",
        "Lanes that a vector loop should fill.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    scattered_cost: float = fitted(
        8.0,
        "contiguous vectors",
        "What a vector of separate loads costs.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    scattered_write_cost: float = fitted(
        16.0,
        "contiguous vectors",
        "What a vector of separate stores costs.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    sum_lanes: int = fitted(
        4,
        "lanes",
        "Lanes that a reduction should fill if those of several elements are folded together.",
        machine=NOT_RECORDED,
        how=(
            "2026-11-22, with folding four rows together: sums of 4 x 4 take a twelfth of the time; how the "
            "number was found: not recorded"
        ),
    )
    long_row: int = fitted(
        256,
        "columns",
        "Columns of a tile from which on they are fetched better row by row than in strips.",
        machine="two cores; processor not recorded",
        how=_ROW_BY_ROW,
    )
    least_steps: int = fitted(
        64,
        "steps",
        "Steps of a reduction for which running row by row is worth a loop more.",
        machine="two cores; processor not recorded",
        how=_ROW_BY_ROW,
    )
    row_vectors: int = fitted(
        4,
        "vectors",
        "Vectors of a register tile of one row.",
        machine="two cores; processor not recorded",
        how=_ROW_BY_ROW,
    )
    least_row_of_scan: int = fitted(
        16,
        "elements",
        "Rows of so many are added up as rows where a sum is cumulative down columns.",
        machine="Zen 4, one thread, beside other work",
        how="2026-11-27: 64 x 16 floats take 1.4 us, torch 1.9; narrower ones: not measured",
    )
    longest_row_of_scan: int = fitted(
        1 << 12,
        "elements",
        "Sums of longer rows, of tiles that options ask for, have no place on a thread's stack: they run one by one.",
        machine="any",
        how="chosen, not measured",
    )
    least_strip_of_scan: int = fitted(
        256,
        "elements",
        "Strips of columns that are summed up together are no narrower, though there are fewer than threads want.",
        machine="Zen 4, one thread",
        how="chosen, not measured",
    )
    few_rows: int = fitted(
        4,
        "rows",
        "A register tile of fewer has too little to do between two loads.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    rows_of_a_block: int = fitted(
        8,
        "steps",
        "Steps of a reduction in long rows between two loads of its accumulators.",
        machine="two threads; processor not recorded",
        how="2026-11-22: 16 rows, then 8 with unrolled steps: 2048x4096 by a vector takes 0.24 ms, before 0.51",
    )


VECTORS = Vectors()


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Tiles of reductions and statements that run row by row."""

    reduction_vector_tile: int = fitted(
        64,
        "elements",
        "Extent of the vector loop in a tile that reuses what it reads.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    reduction_rows: int = fitted(
        32,
        "iterations",
        "Extent of all its other loops together.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    row_tile: int = fitted(
        2048,
        "elements",
        "Extent of the vector loop in a tile that runs row by row.",
        machine="two threads; processor not recorded",
        how=(
            "2026-11-22: tiles up to a page wide instead of 256 columns: 2048x4096 by a vector takes 0.24 ms, "
            "before 0.51"
        ),
    )
    tiles_of_a_thread: int = fitted(
        2,
        "tiles",
        "How many tiles that run row by row there should be for each thread at least.",
        machine="two threads; processor not recorded",
        how="as row_tile",
    )
    pointwise_vector_tile: int = fitted(
        2048,
        "elements",
        (
            "Extent of the vector loop in a tile that streams: rows long enough for the processor's "
            "prefetching, and for whole pages."
        ),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    pointwise_rows: int = fitted(
        16,
        "iterations",
        "Extent of all its other loops together.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    rows_together: int = fitted(
        16,
        "rows",
        "Rows of a tile come in as many, if there are more: short ones share vectors.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    tile_elements: int = fitted(
        8192,
        "elements",
        "What a tile of a reduction writes at most: a first cache of floats.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    pointwise_elements: int = fitted(
        32768,
        "elements",
        "The same for a tile that streams; what it hands from statement to statement fits the second cache.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    phases_share: int = fitted(
        12,
        "rows' tiles in the first cache",
        (
            "The rows that several statements pass over take one part of so many. More would fit, but the "
            "shorter the passes, the better the processor fetches what comes next meanwhile."
        ),
        machine="one core; processor not recorded",
        how=(
            "2026-11-21, with reductions in vectors: softmax 4096x1024 takes 1.5 ms, before 6.6; how the number "
            "was found: not recorded"
        ),
    )


ROWS = Rows()


@dataclass(frozen=True, eq=False, repr=False)
class ContractionTiles:
    """Tiles of contractions."""

    side: int = fitted(
        256,
        "rows, or columns",
        "Sides of a tile at most: panels are packed anew for every so many.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    turned_side: int = fitted(
        128,
        "rows, or columns",
        (
            "The same where results are turned, some at a time: these times both stay in a large second cache, "
            "of which a smaller one has half."
        ),
        machine="Zen 5, one thread",
        how=(
            "2026-11-23, against 64 of both: 100 random contractions of 0.2 to 6 GFLOP take 0.93 of the time "
            "where that matters, 120 smaller ones 0.94, 250 convolutions 0.98; 256 are no better"
        ),
    )
    most_step: int = fitted(
        8,
        "elements",
        "How far apart neighbouring columns may read for a panel that holds what lies between them, too.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    least_products: int = fitted(
        1 << 16,
        "multiply-adds",
        "So few, in registers, do not pay for a tile of their own: a microsecond.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    overlaps: int = fitted(
        8,
        "times the overlap",
        (
            "How much longer than its overlap with the next one a tile should be where both compute that part "
            "of a contraction."
        ),
        machine="one core; processor not recorded",
        how=(
            "2026-11-21, with poolings that take the rows of the convolution before them: 0.19 ms, before 0.92; "
            "how the number was found: not recorded"
        ),
    )
    tall_side: int = fitted(
        512,
        "rows",
        ("Side of a tile whose panel is packed only because its steps lie far apart: it should serve more rows."),
        machine="two threads; processor not recorded",
        how=(
            "2026-11-22, with whole panels: 1024^3 takes 7 % less, 512 x 1024 x 1024 9 %, nothing of twelve shapes more"
        ),
    )
    narrow_side: int = fitted(
        128,
        "columns",
        "Columns of such a tile at most: what is packed for all of it should stay in the second cache.",
        machine="Zen 5",
        how="2026-11-22: with 1 MiB of second cache 128 columns are best",
    )
    bytes_of_a_column: int = fitted(
        8 << 10,
        "bytes of the second cache",
        "What each column of such a tile gets.",
        machine="Zen 3, Zen 5",
        how=(
            "2026-11-22: with 512 KiB tiles of 64 columns are up to 1.16 times as fast as those of 128 (512^3 "
            "takes 0.88 of the time), which are best with 1 MiB"
        ),
    )
    near_panel: float = fitted(
        1 / 2,
        "of the nearest cache",
        (
            "What a panel of more columns may take, where the steps are few: the longer the rows of results, "
            "the better they are written."
        ),
        machine="Zen 3, one thread",
        how=(
            "2026-11-23: 8 to 32 steps, 600 to 4,096 rows and columns: 1.07 to 1.5 times as fast as tiles of 64 columns"
        ),
    )
    together: int = fitted(
        16,
        "columns, or results",
        "What a tile should have side by side: a line of floats.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    panel_rows: int = fitted(
        128,
        "rows",
        "Rows for which a panel should be packed once, if there are so many.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    rows_of_sums: int = fitted(
        32,
        "rows",
        "Rows of a tile of dot products at most.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    columns_of_sums: int = fitted(
        64,
        "columns",
        "Columns of a tile of dot products at most.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


CONTRACTION_TILES = ContractionTiles()
