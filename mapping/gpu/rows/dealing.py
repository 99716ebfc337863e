"""How rows that threads reduce together are dealt: in whole vectors, alike in every cluster of a group.

A step ``d`` of a row is element ``d % vector``, thread ``d / vector % threads``, round ``d / (vector * threads)``.
What one cluster leaves of a row another one finds in the same thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Expr, Read, depends_on_data, walk
from tcomp.mapping.gpu.dealing import form_of, power_of_two_below, usual_threads
from tcomp.mapping.machines.fitted.gpu import DEALING
from tcomp.mapping.machines.fitted.gpuloops import UNROLLING
from tcomp.mapping.machines.gpu import VECTOR_BYTES, WARP, Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Deal, Dealt, Share
from tcomp.mapping.plan.values import Cluster, Group, Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions, vector_position
from tcomp.mapping.tiles.strides import access_stride
from tcomp.model.scop import Scop, ScopStatement


@dataclass(frozen=True, slots=True)
class RowThreads:
    """So many ``threads`` have a row of ``steps``, ``vector`` neighbours at a time, and a tile has so many ``rows``."""

    rows: int
    threads: int
    vector: int
    steps: int

    @property
    def elements(self) -> int:
        """What one thread has of a row at most."""
        return -(-self.steps // (self.threads * self.vector)) * self.vector

    @property
    def shape(self) -> tuple[int, ...]:
        """The threads of a block, outermost first."""
        return (self.rows, self.threads) if self.rows > 1 else (self.threads,)

    def deal(self, scop: Scop, cluster: Cluster, box: tuple[int, ...]) -> Dealt:
        """How a cluster of the group, with a tile of extents ``box``, is dealt."""
        along, last = along_row(scop, cluster, box, self.steps), len(self.shape) - 1
        deals = tuple(
            Deal(extent, self.threads, self.vector, last)
            if d == along
            else Deal(extent, extent, 1, 0)
            if extent > 1
            else Deal(1, 1, 1, None)
            for d, extent in enumerate(box)
        )
        main = main_statement(scop, cluster)
        summed = reduction_positions(cluster, main) if main.kind == "update" and along is None else []
        if not summed:
            return Dealt("pointwise", deals, (), self.shape)
        (position,) = summed
        return Dealt("shared", deals, (Share(position, self.threads, last, self.vector),), self.shape)


def rows_of_threads(gpu: Gpu, plan: Plan, group: Group, options: MappingOptions) -> RowThreads | None:
    """How all clusters of a group deal rows; None where they are no rows of one length, or to be kept and too long."""
    if group.turns or options.threads is not None or not gpu.shuffles or not options.use_private_memory:
        return None
    lengths: set[int] = set()
    heights: set[int] = set()
    kept = False
    clusters = [plan.clusters[number] for number in group.clusters]
    boxes = [tuple(max(1, e) for e in box_hull(group.footprints[c.number].tiles).shape) for c in clusters]
    for cluster in clusters:
        if form_of(plan.scop, cluster, options) == "shared":
            main = main_statement(plan.scop, cluster)
            positions = reduction_positions(cluster, main)
            if len(positions) != 1 or vector_position(plan.scop, main) != positions[0]:
                return None
            if any(ranges_of(plan.scop.by_name[s].value) for s in cluster.statements):
                return None
            lengths.add(main.extents[positions[0]])
    if len(lengths) != 1:
        return None
    (steps,) = lengths
    for cluster, box in zip(clusters, boxes, strict=True):
        form = form_of(plan.scop, cluster, options)
        along = along_row(plan.scop, cluster, box, steps) if form == "pointwise" else None
        kept = kept or along is not None
        rows = [extent for d, extent in enumerate(box) if d != along and extent > 1]
        if form == "serial" or len(rows) > 1:
            return None
        heights.add(math.prod(rows))
    if len(heights) != 1:
        return None
    (height,) = heights
    threads = max(WARP, power_of_two_below(usual_threads(steps) // height))
    if threads * height > DEALING.most_row_threads:
        return None
    vector = _vector(plan.scop, clusters, steps) if options.distribution == "vectors" else 1
    while vector > 1 and threads * vector >= 2 * steps:
        vector //= 2
    found = RowThreads(height, threads, vector, steps)
    return found if found.elements <= UNROLLING.longest or not kept else None


def along_row(scop: Scop, cluster: Cluster, box: tuple[int, ...], steps: int) -> int | None:
    """The coordinate of a pointwise cluster that runs along a row of so many steps."""
    main = main_statement(scop, cluster)
    if main.kind == "update" and reduction_positions(cluster, main):
        return None
    vector, positions = vector_position(scop, main), cluster.coordinates[main.name]
    if vector not in positions:
        return None
    d = positions.index(vector)
    return d if box[d] == steps else None


def _vector(scop: Scop, clusters: list[Cluster], steps: int) -> int:
    """How many neighbours a thread has: 16 bytes of the narrowest element, if rows are whole vectors of all of them."""
    found, factors = 1, {steps}
    for statement in (scop.by_name[s] for c in clusters for s in c.statements):
        for tensor, subscripts in _accesses(statement):
            storage = scop.storages[tensor]
            if storage.role != "temporary" and _runs_along(scop, statement, tensor, subscripts) is not None:
                found = max(found, VECTOR_BYTES // storage.dtype.itemsize)
                factors |= {s for s, e in zip(storage.strides, storage.box.extent, strict=True) if s != 1 and e > 1}
    return math.gcd(found, *factors)


def _accesses(statement: ScopStatement) -> list[tuple[str, tuple[Expr, ...]]]:
    reads = [(e.tensor, e.subscripts) for e in walk(statement.value) if isinstance(e, Read) and e.boundary is None]
    found = [(statement.target, statement.subscripts), *reads]
    return [(t, s) for t, s in found if not any(map(depends_on_data, s))]


def _runs_along(scop: Scop, statement: ScopStatement, tensor: str, subscripts: tuple[Expr, ...]) -> str | None:
    """The index of a statement whose neighbouring values are neighbours in a tensor."""
    own = statement.indices[statement.tile_rank :]
    return next((i for i in own if access_stride(scop, tensor, subscripts, i, scop.sizes) == 1), None)
