"""A program reduced to what the time of its tiles depends on: loops, accesses and reductions, as plain numbers.

It is made once for a program; after that a candidate is judged without isl, in some microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcomp.driver import Compilation
from tcomp.grammar.tree.function import Expr, Read, walk
from tcomp.mapping.contraction.columns import column_position, columns_of, operands_of
from tcomp.mapping.plan.values import Cluster, Plan
from tcomp.mapping.tiles.flops import flops_per_instance
from tcomp.mapping.tiles.footprint import coordinate_set
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions, row_coordinate
from tcomp.mapping.tiles.strides import access_stride, coefficient
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import extents

DEVICE_BYTES = 64
"""What stands for the vectors of a device, whose threads own elements side by side."""

LINE_BYTES = 64
"""Bytes that come from memory at a time."""


@dataclass(frozen=True, slots=True)
class Subscript:
    """One dimension of an access.

    A tile whose coordinates have extents t touches ``1 + reach + sum of step * (t[d] - 1)`` elements along it, for each
    (d, step) of ``steps``, though not more than ``extent``; ``reach`` is what the reduction adds.  Where the subscript
    is not affine, it is so many for each instance: ``times`` the extents of the coordinates ``scattered``.
    """

    steps: tuple[tuple[int, int], ...]
    reach: int
    extent: int
    scattered: tuple[int, ...] = ()
    times: int = 1

    def touched(self, tile: Sequence[int]) -> int:
        """Elements along the dimension."""
        found = 1 + self.reach
        for d, step in self.steps:
            found += step * (tile[d] - 1)
        for d in self.scattered:
            found *= tile[d]
        return min(self.extent, found * self.times)


@dataclass(frozen=True, slots=True)
class Access:
    """A tensor that a statement reads or writes.

    ``order`` are its dimensions, the one with the smallest stride first; that has ``neighbours`` if the stride is 1.
    ``vector_stride`` is how many elements neighbouring values of the vector loop lie apart; None where that varies.
    """

    tensor: str
    writes: bool
    temporary: bool
    itemsize: int
    subscripts: tuple[Subscript, ...]
    order: tuple[int, ...]
    neighbours: bool
    vector_stride: int | None

    def bytes(self, tile: Sequence[int]) -> int:
        """Bytes of the elements that a tile touches."""
        return self.itemsize * math.prod(s.touched(tile) for s in self.subscripts)

    def runs(self, tile: Sequence[int]) -> tuple[int, int, bool]:
        """How many runs of neighbours a tile touches, the bytes of each, and whether the next tile goes on where this
        one ends: its outer dimensions have one element each."""
        touched = [s.touched(tile) for s in self.subscripts]
        count, length, joined = 1, self.itemsize, self.neighbours
        for dimension in self.order:
            if joined:
                length *= touched[dimension]
                joined = touched[dimension] == self.subscripts[dimension].extent
            else:
                count *= touched[dimension]
        return count, length, count == 1

    def line_bytes(self, tile: Sequence[int]) -> int:
        """Bytes of the cache lines that a tile touches, each run of neighbours beginning with a line."""
        count, length, _ = self.runs(tile)
        return count * -(-length // LINE_BYTES) * LINE_BYTES


@dataclass(frozen=True, slots=True)
class Band:
    """The loops of one cluster and what runs in them.

    ``vector`` and ``row`` are the coordinates of the vector loop and of the rows of a register tile; ``steps`` are the
    iterations of the reduction of each element, ``flops`` the operations of one element, reduction included.
    ``contraction`` says that products are summed; ``shared_vectors`` that its rows read the same vectors, ``packed``
    that these must be packed.
    """

    extents: tuple[int, ...]
    vector: int | None
    row: int | None
    steps: int
    flops: int
    itemsize: int
    reduces: bool
    contraction: bool
    shared_vectors: bool
    packed: bool
    accesses: tuple[Access, ...]

    @property
    def instances(self) -> int:
        """Elements times steps."""
        return math.prod(self.extents) * self.steps

    def tile(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The extents of a tile of these sizes, of which 0 and those left out stand for whole loops."""
        given = (*sizes, *(0 for _ in range(len(self.extents) - len(sizes))))
        return tuple(min(e, s) if s else e for e, s in zip(self.extents, given, strict=False))

    def tiles(self, tile: Sequence[int]) -> int:
        """How many tiles there are."""
        return math.prod(-(-e // t) for e, t in zip(self.extents, tile, strict=True))


def outline(plan: Plan, vector_bytes: int = DEVICE_BYTES) -> tuple[Band, ...]:
    """The bands of a plan in which nothing is fused yet, in order."""
    return tuple(_band(plan.scop, cluster, vector_bytes) for cluster in plan.clusters)


def unfused(compilation: Compilation) -> Plan:
    """The plan that the scheduler made, before any pass."""
    return next(iter(compilation.plans.values()))


def tiles_of_model(compilation: Compilation) -> tuple[int, ...]:
    """The tile sizes of the last group for every loop of the longest band; 0 where it is not tiled.

    All are 0 where the model merged indices: no sizes of those that the program has give its tiles.
    """
    rank = max((c.rank for c in unfused(compilation).clusters), default=0)
    groups = () if compilation.plan.merged else compilation.plan.groups
    sizes = dict(zip(groups[-1].members, groups[-1].sizes, strict=True)) if groups else {}
    return tuple(sizes.get(d, 0) for d in range(rank))


def tiles_of_bands(compilation: Compilation) -> tuple[tuple[int, ...], ...]:
    """The extents of the first tile of each band of ``outline``, as the program was compiled.

    Bands that are fused to another one have what its tile needs of them.
    """
    plan, bands = compilation.plan, unfused(compilation).clusters
    found = {}
    for group in plan.groups:
        for number in group.clusters:
            tiles = group.footprints[number].tiles
            found[number] = extents(tiles.intersect_domain(tiles.domain().lexmin()).range())
    if len(plan.clusters) == len(bands) == len(found) and not plan.merged:
        return tuple(found[c.number] for c in bands)
    start = tiles_of_model(compilation)
    return tuple(start[: c.rank] for c in bands)


def heaviest(bands: Sequence[Band]) -> Band | None:
    """The band that does most; of equals the last."""
    return max(reversed(bands), key=lambda b: b.instances, default=None)


def _band(scop: Scop, cluster: Cluster, vector_bytes: int) -> Band:
    main = main_statement(scop, cluster)
    whole = tuple(max(1, e) for e in extents(coordinate_set(scop, cluster)))
    positions = cluster.coordinates[main.name]
    column = column_position(scop, cluster, vector_bytes)
    vector = positions.index(column) if column in positions else None
    row = None if vector is None or column is None else row_coordinate(scop, cluster, column, whole)
    sizes = main.extents
    steps = math.prod(max(1, sizes[p]) for p in reduction_positions(cluster, main))
    statements = [scop.by_name[s] for s in cluster.statements]
    columns = columns_of(scop, cluster, vector_bytes)
    own = _own(scop, cluster)
    flops = sum(flops_per_instance(s) * (steps if s.kind == "update" else 1) for s in statements)
    return Band(
        whole,
        vector,
        row,
        steps,
        max(1, flops),
        scop.storages[main.target].dtype.itemsize,
        main.kind == "update",
        operands_of(main) is not None,
        _shares_vectors(scop, main, column, None if row is None else positions[row]),
        columns is not None and columns.packed,
        tuple(a for s in statements for a in _accesses(scop, cluster, s, vector) if a.tensor not in own),
    )


def _own(scop: Scop, cluster: Cluster) -> set[str]:
    """Temporaries that no other cluster touches: accumulators, which stay in registers."""
    elsewhere = {tensor for s in scop.statements if s.name not in cluster.statements for tensor in _touched(s)}
    return {name for name, storage in scop.storages.items() if storage.role == "temporary" and name not in elsewhere}


def _touched(statement: ScopStatement) -> set[str]:
    return {statement.target, *(e.tensor for e in walk(statement.value) if isinstance(e, Read))}


def _shares_vectors(scop: Scop, main: ScopStatement, column: int | None, row: int | None) -> bool:
    """Whether no vector that is read changes from row to row."""
    if column is None or row is None:
        return True
    reads = [e for e in walk(main.value) if isinstance(e, Read)]
    along = [
        [access_stride(scop, r.tensor, r.subscripts, main.indices[p], scop.sizes) for r in reads] for p in (column, row)
    ]
    return not any(c == 1 and r != 0 for c, r in zip(*along, strict=True))


def _accesses(scop: Scop, cluster: Cluster, statement: ScopStatement, vector: int | None) -> Iterator[Access]:
    """What a statement writes and reads; what it accumulates into counts as written."""
    if statement.kind == "init":
        return
    yield _access(scop, cluster, statement, vector, statement.target, statement.subscripts, writes=True)
    for read in (e for e in walk(statement.value) if isinstance(e, Read)):
        yield _access(scop, cluster, statement, vector, read.tensor, read.subscripts, writes=False)


def _access(
    scop: Scop,
    cluster: Cluster,
    statement: ScopStatement,
    vector: int | None,
    tensor: str,
    subscripts: tuple[Expr, ...],
    *,
    writes: bool,
) -> Access:
    storage = scop.storages[tensor]
    positions = cluster.coordinates[statement.name]
    reduced = reduction_positions(cluster, statement)
    sizes = statement.extents
    found = []
    for subscript, extent in zip(subscripts, storage.box.extent, strict=True):
        steps = [coefficient(subscript, statement.indices[p], scop.sizes) for p in (*positions, *reduced)]
        known = [0 if s is None else abs(s) for s in steps]
        count = len(positions)
        reach = sum(s * (sizes[p] - 1) for s, p in zip(known[count:], reduced, strict=True))
        moving = tuple((d, step) for d, step in enumerate(known[:count]) if step)
        scattered = tuple(d for d, step in enumerate(steps[:count]) if step is None)
        times = math.prod(max(1, sizes[p]) for s, p in zip(steps[count:], reduced, strict=True) if s is None)
        found.append(Subscript(moving, reach, max(1, extent), scattered, times))
    strides = [abs(stride) for stride in storage.strides]
    order = sorted((d for d, s in enumerate(found) if s.extent > 1), key=lambda d: (strides[d], -d))
    neighbours = bool(order) and strides[order[0]] == 1
    along = (
        0
        if vector is None
        else access_stride(scop, tensor, subscripts, statement.indices[positions[vector]], scop.sizes)
    )
    return Access(
        tensor,
        writes,
        storage.role == "temporary",
        storage.dtype.itemsize,
        tuple(found),
        tuple(order),
        neighbours,
        along,
    )
