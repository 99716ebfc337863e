"""Which index of a statement runs along vectors on a CPU, and what that asks of the operands of a contraction.

A contraction that reuses operands runs as outer products: vectors along a coordinate, the *columns*, of which one
operand, the *panel*, gives neighbours.  If those are not neighbours in memory the panel is packed first.
Other updates have columns where the same is the remedy for strides and boundaries: pooling, say.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import islpy as isl

from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Binary, Read, depends_on_data, walk
from tcomp.mapping.contraction.borders import has_border, has_whole_columns
from tcomp.mapping.contraction.lanesums import sum_sides
from tcomp.mapping.machines.fitted.cpucontractions import COLUMNS
from tcomp.mapping.machines.fitted.cputiles import CONTRACTION_TILES
from tcomp.mapping.plan.operations import bare, recognise_contraction
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import lane_position, main_statement, reduction_positions
from tcomp.mapping.tiles.strides import access_stride, coefficient
from tcomp.model.scop import Scop, ScopStatement


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of an update: their ``position`` among the indices, and the operand read along them.

    ``panel`` is None where both operands of a contraction run along the columns, and rows share one of them.
    ``packed`` says that the panel's neighbours lie apart, or that some of them lie outside the tensor.  Neighbouring
    columns are ``step`` apart in one of its dimensions.  ``results`` is the position of the index along which results
    are neighbours, if it is another: those of a tile are then turned at the end.
    """

    position: int
    panel: Read | None
    packed: bool
    step: int = 1
    results: int | None = None


def operands_of(statement: ScopStatement) -> tuple[Read, Read] | None:
    """The two reads whose products an update sums, conversions looked through; None for any other statement."""
    value = statement.value
    if not isinstance(value, Binary) or recognise_contraction(statement) is None:
        return None
    first, second = bare(value.lhs), bare(value.rhs)
    assert isinstance(first, Read) and isinstance(second, Read)
    return first, second


def columns_of(scop: Scop, cluster: Cluster, vector_bytes: int) -> Columns | None:
    """The columns of the update that a cluster runs; None where dot products or plain loops are better.

    An update that is no contraction has some only if there is something to pack.  Vectors have ``vector_bytes``.
    """
    return _chosen(scop, cluster, vector_bytes)[1]


def step_cost(scop: Scop, cluster: Cluster, vector_bytes: int) -> float:
    """What a step of the update that a cluster runs costs for each vector of results; infinite for plain loops."""
    return _chosen(scop, cluster, vector_bytes)[0]


Chosen = tuple[float, Columns | None]

_KNOWN: WeakKeyDictionary[Scop, dict[Hashable, Chosen]] = WeakKeyDictionary()


def _chosen(scop: Scop, cluster: Cluster, vector_bytes: int) -> Chosen:
    """Several passes ask for the same."""
    known, key = _KNOWN.setdefault(scop, {}), (cluster.statements, *cluster.coordinates.items(), vector_bytes)
    if key not in known:
        known[key] = _choice(scop, cluster, vector_bytes)
    return known[key]


