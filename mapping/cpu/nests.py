"""Pass: the point loops of every cluster inside its tiles, and the marks where buffers may be declared.

A reduction runs in one of two sunk forms.  Where its vector loop is a reduction index (a dot product), each element is
initialised, reduced and finished in turn and its accumulator is a register.  Otherwise (an outer product) the stages
run one after another over a register tile, rows by vectors, whose accumulators stay in registers across all of them.
Elements of a cumulative reduction run one after another, too, along the coordinate with which its steps grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.contraction.blocking import (
    panel_loads,
    passes_once,
    reduction_blocks,
    runs_by_rows,
    steps_in_order,
)
from tcomp.mapping.contraction.columns import columns_of, depends_on, operands_of
from tcomp.mapping.contraction.dotproducts import dot_product
from tcomp.mapping.contraction.lanesums import SumSides, sum_sides, sum_tile
from tcomp.mapping.contraction.registertile import Loads, best_matrix_tile, best_register_tile, given_tile
from tcomp.mapping.contraction.turning import turned_reads
from tcomp.mapping.cpu.strips import Strips, in_strips, strips_of
from tcomp.mapping.fusion.groups import group_tree
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputiles import VECTORS
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import TileOperation, indices_in, recognise_contraction
from tcomp.mapping.plan.tree import Band, Mark, Sequence, Subtree, rows
from tcomp.mapping.plan.values import Cluster, Footprint, Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.mapping.tiles.scans import row_of_scan, scanned_position
from tcomp.mapping.tiles.sizes import (
    lane_position,
    made_by,
    main_statement,
    reduction_positions,
    register_tile,
    row_coordinate,
    row_tile,
    runs_in_long_rows,
)
from tcomp.mapping.tiles.strides import strides_along
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import union_set


@dataclass(frozen=True, slots=True)
class Nest:
    """How one cluster runs inside the tiles of its group.

    ``form`` is "pointwise", "dot", "scan" or "outer"; ``vector`` is the index of the main statement that the vector
    loop runs over, and ``vector_coordinate`` the coordinate that it is, if it is one; ``row_coordinate`` is the
    other side of a register tile, or the one along which values are handed on, and ``inner`` its size per coordinate
    (0: not tiled again). ``panel`` are the coordinates of which the panel of an update depends; None where there is
    no panel. ``steps`` are the positions of the reduction indices in the order of their loops, ``blocks`` those that
    run in blocks around the register tiles, with the sizes of the blocks. ``by_rows`` says that register tiles run
    along the rows of a tile, and not down its columns, one panel for all of them. ``results`` is the coordinate along
    which the results of a tile are neighbours, if it is not that of the vector loop; they are finished when all are
    there. What adds to the results of a tile may run for a ``strip`` of rows at a time.
    """

    form: str
    vector: int | None
    vector_coordinate: int | None
    inner: tuple[int, ...]
    row_coordinate: int | None = None
    panel: frozenset[int] | None = None
    steps: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    by_rows: bool = False
    results: int | None = None
    strip: bool = False


def nest_clusters(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Give each cluster its inner tile, its loop order, its marks and its tile operation."""
    operations: dict[str, TileOperation] = {}
    strips = {c: s for g in plan.groups if (s := strips_of(machine, plan, g)) is not None for c in s.clusters}

    def subtree(cluster: Cluster, footprint: Footprint) -> Subtree:
        own = options.of_part(made_by(plan.scop, cluster))
        nest = choose_nest(plan.scop, cluster, footprint, machine, own, strips.get(cluster.number))
        operation = _operation(plan.scop, cluster, nest)
        if operation is not None:
            operations[operation.mark] = operation
        return _cluster_tree(plan.scop, cluster, nest, None if operation is None else operation.mark)

    tree = group_tree(plan, subtree, lambda group, children: in_strips(plan, group, strips.get(group.root), children))
    return replace(plan, tree=tree, operations=operations)


