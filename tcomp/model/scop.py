"""The polyhedral model of one specialised program: *what* is computed.  A ``Scop`` never changes.

Tensors are in single-assignment form: a redefinition makes a new version, a reduction accumulates into a version of its
own, and every statement evaluates its right-hand side on the values from before it.  Coordinates are the logical ones
of the program text; a tensor's ``origin`` says where its storage starts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import islpy as isl

from tcomp.grammar.tree.function import Expr, Index, is_indirect
from tcomp.model.around import Around, textual_date
from tcomp.model.terms.storages import Storage
from tcomp.model.terms.unions import by_statements, extents, extents_at_once, storage_of, union_map, union_set
from tcomp.values.operators import INT64


def names_elements(subscripts: tuple[Expr, ...], indices: tuple[str, ...]) -> bool:
    """Whether subscripts are the leading indices, in order."""
    return tuple(s.name if isinstance(s, Index) else None for s in subscripts) == indices[: len(subscripts)]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The elements of which an update runs only those instances that data send there.

    Where ``index`` is n, these are ``width`` elements along a ``dimension``, from ``origin + n * width`` on.
    """

    index: str
    dimension: int
    origin: int
    width: int


@dataclass(frozen=True, eq=False)
class ScopStatement:
    """A statement with its domain and accesses.

    ``kind`` is "assign", "init" (writes what a reduction starts from), "update" (combines ``value`` into the target
    with ``reduction``) or "finish" (stores an accumulator).  Maps go from the domain to tensor elements; a read that
    depends on data covers its whole dimension.  ``tile_rank`` counts the tile members in front of the indices of an
    expanded statement.  ``renumbered`` says what the indices of the program are where the statement counts otherwise.
    Instances of an ``atomic`` update may meet in an element.  An update with a ``stretch`` asks in each instance
    whether its element lies there.
    """

    name: str
    kind: str
    domain: isl.Set
    indices: tuple[str, ...]
    target: str
    subscripts: tuple[Expr, ...]
    value: Expr
    reduction: str | None
    write: isl.Map
    reads: tuple[isl.Map, ...]
    origin: int
    tile_rank: int = 0
    renumbered: tuple[tuple[str, Expr], ...] = ()
    atomic: bool = False
    stretch: Stretch | None = None

    @property
    def reported(self) -> tuple[tuple[str, Expr], ...]:
        """The indices of the program, which are told where an instance fails, in those of the statement."""
        span = self.value.span
        return self.renumbered or tuple((i, Index(i, INT64, span)) for i in self.indices[self.tile_rank :])

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """How many values each index may have: the extents of the bounding box of the domain."""
        return extents(self.domain)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many values each index may have at once: in a step of the blocks around, which are parameters."""
        return extents_at_once(self.domain)

    @property
    def all_reads(self) -> tuple[isl.Map, ...]:
        """What an instance reads, the accumulator that it combines with included."""
        return (*self.reads, self.write) if self.kind == "update" else self.reads

    @property
    def coordinates(self) -> int:
        """Number of leading indices that name the element written: the rest are reduction indices."""
        return len(self.indices) if self.kind != "update" else len(self.indices) - self.reduction_rank

    @property
    def reduction_rank(self) -> int:
        """Number of reduction indices, which come last in ``indices``."""
        if self.kind != "update":
            return 0
        return len(self.indices) - len(self.subscripts) if self.plain else len(self.indices)

    @property
    def scatters(self) -> bool:
        """Whether data choose the elements written: ``write`` then says which these may be."""
        return any(map(is_indirect, self.subscripts))

    @property
    def plain(self) -> bool:
        """Whether the subscripts written are the leading indices, in order."""
        return names_elements(self.subscripts, self.indices)


@dataclass(frozen=True, eq=False)
class Scop:
    """Statements in textual order over storages, with their dependences; ``warnings`` are about the program.

    The steps ``around`` a piece of a program (``stepwise/pieces.py``) are parameters of its sets and maps.
    """

    storages: Mapping[str, Storage]
    statements: tuple[ScopStatement, ...]
    sizes: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    around: Around | None = None

    def __str__(self) -> str:
        lines = ["storages:"]
        for s in self.storages.values():
            lines.append(
                f"  {s.name}: {s.dtype} origin {list(s.box.origin)} extent {list(s.box.extent)}"
                f" strides {list(s.strides)} ({'bound ' if s.bound else ''}{s.role})"
            )
        lines += ["domain:", f"  {self.domain}", "writes:", f"  {self.writes}", "reads:", f"  {self.reads}"]
        lines += ["flow:", f"  {self.flow}", "anti:", f"  {self.anti}", "output:", f"  {self.output}"]
        lines += ["reduction:", f"  {self.reduction_dependences}"]
        return "\n".join(lines) + "\n"

    @property
    def steps(self) -> tuple[str, ...]:
        """The indices of the steps around it."""
        return () if self.around is None else self.around.steps

    @property
    def partly(self) -> frozenset[str]:
        """The slices that some of the steps lack."""
        return frozenset() if self.around is None else self.around.partly

    @cached_property
    def by_name(self) -> dict[str, ScopStatement]:
        """Statements by name."""
        return {s.name: s for s in self.statements}

    @cached_property
    def temporaries(self) -> frozenset[str]:
        """The storages that no caller sees."""
        return frozenset(s.name for s in self.storages.values() if s.role == "temporary")

    @property
    def tensor_bytes(self) -> int:
        """Size in bytes of all tensors of the caller."""
        return sum(s.bytes for s in self.storages.values() if s.role != "temporary")

    @cached_property
    def domain(self) -> isl.UnionSet:
        """All statement instances."""
        return union_set([s.domain for s in self.statements])

    @cached_property
    def writes(self) -> isl.UnionMap:
        """Instance to element written."""
        return union_map([s.write for s in self.statements])

    @cached_property
    def reads(self) -> isl.UnionMap:
        """Instance to element read, the accumulator of a reduction included."""
        return union_map([r for s in self.statements for r in s.all_reads])

    @cached_property
    def order(self) -> isl.UnionMap:
        """The textual order as a schedule: statement number, then the indices in order."""
        depth = max((len(s.indices) for s in self.statements), default=0)
        return union_map([textual_date(s.domain, number, depth) for number, s in enumerate(self.statements)])

    @cached_property
    def flow(self) -> isl.UnionMap:
        """Flow dependences, reduction self-dependences excluded.

        Where each element is finished by one statement, every read of it depends on every write: isl's dataflow
        analysis, which costs far more, is needed for contended storages only.  An update does not replace what it
        combines with, so what is read after a reduction depends on all its updates, and each update on its start.
        """
        direct = [
            m for name in self.storages if name not in self._contended for m in self._single_assignment_flow(name)
        ]
        updates = self._only_contended([s.write for s in self.statements if s.kind == "update"])
        others = self._only_contended([s.write for s in self.statements if s.kind != "update"])
        reads = self._only_contended([r for s in self.statements for r in s.all_reads])
        info = isl.UnionAccessInfo.from_sink(reads).set_must_source(others).set_may_source(updates)
        flow = info.set_schedule_map(self.order).compute_flow().get_may_dependence()
        return union_map(direct).union(flow.subtract(self.reduction_dependences))

    def _single_assignment_flow(self, storage: str) -> list[isl.Map]:
        writers = [s for s in self.users[storage] if s.target == storage]
        readers = [(s, r) for s in self.users[storage] for r in s.all_reads if storage_of(r) == storage]
        pairs = [w.write.apply_range(r.reverse()) for w in writers for s, r in readers if s is not w]
        return [m for m in pairs if not m.is_empty()]

    @cached_property
    def users(self) -> dict[str, list[ScopStatement]]:
        """For each storage the statements that read or write it, in order."""
        found: dict[str, list[ScopStatement]] = {name: [] for name in self.storages}
        for statement in self.statements:
            for name in {statement.target, *map(storage_of, statement.reads)}:
                found[name].append(statement)
        return found

    @cached_property
    def values_through(self) -> dict[str, dict[tuple[str, str], isl.Map]]:
        """For each storage: for two statements, the instances of which the second uses what the first left there."""
        found: dict[str, dict[tuple[str, str], isl.Map]] = {name: {} for name in self.storages}
        for pair, relation in self.values_between.items():
            found[self.by_name[pair[0]].target][pair] = relation
        return found

    @cached_property
    def values_between(self) -> dict[tuple[str, str], isl.Map]:
        """For two statements, the instances of which the second uses what the first left, itself included."""
        return by_statements(self.flow.union(self.reduction_dependences))

    @cached_property
    def pairs_in_order(self) -> dict[tuple[str, str], isl.Map]:
        """For two statements, the instances that may not run at the same time, reductions included."""
        pairs = by_statements(self.dependences.union(self.reduction_dependences))
        return {pair: m for pair, m in pairs.items() if not (pair[0] == pair[1] and self.by_name[pair[0]].atomic)}

    def pairs_among(self, names: Collection[str]) -> dict[tuple[str, str], isl.Map]:
        """Those of ``pairs_in_order`` whose statements are both among some, in the same order."""
        found = [entry for name in names for entry in self._pairs_from.get(name, ()) if entry[1][1] in names]
        return {pair: self.pairs_in_order[pair] for _, pair in sorted(found)}

    @cached_property
    def _pairs_from(self) -> dict[str, list[tuple[int, tuple[str, str]]]]:
        """For each statement the pairs that begin with it, numbered."""
        found: dict[str, list[tuple[int, tuple[str, str]]]] = {}
        for number, pair in enumerate(self.pairs_in_order):
            found.setdefault(pair[0], []).append((number, pair))
        return found

    @cached_property
    def _contended(self) -> frozenset[str]:
        """Storages of which an element may be written again after a statement has read or finished it.

        In single-assignment form these are few: the caller's arrays whose content is read, and tensors of which parts
        are written again.  An accumulator is not one: its initialisation and its updates are ordered by flow.
        """
        writers: dict[str, list[str]] = {}
        for s in self.statements:
            writers.setdefault(s.target, []).append(s.kind)
        several = {
            name
            for name, kinds in writers.items()
            if len(kinds) > 1
            and kinds != ["init", "update"]
            and not ({*kinds} == {"assign"} and self._is_written_in_parts(name))
        }
        return frozenset(several | {s.name for s in self.storages.values() if s.role == "inout"})

    def _is_written_in_parts(self, storage: str) -> bool:
        """Whether statements assign parts of a storage that do not overlap, before any reads one of them."""
        roles = [(s.target == storage, storage in map(storage_of, s.reads)) for s in self.users[storage]]
        first_read = next((n for n, (_, reads) in enumerate(roles) if reads), len(roles))
        if any(writes for writes, _ in roles[first_read:]):
            return False
        parts = [s.write.range() for s in self.users[storage] if s.target == storage]
        return all(one.is_disjoint(other) for n, one in enumerate(parts) for other in parts[:n])

    def _only_contended(self, accesses: list[isl.Map]) -> isl.UnionMap:
        """Accesses of contended storages, in a form without which isl's analysis fails on some divisions."""
        chosen = [a for a in accesses if a.get_tuple_name(isl.dim_type.out) in self._contended]
        return union_map(chosen).detect_equalities()

    @cached_property
    def anti(self) -> isl.UnionMap:
        """Dependences from reads to later writes of the same element."""
        writes = self._only_contended([s.write for s in self.statements])
        reads = self._only_contended([r for s in self.statements for r in s.reads])
        info = isl.UnionAccessInfo.from_sink(writes).set_may_source(reads).set_schedule_map(self.order)
        return info.compute_flow().get_may_dependence().subtract(self.reduction_dependences)

    @cached_property
    def output(self) -> isl.UnionMap:
        """Dependences from writes to later writes of the same element.

        An update whose element data choose may write any; one that follows need not write what another has written.
        """
        updates = self._only_contended([s.write for s in self.statements if s.kind == "update"])
        others = self._only_contended([s.write for s in self.statements if s.kind != "update"])
        info = isl.UnionAccessInfo.from_sink(updates.union(others)).set_must_source(others).set_may_source(updates)
        flow = info.set_schedule_map(self.order).compute_flow()
        return flow.get_may_dependence().subtract(self.reduction_dependences)

    @cached_property
    def dependences(self) -> isl.UnionMap:
        """Everything that a schedule must keep in order: flow, anti and output, but not reduction dependences."""
        return self.flow.union(self.anti).union(self.output).coalesce()

    @cached_property
    def reduction_dependences(self) -> isl.UnionMap:
        """Pairs of instances of one update, in textual order, that combine into one element.

        A schedule may reorder them (reductions are reassociated on purpose); only this relation is exempt.
        """
        pairs = union_map([])
        for s in self.statements:
            if s.kind == "update":
                forward = isl.Map.lex_lt(s.domain.get_space())
                same_element = s.write.apply_range(s.write.reverse())
                pairs = pairs.union(isl.UnionMap.from_map(same_element.intersect(forward)))
        return pairs
