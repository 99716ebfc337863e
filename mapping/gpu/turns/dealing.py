"""How what runs in turns is dealt to threads: rows along one dimension, steps and columns along the other."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.gpu.atoms import COLUMNS_FETCHED, atom_of
from tcomp.mapping.gpu.turns.groups import rows_of
from tcomp.mapping.machines.atoms import LANES_OF_COLUMNS, LANES_OF_ROWS, ROWS
from tcomp.mapping.machines.fitted.gputurns import TURNS
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Deal, Dealt, Share
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Cluster, Group, Plan, Rescaled
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions
from tcomp.model.scop import Scop


@dataclass(frozen=True, slots=True)
class Turning:
    """The coordinate ``row`` of a cluster, of which a tile has several, and how many ``warps`` multiply matrices.

    Without warps single threads multiply.
    """

    row: int
    warps: int


def rows_in_turns(gpu: Gpu, plan: Plan, options: MappingOptions) -> dict[int, Turning]:
    """The clusters of groups with turns, and how each is dealt."""
    found: dict[int, Turning] = {}
    for done in plan.rescaled:
        for cluster in plan.clusters:
            if {*cluster.statements} & {*done.inside}:
                found[cluster.number] = Turning(done.row, 0)
            elif {*cluster.statements} & {*done.last}:
                own, order = rows_of(plan.scop, cluster, done, dict(done.carried))
                found[cluster.number] = Turning(own[order.index(done.row)], 0)
        if done.inside and by_warps(gpu, plan, done, options):
            inside = {c.number for c in plan.clusters if {*c.statements} & {*done.inside}}
            group = next(g for g in plan.groups if {*g.turns} == inside)
            rows = max(box_hull(group.footprints[c].tiles).shape[found[c].row] for c in group.clusters)
            found |= {c: Turning(found[c].row, -(-rows // ROWS)) for c in group.clusters}
    return found


def by_warps(gpu: Gpu, plan: Plan, done: Rescaled, options: MappingOptions) -> bool:
    """Whether warps can multiply the matrices of all products of a turn, halves with sums of floats."""
    products = [s for name in done.inside if recognise_contraction(s := plan.scop.by_name[name]) is not None]
    for statement in products:
        atom = atom_of(gpu, plan.scop, statement, options)
        cluster = next(c for c in plan.clusters if statement.name in c.statements)
        (step,) = reduction_positions(cluster, statement)
        if atom is None or atom.itemsize != 2 or statement.extents[step] < atom.steps:
            return False
    return bool(products)


def deal_in_turns(scop: Scop, group: Group, cluster: Cluster, own: Turning) -> Dealt:
    """How a cluster of a group with turns is dealt: all alike, so that threads have the same rows in each.

    Where warps multiply matrices, all have what these leave in the lanes of a warp.
    """
    hull = box_hull(group.footprints[cluster.number].tiles)
    shape = (LANES_OF_ROWS * own.warps, LANES_OF_COLUMNS) if own.warps else TURNS.threads
    widest = (1, 2) if own.warps else (TURNS.neighbours, TURNS.neighbours)
    deals: list[Deal] = []
    for d, extent in enumerate(hull.shape):
        if d == own.row:
            deals.append(_neighbours(_whole(extent, ROWS) if own.warps else extent, shape[0], 0, widest[0]))
        elif extent > 1:
            across = _whole(extent, COLUMNS_FETCHED) if own.warps else extent
            deals.append(_neighbours(across, shape[1], 1, widest[1]))
        else:
            deals.append(Deal(1, 1, 1, None))
    main = main_statement(scop, cluster)
    steps = reduction_positions(cluster, main) if main.kind == "update" else []
    spread = any(deal.dimension == 1 for deal in deals)
    if not steps:
        return Dealt("pointwise", tuple(deals), (), shape)
    if spread:
        return Dealt("serial", tuple(deals), (), shape)
    (position,) = steps
    share = _neighbours(TURNS.steps, shape[1], 1, widest[1])
    return Dealt("shared", tuple(deals), (Share(position, shape[1], 1, share.vector),), shape)


def _whole(extent: int, multiple: int) -> int:
    """An extent with what it lacks of whole atoms, which are computed from zeros."""
    return -(-extent // multiple) * multiple


def _neighbours(extent: int, threads: int, dimension: int, most: int) -> Deal:
    """A coordinate dealt to threads that have up to so many neighbours at a time."""
    share = -(-extent // threads)
    vector = min(most, 1 << (share.bit_length() - 1))
    return Deal(extent, threads, vector, dimension)