def _operation(scop: Scop, cluster: Cluster, nest: Nest) -> TileOperation | None:
    """What a backend may spell as a whole: a dot product's loops, or a contraction's register tile."""
    main = main_statement(scop, cluster)
    if main.kind != "update":
        return None
    if nest.form in ("dot", "scan"):
        kind = "reduce" if nest.form == "dot" else "scan"
        _, steps = _steps(cluster, main, nest)
        return TileOperation(f"{kind}{cluster.number}", kind, main.name) if steps else None
    contraction = recognise_contraction(main)
    if contraction is None:
        return None
    return TileOperation(f"contract{cluster.number}", "contract", main.name, contraction)


def _steps(cluster: Cluster, statement: ScopStatement, nest: Nest) -> tuple[list[int], list[int]]:
    """The positions of a reduction's own indices in the order of their loops: first those along which it goes from
    element to element, as one does that scatters what it sums, then those of one element.  The loop that is to run in
    vectors is the last of all, so that what scatters along it has no loops of one element.
    """
    positions = _vector_last(reduction_positions(cluster, statement), nest)
    lengths = statement.lengths
    named = frozenset[str]().union(*(indices_in(s) for s in statement.subscripts))
    spread = [p for p in positions if lengths[p] > 1 and statement.indices[p] in named]
    if nest.vector in spread:
        return positions, []
    return spread, [p for p in positions if p not in spread]


def choose_nest(
    scop: Scop, cluster: Cluster, footprint: Footprint, machine: Machine, options: MappingOptions,
    strips: Strips | None = None,
) -> Nest:  # fmt: skip
    """The sunk form and the inner tile of a cluster, which may run in ``strips``, from its main statement's strides."""
    main = main_statement(scop, cluster)
    columns = columns_of(scop, cluster, machine.vector_bytes)
    vector = lane_position(scop, main) if columns is None else columns.position
    positions = cluster.coordinates[main.name]
    coordinate = positions.index(vector) if vector in positions else None
    untiled = (0,) * cluster.rank
    if main.atomic or (main.stretch is not None and coordinate is None):
        return Nest("pointwise", None, None, untiled)
    if main.kind != "update":
        panel = None if turned_reads(scop, cluster) is None else frozenset[int]()
        return Nest("pointwise", vector, coordinate, untiled, panel=panel)
    scanned = scanned_position(scop, main)
    if scanned in positions:
        row = row_of_scan(scop, cluster, scanned)
        if row is not None and box_hull(footprint.tiles).shape[positions.index(row)] > VECTORS.longest_row_of_scan:
            row = None
        last = scanned if row is None else row
        return Nest("scan", last, positions.index(last), untiled, positions.index(scanned))
    if main.scatters and vector is not None and coordinate is not None:
        return Nest("outer", vector, coordinate, untiled, steps=tuple(reduction_positions(cluster, main)))
    shape, strip = box_hull(footprint.tiles).shape, strips is not None and cluster.number in strips.parts
    if strips is not None:
        shape = strips.shape(cluster, shape)
    if ranges_of(main.value):
        return _nest_of_ranges(scop, cluster, main, vector, shape, machine)
    sums = None if coordinate is not None else sum_sides(scop, cluster, operands_of(main) or ())
    if sums is not None:
        return _nest_of_sums(cluster, main, sums, shape, machine)
    if coordinate is None:
        return Nest("dot", vector, None, untiled)
    assert vector is not None
    once = columns is not None and passes_once(scop, cluster, columns, machine)
    reduced = tuple(min(s, main.lengths[p]) for s, p in zip(shape, positions, strict=True))
    row = None if once else row_coordinate(scop, cluster, vector, reduced)
    if options.register_tile is not None:
        dot = dot_product(scop, cluster, columns, machine)
        height, width = given_tile(*options.register_tile, dot is not None and dot.depth > 0)
    else:
        rows_there = 1 if row is None else reduced[row]
        height, width = _register_tile(scop, cluster, (row, coordinate), (rows_there, shape[coordinate]), machine)
    sizes = {coordinate: width, row: height}
    results = None
    if columns is not None and columns.results is not None:
        results = positions.index(columns.results)
        if results != row:
            sizes[results] = 1
    inner = tuple(0 if shape[d] <= sizes.get(d, 1) and d != results else sizes.get(d, 1) for d in range(cluster.rank))
    steps = tuple(steps_in_order(scop, cluster, columns))
    if columns is None or columns.panel is None:
        long = columns is None and runs_in_long_rows(machine, scop, cluster, vector, shape[coordinate])
        parts = (*((step, 1) for step in steps[:-1]), (steps[-1], VECTORS.rows_of_a_block)) if long else ()
        both = recognise_contraction(main) is not None and _run_along_columns(scop, cluster, main, coordinate)
        return Nest("outer", vector, coordinate, inner, row, None, steps, () if strip else parts, both, results, strip)
    read = columns.panel
    panel = frozenset(d for d, p in enumerate(positions) if depends_on(scop, read, main.indices[p]))
    tile = min(height, 1 if row is None else shape[row]), min(width, shape[coordinate])
    rows = math.prod(extent for d, extent in enumerate(shape) if d not in panel)
    there = dict(zip(positions, shape, strict=True))
    blocks = () if strip else reduction_blocks(scop, cluster, columns, tile, there, rows, machine)
    sides = rows, shape[coordinate]
    by_rows = operands_of(main) is not None and runs_by_rows(scop, cluster, columns, sides, tile, dict(blocks), machine)
    return Nest("outer", vector, coordinate, inner, row, panel, steps, blocks, by_rows, results, strip)


