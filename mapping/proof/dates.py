"""When phases run, and which loops stand around them."""

from __future__ import annotations

import islpy as isl

from tcomp.mapping.plan.tree import below, nodes_of
from tcomp.mapping.plan.values import Plan


def phase_dates(plan: Plan) -> isl.UnionMap:
    """Instance to the date of the phase in which it runs: the schedule without what lies below phases."""
    return _without_phases(plan.tree.get_root(), plan).get_schedule().get_map()


def _without_phases(node: isl.ScheduleNode, plan: Plan) -> isl.ScheduleNode:
    """The same node of a tree that has nothing below the phases here."""
    if node.get_type() == isl.schedule_node_type.mark and node.mark_get_id().get_name() in plan.phases:
        return node.child(0).cut().parent()
    for position in range(node.n_children()):
        node = _without_phases(node.child(position), plan).parent()
    return node


def in_loop(plan: Plan, mark: str) -> bool:
    """Whether control can reach a mark more than once in a tile."""
    return _loop_around(plan, mark) is not None


def phases_in_loop(plan: Plan, mark: str) -> list[str]:
    """The phases in the innermost loop around a mark."""
    loop = _loop_around(plan, mark)
    if loop is None:
        return []
    marks = [n.mark_get_id().get_name() for n in below(loop) if n.get_type() == isl.schedule_node_type.mark]
    return [m for m in marks if m in plan.phases]


def _loop_around(plan: Plan, mark: str) -> isl.ScheduleNode | None:
    """The innermost band above a mark and below its tile."""
    kinds = isl.schedule_node_type
    marks = [n for n in nodes_of(plan.tree) if n.get_type() == kinds.mark]
    above = next(n for n in marks if n.mark_get_id().get_name() == mark)
    while above.get_type() != kinds.domain:
        if above.get_type() == kinds.mark and above.mark_get_id().get_name().startswith("group"):
            return None
        if above.get_type() == kinds.band:
            return above
        above = above.parent()
    return None
