"""The C text of kernels: what threads fetch, how rows run in vectors, and what is unrolled."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, fitted

_NEXT_ROWS = (
    "2026-11-23: 37 layer norms, RMS norms and residual norms of 512 to 30,000 rows take 0.84 of the "
    "time, 24 softmax and log softmax 0.92; shorter rows and those beyond a third of the nearest cache "
    "are slower or no faster"
)
_SHORT_ROWS = (
    "2026-11-22, with groups of short rows as a whole: functions of such rows take a half to a tenth of "
    "the time; how the number was found: not recorded"
)

_PARTS = (
    "2026-11-29, 50 and 100 products of a matrix of 64 x 64 with a vector, each after the other (4,855 and 9,705 "
    "lines): gcc takes 1.0 and 2.4 s for them whole, 0.85 and 1.1 in parts of 4,000 lines, 0.53 and 0.75 of 2,000, "
    "0.25 and 0.41 of 500, 0.21 and 0.37 of 200; shorter texts were not measured"
)


@dataclass(frozen=True, eq=False, repr=False)
class Threads:
    """When threads share a loop over tiles, and in what portions."""

    parallel_instances: int = fitted(
        32768,
        "instances",
        "A group of fewer runs on one thread: waking the others costs more.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    atomic: int = fitted(
        8,
        "threads",
        "From so many on they meet in elements by atomic operations where the option allows it, unless as many elements"
        " lie side by side; fewer threads are slower than one.",
        machine="virtual Xeon, two threads",
        how=(
            "2026-11-26, a histogram of 2^20 floats in as many bins, beside other work: one thread takes 4.6 ms, two by"
            " atomic operations 13.8, which is six times as long for each value"
        ),
    )
    chunk_instances: int = fitted(
        32768,
        "instances",
        "What a thread fetches at a time, if there are enough: fetching takes some tens of them.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    chunks: int = fitted(
        8,
        "chunks a thread",
        "Chunks that there are at least, so that a thread which is slowed down can be made up for.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    ranged_tiles: int = fitted(
        256,
        "tiles",
        "Tiles of a reduction over ranges that data give: the work of each differs, and threads take them in turns.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )
    row_tiles: int = fitted(
        4096,
        "tiles",
        "The same where ranges are rows that follow one another: threads take pieces of them by their entries.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )
    row_entries: int = fitted(
        4,
        "entries",
        "What a row costs beside its entries, where these are shared out.",
        machine=NOT_RECORDED,
        how="chosen, not measured",
    )


THREADS = Threads()


@dataclass(frozen=True, eq=False, repr=False)
class Loops:
    """What is unrolled, and cut into pieces."""

    most_unrolled: int = fitted(
        16,
        "steps",
        "Steps of a loop that is unrolled.",
        machine="two threads; processor not recorded",
        how=(
            "2026-11-22, with eight rows side by side: 2048x4096 by a vector takes 0.24 ms, before 0.51; how "
            "the number was found: not recorded"
        ),
    )
    most_pieces: int = fitted(
        4,
        "copies of a body",
        "More cost more of the C compiler's time than they are worth.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


LOOPS = Loops()


@dataclass(frozen=True, eq=False, repr=False)
class VectorRows:
    """Rows in vectors."""

    accumulators: int = fitted(
        4,
        "vectors",
        "Accumulators of a reduction that take turns.  Results depend on it.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    most_folded_steps: int = fitted(
        256,
        "steps",
        "Steps of a reduction from which on folding its lanes no longer matters.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    sought: int = fitted(
        64,
        "steps",
        "Steps that are asked together whether one of them is the place of an extremum.",
        machine="virtual Xeon with AVX-512",
        how="2026-11-26: the first value that was tried; argmax of 512 x 10000 takes 0.5 of the time",
    )
    unrolled: int = fitted(
        16,
        "vectors",
        (
            "Rows of fewer vectors are unrolled. From there on it gained nothing, and the C compiler took half "
            "of its time over the rows of an attention's softmax."
        ),
        machine="Zen 3",
        how="2026-11-23: a third gained with one vector, 6 % with 8, 2 with 16",
    )
    block: int = fitted(
        64,
        "elements",
        ("Elements that are widened at a time at most: a few vectors, so that conversions overlap with the rest."),
        machine="one core; processor not recorded",
        how=(
            "2026-11-21, with widening in vectors as a whole: softmax of 300x1000 float16 takes 0.11 ms, before "
            "2.83; how the number was found: not recorded"
        ),
    )
    scanned: int = fitted(
        16,
        "vectors",
        "Terms of a cumulative reduction that are computed before they are combined: they stay in the nearest cache.",
        machine="Emerald Rapids",
        how="chosen, not measured",
    )
    least_lanes: int = fitted(
        4,
        "lanes",
        "Lanes of the shortest vectors that are worth a loop of their own.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    most_whole_vectors: int = fitted(
        4,
        "vectors",
        "So many in a row are written as vectors, which gcc takes as they are, and not as a loop.",
        machine="Zen 3",
        how="2026-11-28: cc1 takes 0.9 of the time for a perceptron with AVX2, kernels take as long",
    )
    most_short_vectors: int = fitted(
        2,
        "vectors",
        "Vectors that a row does not fill, for which it is worth the trouble to run rows in groups.",
        machine=NOT_RECORDED,
        how=_SHORT_ROWS,
    )
    spread: int = fitted(
        4,
        "operations",
        "What an element costs that is laid out for every row of a group.",
        machine=NOT_RECORDED,
        how=_SHORT_ROWS,
    )
    repeated: int = fitted(
        1,
        "operations",
        "What an element costs that is laid out once for a group.",
        machine=NOT_RECORDED,
        how=_SHORT_ROWS,
    )
    slow: int = fitted(
        8,
        "operations",
        "What a function costs.",
        machine=NOT_RECORDED,
        how=_SHORT_ROWS,
    )
    least_lines: int = fitted(
        8,
        "lines of the cache",
        "In rows of fewer the ragged ends cost more than streaming the rest saves.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


VECTOR_ROWS = VectorRows()


@dataclass(frozen=True, eq=False, repr=False)
class NextRows:
    """When the last reduction of a tile fetches the rows of the next one."""

    least_row: int = fitted(
        512,
        "bytes",
        "Bytes of a row at least.",
        machine="Zen 5, one thread",
        how=_NEXT_ROWS,
    )
    near_rows: float = fitted(
        1 / 3,
        "of the nearest cache",
        "What the rows of a tile take of a tensor at most.",
        machine="Zen 5, one thread",
        how=_NEXT_ROWS,
    )


NEXT_ROWS = NextRows()


_FETCHED = (
    "2026-11-25: exponentials of 512 rows of 10,000 take 0.62 of the time with 4 KiB, 0.72 with 1 KiB, 0.88 with 256 "
    "bytes; sums and products of one or two tensors 0.85 to 1.03, of three 0.98 to 1.15"
)


@dataclass(frozen=True, eq=False, repr=False)
class Fetched:
    """Inputs that a row of functions fetches ahead."""

    bytes: int = fitted(
        4096,
        "bytes",
        "How far ahead: beyond what out-of-order execution reaches, and beyond the page.",
        machine="Zen 4, two threads",
        how=_FETCHED,
    )
    most_reads: int = fitted(
        2,
        "reads",
        "With more, memory is busy all the time.",
        machine="Zen 4, two threads",
        how=_FETCHED,
    )
    block: int = fitted(
        64,
        "elements",
        "Elements between two orders to fetch, in rows that do not stream: a loop of vectors.",
        machine="Zen 4, two threads",
        how="2026-11-25: 128 are no faster",
    )


FETCHED = Fetched()


@dataclass(frozen=True, eq=False, repr=False)
class ResultLines:
    """When register tiles fetch the lines that they are going to write."""

    near_share: float = fitted(
        1.0,
        "of the nearest cache",
        "Results in so much memory are near anyway.",
        machine="Granite Rapids, one thread",
        how=(
            "chosen; 2026-11-26, with fetching as a whole: 35 random convolutions take 1/1.21 of the time, 17 "
            "contractions 1/1.35, the least 0.97, the most 7"
        ),
    )
    behind_share: float = fitted(
        1.0,
        "of the second cache",
        "What functions of elements behind a register tile read and write in so much memory is near anyway.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-28, kernels of networks, old and new in turn: sums with a residual in 1.6 to 6.4 MB take 0.88 to "
            "0.96 of the time; depthwise convolutions of 0.4 MB 1.1 to 1.5, convolutions by one pixel of 0.4 MB 1.03"
        ),
    )


RESULT_LINES = ResultLines()


@dataclass(frozen=True, eq=False, repr=False)
class NextBoxes:
    """When the steps of register tiles fetch the box of a panel packed ahead that is read next."""

    near_share: float = fitted(
        0.25,
        "of the second cache",
        "Panels that are not more than so much stay there.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-28, convolutions by one pixel whose panels come from beyond the second cache, of the time "
            "without: 4.2 MB 0.90, 1 MB 0.93, 0.5 MB 0.93, 0.26 MB 0.98, 0.13 MB 0.98, 66, 33 and 8 kB 1.00"
        ),
    )
    share_of_a_tile: float = fitted(
        4 / 3,
        "of the nearest cache",
        "What a tile reads and fetches in all steps, where the rows of the next one were read for other columns, too.",
        machine="Zen 3, two threads",
        how=(
            "2026-11-29, products of a temporary of doubles with itself, down its columns, of the time without: 40 to "
            "60 steps of a block 0.90 to 0.95, 150 0.94 to 0.95, 200 (50 KB) 1.09 to 1.19"
        ),
    )


NEXT_BOXES = NextBoxes()


@dataclass(frozen=True, eq=False, repr=False)
class Functions:
    """How long a function of C may be."""

    longest: int = fitted(
        2000,
        "lines",
        "A longer one is cut: compilers take time that grows as its square.",
        machine="virtual Zen 3, gcc",
        how=_PARTS,
    )
    part: int = fitted(
        500,
        "lines",
        "Nests beside each other that have so many lines together become a function.",
        machine="virtual Zen 3, gcc",
        how=_PARTS,
    )


FUNCTIONS = Functions()


@dataclass(frozen=True, eq=False, repr=False)
class LastTiles:
    """When the last register tile of a column is whole, and begins further back."""

    most_again: float = fitted(
        1 / 64,
        "of the rows",
        "What more rows run again takes longer than rows that are left, and saves compilers alone their text.",
        machine="Zen 3",
        how=(
            "2026-11-29, 13 kernels of a ResNet-50 of which up to 1/98 of the rows run again, old and new in turn: the "
            "whole network takes 1.001 of the time, each kernel 0.99 to 1.02; the number itself was chosen"
        ),
    )


LAST_TILES = LastTiles()
