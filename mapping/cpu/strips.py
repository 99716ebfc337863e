"""Passes over a matrix that run together, strip by strip.

``t(i) += A(i,j) * x(j)`` and ``y(j) += A(i,j) * t(i)`` each pass over ``A``, as do products that hand nothing to one
another.  A sum ``y(j)`` has all rows, so ``A`` comes from memory again for it.  Where the rows are cut into parts, each
with sums of its own (``tiles/splitting.py``), what passes over the rows of a part runs in one tile, strip by strip: so
few rows at a time that the second pass finds in a near cache what the first has read.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.mapping.cpu.passing import Passing, passes_apart, passing_together
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpusharing import SHARING, STRIPS
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.tree import Band, Mark, Sequence, Subtree, rows
from tcomp.mapping.plan.values import Cluster, Group, Plan
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.mapping.tiles.splitting import split
from tcomp.model.terms.unions import by_statements

Children = list[tuple[isl.UnionSet, Subtree]]


@dataclass(frozen=True, slots=True)
class Strips:
    """Strips of some clusters of a group.

    For those that have a row as coordinate it is one of ``coordinates``.  The updates of ``parts`` have the row as last
    index, counted from the first of a part; there are so many strips of a part.
    """

    root: int
    coordinates: Mapping[int, int]
    parts: Mapping[int, int]

    @property
    def clusters(self) -> tuple[int, ...]:
        """Those that run in strips."""
        return (*self.coordinates, *self.parts)

    def shape(self, cluster: Cluster, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What a cluster runs in a strip, where it runs a box of some ``shape`` in a tile."""
        along = self.coordinates.get(cluster.number)
        return tuple(min(e, STRIPS.rows) if d == along else e for d, e in enumerate(shape))


def split_by_rows(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Cut the rows of sums into parts that share them with others that pass over these rows.

    It is done where there are rows for all threads, and no cache keeps the matrix.  Tiles of given sizes stay as they
    are.
    """
    if passes_apart(options, plan.scop):
        return plan
    together = passing_together(machine, plan, parts=False)
    added = dict.fromkeys(p.cluster for passing in together for p in passing if p.coordinate is None)
    scop, stored = plan.scop, set[str]()
    for number in sorted(added):
        main = main_statement(scop, plan.clusters[number])
        steps = main.extents[-1] // SHARING.tiles // STRIPS.rows * STRIPS.rows
        scop, storage = split(scop, main, -(-main.extents[-1] // steps), multiple=STRIPS.rows)
        stored.add(storage)
    return replace(scheduled_anew(plan, scop), stored=plan.stored | stored) if stored else plan


def strips_of(machine: Machine, plan: Plan, group: Group) -> Strips | None:
    """The strips in which clusters of a group run, if its root passes over a matrix and others do, too."""
    if len(group.clusters) < 2 or group.turns:
        return None
    for passing in passing_together(machine, plan, parts=True):
        inside = [p for p in passing if p.cluster in group.clusters]
        if passing[0].cluster == group.root and len(inside) > 1:
            strips = _strips(inside)
            whole = all(group.footprints[p.cluster].partition for p in inside)
            return strips if whole and _is_ordered(plan, group, strips) else None
    return None


def _strips(inside: list[Passing]) -> Strips:
    coordinates = {p.cluster: p.coordinate for p in inside if p.coordinate is not None}
    parts = {p.cluster: p.steps // STRIPS.rows for p in inside if p.coordinate is None}
    return Strips(inside[0].cluster, coordinates, parts)


def _is_ordered(plan: Plan, group: Group, strips: Strips) -> bool:
    """Whether what clusters hand on stays in a strip, and those that have no strips can run ahead of all."""
    home = {s: c for c in group.clusters for s in plan.clusters[c].statements}
    others = {*group.clusters} - {*strips.clusters}
    pairs = {(home[a], home[b]) for a, b in by_statements(plan.scop.dependences) if a in home and b in home}
    if any(a in strips.clusters and b in others for a, b in pairs):
        return False
    band = _band(plan, strips)
    inside = band.domain()
    handed = plan.scop.flow.intersect_domain(inside).intersect_range(inside)
    same = band.reverse().apply_range(handed).apply_range(band)
    return bool(same.is_subset(isl.UnionMap("{ [a] -> [a] }")))


def in_strips(plan: Plan, group: Group, strips: Strips | None, children: Children) -> Children:
    """The clusters of a tile: those that pass over a matrix strip by strip, if there are ``strips``.

    What starts sums of parts stands ahead of all strips, and so do other clusters.  Where sums have no part of their
    own that starts them, all clusters run one after another.
    """
    if strips is None:
        return children
    ahead: Children = []
    inside: Children = []
    behind: Children = []
    for number, (domain, subtree) in zip(group.clusters, children, strict=True):
        if number in strips.parts:
            if not isinstance(subtree, Sequence):
                return children
            update = isl.UnionSet.from_set(main_statement(plan.scop, plan.clusters[number]).domain)
            place = next(n for n, (own, _) in enumerate(subtree.children) if own.is_equal(update))
            ahead += subtree.children[:place]
            inside.append(subtree.children[place])
            behind += subtree.children[place + 1 :]
        else:
            (inside if number in strips.coordinates else ahead).append((domain, subtree))
    domain = functools.reduce(isl.UnionSet.union, [d for d, _ in inside])
    band = Band(_band(plan, strips), 0, Mark(f"strips{strips.root}", Sequence(tuple(inside))))
    return [*ahead, (domain, band), *behind]


def _band(plan: Plan, strips: Strips) -> isl.UnionMap:
    """Instance to strip, of all that runs in strips."""
    own = []
    for number, along in strips.coordinates.items():
        cluster = plan.clusters[number]
        named = [plan.scop.by_name[s] for s in cluster.statements]
        own += [(s, [f"floor(i{cluster.coordinates[s.name][along]}/{STRIPS.rows})"]) for s in named]
    for number, of_a_part in strips.parts.items():
        update = main_statement(plan.scop, plan.clusters[number])
        own.append((update, [f"floor(i{len(update.indices) - 1}/{STRIPS.rows}) + {of_a_part}*i0"]))
    return rows(own)
