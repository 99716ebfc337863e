"""What layers of networks cost by each algorithm and layout, by which one of these is chosen for each."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import fitted

_XEON = "Granite Rapids Xeon, two cores"
_ZEN = "Zen 4, two cores"
_SECOND = (
    "2026-11-26: convolutions of 16 to 512 channels, images of 7x7 to 224x224; within a factor of 1.6 of what they take"
)
_LAST = "2026-11-26: layers of MobileNet and ResNet-50, each alone"
_PRUNED = "2026-11-27: layers of ResNet-50 and BERT with 50 to 99 of 100 weights at random zero, beside other work"


@dataclass(frozen=True, eq=False, repr=False)
class Layers:
    """Cycles, bytes and shares of the peak; of two numbers the second is for images with channels innermost."""

    units: int = fitted(
        2,
        "vectors a cycle",
        "Vectors of products that are added.",
        machine=_ZEN,
        how=_SECOND,
    )
    memory_bytes: float = fitted(
        7.0,
        "bytes a cycle",
        "What all cores together read from memory: weights are read once a call, and do not stay near.",
        machine=_ZEN,
        how=_SECOND,
    )
    kernel: float = fitted(
        10_000.0,
        "cycles",
        "Between the start of a kernel and its first product: threads begin, and wait for each other at the end.",
        machine=_ZEN,
        how=_SECOND,
    )
    near_bytes: float = fitted(
        28.0,
        "bytes a cycle",
        "What all cores read and write where it lies near.",
        machine=_XEON,
        how=_LAST,
    )
    turned_bytes: tuple[float, float] = fitted(
        (8.0, 13.0),
        "bytes a cycle",
        "The same where an image is turned back, and where its channels come innermost.",
        machine=_XEON,
        how=_LAST,
    )
    point: tuple[float, float] = fitted(
        (0.82, 0.93),
        "of the peak",
        "What convolutions by one pixel reach.",
        machine=_XEON,
        how=_LAST,
    )
    strided_point: float = fitted(
        1.5,
        "times as long",
        "Those with strides, channels second.",
        machine=_XEON,
        how=_LAST,
    )
    window: tuple[float, float] = fitted(
        (0.75, 0.6),
        "of the peak",
        "What convolutions by windows reach with channels second, without strides and with them.",
        machine=_XEON,
        how=_LAST,
    )
    window_last: tuple[float, float, float, float] = fitted(
        (0.85, 0.85, 0.85, 0.8),
        "of the peak",
        "The same with channels innermost, and both again for long sums.",
        machine=_XEON,
        how=_LAST,
    )
    long: int = fitted(
        640,
        "products",
        "More than so many are a long sum.",
        machine=_XEON,
        how=_LAST,
    )
    product: tuple[float, float] = fitted(
        (0.78, 0.83),
        "of the peak",
        "What the products of Winograd's algorithm reach.",
        machine=_XEON,
        how=_LAST,
    )
    integers: tuple[float, float] = fitted(
        (3.0, 8.0),
        "times as fast",
        "Products of bytes against those of floats, with matrix registers; half of that without.",
        machine="Emerald Rapids Xeon, two cores",
        how="2026-11-26: layers of MobileNet and ResNet-50 in bytes, each alone",
    )
    transform: tuple[float, float] = fitted(
        (1.0, 0.5),
        "of the cycles below",
        "Transforms of images, and of results, with channels second.",
        machine=_ZEN,
        how=_SECOND,
    )
    transform_side: float = fitted(
        0.32,
        "cycles",
        "For an element of a transformed tile and each pixel of its side.",
        machine=_ZEN,
        how=_SECOND,
    )
    transform_row: float = fitted(
        10.0,
        "cycles",
        "For an element, shared by all tiles of a row.",
        machine=_ZEN,
        how=_SECOND,
    )
    transform_far: float = fitted(
        1.5,
        "cycles",
        "For an element where the tiles do not stay in the second cache.",
        machine=_ZEN,
        how=_SECOND,
    )
    transform_last: tuple[float, float] = fitted(
        (0.58, 0.22),
        "cycles",
        "With channels innermost, for an element and each pixel of a tile's side: images, and results.",
        machine=_XEON,
        how=_LAST,
    )
    depthwise: tuple[float, float] = fitted(
        (1.26, 4.3),
        "cycles",
        "For an element of a convolution of each channel by itself, nine products: without strides, and with them.",
        machine=_XEON,
        how=_LAST,
    )
    depthwise_last: tuple[float, float] = fitted(
        (1.2, 1.9),
        "cycles",
        "The same with channels innermost.",
        machine=_XEON,
        how=_LAST,
    )
    pruned: float = fitted(
        0.33,
        "of the peak",
        "What is reached where only weights that are not zero are multiplied, each by neighbouring pixels or rows.",
        machine=_ZEN,
        how=_PRUNED,
    )
    least_zeros: float = fitted(
        0.4,
        "of the elements",
        "Weights with so many zeros are asked whether these pay.",
        machine=_ZEN,
        how=_PRUNED,
    )
    looked_at: int = fitted(
        500,
        "elements",
        "Of each weight so many, evenly drawn, tell whether zeros are counted at all.",
        machine=_ZEN,
        how="not measured: the share of zeros is right to about 0.02 then",
    )
    turned_rows: int = fitted(
        8,
        "rows",
        "Products of so many rows turn them, so that they are neighbours.",
        machine=_ZEN,
        how=_PRUNED,
    )
    pruned_blocks: tuple[float, float] = fitted(
        (0.25, 0.42),
        "of the peak",
        "The same of rows times weights of which blocks of 16 and of 32 rows are zero.",
        machine=_ZEN,
        how=_PRUNED,
    )
    gathered: float = fitted(
        2.0,
        "cycles",
        "For a weight that is not zero and a row whose elements are gathered.",
        machine=_ZEN,
        how=_PRUNED,
    )
    gathered_row: float = fitted(
        20.0,
        "cycles",
        "For each sum of these.",
        machine=_ZEN,
        how=_PRUNED,
    )
    pool: tuple[float, float] = fitted(
        (9.5, 4.2),
        "cycles",
        "For an element of the maximum of nine.",
        machine=_XEON,
        how=_LAST,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Points:
    """Which convolutions by one pixel are products of matrices."""

    most_pixels: int = fitted(
        28 * 28,
        "pixels",
        "Results of so many are.",
        machine=_ZEN,
        how="2026-11-26: this text takes 0.76 to 1.0 of the time of one with windows at 7x7, 14x14 and 28x28 with 32 "
        "to 960 channels; at 56x56 and 112x112 with 16 to 32 channels 1.3 to 1.7",
    )
    least_channels: int = fitted(
        64,
        "channels",
        "So are those of images with so many.",
        machine=_ZEN,
        how="as most_pixels: at 56x56 with 64 to 256 channels",
    )


@dataclass(frozen=True, eq=False, repr=False)
class Kept:
    """Which networks keep the panels of their weights in the cache on disk."""

    least_bytes: int = fitted(
        1 << 20,
        "bytes",
        "Those whose weights take so many.",
        machine="Zen 3, two cores",
        how="not measured: less is packed in a millisecond or two, and a file takes a fifth of one",
    )
    part_bytes: int = fitted(
        32 << 20,
        "bytes",
        "Panels that lie in one file, if they are more than one: what two threads share.",
        machine="Zen 3, two cores",
        how="not measured: 20 to 30 ms of reading, so that a thread seldom waits for Python's lock",
    )


KEPT = Kept()
LAYERS = Layers()
POINTS = Points()
