"""How large the tiles of a contraction are that takes several steps at a time, when the user does not say.

Its products are so cheap that packing the operands counts: the panel is packed again for every tile of rows, the other
operand for every tile of columns.
"""

from __future__ import annotations

import math

from tcomp.mapping.contraction.columns import Columns, depends_on
from tcomp.mapping.contraction.dotproducts import DotProduct
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpupanels import DOT_TILES
from tcomp.mapping.machines.fitted.cpusharing import SHARING
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import even_share, main_statement, reduction_positions
from tcomp.model.scop import Scop


def tiles_of_dot_product(
    machine: Machine,
    scop: Scop,
    cluster: Cluster,
    members: tuple[int, ...],
    columns: Columns,
    dot: DotProduct,
    row: int | None,
    register: tuple[int, int],
) -> tuple[int, ...]:
    """Tile sizes for the coordinates ``members``; ``row`` is the other side of register tiles.

    These have ``register`` rows and columns.
    """
    main = main_statement(scop, cluster)
    positions = cluster.coordinates[main.name]
    whole = {d: max(1, main.extents[positions[d]]) for d in range(cluster.rank)}
    steps = math.prod(main.extents[p] for p in reduction_positions(cluster, main))
    column = positions.index(columns.position)
    units = {column: register[1], row: register[0]}
    free = [d for d in members if not depends_on(scop, dot.panel.read, main.indices[positions[d]])]
    sizes = dict.fromkeys(members, 1)
    sizes[column] = even_share(whole[column], DOT_TILES.most_columns, units.get(column, 1))
    left = max(DOT_TILES.least_rows, DOT_TILES.other_bytes // (steps * dot.other.dtype.itemsize))
    for d in sorted(free, key=lambda d: (d != row, -d)):
        sizes[d] = even_share(whole[d], left, units.get(d, 1))
        left = max(1, left // sizes[d])
    if row in members and row not in free:
        sizes[row] = even_share(whole[row], DOT_TILES.most_columns, units.get(row, 1))

    def count() -> int:
        return math.prod(-(-whole[d] // sizes[d]) for d in members)

    def packing(chosen: dict[int, int]) -> float:
        return DOT_TILES.panel_cost / math.prod(chosen[d] for d in free) + DOT_TILES.other_cost / chosen[column]

    while count() < SHARING.tiles and math.prod(sizes.values()) * steps // dot.size >= DOT_TILES.least_products:
        smaller = [sizes | {d: even_share(sizes[d], (sizes[d] + 1) // 2, units.get(d, 1))} for d in members]
        tried = [(packing(s), n, s) for n, s in enumerate(smaller) if s != sizes]
        if not tried:
            break
        cost, _, best = min(tried, key=lambda entry: entry[:2])
        if cost > DOT_TILES.most_packing and count() >= 2 * machine.threads:
            break
        sizes = best
    return tuple(sizes[m] for m in members)
