"""``Scop`` to the first ``Plan``: clusters, each scheduled by isl in the sunk form.

A cluster is a reduction with what initialises it and the pointwise statements that read and write the same element.
Scheduling a cluster alone is small, fast and always parallel outside; isl's scheduler on whole programs returns softmax
and MLP chains unfused and convolution with pooling sequential.  Fusion between clusters is by footprint, after tiling
(``mapping/fusion/fusion.py``).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence as Items
from dataclasses import replace

import islpy as isl

from tcomp.mapping.plan.tree import Band, Sequence, Subtree, plant, rows
from tcomp.mapping.plan.values import Cluster, Plan
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import by_statements, extents, maps_of, storage_of, union_map, union_set

isl.DEFAULT_CONTEXT.set_schedule_outer_coincidence(1)
isl.DEFAULT_CONTEXT.set_schedule_whole_component(0)


MAX_CLUSTER = 64
"""Most statements of a cluster: isl's scheduler takes seconds for some hundreds.  Clusters of a chain fuse again."""


Together = tuple[tuple[str, ...], ...]
"""Clusters that are known beforehand."""


def schedule(scop: Scop, turns: frozenset[str] = frozenset(), together: Together = ()) -> Plan:
    """The first plan, for all options: clusters in textual order, each one band of coincident members above the sunk
    reductions.

    Statements of ``turns`` have all of their elements in the band, though some wait for others.  Those ``together`` are
    clusters.
    """
    names = form_clusters(scop, together)
    clusters: list[Cluster] = []
    for statements in names:
        if turns.issuperset(statements):
            own = {s: tuple(range(scop.by_name[s].coordinates)) for s in statements}
            clusters.append(Cluster(len(clusters), statements, own))
        else:
            clusters.extend(_schedule_cluster(scop, statements, len(clusters)))
    children = [(cluster_domain(scop, c), sunk_form(scop, c)) for c in clusters]
    return Plan(scop, scop, plant(scop.domain, Sequence(tuple(children))), tuple(clusters))


def scheduled_anew(plan: Plan, scop: Scop, turns: frozenset[str] = frozenset(), together: Together = ()) -> Plan:
    """The first plan of a program that a pass has rewritten, with what is known of how it was (see ``schedule``).

    What ran in turn before does so again, in the clusters that it had.
    """
    known = frozenset(name for done in plan.rescaled for name in done.inside)
    kept = tuple(c.statements for c in plan.clusters if known.issuperset(c.statements))
    first = schedule(scop, turns | known, (*together, *kept))
    return replace(plan, program=scop, scop=scop, tree=first.tree, clusters=first.clusters)


def cluster_domain(scop: Scop, cluster: Cluster) -> isl.UnionSet:
    """All instances of a cluster."""
    return union_set([scop.by_name[s].domain for s in cluster.statements])


def sunk_form(scop: Scop, cluster: Cluster) -> Subtree:
    """The coincident band, below it the statements in order, and each reduction's own band below its statement."""
    children = []
    for name in cluster.statements:
        statement = scop.by_name[name]
        rest = [p for p in range(statement.tile_rank, len(statement.indices)) if p not in cluster.coordinates[name]]
        inner: Subtree = Band(rows([(statement, rest)]), coincident=0) if rest else None
        children.append((isl.UnionSet.from_set(statement.domain), inner))
    body = Sequence(tuple(children))
    if cluster.rank == 0:
        return body
    band = rows([(scop.by_name[s], cluster.coordinates[s]) for s in cluster.statements])
    return Band(band, coincident=cluster.rank, child=body)


def form_clusters(scop: Scop, together: Together = ()) -> list[tuple[str, ...]]:
    """Statement names of each cluster, in an order that respects all dependences; those ``together`` are clusters."""
    clusters = [[*names] for names in together]
    home = {name: number for number, names in enumerate(together) for name in names}
    edges = by_statements(scop.dependences)
    sources: dict[str, set[str]] = {s.name: set() for s in scop.statements}
    for source, sink in edges:
        if source != sink:
            sources[sink].add(source)
    for statement in [s for s in scop.statements if s.name not in home]:
        place = _joinable(scop, statement, clusters, home, sources)
        if place is None:
            place = len(clusters)
            clusters.append([])
        clusters[place].append(statement.name)
        home[statement.name] = place
    return [tuple(clusters[c]) for c in _topological(clusters, home, sources)]


