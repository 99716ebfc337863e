"""Sums down the columns of a matrix that share its rows with what is computed from them.

``t(i) += A(i,j) * x(j)`` and ``y(j) += A(i,j) * t(i)`` each pass over ``A``.  A sum of the second has all rows, so it
must wait for all of the first, and ``A`` comes from memory twice.  Where the rows are cut into parts, each with sums of
its own (``tiles/splitting.py``), what the sums of a part read is computed in the same tile.  There both run strip by
strip: so few rows at a time that the second finds in a near cache what the first has read.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.forms import Atom, to_form
from tcomp.grammar.tree.function import Index, Read, walk
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpustrips import STRIPS
from tcomp.mapping.machines.fitted.cputiles import SHARING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import indices_in
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.tree import Band, Mark, Sequence, Subtree, rows
from tcomp.mapping.plan.values import Cluster, Group, Plan
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.mapping.tiles.splitting import is_part, split
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import by_statements

Children = list[tuple[isl.UnionSet, Subtree]]


@dataclass(frozen=True, slots=True)
class Strips:
    """Strips of the clusters of a group: the coordinate of each but the ``root`` that is the row.

    The ``update`` of the root has it as its last index, counted from the first row of a part; there are so many strips
    ``of_a_part``.
    """

    root: int
    coordinates: Mapping[int, int]
    update: str
    of_a_part: int

    def shape(self, cluster: Cluster, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What a cluster runs in a strip, where it runs a box of some ``shape`` in a tile."""
        along = self.coordinates.get(cluster.number)
        return tuple(min(e, STRIPS.rows) if d == along else e for d, e in enumerate(shape))


