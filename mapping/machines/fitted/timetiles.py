"""Tiles of blocks of steps, and rows of theirs that are computed together."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import fitted

_SHAPES = (
    "2026-11-28, two threads beside other work, least of 16 calls. jacobi-2d, 1300 x 1300, 40 steps, milliseconds by"
    " rows x columns: 57 x 229 29.4, 32 x 64 29.2, 40 x 50 31.4, 26 x 80 32.8; gcc on one thread 104. heat-3d, 120^3,"
    " 30 steps: 18 x 7 43.6, 20 x 8 44.7, 16 x 8 50.4, 18 x 10 47.1, 8 x 8 59.3; gcc 111"
)


_MOVES = (
    "2026-11-29, two threads beside other work, by turns, least of 40, time in lanes of that step by step, at rows a"
    " lane computed for one moved. In the nearest cache: jacobi-1d, doubles, 0.25 1.5 to 1.6, 0.62 1.2 to 1.3, 1.25"
    " 0.96 to 1.06, floats, 0.62 1.40, 1.56 1.17, 1.79 1.06; with one more tensor to read, 0.2 1.84, 1.0 1.21, 1.33"
    " 1.03, and neighbours 4 away, 0.33 2.17, 0.67 1.94. Not in it: jacobi-1d, doubles, 0.25 1.2 to 1.5, 0.38 0.98 to"
    " 1.10, 0.62 0.77 to 0.82, floats, 0.62 1.29, 2.08 0.59; one tensor more, 0.2 1.16, 0.5 1.03, 1.0 0.59; neighbours"
    " 4 away, 0.2 2.4, 0.5 1.12, 0.67 0.93; three steps kept, 0.07 3.0, 0.18 1.37, 0.36 0.96"
)


_SWEEPS = (
    "2026-11-29, beside much other work. seidel-2d by hand, 2000 x 2000 doubles, 24 steps, least of 5, ns of the"
    " processor an update, with one, two and three vectors: a slack of 1 0.88, 0.63, 0.61; of 3 0.69, 0.68, 0.65;"
    " 400 x 400: 0.98, 0.92, 1.00; 0.82, 1.09, 1.32; tiles of 64 and of 128 rows 0.630 and 0.614. Compiled, by turns"
    " with wavefronts, least of 25 calls, ms of the processor: 36 x 36, 50 steps, 0.1 and 0.1, 64 x 64 0.2 and 0.4,"
    " 400 x 400 5.9 and 14.0; floats, 64 x 64 0.2 and 0.4, 1000 x 1000, 40 steps, 16.9 and 44.9"
)


@dataclass(frozen=True, eq=False, repr=False)
class TimeTiling:
    """What tiles over time look like."""

    columns_in_line: float = fitted(
        4.0,
        "columns a row",
        "Of a tile whose columns are neighbours in memory: they make long rows, which run in vectors.",
        machine="Zen 3",
        how=_SHAPES,
    )
    columns_of_rows: float = fitted(
        0.13,
        "columns a row",
        "Of a tile each of whose columns is a row of memory itself: with more rows, more steps run in a tile, and three"
        " planes of few columns stay in the nearest cache.",
        machine="Zen 3",
        how=(
            "2026-11-29, two threads beside other work, one process by turns, lower quartile of 25, heat-3d, 120^3, 60"
            " steps, milliseconds by rows x columns: 18 x 7 62.7, 20 x 4 56.1, 30 x 4 52.4; least of 12: 20 x 8 59.5,"
            " 30 x 8 57.9, 30 x 6 53.0, 30 x 2 64.0, 59 x 4 51.8"
        ),
    )
    rows_at_once: int = fitted(
        4,
        "rows",
        "Computed together in vectors, at most: what they read of each other's rows is loaded once. With more, tiles"
        " end in more rows that are left over.",
        machine="Zen 3, one thread",
        how=(
            "2026-11-28, jacobi-2d in the nearest cache, ns a vector of 4 doubles with 1, 2 and 4 rows at once: 1.02,"
            " 0.88, 0.80; in the second one 1.23, 1.14, 1.06"
        ),
    )
    rows_in_lanes: int = fitted(
        100,
        "rows",
        "Of a tile in a lane of vectors, at least: with fewer, loops that begin and end take longer than their rows.",
        machine="Zen 3",
        how=(
            "2026-11-29, quiet, jacobi-1d of as many doubles, 200 steps, least of many calls, microseconds in lanes and"
            " step by step: 250 (62 rows) 22.9, 19.5; 500 (125) 31, 36; 800 46, 56; 1200 (on two threads from here)"
            " 50, 82; 1600 45, 108"
        ),
    )
    rows_for_a_move: float = fitted(
        1.3,
        "rows a lane",
        "That tiles in lanes compute at least for each row that they bring there or back, where the block stays in the"
        " nearest cache: step by step, rows lie as vectors already.",
        machine="Zen 3, two threads",
        how=_MOVES,
    )
    far_rows_for_a_move: float = fitted(
        0.5,
        "rows a lane",
        "The same, where the block does not stay there, so that each step waits for the second cache.",
        machine="Zen 3, two threads",
        how=_MOVES,
    )
    vectors_of_rows: int = fitted(
        6,
        "vectors",
        "Of rows beside each other that run all steps of a block together, at most: a division waits less for the one"
        " of the step before, and values stay in registers.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-29, quiet, C by hand, adi, 1000 x 1000, 50 steps, both passes of a strip one after the other, ms"
            " with 2, 4, 6 and 8 vectors: 100, 95, 62, 60; strips as this compiler makes them, passes apart, 6 vectors"
            " 102, step by step 162"
        ),
    )
    near_strips: float = fitted(
        0.5,
        "of the last cache",
        "Tensors that take more leave it: rows that are affine are then scans one after another, where sums may be"
        " reordered, as many rows beside each other wait for memory longer than one does.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-29, beside other work, in turn: 49 x 20000 doubles 1.76 ms beside each other and 0.76 as scans, 48"
            " rows 0.90 and 0.49; the number itself was chosen, not measured"
        ),
    )
    strip_of_columns: float = fitted(
        1.0,
        "of the nearest cache",
        "What columns that run all steps of a block together take of all of its rows.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-29, quiet, rows of U of ludcmp, 2000 x 2000 doubles, blocks of 64 rows, C text changed by hand, ms"
            " with 32, 64, 128 and 256 columns: 7.7, 7.0, 7.4, 8.9; all columns step by step 10.9"
        ),
    )
    columns_of_slack: int = fitted(
        1,
        "columns",
        "That a sweep lags behind the one before it beyond what it needs: with none it waits for that.",
        machine="Zen 3, one thread",
        how=_SWEEPS,
    )
    vectors_of_sweeps: int = fitted(
        2,
        "vectors",
        "Of sweeps that run at the same time: with one, each element waits for the one beside it.",
        machine="Zen 3, one thread",
        how=_SWEEPS,
    )
    tiles_of_sweeps: int = fitted(
        8,
        "tiles a thread",
        "Of a front of sweeps: with fewer, threads wait for each other, with more, tiles move to lanes more often.",
        machine="Zen 3, two threads",
        how=_SWEEPS,
    )
    rows_of_sweeps: int = fitted(
        32,
        "rows",
        "Of a tile of sweeps that threads share, at least: bringing it to lanes and back takes as long as some rows.",
        machine="Zen 3, two threads",
        how=_SWEEPS + ". 120 x 120, 50 steps, in tiles of 8 rows: 0.7 ms of the processor, along wavefronts 0.6",
    )
    narrowest_sweep: int = fitted(
        32,
        "rows or columns",
        "Of sweeps in lanes, at least: with fewer, most of what lanes compute is outside.",
        machine="Zen 3, one thread",
        how=_SWEEPS,
    )
    registers_kept: int = fitted(
        4,
        "vector registers",
        "Left for what is computed; others hold what rows share.",
        machine="none",
        how="counted: a value, a product, and two operands from memory on their way",
    )


TIME_TILING = TimeTiling()