def _choice(scop: Scop, cluster: Cluster, vector_bytes: int) -> Chosen:
    main = main_statement(scop, cluster)
    if main.kind != "update" or not main.plain:
        return math.inf, None
    lanes = max(1, vector_bytes // scop.storages[main.target].dtype.itemsize)
    operands = operands_of(main) or tuple(dict.fromkeys(e for e in walk(main.value) if isinstance(e, Read)))
    sizes = main.lengths
    steps = math.prod(sizes[p] for p in reduction_positions(cluster, main))
    along = _along_results(scop, cluster, main)
    found: list[tuple[float, int, Columns]] = []
    for position in cluster.coordinates[main.name]:
        write = access_stride(scop, main.target, main.subscripts, main.indices[position], scop.sizes)
        side = CONTRACTION_TILES.side if write == 1 else CONTRACTION_TILES.turned_side
        chosen = _as_columns(scop, cluster, main, operands, position, lanes, side)
        if chosen is not None and write == 1:
            cost, columns = chosen
            found.append((cost * _unfilled(sizes[position], lanes), -position, columns))
        elif chosen is not None and write and along is not None:
            cost, columns = chosen
            cost *= _unfilled(sizes[position], lanes) * (
                COLUMNS.both_beside if columns.panel is None else COLUMNS.beside
            )
            cost += COLUMNS.turned * lanes / max(1, steps)
            found.append((cost, -position, replace(columns, results=along)))
    sums = _dot_cost(scop, cluster, main, operands, steps, lanes)
    if not found:
        return sums, None
    cost, _, columns = min(found, key=lambda entry: entry[:2])
    return (cost, columns) if cost <= sums else (sums, None)


def _along_results(scop: Scop, cluster: Cluster, main: ScopStatement) -> int | None:
    """The index along which the results of a contraction are neighbours; None unless its cluster goes on with them.

    The accumulators of a tile may then lie in any order.  Narrower operands are always packed, so nothing is won.
    """
    operands = operands_of(main)
    users = scop.users[main.target]
    readers = {s.name for s in users for r in s.reads if r.get_tuple_name(isl.dim_type.out) == main.target}
    if operands is None or main.tile_rank or not readers or not readers <= {*cluster.statements}:
        return None
    if any(read.dtype.bits < main.value.dtype.bits for read in operands):
        return None
    return _neighbouring_results(scop, cluster, main)


def _neighbouring_results(scop: Scop, cluster: Cluster, main: ScopStatement) -> int | None:
    """The coordinate along which the results of a statement are neighbours, if it has more than one value."""
    for position in cluster.coordinates[main.name]:
        stride = access_stride(scop, main.target, main.subscripts, main.indices[position], scop.sizes)
        if stride == 1 and main.lengths[position] > 1:
            return position
    return None


def _as_columns(
    scop: Scop, cluster: Cluster, main: ScopStatement, operands: tuple[Read, ...], position: int, lanes: int, side: int
) -> tuple[float, Columns] | None:
    """What a step costs with vectors along an index, and the columns; None if an operand cannot be read so.

    A tile has at most ``side`` rows.
    """
    index, sizes = main.indices[position], main.lengths
    strides = [access_stride(scop, r.tensor, r.subscripts, index, scop.sizes) for r in operands]
    moving = [(r, s) for r, s in zip(operands, strides, strict=True) if s != 0]
    if not moving or any(s is None for _, s in moving):
        return None
    alone = len(moving) == 1 and recognise_contraction(main) is not None
    packed = [(r, s) for r, s in moving if s != 1 or r.boundary is not None]
    if len(moving) > 1 and all(has_whole_columns(scop, main, r, index) for r, _ in packed):
        packed = []
    if alone and not packed and _is_packed_ahead(scop, moving[0][0], index):
        packed = moving
    if alone and not packed and _is_worth_padding(scop, cluster, main, moving[0][0], position, lanes):
        packed = moving
    outside = [r for r in operands if r.boundary is not None and r not in [p for p, _ in packed[:1]]]
    if len(moving) > 1 and not packed:
        outside = [r for r in outside if not has_whole_columns(scop, main, r, index)]
    if outside and not (alone and all(_can_be_brought_together(scop, r) for r in outside)):
        return None
    cost = 1.0 + COLUMNS.load * len(moving) + (COLUMNS.alone if len(moving) == 1 and sizes[position] <= lanes else 0.0)
    cost += sum(COLUMNS.packed / max(1, sizes[position]) for _ in outside)
    if not packed:
        panel = moving[0][0] if len(moving) == 1 else None
        others = [main.indices[p] for p in cluster.coordinates[main.name]]
        shared = panel is not None or any(not depends_on(scop, r, other) for r in operands for other in others)
        known = shared and recognise_contraction(main) is not None
        return (cost, Columns(position, panel, False)) if known else None
    (read, stride), step = packed[0], step_when_packed(scop, packed[0][0], index)
    if len(packed) > 1 or step is None or not (alone or stride == step):
        return None
    rows = _rows(scop, cluster, main, read)
    served = rows if scop.storages[read.tensor].bytes <= COLUMNS.near else min(rows, side)
    if scop.storages[read.tensor].bound:
        return cost, Columns(position, read, True, step)
    cost += _packing(scop, cluster, main, read, position, step, rows, lanes) / max(1, served)
    return cost, Columns(position, read, True, step)


def _is_packed_ahead(scop: Scop, read: Read, index: str) -> bool:
    """Whether columns of a bound array can lie in panels that are packed before the kernel is called."""
    return scop.storages[read.tensor].bound and step_when_packed(scop, read, index) is not None


def _rows(scop: Scop, cluster: Cluster, main: ScopStatement, read: Read) -> int:
    """Rows that use the same elements of a panel."""
    sizes = main.lengths
    return math.prod(sizes[p] for p in cluster.coordinates[main.name] if not depends_on(scop, read, main.indices[p]))


def _is_worth_padding(scop: Scop, cluster: Cluster, main: ScopStatement, read: Read, position: int, lanes: int) -> bool:
    """Whether neighbouring columns are packed since they fill no vector, which may reach past those of a panel.

    Two vectors that overlap would cover them elsewhere: products with 5, 6 or 7 columns take 0.7 to 0.8 of the time.
    """
    columns = main.lengths[position]
    fills = columns >= lanes or columns & (columns - 1) == 0
    known = step_when_packed(scop, read, main.indices[position]) == 1
    return not fills and known and _rows(scop, cluster, main, read) >= COLUMNS.padded_rows


def _packing(
    scop: Scop, cluster: Cluster, main: ScopStatement, read: Read, position: int, step: int, rows: int, lanes: int
) -> float:
    """What a vector of a panel costs that neighbouring values of an index read so many steps apart, for so many rows.

    Where a reduction runs along memory, blocks are turned as a whole, unless columns are left out between them.
    """

    def runs_along(index: str) -> bool:
        return access_stride(scop, read.tensor, read.subscripts, index, scop.sizes) == 1

    if any(runs_along(main.indices[p]) for p in cluster.coordinates[main.name] if p != position):
        return COLUMNS.scattered
    apart = access_stride(scop, read.tensor, read.subscripts, main.indices[position], scop.sizes) != step
    if apart and any(runs_along(main.indices[p]) for p in reduction_positions(cluster, main)):
        return COLUMNS.crossed * lanes if step == 1 else COLUMNS.scattered
    if step == 1 or rows == 1:
        return COLUMNS.packed
    return COLUMNS.stepped * step / _reads_between(scop, cluster, main, read, position)


def _reads_between(scop: Scop, cluster: Cluster, main: ScopStatement, read: Read, position: int) -> int:
    """Steps of a reduction that read in the same row of a panel as neighbouring values of an index."""
    index = main.indices[position]
    along = next(s for s in read.subscripts if coefficient(s, index, scop.sizes))
    steps = (p for p in reduction_positions(cluster, main) if coefficient(along, main.indices[p], scop.sizes))
    return math.prod(max(1, main.lengths[p]) for p in steps)


def step_when_packed(scop: Scop, read: Read, index: str) -> int | None:
    """How far apart neighbouring values of an index read, in the one dimension that moves with it.

    None if a copy cannot have them side by side: more dimensions move, they are too far apart, or what lies outside
    the tensor is neither one number nor an element of it.
    """
    if not _can_be_brought_together(scop, read):
        return None
    steps = [coefficient(s, index, scop.sizes) for s in read.subscripts]
    moving = [s for s in steps if s != 0]
    return moving[0] if len(moving) == 1 and moving[0] in range(1, CONTRACTION_TILES.most_step + 1) else None


def _can_be_brought_together(scop: Scop, read: Read) -> bool:
    """Whether a copy can have what is read, within the tensor and outside."""
    if read.boundary is not None and (0 in scop.storages[read.tensor].box.extent or not has_border(read)):
        return False
    return has_box(scop, read) and not any(map(depends_on_data, read.subscripts))


def has_box(scop: Scop, read: Read) -> bool:
    """Whether a copy can hold all that a read names, which outside a tensor only affine subscripts tell."""
    return read.boundary is None or all(to_form(s, scop.sizes) is not None for s in read.subscripts)


def depends_on(scop: Scop, read: Read, index: str) -> bool:
    """Whether another value of an index reads another element."""
    return access_stride(scop, read.tensor, read.subscripts, index, scop.sizes) != 0


def _dot_cost(
    scop: Scop, cluster: Cluster, main: ScopStatement, operands: tuple[Read, ...], steps: int, lanes: int
) -> float:
    """What a step costs with vectors along a reduction index, element by element."""
    best = math.inf
    if any(read.boundary is not None for read in operands):
        return best
    products = recognise_contraction(main) is not None
    sides = sum_sides(scop, cluster, operands) if products else None
    if sides is not None and sides.row is not None:
        own = {cluster.coordinates[main.name][side] for side in (sides.row, sides.column)}
        apart = _neighbouring_results(scop, cluster, main) not in {*own, None}
        ends = COLUMNS.lanes_added + (COLUMNS.turned * lanes if apart else 0.0)
        return COLUMNS.sums * _unfilled(main.lengths[sides.lanes], lanes) + ends / steps
    for position in reduction_positions(cluster, main):
        strides = [access_stride(scop, r.tensor, r.subscripts, main.indices[position], scop.sizes) for r in operands]
        if all(s in (0, 1) for s in strides):
            cost, extent = 1.0 + 2 * COLUMNS.load, main.lengths[position]
            whole = extent == steps and not (products and steps < lanes)
            added = COLUMNS.summed if whole else COLUMNS.summed_each
            best = min(best, cost * _unfilled(extent, lanes) + added / max(1, extent))
    return best


def _unfilled(extent: int, lanes: int) -> float:
    """Lanes that run for each one needed."""
    return lanes / max(1, extent) if extent < lanes else -(-extent // lanes) * lanes / extent


def column_position(scop: Scop, cluster: Cluster, vector_bytes: int) -> int | None:
    """The index of a cluster's main statement that its vector loop runs over."""
    columns = columns_of(scop, cluster, vector_bytes)
    return lane_position(scop, main_statement(scop, cluster)) if columns is None else columns.position
