"""Panels on a CPU: when operands of a contraction are brought together, and how steps of a reduction come in blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, THAT_DAY, fitted

_FETCHED_AHEAD = "2026-11-22: rows of 256 bytes a page apart; copying was 9 % of 1024^3, and is 6 %"
_PACKING = (
    "2026-11-21, with packing as a whole: 1024^3 2.1 times as fast, TCCG's abcd-aebf-dfce 25 times, one "
    "core; how the number was found: not recorded"
)


@dataclass(frozen=True, eq=False, repr=False)
class Packing:
    """When operands of a contraction are packed."""

    least_reuse: int = fitted(
        8,
        "multiply-adds an element",
        "Use of a panel from which on packing it pays.",
        machine=THAT_DAY,
        how=_PACKING,
    )
    least_reuse_apart: int = fitted(
        1,
        "multiply-adds an element",
        "The same where columns that lie apart, or a boundary, would stop the vectors.",
        machine=THAT_DAY,
        how=(
            "2026-11-21, with packing of strided columns as a whole: a 7x7 convolution of stride 2 to 112^2 in "
            "1.14 ms, 8 to 16 times as fast; how the number was found: not recorded"
        ),
    )
    least_panel: int = fitted(
        32 * 1024,
        "bytes",
        "A smaller panel stays in the first cache however it lies.",
        machine=THAT_DAY,
        how=_PACKING,
    )
    most_panel: int = fitted(
        2 * 1024 * 1024,
        "bytes",
        "A larger panel is not worth a copy.",
        machine=THAT_DAY,
        how=_PACKING,
    )
    least_apart: int = fitted(
        16 * 1024,
        "bytes",
        "As least_panel, for one whose steps each lie far from the one before.",
        machine="Zen 3",
        how="2026-11-22: products of 200 rows with 2000x2000 take 0.8 of the time",
    )
    copied_again: float = fitted(
        4.0,
        "times",
        (
            "Blocks of a reduction that copy so many times what a tile reads with a border have it copied once for "
            "the tile, though it does not stay in the second cache."
        ),
        machine="Zen 3, two threads",
        how=(
            "2026-11-28: of 14 convolutions by 3x3 to 7x7 with a border, channels innermost, 8 change, to "
            "1/1.10 to 1/1.87 of the time (nine taps copy some 7 times as much); where the limit lies: not measured"
        ),
    )
    most_needed: int = fitted(
        16 * 1024 * 1024,
        "bytes",
        "As most_panel, for a panel without which there would be no vectors.",
        machine=THAT_DAY,
        how=(
            "2026-11-21, small images with a border: 3x3 on 512x7x7 from 0.76 to 1.8 of torch, one thread; how "
            "the number was found: not recorded"
        ),
    )
    most_ahead: int = fitted(
        2,
        "times the size of the array",
        "What the panels of a bound array may take, beside one panel, to be packed ahead.",
        machine="none",
        how="2026-11-25: panels overlap where windows do; weights never do, and nothing else was tried",
    )
    kept_share: float = fitted(
        0.5,
        "of a thread's share of the last cache",
        "So much may all boxes of a tile's panels take that a thread keeps for the tiles that follow.",
        machine="Zen 3 (second caches of 512 KiB, 32 MiB shared by two threads), two threads",
        how=(
            "2026-11-29: attention of 12 x 2048 x 64 (0.5 MiB a thread) takes 0.94 of the time, of 12 x 512 0.86, of "
            "1 x 16384 (4 MiB) 0.97; where the limit lies: not measured"
        ),
    )
    least_colliding: int = fitted(
        4 * 1024,
        "bytes",
        "As least_panel, for one whose elements throw each other out of the cache.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


PACKING = Packing()


@dataclass(frozen=True, eq=False, repr=False)
class GroupedPanels:
    """Copies of narrow elements, several steps of the reduction together, for instructions that add products."""

    most_copied: int = fitted(
        2 * 1024 * 1024,
        "bytes",
        "What the copies of a contraction may take together.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    period: int = fitted(
        512,
        "bytes",
        (
            "Rows a multiple of this long would share a few sets of the first cache with their neighbours: a "
            "line is added."
        ),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    most_sums: int = fitted(
        8,
        "vectors",
        "Sums that are added up at a time.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


GROUPED_PANELS = GroupedPanels()


@dataclass(frozen=True, eq=False, repr=False)
class DotTiles:
    """Tiles of products of narrow elements."""

    most_columns: int = fitted(
        256,
        "columns",
        "Columns of a tile at most.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    least_rows: int = fitted(
        64,
        "rows",
        "Rows that a tile may have however long the reduction is.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    other_bytes: int = fitted(
        512 * 1024,
        "bytes",
        "What the packed rows of a tile should occupy at most: half of a second cache of 1 MiB.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    least_products: int = fitted(
        1 << 17,
        "groups of products",
        "So few do not pay for a tile of their own.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    panel_cost: float = fitted(
        8.0,
        "rows of products",
        "What packing an element of a panel takes.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    other_cost: float = fitted(
        4.0,
        "columns of products",
        "What packing an element of the other operand takes.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    most_packing: float = fitted(
        0.06,
        "of the time",
        ("Packing that takes so much or more makes tiles no smaller, unless threads would have nothing to do."),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


DOT_TILES = DotTiles()


@dataclass(frozen=True, eq=False, repr=False)
class Blocks:
    """How many steps of a reduction run before the next rows."""

    panel_share: float = fitted(
        4 / 3,
        "of the nearest cache",
        "The panel of a block: it is read in order, which hides the second cache.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    slack: float = fitted(
        2.0,
        "blocks",
        (
            "How much longer than a block a reduction may be that runs in one: loading and storing the "
            "accumulators once more costs a little, too."
        ),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    packed_share: float = fitted(
        2 / 3,
        "of the nearest cache",
        "As panel_share, where the rows are packed block by block.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    packed_slack: float = fitted(
        1.1,
        "blocks",
        "As slack, where the rows are packed block by block.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    few_sets: int = fitted(
        4,
        "sets of the nearest cache",
        "Steps a page apart that fall into so few throw each other out.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    streamed_steps: int = fitted(
        12,
        "steps",
        (
            "Steps of a block whose panel is read once or twice from far away: as many rows of memory as the "
            "processor fetches ahead of."
        ),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    streamed_rows: int = fitted(
        2,
        "register tiles",
        "How often a panel is read that counts as read once or twice.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    far: int = fitted(
        16,
        "times the nearest cache",
        "Operands so large come from far away.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    line_steps: int = fitted(
        16,
        "steps",
        (
            "Steps along which an operand is contiguous that belong into a block together, so that lines are "
            "fetched once."
        ),
        machine=NOT_RECORDED,
        how=(
            "2026-11-21, with TCCG; 2026-11-23: fewer were worse in the mean (0.97 to 2.4 for nine random "
            "programs, 0.56 for TCCG's T23, 1.4 for T28)"
        ),
    )
    few_rows: int = fitted(
        48,
        "rows",
        "Up to so many read a panel from far away as it lies, if it then stays in the nearest cache.",
        machine="Granite Rapids, one thread",
        how=(
            "2026-11-26: of 24 random 1x1 convolutions of 8 to 256 channels to 4 to 64 filters 14 change, to 1/1.23 of "
            "the time; written in C, 128 rows are faster with a copy, 48 without"
        ),
    )
    few_vectors: int = fitted(
        4,
        "vectors",
        "Columns of a panel that should stay there, and a line beside them.",
        machine="Granite Rapids, one thread",
        how="as few_rows; 256 steps, which do not stay, take up to 1.7 times as long without a copy",
    )
    many_steps: int = fitted(
        16,
        "steps",
        (
            "Steps of a loop that are worth bringing together if each lies far from the one before, though a "
            "loop within does not."
        ),
        machine=NOT_RECORDED,
        how="2026-11-22: convolutions of 64 or 128 channels take up to an eighth less time",
    )
    near_rows: float = fitted(
        1 / 4,
        "of the second cache",
        (
            "What the rows of a tile may read in a block of steps that lie apart; not with a large second "
            "cache, where accumulators that go through memory cost more."
        ),
        machine="Zen 3; Zen 5",
        how=(
            "2026-11-28, Zen 3, of the time with a quarter of the nearest cache, on one thread and two: six strided "
            "convolutions with 8 to 24 filters 0.84 to 1.08, twelve products of transposed matrices 0.67 "
            "to 1.13, 0.95 and 0.97 in the mean; MLP-Mixer's along patches 0.91. On Zen 5 all steps at once take 0.80 "
            "to 1.03 of the time, transposed matrices 0.85 to 0.93"
        ),
    )
    least_block: int = fitted(
        24,
        "steps",
        "Steps that lie apart of a block at least.",
        machine="Zen 3, one thread",
        how="as near_rows",
    )
    panel_vectors: int = fitted(
        2,
        "vectors",
        "Vectors of a row of the common register tile.",
        machine="Zen 5, two threads",
        how="as many_rows",
    )
    many_rows: int = fitted(
        256,
        "rows",
        "Rows from which on it pays to pack what the common register tile reads from the second cache.",
        machine="Zen 5, two threads",
        how="2026-11-23: 512^3 takes 0.95 of the time, 640^3 to 896^3 0.97 to 1; with 100 rows 1.03 to 1.09",
    )
    near_share: float = fitted(
        1 / 3,
        "of the nearest cache",
        "What the panel of a whole tile may take and stay while rows pass by.",
        machine=THAT_DAY,
        how=(
            "2026-11-21, short reductions row by row: products of depth 1 to 8 with a million results take a "
            "seventh to a third of the time"
        ),
    )
    middle_share: float = fitted(
        1 / 2,
        "of the second cache",
        "The same in the second cache.",
        machine="two threads; processor not recorded",
        how="2026-11-22: 1024^3 takes 7 % less, 512 x 1024 x 1024 9 %, nothing of twelve shapes more",
    )


BLOCKS = Blocks()


@dataclass(frozen=True, eq=False, repr=False)
class PanelCopies:
    """How rows are fetched ahead that are copied into panels; copying then takes two thirds of the time."""

    ahead: int = fitted(
        8,
        "rows",
        "Rows of a panel that are fetched before they are copied.",
        machine="Zen 3",
        how=_FETCHED_AHEAD,
    )
    edged_row: int = fitted(
        256,
        "bytes",
        "How long rows are of which only what lies outside of the tensor is set before they are copied.",
        machine="Granite Rapids",
        how="2026-11-26: channels of a pixel, which are outside together; shorter rows were not tried",
    )
    far_row: int = fitted(
        1024,
        "bytes",
        "How far rows lie apart for that to pay: a quarter of a page.",
        machine="Zen 3",
        how=_FETCHED_AHEAD,
    )
    long_row: int = fitted(
        1024,
        "bytes",
        "How long rows are at most: longer ones the processor fetches ahead by itself.",
        machine="Zen 3",
        how=_FETCHED_AHEAD,
    )


PANEL_COPIES = PanelCopies()