def _joinable(
    scop: Scop, statement: ScopStatement, clusters: list[list[str]], home: dict[str, int], sources: dict[str, set[str]]
) -> int | None:
    """The latest cluster that the statement may join: same elements, nothing in between."""
    if statement.kind == "init" or not statement.plain:
        return None
    direct = {home[s] for s in sources[statement.name]}
    for place in sorted(direct, reverse=True):
        if len(clusters[place]) >= MAX_CLUSTER:
            continue
        if statement.kind == "update" and scop.by_name[clusters[place][-1]].kind != "init":
            continue
        if _same_elements(scop, statement, clusters[place]) and not _depends_through(
            place, direct, clusters, home, sources
        ):
            return place
    return None


def _same_elements(scop: Scop, statement: ScopStatement, cluster: list[str]) -> bool:
    """Whether the statement reads what the cluster writes only at its own element, over the same coordinates."""
    first = scop.by_name[cluster[0]]
    rank = statement.coordinates
    if not first.plain or first.coordinates != rank:
        return False
    writers = [scop.by_name[s] for s in cluster]
    if not all(_stays_at(read, w.write, statement.write) for read in statement.reads for w in writers):
        return False
    if not all(_stays_at(read, statement.write, w.write) for w in writers for read in w.reads):
        return False
    return statement.kind == "update" or _coordinate_set(statement).is_equal(_coordinate_set(first))


def _coordinate_set(statement: ScopStatement) -> isl.Set:
    count = statement.coordinates
    inner = len(statement.indices) - count
    return statement.domain.project_out(isl.dim_type.set, count, inner).reset_tuple_id()


def _stays_at(read: isl.Map, written: isl.Map, own: isl.Map) -> bool:
    """Whether what is read of the elements that a statement has ``written`` is the reader's ``own`` element only."""
    if storage_of(read) != storage_of(written) or _same_element_map(read, own):
        return True
    return _same_element_map(read.intersect_range(written.range()), own)


def _same_element_map(a: isl.Map, b: isl.Map) -> bool:
    target = isl.dim_type.out
    if a.is_empty():
        return True
    if a.dim(target) != b.dim(target):
        return False
    return bool(a.reset_tuple_id(target).is_subset(b.reset_tuple_id(target)))


def _depends_through(
    place: int, direct: set[int], clusters: list[list[str]], home: dict[str, int], sources: dict[str, set[str]]
) -> bool:
    """Whether another source cluster of the statement depends on ``place``: joining would make a cycle."""
    seen: set[int] = set()
    stack = [c for c in direct if c != place]
    while stack:
        current = stack.pop()
        if current == place:
            return True
        if current in seen:
            continue
        seen.add(current)
        stack.extend(home[s] for name in clusters[current] for s in sources[name] if home[s] != current)
    return False


def _topological(clusters: list[list[str]], home: dict[str, int], sources: dict[str, set[str]]) -> list[int]:
    """The numbers of clusters in an order that respects their dependences: always the smallest that may be next."""
    needs = [{home[s] for name in c for s in sources[name]} - {number} for number, c in enumerate(clusters)]
    after: list[list[int]] = [[] for _ in clusters]
    for number, needed in enumerate(needs):
        for other in needed:
            after[other].append(number)
    ready = [number for number, needed in enumerate(needs) if not needed]
    done = []
    while ready:
        done.append(heapq.heappop(ready))
        for number in after[done[-1]]:
            needs[number].discard(done[-1])
            if not needs[number]:
                heapq.heappush(ready, number)
    assert len(done) == len(clusters)
    return done


def _schedule_cluster(scop: Scop, names: tuple[str, ...], number: int) -> list[Cluster]:
    """One cluster as isl schedules it; several, one statement each, where isl finds no common band."""
    statements = [scop.by_name[n] for n in names]
    positions = _coincident_positions(scop, statements)
    if positions is None and len(names) > 1:
        return [c for offset, n in enumerate(names) for c in _schedule_cluster(scop, (n,), number + offset)]
    return [Cluster(number, names, positions or dict.fromkeys(names, ()))]


