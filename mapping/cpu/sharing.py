"""Pass: share long reductions between the threads of a CPU.

A sum over all elements of a tensor has one result, so its tiles give threads nothing to share.  Its steps do: every
part of them is reduced by a thread, as on a GPU by a block (``tiles/splitting.py``).
"""

from __future__ import annotations

import math

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.mapping.contraction.columns import columns_of
from tcomp.mapping.cpu.strips import split_by_rows
from tcomp.mapping.cpu.tiles import tile_sizes
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpusharing import SHARING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Cluster, Plan
from tcomp.mapping.tiles.footprint import coordinate_set
from tcomp.mapping.tiles.scanparts import LongScan, in_parts_of
from tcomp.mapping.tiles.scans import scanned_position
from tcomp.mapping.tiles.sizes import lane_position, main_statement, reduction_positions, runs_in_long_rows
from tcomp.mapping.tiles.splitting import is_part, split_clusters
from tcomp.model.scop import Scop
from tcomp.model.terms.unions import extents


def share_reductions(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Split the reductions whose tiles are few, however many threads there are: results must not depend on that.

    Cumulative ones, which are summed twice in parts, stay whole where only one thread may run them.
    """
    if options.counts_loops:
        return plan
    if options.parallel:
        plan = in_parts_of(plan, steps_of_scan)
    plan = split_by_rows(machine, plan, options)
    return split_clusters(plan, lambda scop, cluster: parts_of(machine, scop, cluster, options))


def parts_of(machine: Machine, scop: Scop, cluster: Cluster, options: MappingOptions) -> int:
    """Into how many parts the reduction of a cluster is split."""
    statement = main_statement(scop, cluster)
    positions = reduction_positions(cluster, statement)
    if (
        statement.kind != "update"
        or not statement.plain
        or is_part(statement)
        or not positions
        or ranges_of(statement.value)
        or columns_of(scop, cluster, machine.vector_bytes) is not None
    ):
        return 1
    sizes = statement.extents
    whole = extents(coordinate_set(scop, cluster))
    steps = math.prod(sizes[p] for p in positions)
    if math.prod(whole) * steps < SHARING.least_work:
        return 1
    if scanned_position(scop, statement) is not None:
        return 1
    tile = tile_sizes(machine, scop, cluster, tuple(range(cluster.rank)), options)
    tiles = math.prod(-(-extent // size) for extent, size in zip(whole, tile, strict=True))
    least, most = SHARING.least_steps, -(-SHARING.tiles // tiles)
    if tiles < SHARING.tiles and _runs_along_rows(machine, scop, cluster, tile):
        least = max(SHARING.least_rows, min(least, SHARING.least_part // math.prod(whole)))
        most = SHARING.most_parts
    return max(1, min(most, steps // least, max(sizes[p] for p in positions)))


def steps_of_scan(scan: LongScan) -> int:
    """Steps of the parts in which a cumulative reduction with few rows is shared out; 0 leaves it whole."""
    if scan.rows >= SHARING.tiles or scan.rows * scan.length < SHARING.least_work:
        return 0
    return min(SHARING.scan_part, -(-scan.rows * scan.length // SHARING.tiles))


def _runs_along_rows(machine: Machine, scop: Scop, cluster: Cluster, tile: tuple[int, ...]) -> bool:
    """Whether elements in tiles of these sizes run as rows, each step adding one to a row of results."""
    statement = main_statement(scop, cluster)
    vector, coordinates = lane_position(scop, statement), cluster.coordinates[statement.name]
    if vector is None or vector not in coordinates:
        return False
    return runs_in_long_rows(machine, scop, cluster, vector, tile[coordinates.index(vector)])