def _nest_of_ranges(
    scop: Scop, cluster: Cluster, main: ScopStatement, vector: int | None, shape: tuple[int, ...], machine: Machine
) -> Nest:
    """An element at a time, or a vector of them, for which data say over what it is reduced."""
    coordinates = cluster.coordinates[main.name]
    if vector not in coordinates:
        return Nest("dot", vector, None, (0,) * cluster.rank)
    along = coordinates.index(vector)
    lanes = machine.vector_bytes // scop.storages[main.target].dtype.itemsize
    _, width = register_tile(shape[along], 1, lanes, machine.registers)
    wide = min(machine.vector_bytes, machine.datapath_bytes) // scop.storages[main.target].dtype.itemsize
    width = max(width, min(shape[along], wide * machine.registers // 2))
    sizes = [width if d == along else 1 for d in range(cluster.rank)]
    inner = tuple(size if extent > size else 0 for size, extent in zip(sizes, shape, strict=True))
    ranged = {index for within in ranges_of(main.value) for index in indices_in(within.index)}
    steps = sorted(reduction_positions(cluster, main), key=lambda p: main.indices[p] not in ranged)
    return Nest("outer", vector, along, inner, steps=tuple(steps))


def _nest_of_sums(
    cluster: Cluster, main: ScopStatement, sides: SumSides, shape: tuple[int, ...], machine: Machine
) -> Nest:
    """Register tiles of dot products in a tile of a ``shape``."""
    whole = [main.lengths[p] for p in cluster.coordinates[main.name]]
    rows, columns = 1 if sides.row is None else shape[sides.row], shape[sides.column]
    cut = sides.row is not None and rows < whole[sides.row], columns < whole[sides.column]
    height, width = sum_tile(rows, columns, machine, cut)
    sizes = {sides.column: width} | ({} if sides.row is None else {sides.row: height})
    inner = tuple(0 if shape[d] <= sizes.get(d, 1) else sizes.get(d, 1) for d in range(cluster.rank))
    steps = sorted(reduction_positions(cluster, main), key=lambda p: p == sides.lanes)
    position = cluster.coordinates[main.name][sides.column]
    return Nest("outer", position, sides.column, inner, sides.row, None, tuple(steps))


def _register_tile(
    scop: Scop, cluster: Cluster, sides: tuple[int | None, int], shape: tuple[int, int], machine: Machine
) -> tuple[int, int]:
    """Rows and columns of a register tile.

    ``sides`` are the coordinates that they run over, ``shape`` their extents.
    """
    main = main_statement(scop, cluster)
    itemsize = scop.storages[main.target].dtype.itemsize
    if recognise_contraction(main) is not None:
        along_row, along_column = (_read_strides(scop, cluster, main, side) for side in sides)
        both = _run_along_columns(scop, cluster, main, sides[1])
        shared = not both and not any(c == 1 and r != 0 for c, r in zip(along_column, along_row, strict=True))
        columns = columns_of(scop, cluster, machine.vector_bytes)
        loads = Loads(shared, itemsize, both=both)
        dot = dot_product(scop, cluster, columns, machine)
        if dot is not None and dot.depth:
            matrix = best_matrix_tile(*shape)
            return matrix.rows, matrix.columns
        if columns is not None:
            loads = panel_loads(scop, cluster, columns, shared, machine, sides[0])
        whole = main.lengths
        positions = cluster.coordinates[main.name]
        row_cut, column_cut = (
            side is not None and extent < whole[positions[side]] for side, extent in zip(sides, shape, strict=True)
        )
        tile = best_register_tile(*shape, loads, machine, (row_cut, column_cut))
        if tile is not None:
            return tile.rows, tile.columns
    if runs_in_long_rows(machine, scop, cluster, cluster.coordinates[main.name][sides[1]], shape[1]):
        return 1, row_tile(machine, scop, main)
    return register_tile(shape[1], shape[0], machine.vector_bytes // itemsize, machine.registers)


def _run_along_columns(scop: Scop, cluster: Cluster, statement: ScopStatement, column: int) -> bool:
    """Whether both operands are vectors: then a register tile shares nothing with one below it but borders of windows,
    and what follows along a row of the tile lies behind it in memory."""
    return _read_strides(scop, cluster, statement, column).count(1) > 1


def _read_strides(scop: Scop, cluster: Cluster, statement: ScopStatement, coordinate: int | None) -> list[int | None]:
    """How far apart neighbouring values of a coordinate read; 0 where there is no coordinate."""
    if coordinate is None:
        return [0 for e in walk(statement.value) if isinstance(e, Read)]
    index = statement.indices[cluster.coordinates[statement.name][coordinate]]
    return list(strides_along(scop, statement, index)[1:])


def _cluster_tree(scop: Scop, cluster: Cluster, nest: Nest, operation: str | None) -> Subtree:
    statements = [scop.by_name[s] for s in cluster.statements]
    if nest.form != "outer":
        points = _point_band(cluster, statements, nest, f"point{cluster.number}", operation)
        return points if nest.panel is None else Mark(f"panel{cluster.number}", points)
    if nest.blocks or nest.results is not None or nest.strip:
        return _stages(cluster, statements, nest, lambda s: _blocks(cluster, s, nest, operation))
    stages = _stages(cluster, statements, nest, lambda s: _marked(operation, _update_band(cluster, s, nest)))
    return _register_tiles(cluster, statements, nest, stages)


def _stages(
    cluster: Cluster, statements: list[ScopStatement], nest: Nest, update: Callable[[ScopStatement], Subtree]
) -> Subtree:
    """Initialise a tile, run its ``update``, finish it."""
    order = _coordinate_order(cluster, nest.vector_coordinate)
    stages: list[tuple[isl.UnionSet, Subtree]] = []
    rest = [s for s in statements if s.kind not in ("init", "update")]
    for s in statements:
        if s.kind == "init":
            own = reduction_positions(cluster, s)
            inner = Band(rows([(s, own)]), 0) if own else None
            stages.append((isl.UnionSet.from_set(s.domain), _coordinate_band(cluster, [s], inner, order)))
        elif s.kind == "update":
            stages.append((isl.UnionSet.from_set(s.domain), update(s)))
    if rest:
        domain = union_set([s.domain for s in rest])
        stages.append((domain, _point_band(cluster, rest, nest, f"rest{cluster.number}", None)))
    return Sequence(tuple(stages))


def _blocks(cluster: Cluster, update: ScopStatement, nest: Nest, operation: str | None) -> Subtree:
    """An update block of the reduction by block, all register tiles in each."""
    inside = _register_tiles(cluster, [update], nest, _marked(operation, _update_band(cluster, update, nest)))
    if not nest.blocks:
        return inside
    steps = rows([(update, [f"floor(i{position}/{size})" for position, size in nest.blocks])])
    return Band(steps, 0, Mark(f"block{cluster.number}", inside))


def _register_tiles(cluster: Cluster, statements: list[ScopStatement], nest: Nest, inside: Subtree) -> Subtree:
    """The loops over register tiles: those that change the panel, the mark where it is packed, and the others."""
    tile = Mark(f"cluster{cluster.number}", inside)
    last = [nest.vector_coordinate, nest.row_coordinate]
    if nest.by_rows:
        last.reverse()
    tiled = sorted(
        ((d, size) for d, size in enumerate(nest.inner) if size),
        key=lambda item: last.index(item[0]) if item[0] in last else -1,
    )
    if nest.panel is None:
        return _inner_tiles(cluster, statements, tiled, tile)
    around = nest.by_rows or nest.row_coordinate in nest.panel
    below = _inner_tiles(cluster, statements, [t for t in tiled if around or t[0] not in nest.panel], tile)
    outside = [t for t in tiled if not around and t[0] in nest.panel]
    return _inner_tiles(cluster, statements, outside, Mark(f"panel{cluster.number}", below))


def _inner_tiles(
    cluster: Cluster, statements: list[ScopStatement], tiled: Items[tuple[int, int]], child: Subtree
) -> Subtree:
    """Loops over the register tiles, (coordinate, size) outermost first, around ``child``."""
    if not tiled:
        return child
    parts = [(s, [f"floor(i{cluster.coordinates[s.name][d]}/{size})" for d, size in tiled]) for s in statements]
    return Band(rows(parts), len(tiled), child)


def _coordinate_band(cluster: Cluster, statements: list[ScopStatement], child: Subtree, order: Items[int]) -> Subtree:
    if cluster.rank == 0:
        return child
    parts = [(s, [cluster.coordinates[s.name][d] for d in order]) for s in statements]
    return Band(rows(parts), cluster.rank, child)


def _marked(operation: str | None, subtree: Subtree) -> Subtree:
    return subtree if operation is None else Mark(operation, subtree)


def _point_band(
    cluster: Cluster, statements: list[ScopStatement], nest: Nest, mark: str, operation: str | None
) -> Subtree:
    """One loop nest over the coordinates with all statements inside, element by element."""
    children: list[tuple[isl.UnionSet, Subtree]] = []
    for s in statements:
        inner: Subtree = None
        spread, steps = _steps(cluster, s, nest)
        if steps:
            inner = _marked(operation if s.kind == "update" else None, Band(rows([(s, steps)]), 0))
        if spread:
            inner = Band(rows([(s, spread)]), 0, inner)
        children.append((isl.UnionSet.from_set(s.domain), inner))
    last = nest.vector_coordinate if nest.results is None else nest.results
    order = _coordinate_order(cluster, last)
    if nest.form == "scan":
        order.sort(key=lambda d: (d == last, d == nest.row_coordinate))
    return _coordinate_band(cluster, statements, Mark(mark, Sequence(tuple(children))), order)


def _coordinate_order(cluster: Cluster, last: int | None) -> list[int]:
    """The coordinates with one of them last."""
    return sorted(range(cluster.rank), key=lambda d: (d == last, d))


def _vector_last(positions: list[int], nest: Nest) -> list[int]:
    return [p for p in positions if p != nest.vector] + [p for p in positions if p == nest.vector]


def _update_band(cluster: Cluster, statement: ScopStatement, nest: Nest) -> Subtree:
    """The reduction's own band between the other coordinates and the register tile: all permutable."""
    assert nest.vector is not None
    positions = cluster.coordinates[statement.name]
    row = [] if nest.row_coordinate is None else [positions[nest.row_coordinate]]
    outer = [p for p in positions if p != nest.vector and p not in row]
    order = [*outer, *nest.steps, *row, nest.vector]
    return Band(rows([(statement, order)]), len(outer))