def _coincident_positions(scop: Scop, statements: list[ScopStatement]) -> dict[str, tuple[int, ...]] | None:
    """For each statement the indices that isl makes the outer coincident members, in the order of the element written.

    None where isl returns no outer band over all statements, or one that is not made of plain indices.
    """
    if all(s.plain and s.coordinates == 0 for s in statements):
        return {s.name: () for s in statements}
    projections = {s.name: _coordinates_of(s) for s in statements}
    coordinates = [projections[s.name].range() for s in statements]
    domain = union_set(coordinates)
    order = scop.pairs_among(projections.keys())
    racing = union_map([m.apply_domain(projections[a]).apply_range(projections[b]) for (a, b), m in order.items()])
    if all(s.plain for s in statements) and (known := _at_own_elements(coordinates, maps_of(racing))) is not None:
        return {s.name: known for s in statements}
    within = union_map([m for (a, b), m in by_statements(racing).items() if a != b or scop.by_name[a].kind != "update"])
    constraints = isl.ScheduleConstraints.on_domain(domain).set_validity(within).set_coincidence(racing)
    node = constraints.set_proximity(within).compute_schedule().get_root().child(0)
    if node.get_type() != isl.schedule_node_type.band:
        return None
    partial = node.band_get_partial_schedule_union_map()
    members = 0
    while members < node.band_n_member() and node.band_member_get_coincident(members):
        members += 1
    found: dict[str, list[int]] = {}
    for s in statements:
        positions = _unit_rows(projections[s.name].range(), partial, members)
        if positions is None:
            return None
        found[s.name] = positions
    in_order = sorted(range(members), key=lambda m: found[statements[0].name][m])
    return {name: tuple(positions[m] for m in in_order) for name, positions in found.items()}


def _at_own_elements(coordinates: Items[isl.Set], racing: Items[isl.Map]) -> tuple[int, ...] | None:
    """What isl finds where statements over one box wait for each other at their own elements only: all coordinates that
    have several values.  None where that is not so."""
    first = coordinates[0].reset_tuple_id()
    if not first.is_box() or first.is_empty() or not all(c.reset_tuple_id().is_equal(first) for c in coordinates[1:]):
        return None
    kinds = isl.dim_type
    for pairs in racing:
        apart = pairs.reset_tuple_id(kinds.in_).reset_tuple_id(kinds.out)
        if not apart.is_subset(isl.Map.identity(apart.get_space())):
            return None
    return tuple(d for d, extent in enumerate(extents(first)) if extent > 1) or None


def _coordinates_of(statement: ScopStatement) -> isl.Map:
    """Instance to what the scheduler sees of it: the element written, where that is what the leading indices name.

    What happens below an element is no matter of the coincident band, and left in, reduction indices cost the scheduler
    up to endless searches.  Where the element is not named by indices, the scheduler sees the instance itself.
    """
    rank = statement.coordinates if statement.plain else len(statement.indices)
    names = [f"i{d}" for d in range(len(statement.indices))]
    text = f"{{ {statement.name}[{', '.join(names)}] -> {statement.name}[{', '.join(names[:rank])}] }}"
    return isl.Map(text).intersect_domain(statement.domain)


def _unit_rows(domain: isl.Set, partial: isl.UnionMap, members: int) -> list[int] | None:
    """The index that each leading member of a band schedules; None if one is not a plain index."""
    band = partial.extract_map(
        isl.Space.from_domain(domain.get_space()).add_dims(isl.dim_type.out, _range_dim(partial))
    )
    pieces: list[isl.MultiAff] = []
    isl.PwMultiAff.from_map(band).foreach_piece(lambda _, piece: pieces.append(piece))
    if len(pieces) != 1:
        return None
    rank = domain.dim(isl.dim_type.set)
    positions = []
    for member in range(members):
        aff = pieces[0].get_at(member)
        coefficients = [aff.get_coefficient_val(isl.dim_type.in_, d).to_python() for d in range(rank)]
        if aff.get_constant_val().to_python() != 0 or sorted(coefficients) != [0] * (rank - 1) + [1]:
            return None
        positions.append(coefficients.index(1))
    return positions


def _range_dim(partial: isl.UnionMap) -> int:
    return int(maps_of(partial)[0].dim(isl.dim_type.out))
