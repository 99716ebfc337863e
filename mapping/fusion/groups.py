"""Pass: tile each group and put its clusters, in the sunk form, inside the tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import islpy as isl

from tcomp.mapping.fusion.fusion import Tiling, form_groups
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import sunk_form
from tcomp.mapping.plan.tree import Band, Mark, Sequence, Subtree, plant
from tcomp.mapping.plan.values import Cluster, Footprint, Group, Plan
from tcomp.mapping.tiles.expand import expand, tile_rows
from tcomp.model.scop import Scop, union_set


def fuse(tiling: Tiling, plan: Plan, options: MappingOptions) -> Plan:
    """Fuse clusters by footprint: one band of tiles for each group, its clusters one after another below."""
    groups, notes = form_groups(tiling, plan, options)
    scop, clusters = expand(plan.scop, plan.clusters, groups)
    groups = tuple(replace(g, clusters=tuple(c for c in g.clusters if clusters[c].statements)) for g in groups)
    placed = replace(plan, scop=scop, clusters=clusters, groups=groups, notes=(*plan.notes, *notes))
    return replace(placed, tree=group_tree(placed, lambda cluster, _: sunk_form(scop, cluster)))


def group_tree(plan: Plan, subtree: Callable[[Cluster, Footprint], Subtree]) -> isl.Schedule:
    """The schedule of all groups, with ``subtree`` for each cluster below the tiles.

    The mark "parallel<n>" stands above the tiles of group n, "group<n>" below them.
    """
    children = tuple(
        (_instances(plan.scop, plan.clusters, group.clusters), _tiles(plan, number, group, subtree))
        for number, group in enumerate(plan.groups)
    )
    return plant(plan.scop.domain, Sequence(children))


def _instances(scop: Scop, clusters: tuple[Cluster, ...], chosen: Iterable[int]) -> isl.UnionSet:
    return union_set([scop.by_name[s].domain for c in chosen for s in clusters[c].statements])


def _tiles(plan: Plan, number: int, group: Group, subtree: Callable[[Cluster, Footprint], Subtree]) -> Subtree:
    children = tuple(
        (_instances(plan.scop, plan.clusters, (c,)), subtree(plan.clusters[c], group.footprints[c]))
        for c in group.clusters
    )
    below = Mark(f"group{number}", Sequence(children))
    if not group.members:
        return below
    band = isl.UnionMap("{ }")
    for c in group.clusters:
        band = band.union(tile_rows(plan.scop, plan.clusters[c], group.footprints[c], group.sizes))
    return Mark(f"parallel{number}", Band(band, len(group.members), below))
