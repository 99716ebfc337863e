"""What the fusion of clusters asks of a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.fusion.nesting import Nesting
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Cluster, Footprint, Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.scop import Scop


@dataclass(frozen=True, slots=True)
class Tiling:
    """What a target asks of tiles.

    ``sizes`` chooses the tile sizes for those coordinates of a root that its tile loops run over; the intermediates of
    one tile may take ``tile_bytes``; shrinking the grid must leave ``parallel_instances`` independent outer instances,
    or all that there were.  ``packs`` names the storages of which a cluster packs panels.  A cluster of
    ``shared_instances`` or more keeps its own tiles where those of its consumers are few.  ``starves`` says whether a
    cluster takes longer in tiles of a consumer, of some extents, than in its own with its results in memory, and
    ``overflows`` whether tiles of some members, with their sizes, keep nothing in a cache for those that share them.
    Where it ``prepares`` operands, what is only that is not computed anew in the tiles of a contraction.  ``rereads``
    says whether tiles of a contraction, of some extents, are too low for what each reads of its other operand.
    ``leaves`` lets a cluster join some of its consumers.  What two clusters of a tile read from memory is read once
    where it takes no more than ``kept_bytes``; ``fewer_rows`` makes tiles smaller for that.  ``nesting`` lets groups
    share loops.  ``alike`` has pairs of a root and a cluster that may run in its tiles though it hands nothing to it:
    which coordinates of the two read the same.
    """

    sizes: Callable[[Scop, Cluster, tuple[int, ...], MappingOptions], tuple[int, ...]]
    tile_bytes: int
    parallel_instances: int
    packs: Callable[[Scop, Cluster], frozenset[str]] = lambda scop, cluster: frozenset()
    shared_instances: int | None = None
    starves: Callable[[Scop, Cluster, tuple[int, ...]], bool] = lambda scop, cluster, box: False
    overflows: Callable[[Scop, Cluster, tuple[int, ...], tuple[int, ...]], bool] = lambda *_: False
    prepares: bool = False
    rereads: Callable[[Scop, Cluster, tuple[int, ...]], bool] = lambda scop, cluster, box: False
    leaves: bool = False
    kept_bytes: int | None = None
    nesting: Nesting | None = None
    alike: Callable[[Plan, MappingOptions], Mapping[tuple[int, int], isl.Map]] = lambda *_: {}
    fewer_rows: Callable[[Scop, Cluster, tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None] = lambda *_: None


def halved(sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The sizes with the largest halved; None if all are 1."""
    if not sizes or max(sizes) <= 1:
        return None
    largest = max(range(len(sizes)), key=lambda d: sizes[d])
    return (*sizes[:largest], (sizes[largest] + 1) // 2, *sizes[largest + 1 :])


def extents_of_tile(footprint: Footprint) -> tuple[int, ...]:
    """How many coordinates of a cluster there are in a tile."""
    return tuple(max(1, extent) for extent in box_hull(footprint.tiles).shape)


def worst(footprints: Mapping[int, Footprint]) -> float:
    """The largest recompute ratio."""
    return max(f.ratio for f in footprints.values())
