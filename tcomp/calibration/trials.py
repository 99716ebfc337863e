"""Which numbers are fitted anew, in which order, and by which programs.

Left out is what no single program shows, what results depend on to the bit, and what is there for the compiler's sake.
"""

from __future__ import annotations

from dataclasses import dataclass

FACTORS = (0.5, 2.0)
"""Parts and multiples of a number that are tried, one after the other as long as one gains."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A number by its full name, and the programs that it should change."""

    number: str
    programs: tuple[str, ...]


_PRODUCTS = ("product", "odd product", "turned product", "mlp")
_DEEP = (*_PRODUCTS, "deep product", "convolution")

TRIALS: tuple[Trial, ...] = (
    Trial("cpusharing.SHARING.tiles", (*_DEEP, "sum")),
    Trial("cpupanels.BLOCKS.panel_share", _DEEP),
    Trial("cpupanels.BLOCKS.slack", _DEEP),
    Trial("cputiles.CACHES.large_middle", ("product", "strided convolution", "mlp")),
    Trial("cputiles.CACHES.last_share", ("large sum",)),
    Trial("cputext.THREADS.parallel_instances", ("sum", "columns")),
    Trial("cputext.THREADS.chunk_instances", ("softmax", "norm", "transpose")),
    Trial("cputext.THREADS.chunks", ("sum", "columns")),
    Trial("cputiles.CONTRACTION_TILES.side", ("product",)),
    Trial("cputiles.CONTRACTION_TILES.turned_side", ("strided convolution",)),
    Trial("cputiles.CONTRACTION_TILES.panel_rows", ("turned product", "strided convolution")),
    Trial("cputiles.CONTRACTION_TILES.least_products", ("small product", "mlp")),
    Trial("cpucontractions.COLUMNS.beside", (*_DEEP, "strided convolution")),
    Trial("cpucontractions.COLUMNS.sums", ("turned product",)),
    Trial("cpufusion.FUSION.panel_share", ("mlp",)),
    Trial("cpufusion.FUSION.tile_bytes", ("blur",)),
    Trial("cpufusion.INLINING.division", ("norm",)),
    Trial("cputiles.CACHES.far_stride_if_large", ("mlp",)),
    Trial("cputiles.ROWS.pointwise_elements", ("large sum", "blur")),
    Trial("cputiles.ROWS.pointwise_vector_tile", ("large sum",)),
    Trial("cputiles.ROWS.pointwise_rows", ("large sum",)),
    Trial("cputext.VECTOR_ROWS.least_lines", ("large sum",)),
    Trial("cputiles.ROWS.reduction_vector_tile", ("columns",)),
    Trial("cputiles.VECTORS.row_vectors", ("columns",)),
    Trial("cputiles.VECTORS.rows_of_a_block", ("columns",)),
    Trial("cpucontractions.TURNING.lanes", ("transpose",)),
    Trial("cpucontractions.TURNING.run", ("transpose",)),
)
"""In the order in which they are tried: what matters to most programs first."""
