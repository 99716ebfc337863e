"""Clusters that pass over the rows of one matrix, and may share a pass.

``y(i) += A(i,j) * x(j)`` has a sum for each row of ``A``, ``s(j) += A(i,j) * r(i)`` one for each column, to which each
row adds.  All that each needs of a row, and what it hands to others for the same row, can be there when the row is.
So can the row itself, where a statement makes it element by element.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.forms import Atom, to_form
from tcomp.grammar.tree.function import Expr, Index, Read, walk
from tcomp.mapping.fusion.order import are_apart
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpusharing import SHARING, STRIPS
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import indices_in
from tcomp.mapping.plan.values import Cluster, Plan
from tcomp.mapping.tiles.footprint import as_map, coordinate_dependences, coordinate_map
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.mapping.tiles.splitting import is_part
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage
from tcomp.model.terms.unions import by_statements, storage_of, union_map


@dataclass(frozen=True, slots=True, eq=False)
class Passing:
    """A cluster that passes over the rows of a matrix.

    ``coordinate`` is the one that is the row; None where each row adds to all sums.  Such sums may be those of parts of
    the rows, of so many ``steps``; 0 where they are of all rows.  ``rows`` is the relation from coordinates to the rows
    that they read.
    """

    cluster: int
    coordinate: int | None
    steps: int
    rows: isl.Map


def passes_apart(options: MappingOptions, scop: Scop) -> bool:
    """Whether clusters keep passes of their own: where a user says how large tiles are, and between steps."""
    return options.tile_sizes is not None or options.fusion_strategy == "min" or scop.around is not None


def passing_together(machine: Machine, plan: Plan, parts: bool) -> list[tuple[Passing, ...]]:
    """Those that may share passes over a matrix, two or more for each, with the root of what will be their group first.

    The root is a sum to which each row adds.  Such sums are those of ``parts`` of the rows; else those that can be
    split into parts.  What is needed where a row is read once more stays there.
    """
    home = {s: c for c in plan.clusters for s in c.statements}
    successors: dict[int, set[int]] | None = None
    found: list[tuple[Passing, ...]] = []
    for storage in sorted(s.name for s in plan.scop.storages.values() if _is_far(machine, s)):
        users = {home[s.name].number: home[s.name] for s in plan.scop.users[storage]}
        every = [p for n in sorted(users) if (p := _passing(plan.scop, users[n], storage)) is not None]
        usable = [p for p in every if p.coordinate is not None or (p.steps > 0) == parts]
        if len(usable) < 2 or all(p.coordinate is not None for p in usable):
            continue
        if successors is None:
            successors = _successors(plan)
            needs = coordinate_dependences(plan.scop, plan.clusters, plan.scop.flow)
        others = users.keys() - {p.cluster for p in every}
        together = _together([p for p in usable if not successors[p.cluster] & others], successors, needs)
        makers = {home[s.name].number for s in plan.scop.users[storage] if s.target == storage}
        if len(together) > 1 and makers <= {p.cluster for p in together}:
            found.append(together)
    return found


def _successors(plan: Plan) -> dict[int, set[int]]:
    """For each cluster those that wait for it."""
    home = {s: c.number for c in plan.clusters for s in c.statements}
    found: dict[int, set[int]] = {c.number: set() for c in plan.clusters}
    for a, b in by_statements(plan.scop.dependences):
        if home[a] != home[b]:
            found[home[a]].add(home[b])
    return found


def _is_far(machine: Machine, storage: Storage) -> bool:
    """Whether a storage is a matrix that no cache keeps, with rows one after another of which one keeps a strip."""
    strip = STRIPS.rows * max(storage.strides, default=0) * storage.dtype.itemsize
    return (
        storage.role in ("input", "output")
        and storage.opened is None
        and len(storage.strides) > 1
        and sorted(storage.strides)[0] == 1
        and storage.bytes >= STRIPS.least * machine.middle_cache
        and strip <= STRIPS.kept_share * machine.middle_cache
    )


def _row_dimension(storage: Storage) -> int:
    """The dimension of the rows: neighbours along it are farthest apart."""
    return max(range(len(storage.strides)), key=lambda d: (storage.strides[d], -d))


def _passing(scop: Scop, cluster: Cluster, storage: str) -> Passing | None:
    """How a cluster passes over the rows of a storage, each element of which it reads once; None if it does not."""
    main = main_statement(scop, cluster)
    row = _row_dimension(scop.storages[storage])
    if main.target == storage:
        return _making(scop, cluster, main, row)
    if main.kind != "update" or not main.plain or main.tile_rank or main.coordinates == 0 or ranges_of(main.value):
        return None
    reads = [e for e in walk(main.value) if isinstance(e, Read) and e.tensor == storage]
    subscripts = {r.subscripts[row] for r in reads}
    used = {frozenset[str]().union(*map(indices_in, r.subscripts)) for r in reads}
    if len(subscripts) != 1 or used != {frozenset(main.indices)} or any(r.boundary is not None for r in reads):
        return None
    subscript = subscripts.pop()
    own = [main.indices[p] for p in cluster.coordinates[main.name]]
    others = {s for r in reads for d, s in enumerate(r.subscripts) if d != row}
    rows = _rows(scop, cluster, main, storage, row)
    if isinstance(subscript, Index) and subscript.name in own:
        return Passing(cluster.number, own.index(subscript.name), 0, rows)
    moved = any(coefficient(s, main.indices[-1], scop.sizes) != 0 for s in others)
    if moved or len(main.indices) - main.coordinates != 1:
        return None
    if isinstance(subscript, Index) and not is_part(main):
        least = SHARING.tiles * STRIPS.of_a_part * STRIPS.rows
        return Passing(cluster.number, None, 0, rows) if main.extents[-1] >= least else None
    steps = _steps_of_parts(scop, main, subscript)
    return Passing(cluster.number, None, steps, rows) if steps else None


def _making(scop: Scop, cluster: Cluster, main: ScopStatement, row: int) -> Passing | None:
    """How a cluster passes over the rows of a matrix that it makes element by element."""
    positions = cluster.coordinates[main.name]
    alone = main.kind == "assign" and len(cluster.statements) == 1
    if not alone or not main.plain or main.tile_rank or row not in positions:
        return None
    rank = len(main.subscripts)
    written = isl.UnionMap.from_map(main.write.reset_tuple_id(isl.dim_type.out))
    elements = as_map(coordinate_map(scop, cluster).reverse().apply_range(written), cluster.rank, rank)
    return Passing(cluster.number, positions.index(row), 0, _dimension(elements, row))


def _steps_of_parts(scop: Scop, main: ScopStatement, subscript: Expr) -> int:
    """Rows of a part of a sum, if parts are whole strips; else 0."""
    form = to_form(subscript, scop.sizes)
    terms: dict[str | Atom, int] = {} if form is None else dict(form.terms)
    steps = terms.get(main.indices[0], 0)
    whole = form is not None and form.constant == 0 and steps > 0 and steps % STRIPS.rows == 0
    return steps if is_part(main) and whole and terms == {main.indices[0]: steps, main.indices[-1]: 1} else 0


def _rows(scop: Scop, cluster: Cluster, main: ScopStatement, storage: str, row: int) -> isl.Map:
    """Coordinates to the rows of a storage that they read."""
    reads = union_map([r.reset_tuple_id(isl.dim_type.out) for r in main.reads if storage_of(r) == storage])
    rank = len(scop.storages[storage].strides)
    elements = as_map(coordinate_map(scop, cluster).reverse().apply_range(reads), cluster.rank, rank)
    return _dimension(elements, row)


def _dimension(elements: isl.Map, row: int) -> isl.Map:
    """One dimension of elements."""
    behind = elements.project_out(isl.dim_type.out, row + 1, elements.dim(isl.dim_type.out) - row - 1)
    return behind.project_out(isl.dim_type.out, 0, row).coalesce()


def _together(
    usable: Items[Passing], successors: Mapping[int, set[int]], needs: Mapping[tuple[int, int], isl.Map]
) -> tuple[Passing, ...]:
    """Those that can run in tiles of one of them, a sum to which rows add, which comes first."""
    root = max((p for p in usable if p.coordinate is None), key=lambda p: p.cluster, default=None)
    if root is None:
        return ()
    every, together = root.rows.range(), [root]
    for other in sorted(usable, key=lambda p: -p.cluster):
        if other is root or (other.coordinate is None and other.steps != root.steps):
            continue
        numbers = {p.cluster for p in together}
        if not other.rows.range().is_equal(every) or not are_apart({other.cluster}, numbers, (), successors):
            continue
        handed = [(p, needs[p.cluster, other.cluster]) for p in together if (p.cluster, other.cluster) in needs]
        if all(need.is_subset(same_rows(p, other)) for p, need in handed):
            together.append(other)
    return tuple(together)


def same_rows(one: Passing, other: Passing) -> isl.Map:
    """Coordinates of one to those of another that read the same rows."""
    return one.rows.apply_range(other.rows.reverse())


def read_alike(machine: Machine, plan: Plan, options: MappingOptions) -> Mapping[tuple[int, int], isl.Map]:
    """For a root and each that may share its passes, coordinates of the one to those of the other for the same rows."""
    if passes_apart(options, plan.scop):
        return {}
    together = passing_together(machine, plan, parts=True)
    return {(root.cluster, o.cluster): same_rows(root, o) for root, *others in together for o in others}
