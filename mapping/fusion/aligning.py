"""Tiles of what combines parts of sums, like those that leave the parts."""

from __future__ import annotations

from collections.abc import Container, Mapping

import islpy as isl

from tcomp.mapping.fusion.tiling import Tiling
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Cluster, Group
from tcomp.model.scop import Scop


def sizes_like_parts(
    tiling: Tiling,
    scop: Scop,
    clusters: tuple[Cluster, ...],
    needs: Mapping[tuple[int, int], isl.Map],
    storages: Container[str],
    options: MappingOptions,
    group: Group,
    parts: Group,
) -> tuple[int, ...] | None:
    """The sizes of tiles of a group's root that read of each part what one tile of ``parts`` leaves.

    None if the root reads none of the ``storages`` of what parts leave.  ``needs`` are the coordinates of a producer
    that those of a consumer read.
    """
    need = needs.get((group.root, parts.root))
    left = (scop.by_name[s].target for s in clusters[parts.root].statements)
    if need is None or not any(storage in storages for storage in left):
        return None
    cluster, own = clusters[group.root], dict(zip(parts.members, parts.sizes, strict=True))
    sizes = [*tiling.sizes(scop, cluster, tuple(range(cluster.rank)), options)]
    for d in range(len(sizes)):
        same = [own[e] for e in own if need.is_subset(_equal(need, d, e))]
        sizes[d] = same[0] if same else sizes[d]
    return tuple(sizes)


def _equal(like: isl.Map, source: int, target: int) -> isl.Map:
    """The pairs in the space of a map of which two coordinates are the same."""
    return isl.Map.universe(like.get_space()).equate(isl.dim_type.in_, source, isl.dim_type.out, target)
