"""How large the tiles of a contraction are when the user does not say: whole register tiles that reuse a panel."""

from __future__ import annotations

import math

from tcomp.mapping.contraction.blocking import is_read_afar, panel_loads, passes_once
from tcomp.mapping.contraction.columns import Columns, depends_on
from tcomp.mapping.contraction.dotproducts import DotProduct, dot_product
from tcomp.mapping.contraction.registertile import Loads, RegisterTile, best_matrix_tile, best_register_tile, given_tile
from tcomp.mapping.cpu.dottiles import tiles_of_dot_product
from tcomp.mapping.machines.cpu import PAGE, Machine
from tcomp.mapping.machines.fitted.cpusharing import SHARING
from tcomp.mapping.machines.fitted.cputiles import CONTRACTION_TILES, ROWS
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import even_share, main_statement, reduction_positions, row_coordinate
from tcomp.model.scop import Scop


def tiles_of_contraction(
    machine: Machine,
    scop: Scop,
    cluster: Cluster,
    members: tuple[int, ...],
    columns: Columns,
    given: tuple[int, int] | None,
) -> tuple[int, ...]:
    """Tiles that reuse a panel over many rows, in whole register tiles, and enough of them for all threads.

    The columns and the rows get up to ``CONTRACTION_TILES.side``, or fewer columns and more rows; so do other
    coordinates that do not change the panel, together with the rows.  What changes it is not tiled, unless nothing is
    packed and the rows are few.  Register tiles are those that the user has ``given``, if any.
    """
    main = main_statement(scop, cluster)
    positions = cluster.coordinates[main.name]
    whole = tuple(max(1, e) for e in main.lengths)
    column = positions.index(columns.position)
    once = passes_once(scop, cluster, columns, machine)
    row = None if once else row_coordinate(scop, cluster, columns.position, tuple(whole[p] for p in positions))
    rows_there = 1 if row is None else whole[positions[row]]
    dot = dot_product(scop, cluster, columns, machine)
    if given is not None:
        given = given_tile(*given, dot is not None and dot.depth > 0)
        unit: tuple[int, int] | None = (min(given[0], CONTRACTION_TILES.side), min(given[1], CONTRACTION_TILES.side))
    else:
        loads = panel_loads(scop, cluster, columns, columns.panel is not None, machine, row)
        unit = _register_tile(rows_there, whole[columns.position], loads, dot, machine)
    if dot is not None:
        return tiles_of_dot_product(machine, scop, cluster, members, columns, dot, row, unit or (1, 1))
    height, width = unit or (1, whole[columns.position])
    free = [
        d
        for d in members
        if columns.panel is not None and not depends_on(scop, columns.panel, main.indices[positions[d]])
    ]
    units = {column: width, row: height}
    sizes = dict.fromkeys(members, 1)
    if once:
        page = PAGE // scop.storages[main.target].dtype.itemsize
        length = whole[columns.position]
        sizes[column] = even_share(length, min(page, longest_tile(machine, length)), width)
        return tuple(sizes[m] for m in members)
    afar = is_read_afar(scop, cluster, columns, machine)
    steps = math.prod(whole[p] for p in reduction_positions(cluster, main))
    column_bytes = steps * scop.storages[main.target].dtype.itemsize
    near = int(CONTRACTION_TILES.near_panel * machine.nearest_cache) // column_bytes
    narrow = max(
        CONTRACTION_TILES.together,
        min(CONTRACTION_TILES.narrow_side, machine.middle_cache // CONTRACTION_TILES.bytes_of_a_column),
        near,
    )
    tall, side = (
        (CONTRACTION_TILES.tall_side, narrow)
        if afar and not columns.packed
        else (CONTRACTION_TILES.side, CONTRACTION_TILES.side)
    )
    if columns.results is not None:
        along = positions.index(columns.results)
        tall = side = CONTRACTION_TILES.turned_side if machine.middle_is_large else CONTRACTION_TILES.turned_side // 2
        if along in members:
            sizes[along] = units[along] = min(whole[columns.results], CONTRACTION_TILES.together)
    sizes[column] = even_share(whole[columns.position], side, width)
    left = tall
    for d in sorted(free, key=lambda d: (d != row, -d)):
        sizes[d] = even_share(whole[positions[d]], left, units.get(d, 1))
        left = max(1, left // sizes[d])
    if row in members and row not in free:
        sizes[row] = even_share(whole[positions[row]], CONTRACTION_TILES.side, height)
    extent = {d: whole[positions[d]] for d in members}
    packed = columns.packed or afar
    while math.prod(-(-extent[d] // sizes[d]) for d in members) < SHARING.tiles:
        if math.prod(sizes.values()) * steps < 2 * CONTRACTION_TILES.least_products:
            break
        few = packed and math.prod(sizes[d] for d in free) <= CONTRACTION_TILES.panel_rows
        across = [d for d in members if d not in free and sizes[d] > units.get(d, 1)] if few else []
        if few and not across and math.prod(-(-extent[d] // sizes[d]) for d in members) >= 2 * machine.threads:
            break
        cut = max(across or members, key=lambda d: (sizes[d] / units.get(d, 1), d))
        smaller = even_share(sizes[cut], (sizes[cut] + 1) // 2, units.get(cut, 1))
        if smaller == sizes[cut]:
            break
        sizes[cut] = smaller
    return tuple(sizes[m] for m in members)


def _register_tile(
    rows: int, columns: int, loads: Loads, dot: DotProduct | None, machine: Machine
) -> tuple[int, int] | None:
    """Rows and columns of the register tile with which so many take least time; None if no vector fits."""
    if dot is not None and dot.depth:
        found: RegisterTile | None = best_matrix_tile(rows, columns)
    else:
        found = best_register_tile(rows, columns, loads, machine)
    return None if found is None else (found.rows, found.columns)


def longest_tile(machine: Machine, extent: int) -> int:
    """How long a tile is at most of which every thread has ``TILES_OF_A_THREAD``, if there are several threads."""
    return extent if machine.threads == 1 else extent // (ROWS.tiles_of_a_thread * machine.threads)
