"""Tiles of blocks of steps, and rows of theirs that are computed together."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import fitted

_SHAPES = (
    "2026-11-28, two threads beside other work, least of 16 calls. jacobi-2d, 1300 x 1300, 40 steps, milliseconds by"
    " rows x columns: 57 x 229 29.4, 32 x 64 29.2, 40 x 50 31.4, 26 x 80 32.8; gcc on one thread 104. heat-3d, 120^3,"
    " 30 steps: 18 x 7 43.6, 20 x 8 44.7, 16 x 8 50.4, 18 x 10 47.1, 8 x 8 59.3; gcc 111"
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
    registers_kept: int = fitted(
        4,
        "vector registers",
        "Left for what is computed; others hold what rows share.",
        machine="none",
        how="counted: a value, a product, and two operands from memory on their way",
    )


TIME_TILING = TimeTiling()