def split_by_rows(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Cut the rows of each sum into parts that can share them with what it reads, where that is computed from them.

    It is done where there are rows for all threads, and no cache keeps the matrix.  Tiles of given sizes stay as they
    are.
    """
    if options.tile_sizes is not None or options.fusion_strategy == "min" or plan.scop.around is not None:
        return plan
    scop, stored = plan.scop, set[str]()
    for cluster in plan.clusters:
        main = main_statement(scop, cluster)
        if not _can_split(main) or not any(_shared(machine, plan, cluster, {cluster.number})):
            continue
        steps = main.extents[-1] // SHARING.tiles // STRIPS.rows * STRIPS.rows
        scop, storage = split(scop, main, -(-main.extents[-1] // steps), multiple=STRIPS.rows)
        stored.add(storage)
    return replace(scheduled_anew(plan, scop), stored=plan.stored | stored) if stored else plan


def _can_split(main: ScopStatement) -> bool:
    """Whether a statement is a sum over the rows of something, of which there are strips for all tiles."""
    reduced = len(main.indices) - main.coordinates
    plain = main.kind == "update" and main.plain and main.tile_rank == 0 and not ranges_of(main.value)
    return plain and reduced == 1 and main.coordinates > 0 and main.extents[-1] >= SHARING.tiles * STRIPS.rows


def _shared(machine: Machine, plan: Plan, cluster: Cluster, below: set[int]) -> Iterator[tuple[int, int, str]]:
    """What has a row as coordinate, and which, that a sum reads: also the storage of the rows."""
    scop = plan.scop
    main = main_statement(scop, cluster)
    row = main.indices[-1]
    home = {s: c.number for c in plan.clusters for s in c.statements}
    flow = {(home[a], home[b]) for a, b in by_statements(scop.dependences)}
    for read, number in itertools.product(_passes(machine, scop, main), range(len(plan.clusters))):
        moved = [d for d, s in enumerate(read.subscripts) if coefficient(s, row, scop.sizes)]
        if number in below or moved != [0] or (number, cluster.number) not in flow:
            continue
        other = main_statement(scop, plan.clusters[number])
        readers = {b for a, b in flow if a == number} - {number}
        if other.kind != "update" or not other.plain or readers != {cluster.number}:
            continue
        again = [r for r in _passes(machine, scop, other) if r.tensor == read.tensor]
        along = [r.subscripts[0] for r in again]
        own = plan.clusters[number].coordinates[other.name]
        indices = [other.indices[p] for p in own]
        names = {s.name if isinstance(s, Index) else "" for s in along} & {*indices, ""}
        if len(names) == 1 and names <= {*indices}:
            yield number, indices.index(min(names)), read.tensor


def _passes(machine: Machine, scop: Scop, statement: ScopStatement) -> list[Read]:
    """What a statement reads once, of a tensor that no cache keeps and whose strips one keeps.

    Its first dimension are the rows, which lie one after another, each in one piece.
    """
    found = []
    for read in (e for e in walk(statement.value) if isinstance(e, Read)):
        storage = scop.storages[read.tensor]
        used = frozenset[str]().union(*map(indices_in, read.subscripts))
        strip = STRIPS.rows * max(storage.strides, default=0) * storage.dtype.itemsize
        piece = storage.strides[-1:] == (1,) and storage.strides == tuple(sorted(storage.strides, reverse=True))
        if (
            storage.role == "input"
            and storage.opened is None
            and piece
            and read.boundary is None
            and len(read.subscripts) > 1
            and used == {*statement.indices}
            and storage.bytes >= STRIPS.least * machine.middle_cache
            and strip <= STRIPS.kept_share * machine.middle_cache
        ):
            found.append(read)
    return found


def strips_of(machine: Machine, plan: Plan, group: Group) -> Strips | None:
    """The strips in which the clusters of a group run, if its root is a part of a sum over rows."""
    root = plan.clusters[group.root]
    main = main_statement(plan.scop, root)
    if len(group.clusters) < 2 or main.kind != "update" or not is_part(main) or group.turns:
        return None
    if not all(group.footprints[c].partition for c in group.clusters):
        return None
    found = list(_shared(machine, plan, root, {group.root}))
    steps = _steps_of_parts(plan.scop, main, {storage for _, _, storage in found})
    if {n for n, _, _ in found} != {*group.clusters[:-1]} or steps is None:
        return None
    strips = Strips(root.number, {n: along for n, along, _ in found}, main.name, steps // STRIPS.rows)
    band = _band(plan, strips)
    inside = band.domain()
    handed = plan.scop.flow.intersect_domain(inside).intersect_range(inside)
    same = band.reverse().apply_range(handed).apply_range(band)
    return strips if same.is_subset(isl.UnionMap("{ [a] -> [a] }")) else None


def _steps_of_parts(scop: Scop, main: ScopStatement, read: set[str]) -> int | None:
    """Rows of a part of a sum, if parts are whole strips of the one matrix that it reads."""
    subscripts = {e.subscripts[0] for e in walk(main.value) if isinstance(e, Read) and e.tensor in read}
    if len(read) != 1 or len(subscripts) != 1:
        return None
    form = to_form(subscripts.pop(), scop.sizes)
    terms: dict[str | Atom, int] = {} if form is None else dict(form.terms)
    steps = terms.get(main.indices[0], 0)
    whole = form is not None and form.constant == 0 and steps > 0 and steps % STRIPS.rows == 0
    return steps if whole and terms == {main.indices[0]: steps, main.indices[-1]: 1} else None


def in_strips(plan: Plan, strips: Strips | None, children: Children) -> Children:
    """The clusters of a tile, strip by strip behind what starts the sums of the last one, if there are ``strips``.

    Where the last one has no part of its own that starts its sums, it runs behind the others.
    """
    if strips is None:
        return children
    *others, (_, last) = children
    if not isinstance(last, Sequence):
        return children
    update = plan.scop.by_name[strips.update].domain
    stages = [*last.children]
    place = next(n for n, (domain, _) in enumerate(stages) if domain.is_equal(isl.UnionSet.from_set(update)))
    inside = [*others, stages[place]]
    domain = functools.reduce(isl.UnionSet.union, [d for d, _ in inside])
    stages[place] = (domain, Band(_band(plan, strips), 0, Mark(f"strips{strips.root}", Sequence(tuple(inside)))))
    return stages


def _band(plan: Plan, strips: Strips) -> isl.UnionMap:
    """Instance to strip, of all that runs in strips."""
    own = []
    for number, along in strips.coordinates.items():
        cluster = plan.clusters[number]
        named = [plan.scop.by_name[s] for s in cluster.statements]
        own += [(s, [f"floor(i{cluster.coordinates[s.name][along]}/{STRIPS.rows})"]) for s in named]
    update = plan.scop.by_name[strips.update]
    return rows([*own, (update, [f"floor(i{len(update.indices) - 1}/{STRIPS.rows}) + {strips.of_a_part}*i0"])])
