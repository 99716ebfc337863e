"""Pass: reductions whose results leave their kernel accumulate in a storage of their own.

What another kernel reads is in global memory, and so would be each step of its sum: a thread that has 8 x 8 elements of
a product would load and store 64 of them for each step.
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.mapping.fusion.groups import group_tree
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import sunk_form
from tcomp.mapping.plan.values import Cluster, Group, Plan
from tcomp.mapping.tiles.apart import accumulated_apart, can_accumulate_apart, finish_of
from tcomp.mapping.tiles.sizes import reduction_positions


def accumulate_apart(plan: Plan, options: MappingOptions) -> Plan:
    """Give every reduction whose result other groups read a storage of its own."""
    names = tuple(name for group in plan.groups for name in _leaving(plan, group))
    if not names:
        return plan
    program, scop, clusters = plan.program, plan.scop, plan.clusters
    for name in names:
        program, scop = accumulated_apart(program, name), accumulated_apart(scop, name)
        clusters = tuple(_with_finish(cluster, name) if name in cluster.statements else cluster for cluster in clusters)
    apart = replace(plan, program=program, scop=scop, clusters=clusters, apart=(*plan.apart, *names))
    return replace(apart, tree=group_tree(apart, lambda cluster, _: sunk_form(scop, cluster)))


def _leaving(plan: Plan, group: Group) -> list[str]:
    """The updates of a group that reduce into what others read."""
    inside = {s for c in group.clusters for s in plan.clusters[c].statements}
    found = []
    for number in group.clusters:
        cluster = plan.clusters[number]
        for name in cluster.statements:
            statement = plan.scop.by_name[name]
            if statement.kind != "update" or not reduction_positions(cluster, statement):
                continue
            users = plan.scop.users[statement.target]
            together = all(s.name in cluster.statements for s in users if s.target == statement.target)
            leaves = any(s.name not in inside for s in users)
            if leaves and together and all(can_accumulate_apart(s, name) for s in (plan.program, plan.scop)):
                found.append(name)
    return found


def _with_finish(cluster: Cluster, name: str) -> Cluster:
    """The cluster with what stores the results of an update, directly behind it."""
    place = cluster.statements.index(name) + 1
    statements = (*cluster.statements[:place], finish_of(name), *cluster.statements[place:])
    return replace(
        cluster, statements=statements, coordinates={**cluster.coordinates, finish_of(name): cluster.coordinates[name]}
    )
