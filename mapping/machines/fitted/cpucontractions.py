"""Register tiles of contractions on a CPU: their sizes, and which index runs along their columns."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, THAT_DAY, fitted

_CONVOLUTIONS = (
    "2026-11-23: fitted to 421 random convolutions, most with strides; what is chosen takes 1.6 % "
    "longer than the better columns in the geometric mean, on 308 others, too"
)


@dataclass(frozen=True, eq=False, repr=False)
class RegisterTiles:
    """What a step of a register tile costs, and how large it may be."""

    latency: int = fitted(
        4,
        "cycles",
        "From one multiply-add to the next on the same register.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    spare: int = fitted(
        1,
        "cycles",
        (
            "What a register tile should have to spare beside the latency: eight accumulators, which would just "
            "hide it, are slower than twelve."
        ),
        machine="Zen 3",
        how="2026-11-22, with AVX2: products of 128^3 to 1024^3, which had run at half of OpenBLAS's speed",
    )
    ports: int = fitted(
        2,
        "instructions a cycle",
        "Multiply-adds, and loads, that begin in a cycle.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    straddling: int = fitted(
        4,
        "loads",
        "What a vector costs that straddles two lines of the cache.",
        machine=THAT_DAY,
        how=("2026-11-21, with where vectors come from: a product of 97 by 97 and contractions of TCCG twice as fast"),
    )
    broadcast: float = fitted(
        1.5,
        "loads",
        "What one element for all lanes costs where that is an instruction of its own.",
        machine="a processor with AVX2",
        how=(
            "2026-11-22, so that no tile has thirteen rows of one vector: batched products of 26 x 72 x 26 take "
            "0.65 of the time"
        ),
    )
    pointer: float = fitted(
        1.5,
        "loads",
        "What it costs to find out where a row is, where both operands are vectors.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-27: 14 depthwise convolutions, each in 13 register tiles, beside other work: 3 rows of four "
            "vectors are best, 7 of two and 2 of seven take 1.02 to 1.05 of the time, one of eight 1.06, 12 of one 1.5"
        ),
    )
    most_pointers: int = fitted(
        7,
        "pointers",
        "Those to rows that stay in registers beside what loops need.",
        machine="Zen 3, two threads",
        how="as pointer; with 10 of them gcc 12 keeps some in memory, also on AVX-512",
    )
    many_registers: int = fitted(
        32,
        "vector registers",
        "Processors with so many multiply by an element of memory, or by a lane, and broadcast nothing.",
        machine="a processor with AVX2",
        how="2026-11-22, as broadcast",
    )
    far_bytes: int = fitted(
        16,
        "bytes a cycle",
        (
            "What the second cache gives behind multiply-adds. Its nominal bandwidth is four times that, but "
            "with more vectors a step than that products took twice as long. Where nothing of a panel stays "
            "nearer, lines count whole."
        ),
        machine="not recorded; of lines: Zen 3",
        how=(
            "2026-11-21: TCCG twice as fast; 2026-11-22: 24 columns of floats, a line and a half, took 1.2 "
            "times as long as 16"
        ),
    )
    nearest_share: float = fitted(
        3 / 4,
        "of the nearest cache",
        "What the lines of a panel may take and stay while rows pass by.",
        machine="Zen 3",
        how="2026-11-22, with AVX2: products of 128^3 to 1024^3",
    )
    crowded: float = fitted(
        2.6,
        "cycles",
        "What an element of a row costs that comes from the second cache, since lines of rows throw each other out.",
        machine="Zen 4, two threads",
        how=(
            "2026-11-27: 196 x 1024 x 256 takes 0.57 ms with 14 rows of two vectors and 0.45 with 7 of three; with "
            "1040 steps 14 rows take 0.46"
        ),
    )
    plain: float = fitted(
        9.0,
        "cycles a product",
        "A product in loops of its own, in which each accumulator goes through memory.",
        machine="Zen 3",
        how="2026-11-23: columns that are left over; a 3x3 convolution 33 wide went from 20 to 65 GFLOP/s",
    )
    most_rows: int = fitted(
        14,
        "rows",
        "Rows of a register tile that are tried at most.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    most_vectors: int = fitted(
        8,
        "vectors",
        "Vectors of a row that are tried at most.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    strip: float = fitted(
        8.0,
        "cycles a step",
        "What columns of a register tile cost once for all rows where they come from far away: long runs come best.",
        machine="Granite Rapids, one thread",
        how="2026-11-26: as few_rows of BLOCKS; with 0 the least of 14 ratios is 0.55, with 8 1.0, with 16 0.89",
    )
    edge_cost: float = fitted(
        1.01,
        "times the cycles",
        "What an edge of its own kind costs, since it is more code.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


REGISTER_TILES = RegisterTiles()


@dataclass(frozen=True, eq=False, repr=False)
class LaneSums:
    """Register tiles of dot products, whose lanes run along the reduction."""

    least_lanes: int = fitted(
        16,
        "steps",
        "Steps of the reduction from which on lanes are worth adding up.",
        machine=THAT_DAY,
        how=(
            "2026-11-22, with these tiles as a whole: 8x1024x1024 takes 0.09 ms, before 0.35; how the number "
            "was found: not recorded"
        ),
    )
    most_columns: int = fitted(
        8,
        "columns, or rows",
        "Sides of a register tile at most.",
        machine=THAT_DAY,
        how="as least_lanes",
    )
    load: float = fitted(
        0.25,
        "multiply-adds",
        "What a load costs that others hide: between tiles that take as long, the one with fewer wins.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


LANE_SUMS = LaneSums()


@dataclass(frozen=True, eq=False, repr=False)
class Turning:
    """Tiles of pointwise statements whose transposed operand is turned in registers."""

    least_side: int = fitted(
        16,
        "elements",
        "Extent from which on a side of a tile is turned in vectors.",
        machine=THAT_DAY,
        how=(
            "2026-11-21, with turning as a whole: X + Y^T of 1024^2 takes 0.26 ms, before 3.7; how the number "
            "was found: not recorded"
        ),
    )
    lanes: int = fitted(
        256,
        "elements",
        "Side of a tile along the lanes: long enough for streaming stores.",
        machine=THAT_DAY,
        how=(
            "as least_side; transposes on one Zen 3 thread take 0.8 to 0.95 of the time with 512 x 128 (two "
            "threads and Zen 5 unmeasured)"
        ),
    )
    run: int = fitted(
        64,
        "elements",
        "Side of a tile along the operand: long enough for whole lines of the cache.",
        machine=THAT_DAY,
        how="as lanes",
    )


TURNING = Turning()


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """Which index runs along the columns of a register tile: costs of a step, against one multiply-add of vectors."""

    load: float = fitted(
        0.25,
        "multiply-adds",
        "A load of a vector.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    packed: float = fitted(
        4.0,
        "multiply-adds",
        "Packing a vector.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    stepped: float = fitted(
        32.0,
        "multiply-adds",
        (
            "Packing a vector whose lanes lie apart, for each step from one to the next: all between them is "
            "packed, and serves the steps of the reduction that read there. Counted only where several rows use "
            "what is packed: for one, dot products would seem better."
        ),
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    crossed: float = fitted(
        1.0,
        "multiply-adds a lane",
        "Packing a vector across its lines.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    scattered: float = fitted(
        64.0,
        "multiply-adds",
        "Packing a vector whose lanes all lie in lines of their own.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    summed: float = fitted(
        8.0,
        "multiply-adds",
        "Adding up the lanes of a vector.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    turned: float = fitted(
        3.0,
        "multiply-adds a lane",
        "Storing results apart.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    near: int = fitted(
        1 << 20,
        "bytes",
        (
            "A tensor so large or smaller has panels that stay from tile to tile, or are packed again from a "
            "near cache. From far away all of a panel comes again for the rows of each tile."
        ),
        machine="Zen 5",
        how=(
            "2026-11-23: without that charge five contractions of TCCG (33 GFLOP, results turned, as ijkl-imkn- "
            "njml) took three times as long; charging near panels, too, made convolutions 7 to 10 % slower"
        ),
    )
    padded_rows: int = fitted(
        16,
        "rows",
        "Rows from which on columns are packed only because they fill no vector.",
        machine=NOT_RECORDED,
        how="2026-11-23: products with 5, 6 or 7 columns take 0.7 to 0.8 of the time (4096 x 512 x 5: 0.75)",
    )
    sums: float = fitted(
        1.38,
        "multiply-adds",
        "A step of dot products in register tiles.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    lanes_added: float = fitted(
        28.0,
        "multiply-adds",
        "Adding up the lanes of each sum, beside which results that lie apart are stored so.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    summed_each: float = fitted(
        32.0,
        "multiply-adds",
        "Adding up the lanes of a run of steps within a sum, which begins and ends for itself.",
        machine="Zen 3",
        how=(
            "2026-11-23: uqvpt,suvrt->vpqrs, 12 steps at a time, ran at 8 GFLOP/s, in columns at 54; strided "
            "depthwise 7x7 convolutions take a third of the time"
        ),
    )
    alone: float = fitted(
        0.5,
        "multiply-adds",
        "What a step costs more with one vector, for which each row is broadcast alone.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    beside: float = fitted(
        1.1,
        "times the cost",
        "Accumulators go through memory before their results are turned.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )
    both_beside: float = fitted(
        1.4,
        "times the cost",
        "The same where both operands run along the columns, too.",
        machine="Zen 3, one thread",
        how=_CONVOLUTIONS,
    )


COLUMNS = Columns()
