"""Pass: tile each group and put its clusters, in the sunk form, inside the tiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace

import islpy as isl

from tcomp.mapping.fusion.fusion import Fuser
from tcomp.mapping.fusion.nesting import Nests, points_of_tiles
from tcomp.mapping.fusion.order import in_order
from tcomp.mapping.fusion.tiling import Tiling
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import sunk_form
from tcomp.mapping.plan.tree import Band, Mark, Sequence, Subtree, plant
from tcomp.mapping.plan.values import Cluster, Footprint, Group, Plan
from tcomp.mapping.tiles.expand import expand, tile_rows
from tcomp.model.scop import Scop
from tcomp.model.terms.unions import maps_of, union_map, union_set

Formed = Callable[[Plan], tuple[Group, ...]]
"""Groups that a target forms in its own way."""

Inside = Callable[[Group, list[tuple[isl.UnionSet, Subtree]]], list[tuple[isl.UnionSet, Subtree]]]
"""What runs in a tile of a group one after another, made of its clusters."""


def fuse(tiling: Tiling, plan: Plan, options: MappingOptions, formed: Formed = lambda _: ()) -> Plan:
    """Fuse clusters by footprint: one band of tiles for each group, its clusters one after another below.

    Some groups may be ``formed`` beforehand.
    """
    groups, notes = form_groups(tiling, plan, options, formed(plan))
    scop, clusters = expand(plan.scop, plan.clusters, groups)
    groups = tuple(replace(g, clusters=tuple(c for c in g.clusters if clusters[c].statements)) for g in groups)
    placed = replace(plan, scop=scop, clusters=clusters, groups=groups, notes=(*plan.notes, *notes))
    return replace(placed, tree=group_tree(placed, lambda cluster, _: sunk_form(scop, cluster)))


def group_tree(
    plan: Plan, subtree: Callable[[Cluster, Footprint], Subtree], inside: Inside = lambda _, children: children
) -> isl.Schedule:
    """The schedule of all groups, with ``subtree`` for each cluster below the tiles, or what ``inside`` makes of them.

    The mark "parallel<n>" stands above the tiles of group n, "group<n>" below them.  Where groups from n on share
    loops, "parallel<n>" stands above these, and "nest<n>" below them.  "turn<n>" stands below the loop over turns.
    """
    nests = tuple(_nest(plan, nest, subtree, inside) for nest in plan.nests)
    return plant(plan.scop.domain, Sequence(nests))


def _instances(scop: Scop, clusters: tuple[Cluster, ...], chosen: Iterable[int]) -> isl.UnionSet:
    return union_set([scop.by_name[s].domain for c in chosen for s in clusters[c].statements])


def _nest(
    plan: Plan, nest: range, subtree: Callable[[Cluster, Footprint], Subtree], inside: Inside
) -> tuple[isl.UnionSet, Subtree]:
    """The loops of a group, or those of several with what they share outside."""
    groups = [plan.groups[number] for number in nest]
    shared = groups[-1].shared
    tiles = [_tiles(plan, number, plan.groups[number], shared, subtree, inside) for number in nest]
    own = [_instances(plan.scop, plan.clusters, group.clusters) for group in groups]
    domain = functools.reduce(isl.UnionSet.union, own)
    if not shared:
        (only,), (group,) = tiles, groups
        return domain, only if not group.members else Mark(f"parallel{nest[0]}", only)
    band = union_map([rows for group in groups for rows in maps_of(_points(plan, group, shared))])
    below = Mark(f"nest{nest[0]}", Sequence(tuple(zip(own, tiles, strict=True))))
    return domain, Mark(f"parallel{nest[0]}", Band(band, shared, below))


def _tiles(
    plan: Plan, number: int, group: Group, shared: int, subtree: Callable[[Cluster, Footprint], Subtree], inside: Inside
) -> Subtree:
    """The loops over the tiles of a group that it has for itself, and what is in a tile."""
    children = [
        (_instances(plan.scop, plan.clusters, (c,)), subtree(plan.clusters[c], group.footprints[c]))
        for c in group.clusters
    ]
    children = inside(group, children)
    if group.turns:
        together = Sequence(tuple(children[: len(group.turns)]))
        turn = union_map([r for c in group.turns for r in maps_of(_turn(plan, group, c))])
        domain = _instances(plan.scop, plan.clusters, group.turns)
        children[: len(group.turns)] = [(domain, Band(turn, 0, Mark(f"turn{number}", together)))]
    below = Mark(f"group{number}", Sequence(tuple(children)))
    own = range(0 if group.together else shared, len(group.members))
    return Band(_rows(plan, group, own), len(own), below) if own else below


def _turn(plan: Plan, group: Group, cluster: int) -> isl.UnionMap:
    """Instance to turn, for a cluster that runs in turns."""
    band = tile_rows(plan.scop, plan.clusters[cluster], group.footprints[cluster], group.sizes_of(cluster))
    return union_map([m.project_out(isl.dim_type.out, 0, len(group.members)) for m in maps_of(band)])


def _points(plan: Plan, group: Group, shared: int) -> isl.UnionMap:
    """Instance to point of the loops that a group shares."""
    tiles = _rows(plan, group, range(shared))
    if not group.together:
        return tiles
    return tiles.apply_range(isl.UnionMap.from_map(points_of_tiles(group.together)))


def _rows(plan: Plan, group: Group, members: range) -> isl.UnionMap:
    """Instance to tile, along some members of the loops over tiles."""
    band = isl.UnionMap("{ }")
    for c in group.clusters:
        rows = tile_rows(plan.scop, plan.clusters[c], group.footprints[c], group.sizes_of(c))
        if c in group.turns:
            rows = union_map([m.project_out(isl.dim_type.out, len(group.members), 1) for m in maps_of(rows)])
        band = band.union(rows)
    if len(members) == len(group.members):
        return band
    behind = len(group.members) - members.stop
    return union_map(
        [
            m.project_out(isl.dim_type.out, members.stop, behind).project_out(isl.dim_type.out, 0, members.start)
            for m in maps_of(band)
        ]
    )


def form_groups(
    tiling: Tiling, plan: Plan, options: MappingOptions, formed: tuple[Group, ...] = ()
) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """All groups in execution order, each cluster in exactly one; and why clusters that could have joined did not.

    Those ``formed`` beforehand are among them.
    """
    fuser = Fuser(tiling, plan, options)
    found = [*formed]
    free = {c.number for c in plan.clusters} - {c for group in found for c in group.clusters}
    for root in sorted({root for root, _ in fuser.alike}, reverse=True):
        group = fuser.grow(root, free, found) if root in free else None
        if group is not None and any((root, c) in fuser.alike for c in group.clusters):
            found.append(group)
            free -= {*group.clusters}
    while free:
        group = fuser.grow(max(free), free, found)
        found.append(group)
        free -= {*group.clusters}
    if tiling.nesting is None or options.fusion_strategy == "min":
        return tuple(in_order(found, fuser.successors)), tuple(fuser.notes)
    if fuser.families:
        found = [fuser.regrown(group, found) for group in found]
    nests = Nests(tiling.nesting, plan.scop, plan.clusters, fuser.needs, fuser.conflicts, fuser.families)
    return nests.arranged(found, fuser.successors), tuple(fuser.notes)
