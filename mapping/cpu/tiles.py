"""How large the tiles of a CPU kernel are when the user does not say."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

from tcomp.grammar.tree.dataranges import are_rows, ranges_of
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Binary, Expr, Index, Read, walk
from tcomp.mapping.contraction.columns import Columns, column_position, columns_of, depends_on, operands_of
from tcomp.mapping.contraction.lanesums import SumSides, sum_sides, sum_tile
from tcomp.mapping.contraction.turning import turned_reads
from tcomp.mapping.cpu.contractiontiles import longest_tile, tiles_of_contraction
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpucontractions import TURNING
from tcomp.mapping.machines.fitted.cpusharing import SHARING
from tcomp.mapping.machines.fitted.cputext import THREADS
from tcomp.mapping.machines.fitted.cputiles import CONTRACTION_TILES, ROWS, VECTORS
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import LARGEST, Cluster
from tcomp.mapping.tiles.footprint import coordinate_set
from tcomp.mapping.tiles.scans import row_of_scan, scanned_position
from tcomp.mapping.tiles.sizes import (
    even_share,
    lane_position,
    main_statement,
    reads_rows_again,
    reduction_positions,
    row_coordinate,
    row_tile,
    runs_in_long_rows,
    runs_of,
)
from tcomp.mapping.tiles.splitting import is_part
from tcomp.mapping.tiles.strides import coefficient, strides_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import extents


def tile_sizes(
    machine: Machine, scop: Scop, cluster: Cluster, members: tuple[int, ...], options: MappingOptions
) -> tuple[int, ...]:
    """Tile sizes for those coordinates of the root of a group that its tile loops run over; there may be none."""
    if not members:
        return ()
    whole = extents(coordinate_set(scop, cluster))
    full = tuple(max(1, whole[m]) for m in members)
    if options.tile_sizes is not None:
        given = dict(enumerate(options.tile_sizes))
        untiled = map(max, full, _all_in_one(scop, cluster, members))
        return tuple(min(given.get(m, 0) or own, LARGEST) for m, own in zip(members, untiled, strict=True))
    if scop.around is not None and scop.around.tiled:
        return _all_in_one(scop, cluster, members)
    sizes = _chosen(machine, scop, cluster, members, options, full)
    main = main_statement(scop, cluster)
    if main.kind == "update" and is_part(main):  # threads share them
        own = cluster.coordinates[main.name]
        return tuple(1 if own[m] == 0 else size for m, size in zip(members, sizes, strict=True))
    if main.kind == "update":
        return sizes
    one = _all_in_one(scop, cluster, members)
    return tuple(reach if size == e < reach < 2 * e else size for size, e, reach in zip(sizes, full, one, strict=True))


def _all_in_one(scop: Scop, cluster: Cluster, members: tuple[int, ...]) -> tuple[int, ...]:
    """Tiles that hold everything: they are counted from 0, so each reaches to the last element, not just as far."""
    points = coordinate_set(scop, cluster)
    return tuple(max(1, min(points.dim_max_val(m).to_python() + 1, LARGEST)) for m in members)


def _chosen(
    machine: Machine, scop: Scop, cluster: Cluster, members: tuple[int, ...], options: MappingOptions,
    full: tuple[int, ...],
) -> tuple[int, ...]:  # fmt: skip
    """The sizes that fit what a group computes."""
    main = main_statement(scop, cluster)
    positions = cluster.coordinates[main.name]
    scanned = scanned_position(scop, main)
    if scanned in positions:
        return _tiles_of_scan(scop, cluster, scanned, full, tuple(positions[m] for m in members))
    if ranges_of(main.value):
        return _tiles_of_ranges(scop, main, full, tuple(positions[m] for m in members))
    if main.atomic or main.stretch is not None:
        return _tiles_of_meetings(main, full, tuple(positions[m] for m in members))
    source = None if recognise_contraction(main) is not None else _largest_source(machine, scop, cluster)
    if source is not None:
        own = tuple(source.order[m] for m in members)
        sizes = tiles_of_contraction(machine, scop, source.cluster, own, source.columns, options.register_tile)
        around = (math.ceil(size / source.steps[m]) for m, size in zip(members, sizes, strict=True))
        return tuple(min(e, max(source.least[m], s)) for m, e, s in zip(members, full, around, strict=True))
    columns = columns_of(scop, cluster, machine.vector_bytes)
    if columns is not None and positions.index(columns.position) in members:
        return tiles_of_contraction(machine, scop, cluster, members, columns, options.register_tile)
    sums = None if columns is not None else sum_sides(scop, cluster, operands_of(main) or ())
    if sums is not None and {sums.column, *([] if sums.row is None else [sums.row])} <= {*members}:
        return _tiles_of_sums(machine, scop, cluster, members, sums)
    turned = turned_reads(scop, cluster)
    if turned is not None:
        sides = {turned.lanes: TURNING.lanes, turned.run: TURNING.run}
        return tuple(min(e, sides.get(positions[m], 1)) for m, e in zip(members, full, strict=True))
    vector = column_position(scop, cluster, machine.vector_bytes)
    vectors = [positions[m] == vector for m in members]
    if main.kind != "update":
        run = () if vector is None else runs_of(scop, main)[vector]
        tiled = {positions[m]: number for number, m in enumerate(members)}
        along = tuple(tiled[p] for p in itertools.takewhile(tiled.__contains__, run))
        length = math.prod(full[m] for m in along)
        rows = max(ROWS.pointwise_rows, ROWS.pointwise_vector_tile // max(1, length))
        room = _room(machine, scop, cluster, members)
        return _many_tiles(full, vectors, spread(full, along, None, ROWS.pointwise_vector_tile, rows, room))
    if main.scatters and True in vectors:
        return _tiles_of_scatter(machine, scop, cluster, full, vectors.index(True))
    steps = math.prod(main.lengths[p] for p in reduction_positions(cluster, main))
    first = None
    if vector is not None and vector in positions:
        width = main.lengths[vector]
        long = min(ROWS.row_tile, max(VECTORS.long_row, longest_tile(machine, math.prod(full))), width)
        if runs_in_long_rows(machine, scop, cluster, vector, long):
            width = max(VECTORS.long_row, even_share(width, long, row_tile(machine, scop, main)))
            return tuple(width if is_vector else 1 for is_vector in vectors)
        row = row_coordinate(scop, cluster, vector, tuple(main.lengths[p] for p in positions))
        first = members.index(row) if row in members else None
    along = tuple(m for m, is_vector in enumerate(vectors) if is_vector)
    rows = ROWS.reduction_rows if along else _rows_of_reduction(scop, main, max(1, steps))
    sizes = spread(full, along, first, ROWS.reduction_vector_tile, rows, ROWS.tile_elements)
    return sizes if math.prod(full) * steps < CONTRACTION_TILES.least_products else _many_tiles(full, vectors, sizes)


def _rows_of_reduction(scop: Scop, main: ScopStatement, steps: int) -> int:
    """How many rows of so many steps a tile has; few enough to stay near where another reduction reads them, too."""
    if reads_rows_again(scop, main):
        return max(1, ROWS.row_tile // steps)
    return max(ROWS.reduction_rows, ROWS.pointwise_vector_tile // steps)


@dataclass(frozen=True, slots=True)
class _Source:
    """A contraction, alone in a cluster, of which another cluster reads.

    ``order`` are its coordinates that move with those of the reader, by so many ``steps``.  A tile of the reader should
    have the ``least`` sizes: all columns where some reduction over them is read, too, and many times what tiles share.
    """

    cluster: Cluster
    columns: Columns
    order: tuple[int, ...]
    steps: tuple[Fraction, ...]
    least: tuple[int, ...]
    work: int


def _largest_source(machine: Machine, scop: Scop, cluster: Cluster) -> _Source | None:
    """The contraction with most work whose results the main statement of a cluster reads around its own coordinates."""
    main = main_statement(scop, cluster)
    own = [main.indices[p] for p in cluster.coordinates[main.name]]
    found: list[_Source] = []
    for read in (e for e in walk(main.value) if isinstance(e, Read)):
        update = _contraction_behind(scop, read.tensor)
        if update is None:
            continue
        alone = Cluster(cluster.number, (update.name,), {update.name: tuple(range(update.coordinates))})
        columns = columns_of(scop, alone, machine.vector_bytes)
        moved = [_moved_dimension(read, index, scop) for index in own]
        known = [m for m in moved if m is not None]
        order = tuple(d for d, _ in known)
        if columns is not None and len({*order}) == len(own) and columns.position in order:
            work = math.prod(update.lengths)
            least = [_least(scop, main, read, *moved) for moved in known]
            if _reads_reduced(scop, main, own[order.index(columns.position)]):
                least[order.index(columns.position)] = update.lengths[columns.position]
            found.append(_Source(alone, columns, order, tuple(step for _, step in known), tuple(least), work))
    return max(found, key=lambda source: source.work, default=None)


def _least(scop: Scop, statement: ScopStatement, read: Read, dimension: int, step: Fraction) -> int:
    """How long a tile is of which a window's overlap with the next tile is a small part."""
    sizes = statement.lengths
    inner = statement.indices[statement.coordinates :]
    steps = [coefficient(read.subscripts[dimension], index, scop.sizes) or 0 for index in inner]
    window = 1 + sum(abs(s) * (sizes[statement.coordinates + n] - 1) for n, s in enumerate(steps))
    return math.ceil(CONTRACTION_TILES.overlaps * max(Fraction(0), window - step) / step)


