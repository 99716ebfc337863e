"""Pass: split the long reductions whose elements are too few to keep all multiprocessors busy."""

from __future__ import annotations

import functools
import math

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.mapping.gpu.atoms import atom_of
from tcomp.mapping.gpu.dealing import Sides, sides_of
from tcomp.mapping.gpu.model import Work, parts_of_contraction
from tcomp.mapping.gpu.turns.keys import of_shared_keys
from tcomp.mapping.machines.fitted.gpu import DEALING
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Cluster, Plan
from tcomp.mapping.tiles.scanparts import LongScan, in_parts_of
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions
from tcomp.mapping.tiles.splitting import PART_MULTIPLE, split_clusters
from tcomp.model.scop import Scop


def split_reductions(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Split the reductions that would leave multiprocessors idle, or all into as many parts as the user says."""
    turning = {s for r in plan.rescaled for s in r.inside}
    known = {s.name for s in plan.scop.statements}
    plan = in_parts_of(plan, functools.partial(steps_of_scan, options))
    # What came with parts is in parts already.
    whole = turning | of_shared_keys(plan) | ({s.name for s in plan.scop.statements} - known)

    def parts(scop: Scop, cluster: Cluster) -> int:
        return 1 if whole.issuperset(cluster.statements) else parts_of(gpu, scop, cluster, options)

    return split_clusters(plan, parts, apart=True)


def steps_of_scan(options: MappingOptions, scan: LongScan) -> int:
    """Steps of the parts of a cumulative reduction; 0 leaves it whole.

    A thread sums the steps of its element, so parts have about as many elements as there are parts.
    """
    if options.split_reduction is not None:
        return -(-scan.length // options.split_reduction)
    if scan.length < DEALING.scan_length:
        return 0
    return -(-math.isqrt(scan.length - 1) // PART_MULTIPLE) * PART_MULTIPLE


def parts_of(gpu: Gpu, scop: Scop, cluster: Cluster, options: MappingOptions) -> int:
    """Into how many parts the reduction of a cluster is split."""
    statement = main_statement(scop, cluster)
    positions = reduction_positions(cluster, statement)
    if statement.kind != "update" or not statement.plain or not positions or statement.domain.is_empty():
        return 1
    if ranges_of(statement.value):
        return 1
    sizes = statement.extents
    longest = max(sizes[p] for p in positions)
    if options.split_reduction is not None:
        return min(options.split_reduction, longest)
    steps = math.prod(sizes[p] for p in positions)
    elements = math.prod(sizes[p] for p in cluster.coordinates[statement.name])
    sides = sides_of(scop, cluster)
    if sides is not None:
        most = min(longest, steps // DEALING.contraction_part_steps)
        atom = atom_of(gpu, scop, statement, options)
        parts = parts_of_contraction(gpu, _work(scop, cluster, sides, steps), most, atom)
        if atom is not None:
            # Warps multiply matrices over whole numbers of steps, which each part then has.
            return next(p for p in range(parts, 0, -1) if p == 1 or longest % (p * PART_MULTIPLE) == 0)
        return parts
    if elements * steps < DEALING.part_work or 2 * elements > gpu.multiprocessors:
        return 1
    return max(1, min(gpu.multiprocessors // elements, steps // DEALING.part_steps, longest))


def _work(scop: Scop, cluster: Cluster, sides: Sides, steps: int) -> Work:
    statement = main_statement(scop, cluster)
    sizes, positions = statement.extents, cluster.coordinates[statement.name]
    rows, columns = (math.prod(sizes[positions[d]] for d in side) for side in (sides.rows, sides.columns))
    elements = math.prod(sizes[p] for p in positions)
    return Work(elements // (rows * columns), rows, columns, steps, scop.storages[statement.target].dtype.itemsize)
