"""How what runs in turns is dealt to threads: rows along one dimension, steps and columns along the other."""

from __future__ import annotations

from tcomp.mapping.gpu.turns.groups import rows_of
from tcomp.mapping.machines.fitted.gpu import TURNS
from tcomp.mapping.plan.values import Cluster, Deal, Dealt, Group, Plan, Share
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions
from tcomp.model.scop import Scop


def rows_in_turns(plan: Plan) -> dict[int, int]:
    """For each cluster of groups with turns the coordinate of which a tile has several rows."""
    found: dict[int, int] = {}
    for done in plan.rescaled:
        for cluster in plan.clusters:
            if {*cluster.statements} & {*done.inside}:
                found[cluster.number] = done.row
            elif {*cluster.statements} & {*done.last}:
                own, order = rows_of(plan.scop, cluster, done, dict(done.carried))
                found[cluster.number] = own[order.index(done.row)]
    return found


def deal_in_turns(scop: Scop, group: Group, cluster: Cluster, row: int) -> Dealt:
    """How a cluster of a group with turns is dealt: all alike, so that threads have the same rows in each.

    ``row`` is the coordinate of which a tile has several rows.
    """
    hull = box_hull(group.footprints[cluster.number].tiles)
    rows, columns = TURNS.threads
    deals: list[Deal] = []
    for d, extent in enumerate(hull.shape):
        if d == row:
            deals.append(_neighbours(extent, rows, 0))
        elif extent > 1:
            deals.append(_neighbours(extent, columns, 1))
        else:
            deals.append(Deal(1, 1, 1, None))
    main = main_statement(scop, cluster)
    steps = reduction_positions(cluster, main) if main.kind == "update" else []
    spread = any(deal.dimension == 1 for deal in deals)
    if not steps:
        return Dealt("pointwise", tuple(deals), (), TURNS.threads)
    if spread:
        return Dealt("serial", tuple(deals), (), TURNS.threads)
    (position,) = steps
    own = _neighbours(TURNS.steps, columns, 1)
    return Dealt("shared", tuple(deals), (Share(position, columns, 1, own.vector),), TURNS.threads)


def _neighbours(extent: int, threads: int, dimension: int) -> Deal:
    """A coordinate dealt to threads that have up to four neighbours at a time."""
    share = -(-extent // threads)
    vector = min(TURNS.neighbours, 1 << (share.bit_length() - 1))
    return Deal(extent, threads, vector, dimension)