def _reads_reduced(scop: Scop, statement: ScopStatement, index: str) -> bool:
    """Whether a statement reads what a reduction other than a contraction left for all values of an index."""
    reduced = {s.target for s in scop.statements if s.kind == "update" and recognise_contraction(s) is None}
    reads = (e for e in walk(statement.value) if isinstance(e, Read) and e.tensor in reduced)
    return any(not depends_on(scop, read, index) for read in reads)


def _contraction_behind(scop: Scop, storage: str) -> ScopStatement | None:
    """The contraction that a storage holds the results of, or what is made of them element by element."""
    seen: set[str] = set()
    waiting = [storage]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        kinds = ("update", "assign", "finish")
        writers = (s for s in scop.users[name] if s.target == name and s.plain and s.kind in kinds)
        writer = next(writers, None)
        if writer is None:
            continue
        seen.add(name)
        if writer.kind != "update":
            reads = (e for e in walk(writer.value) if isinstance(e, Read) and e.subscripts == writer.subscripts)
            waiting += reversed([read.tensor for read in reads])
        elif recognise_contraction(writer) is not None:
            return writer
    return None


def _moved_dimension(read: Read, index: str, scop: Scop) -> tuple[int, Fraction] | None:
    """The one dimension that moves with an index, and how far; None if there is not one, or it moves backwards.

    With ``h/2``, next to which ``h%2`` may stand, it moves by one in two steps.
    """
    steps = [_step(s, index, scop) for s in read.subscripts]
    moving = [(d, s) for d, s in enumerate(steps) if s is not None and s > 0]
    return moving[0] if len(moving) == 1 and [s for s in steps if s != 0] == [moving[0][1]] else None


