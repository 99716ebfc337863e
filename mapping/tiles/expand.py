"""Rewrite the Scop of a fused plan so that each instance belongs to exactly one tile.

A producer whose instances several tiles need becomes an *expanded statement*: the tile stands in front of its indices,
and what it writes is a copy of its own per tile.  A producer whose instances each belong to one tile keeps its indices;
instances that no tile needs are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from tcomp.mapping.plan.tree import rows
from tcomp.mapping.plan.values import Cluster, Footprint, Group
from tcomp.mapping.tiles.footprint import coordinate_map
from tcomp.model.accesses import prune_reads
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.remembered import remembered
from tcomp.model.terms.unions import map_from_text


def expand(scop: Scop, clusters: tuple[Cluster, ...], groups: tuple[Group, ...]) -> tuple[Scop, tuple[Cluster, ...]]:
    """The expanded program and its clusters, without statements of which no tile needs an instance."""
    statements: dict[str, ScopStatement] = dict(scop.by_name)
    rewritten = list(clusters)
    for group in groups:
        copies = _tile_copies(scop, clusters, group)
        for number in group.clusters:
            footprint = group.footprints[number]
            for name in clusters[number].statements:
                placement = _place(clusters[number], scop.by_name[name], footprint)
                statements[name] = placed(scop, scop.by_name[name], placement, copies)
            if number in group.expanded:
                rewritten[number] = _shifted(clusters[number], len(group.members))
    order = tuple(statements[s.name] for s in scop.statements if not statements[s.name].domain.is_empty())
    running = {s.name for s in order}
    kept = tuple(replace(c, statements=tuple(s for s in c.statements if s in running)) for c in rewritten)
    return Scop(scop.storages, order, scop.sizes, around=scop.around), kept


def _tile_copies(scop: Scop, clusters: tuple[Cluster, ...], group: Group) -> set[str]:
    """Storages of which every tile of the group has its own copy."""
    return {scop.by_name[s].target for number in group.expanded for s in clusters[number].statements}


def _shifted(cluster: Cluster, by: int) -> Cluster:
    return replace(cluster, coordinates={s: tuple(p + by for p in c) for s, c in cluster.coordinates.items()})


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where a statement runs: its ``domain``, with ``tile_rank`` dimensions of a tile in front, and its tiles."""

    domain: isl.Set
    tile_of: isl.Map
    tile_rank: int


def _place(cluster: Cluster, statement: ScopStatement, footprint: Footprint) -> Placement:
    own = isl.Map.from_union_map(
        rows([(statement, cluster.coordinates[statement.name])]).intersect_domain(
            isl.UnionSet.from_set(statement.domain)
        )
    )
    tile_to_instance = footprint.tiles.apply_range(own.reverse())
    if footprint.partition:
        tile_of = tile_to_instance.reverse()
        domain = statement.domain
        needed = tile_of.domain()
        if not domain.is_subset(needed):
            domain = domain.intersect(needed).compute_divs().coalesce()
        return Placement(domain, tile_of, 0)
    members = footprint.tiles.dim(isl.dim_type.in_)
    domain = tile_to_instance.wrap().flatten().set_tuple_name(statement.name)
    return Placement(domain, _tile_of(domain, members), members)


def placed(scop: Scop, statement: ScopStatement, placement: Placement, copies: set[str]) -> ScopStatement:
    """The statement where it runs, reading and writing the tile's own copy of what is in ``copies``."""
    domain, tile_of, members = placement.domain, placement.tile_of, placement.tile_rank
    if members:
        back = _instance_of(domain, statement, members)
        moved = replace(
            statement,
            domain=domain,
            indices=(*(f"tile {d}" for d in range(members)), *statement.indices),
            write=_with_tile(back.apply_range(statement.write), tile_of, copies),
            reads=tuple(_with_tile(back.apply_range(r), tile_of, copies) for r in statement.reads),
            tile_rank=members,
        )
    else:
        moved = replace(
            statement,
            domain=domain,
            write=_with_tile(statement.write, tile_of, copies).intersect_domain(domain),
            reads=tuple(_with_tile(r, tile_of, copies).intersect_domain(domain) for r in statement.reads),
        )
    value, reads = prune_reads(moved.value, moved.reads, scop.temporaries)
    return replace(moved, value=value, reads=reads)


def _instance_of(domain: isl.Set, statement: ScopStatement, members: int) -> isl.Map:
    """Expanded instance to original instance."""
    names = [f"i{d}" for d in range(members + len(statement.indices))]
    text = f"{{ {statement.name}[{', '.join(names)}] -> {statement.name}[{', '.join(names[members:])}] }}"
    return isl.Map(text).intersect_domain(domain)


def _tile_of(domain: isl.Set, members: int) -> isl.Map:
    names = [f"i{d}" for d in range(domain.dim(isl.dim_type.set))]
    text = f"{{ {domain.get_tuple_name()}[{', '.join(names)}] -> [{', '.join(names[:members])}] }}"
    return isl.Map(text).intersect_domain(domain)


def _with_tile(access: isl.Map, tile_of: isl.Map, copies: set[str]) -> isl.Map:
    """The access with the tile in front of the element, for storages that every tile has its own copy of."""
    name = access.get_tuple_name(isl.dim_type.out)
    if name not in copies:
        return access
    return tile_of.flat_range_product(access).set_tuple_name(isl.dim_type.out, name)


def tile_rows(scop: Scop, cluster: Cluster, footprint: Footprint, sizes: tuple[int, ...]) -> isl.UnionMap:
    """Instance to tile for every statement of a placed cluster, as a partial schedule."""
    members = len(sizes)
    if not footprint.partition:
        return rows([(scop.by_name[s], tuple(range(members))) for s in cluster.statements])
    simple = _division_rows(footprint.tiles, cluster.rank, members, sizes)
    if simple is not None:
        parts = []
        for s in cluster.statements:
            positions = cluster.coordinates[s]
            parts.append((scop.by_name[s], [f"floor(i{positions[c]}/{size})" for c, size in simple]))
        return rows(parts)
    return coordinate_map(scop, cluster).apply_range(isl.UnionMap.from_map(footprint.tiles.reverse()))


def _division_rows(tiles: isl.Map, rank: int, members: int, sizes: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """For each member the coordinate whose division by the tile size is the tile, where there is one."""
    found = []
    for member in range(members):
        single = tiles.reverse().project_out(isl.dim_type.out, member + 1, members - member - 1)
        single = single.project_out(isl.dim_type.out, 0, member)
        coordinate = _divided(single, sizes[member])
        if coordinate is None:
            return None
        found.append((coordinate, sizes[member]))
    return found


@remembered
def _divided(single: isl.Map, size: int) -> int | None:
    """The input whose division by ``size`` is the output."""
    rank = single.dim(isl.dim_type.in_)
    inputs = ", ".join(f"i{d}" for d in range(rank))
    candidates = (map_from_text(f"{{ [{inputs}] -> [floor(i{d}/{size})] }}") for d in range(rank))
    return next((d for d, candidate in enumerate(candidates) if single.is_subset(candidate)), None)
