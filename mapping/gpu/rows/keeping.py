"""Pass: rows that several clusters of a group read are read once, and kept in the registers of their threads."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.fusion.groups import group_tree
from tcomp.mapping.fusion.keeping import can_keep, copy_of, kept
from tcomp.mapping.gpu.rows.dealing import rows_of_threads
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import sunk_form
from tcomp.mapping.plan.values import Cluster, Footprint, Group, Plan
from tcomp.mapping.tiles.expand import tile_rows
from tcomp.model.terms.unions import maps_of, storage_of


def keep_rows(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Fill a temporary with what several statements of a group read of rows that threads share."""
    done = plan
    for number, group in enumerate(plan.groups):
        if len(group.clusters) < 2 or rows_of_threads(gpu, plan, group, options) is None:
            continue
        for storage, readers in _read_again(plan, group).items():
            done = _with_copy(done, number, storage, readers) or done
    if done is plan:
        return plan
    return replace(done, tree=group_tree(done, lambda cluster, _: sunk_form(done.scop, cluster)))


def _read_again(plan: Plan, group: Group) -> dict[str, tuple[str, ...]]:
    """Inputs that statements of several clusters of a group read, along rows, with these statements."""
    found: dict[str, list[tuple[int, str]]] = {}
    rank = max(len(plan.scop.by_name[s].indices) for c in group.clusters for s in plan.clusters[c].statements)
    for number in group.clusters:
        for name in plan.clusters[number].statements:
            reads = [e for e in walk(plan.scop.by_name[name].value) if isinstance(e, Read)]
            for storage in dict.fromkeys(e.tensor for e in reads if len(e.subscripts) == rank):
                if plan.scop.storages[storage].role == "input":
                    found.setdefault(storage, []).append((number, name))
    return {
        storage: tuple(name for _, name in users) for storage, users in found.items() if len({c for c, _ in users}) > 1
    }


def _with_copy(plan: Plan, number: int, storage: str, readers: tuple[str, ...]) -> Plan | None:
    """The plan with a cluster that fills the temporary, in front of its readers; None where it has no tile."""
    group = plan.groups[number]
    if not all(can_keep(scop, storage, readers) for scop in (plan.program, plan.scop)):
        return None
    tiles = _tiles(plan, group, storage, readers)
    if tiles is None:
        return None
    program, scop = (kept(s, storage, readers) for s in (plan.program, plan.scop))
    name = copy_of(next(s.name for s in plan.scop.statements if s.name in readers))
    own = Cluster(len(plan.clusters), (name,), {name: tuple(range(len(scop.by_name[name].indices)))})
    place = min(group.clusters.index(c) for c in group.clusters if {*plan.clusters[c].statements} & {*readers})
    clusters = (*group.clusters[:place], own.number, *group.clusters[place:])
    footprints = {**group.footprints, own.number: Footprint(tiles, True, 1.0, ())}
    changed = replace(group, clusters=clusters, footprints=footprints)
    groups = tuple(changed if g is group else g for g in plan.groups)
    done = (*plan.kept, (storage, readers))
    return replace(plan, program=program, scop=scop, clusters=(*plan.clusters, own), groups=groups, kept=done)


def _tiles(plan: Plan, group: Group, storage: str, readers: tuple[str, ...]) -> isl.Map | None:
    """Tile to what is read there of a storage, if no other tile reads it, and every reader the same."""
    found: isl.Map | None = None
    for number in group.clusters:
        cluster, footprint = plan.clusters[number], group.footprints[number]
        own = [s for s in cluster.statements if s in readers]
        if own and not footprint.partition:
            return None
        rows = maps_of(tile_rows(plan.scop, cluster, footprint, group.sizes_of(number))) if own else []
        tile_of = {m.get_tuple_name(isl.dim_type.in_): m for m in rows}
        for name in own:
            statement = plan.scop.by_name[name]
            for access in (r for r in statement.reads if storage_of(r) == storage):
                tiles = tile_of[name].intersect_domain(statement.domain).reverse().apply_range(access)
                tiles = tiles.reset_tuple_id(isl.dim_type.out).coalesce()
                if found is not None and not tiles.is_equal(found):
                    return None
                found = tiles
    return found if found is not None and found.reverse().is_single_valued() else None