def _step(subscript: Expr, index: str, scop: Scop) -> Fraction | None:
    """How far a subscript moves with an index in the long run."""
    match subscript:
        case Binary(op="/" | "%", lhs=Index(name=name)) if name == index:
            divisor = to_form(subscript.rhs, scop.sizes)
            if divisor is None or divisor.terms or divisor.constant < 1:
                return None
            return Fraction(1, divisor.constant) if subscript.op == "/" else Fraction(0)
    step = coefficient(subscript, index, scop.sizes)
    return None if step is None else Fraction(step)


def _tiles_of_sums(
    machine: Machine, scop: Scop, cluster: Cluster, members: tuple[int, ...], sides: SumSides
) -> tuple[int, ...]:
    """Tiles of dot products, in whole register tiles: all rows for so many columns that there are enough tiles."""
    main = main_statement(scop, cluster)
    sizes = main.lengths
    full = {m: max(1, sizes[cluster.coordinates[main.name][m]]) for m in members}
    rows, columns = 1 if sides.row is None else full[sides.row], full[sides.column]
    height, width = sum_tile(rows, columns, machine)
    steps = math.prod(sizes[p] for p in reduction_positions(cluster, main))
    found = dict.fromkeys(members, 1)
    if sides.row is not None:
        found[sides.row] = even_share(rows, CONTRACTION_TILES.rows_of_sums, height)
    tiles = math.prod(-(-full[m] // found[m]) for m in members if m != sides.column)
    least = -(-2 * CONTRACTION_TILES.least_products // (steps * (1 if sides.row is None else found[sides.row])))
    found[sides.column] = even_share(
        columns, min(CONTRACTION_TILES.columns_of_sums, max(least, columns * tiles // SHARING.tiles)), width
    )
    return tuple(found[m] for m in members)


def _tiles_of_scan(
    scop: Scop, cluster: Cluster, scanned: int, full: tuple[int, ...], positions: tuple[int, ...]
) -> tuple[int, ...]:
    """Tiles of a cumulative reduction: all that it runs along, for one element, or for a row of many."""
    row = row_of_scan(scop, cluster, scanned)
    sizes = [extent if position == scanned else 1 for extent, position in zip(full, positions, strict=True)]
    if row in positions:
        along = positions.index(row)
        width = ROWS.pointwise_vector_tile
        others = math.prod(e for e, p in zip(full, positions, strict=True) if p not in (row, scanned))
        while width > VECTORS.least_strip_of_scan and others * -(-full[along] // width) < SHARING.tiles:
            width //= 2
        sizes[along] = even_share(full[along], width, VECTORS.lanes)
    return tuple(sizes)


def _tiles_of_scatter(
    machine: Machine, scop: Scop, cluster: Cluster, full: tuple[int, ...], vector: int
) -> tuple[int, ...]:
    """Tiles of a reduction whose elements data choose: each runs all instances, so rows are cut for threads only."""
    around = math.prod(full) // full[vector]
    width = full[vector]
    if machine.threads > 1 and around < SHARING.tiles:
        line = row_tile(machine, scop, main_statement(scop, cluster))
        width = even_share(width, max(line, -(-width * around // machine.threads)), line)
    return tuple(width if d == vector else 1 for d in range(len(full)))


def _tiles_of_meetings(main: ScopStatement, full: tuple[int, ...], positions: tuple[int, ...]) -> tuple[int, ...]:
    """Tiles of a reduction whose instances meet in elements: single stretches of these, or many tiles of instances."""
    if main.stretch is None:
        return _many_tiles(full, [False] * len(full), full)
    first = main.indices.index(main.stretch.index)
    return tuple(1 if position == first else extent for position, extent in zip(positions, full, strict=True))


def _tiles_of_ranges(
    scop: Scop, main: ScopStatement, full: tuple[int, ...], positions: tuple[int, ...]
) -> tuple[int, ...]:
    """Tiles of elements for which data say over what they are reduced: many, since some take far longer than others."""
    vector = lane_position(scop, main)
    sizes = [extent if position == vector else 1 for extent, position in zip(full, positions, strict=True)]
    rows = all(are_rows(within, scop.sizes) for within in ranges_of(main.value))
    most = THREADS.row_tiles if rows else THREADS.ranged_tiles
    left = -(-math.prod(e for e, p in zip(full, positions, strict=True) if p != vector) // most)
    for d in reversed(range(len(full))):
        if positions[d] != vector:
            sizes[d] = max(1, min(full[d], left))
            left = -(-left // sizes[d])
    return tuple(sizes)


def _many_tiles(full: tuple[int, ...], vectors: list[bool], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes with the outermost loops cut until there are ``SHARING.tiles``, enough to balance the threads."""
    cut = list(sizes)
    for d in range(len(full)):
        while not vectors[d] and cut[d] > 1 and _tile_count(full, cut) < SHARING.tiles:
            cut[d] = _together((cut[d] + 1) // 2)
    return tuple(cut)


def _together(rows: int) -> int:
    """So many rows or a few less, of which those that share vectors do not leave some over."""
    return rows if rows < ROWS.rows_together else rows - rows % ROWS.rows_together


def _tile_count(full: tuple[int, ...], sizes: list[int]) -> int:
    return math.prod(-(-extent // size) for extent, size in zip(full, sizes, strict=True))


def _room(machine: Machine, scop: Scop, cluster: Cluster, members: tuple[int, ...]) -> int:
    """How many elements of its tiled coordinates a tile of a streaming cluster may have.

    After reductions, several statements pass over each row one after another, and it should stay in the nearest cache
    meanwhile.  A contraction among them rather needs the rows, if it reads something for several of them.
    """
    whole = extents(coordinate_set(scop, cluster))
    untiled = math.prod(max(1, extent) for d, extent in enumerate(whole) if d not in members)
    updates = [s for s in scop.statements if s.kind == "update"]
    room = ROWS.pointwise_elements
    if updates and not any(recognise_contraction(s) is not None and _reuses(scop, s) for s in updates):
        itemsize = scop.storages[main_statement(scop, cluster).target].dtype.itemsize
        room = machine.nearest_cache // (ROWS.phases_share * itemsize)
    return max(1, room // untiled)


def _reuses(scop: Scop, statement: ScopStatement) -> bool:
    """Whether a statement reads something for several elements: a sum of squares of each row does not."""
    every = strides_of(scop, statement)[: statement.coordinates]
    return any(0 in strides[1:] for strides, extent in zip(every, statement.lengths, strict=False) if extent > 1)


def spread(
    full: tuple[int, ...], run: tuple[int, ...], first: int | None, wide: int, rows: int, elements: int
) -> tuple[int, ...]:
    """Sizes up to ``full``: ``wide`` for the vector loop, and ``rows`` in all over the others.

    The vector loop is the first of a ``run`` of loops, from the innermost outwards, that walk through memory as one and
    share its ``wide``.  Loop ``first`` takes its rows before the others, of which inner ones come first.  A loop that
    fits whole is not tiled and costs no rows, as long as the tile stays under ``elements``.
    """
    sizes = [1] * len(full)
    for d in sorted(range(len(full)), key=lambda d: (run.index(d) if d in run else len(run), d != first, -d)):
        if run and d == run[0]:
            sizes[d] = full[d] if full[d] <= wide * 3 // 2 else wide
        else:
            sizes[d] = max(1, min(full[d], max(rows, wide) if d in run else rows, elements))
            if sizes[d] < full[d]:
                sizes[d] = _together(sizes[d])
                rows = max(1, rows // sizes[d])
        wide = wide // sizes[d] if sizes[d] == full[d] else 1
        elements //= sizes[d]
    return tuple(sizes)
