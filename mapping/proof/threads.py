"""Proof that the threads of a block may share a plan: what no order of tiles shows (``legality.py``).

Every dependence stays in one thread or crosses a barrier: there is one at the entry of a phase whose date lies after
that of the source's phase and not after that of the sink's.  What a buffer of a thread hands on stays in that thread,
and no two of its elements fall on one place.  What is fetched covers what is read from it, and lies between barriers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.mapping.contraction.columns import has_box
from tcomp.mapping.gpu.atoms import product_at
from tcomp.mapping.gpu.banks import fetch_order, is_asynchronous
from tcomp.mapping.gpu.barriers import COPIED, shares_beyond_a_warp
from tcomp.mapping.gpu.joining import joins_rows, runs_are_whole
from tcomp.mapping.gpu.pipelines import AHEAD, begins_again
from tcomp.mapping.gpu.threads import ThreadMaps, between_threads, between_warps, shared_dimensions
from tcomp.mapping.machines.atoms import BY_NAME
from tcomp.mapping.machines.gpu import VECTOR_BYTES
from tcomp.mapping.memory.owners import BLOCK_LEVEL, home_of
from tcomp.mapping.memory.places import Place, own_element, places
from tcomp.mapping.memory.references import access_of, unfolded_access
from tcomp.mapping.plan.tree import below, nodes_of
from tcomp.mapping.plan.values import Buffer, Copy, Group, Phase, Plan
from tcomp.mapping.proof.atoms import Lanes
from tcomp.mapping.proof.copies import prove_conversion, prove_groups, prove_partners
from tcomp.mapping.proof.rounds import reuses
from tcomp.model.scop import ScopStatement, by_statements, maps_of, sets_of


def kept_by_threads(buffer: Buffer) -> bool:
    """Whether every thread has elements of a tile of its block for itself."""
    return buffer.space in ("register", "private") and buffer.mark.startswith(BLOCK_LEVEL)


def prove_memories(plan: Plan, step: str) -> None:
    """Raise LegalityError, naming the pass, if registers or what is fetched do not hold what is read from them."""
    proof = _Proof.of(plan)
    for phase in plan.phases.values():
        proof.dealt(phase, step)
        proof.multiplied(phase, step)
        if shared_dimensions(plan, phase):
            proof.shared(phase, step)
    if plan.phases:
        for buffer in plan.buffers.values():
            proof.private(buffer, step)
    for copy in plan.copies:
        proof.copy(copy, step)
    prove_partners(plan, step)


def prove_barriers(plan: Plan, step: str) -> None:
    """Raise LegalityError, naming the pass and two instances, if threads exchange values without waiting.

    For final plans only: barriers are the last thing that is decided.
    """
    if plan.phases:
        proof = _Proof.of(plan)
        for copy in plan.copies:
            proof.fenced(copy, step)
        for phase in plan.phases.values():
            proof.scratch(phase, step)
        proof.ordered(step)


@dataclass(frozen=True, slots=True, eq=False)
class _Proof:
    """``marks`` are the marks of the tree, ``maps`` the threads of its statements."""

    plan: Plan
    marks: Mapping[str, Place]
    maps: ThreadMaps

    @classmethod
    def of(cls, plan: Plan) -> _Proof:
        """The facts about a plan."""
        return cls(plan, {p.mark: p for p in places(plan.tree)}, ThreadMaps.of(plan))

    def private(self, buffer: Buffer, step: str) -> None:
        """A value in registers is read by the thread that wrote it, and every element has a place of its own."""
        if not kept_by_threads(buffer):
            return
        for (source, sink), passed in self.plan.scop.values_through[buffer.storage].items():
            crossing = self.maps.crossing(self.plan, source, sink, passed)
            if not crossing.is_empty():
                raise LegalityError(
                    f"pass '{step}' keeps {buffer.storage} in the registers of one thread, "
                    f"but another needs it: {crossing.wrap().sample_point()}"
                )
        place = self.marks[buffer.mark]
        for writer_statement in (s for s in self.plan.scop.statements if s.target == buffer.storage):
            name = writer_statement.name
            rank = len(self.plan.scop.storages[buffer.storage].box.extent)
            where = place.prefixes[name].flat_range_product(self.maps.leaders[name])
            if buffer.space == "private":
                where = where.flat_range_product(
                    _local_index(buffer, place.prefixes[name], writer_statement.write, step)
                )
            elements = where.reverse().apply_range(own_element(writer_statement.write, rank))
            if not elements.is_single_valued():
                raise LegalityError(f"pass '{step}' gives two elements of {buffer.storage} one register")

    def copy(self, copy: Copy, step: str) -> None:
        """What is read from a copy is in its box, which has a place for each element, and is not written meanwhile."""
        prefix = self.marks[copy.mark].prefixes.get(copy.statement) if copy.mark in self.marks else None
        if prefix is None:
            raise LegalityError(f"pass '{step}' fetches {copy.storage} where {copy.statement} does not run")
        in_steps = copy.step == 1 or (1 <= copy.step <= max(copy.shape) and not self.plan.phases)
        if sorted(copy.order) != list(range(len(copy.shape))) or copy.padding < 0 or not in_steps:
            raise LegalityError(f"pass '{step}' has no place for every element of {copy.storage} at {copy.mark}")
        if not self._vectors_are_whole(copy):
            raise LegalityError(f"pass '{step}' fetches vectors of {copy.storage} that are half outside at {copy.mark}")
        written = {s.target for s in self.plan.scop.statements if self._group(s.name) is self._group(copy.statement)}
        if copy.storage in written:
            raise LegalityError(f"pass '{step}' fetches {copy.storage}, which is written meanwhile")
        prove_conversion(self.plan, copy, step)
        prove_groups(self.plan, copy, prefix, step)
        box = isl.Set.universe(isl.Space.set_alloc(prefix.get_ctx(), 0, len(copy.shape)))
        for d, extent in enumerate(copy.shape):
            box = box.lower_bound_val(isl.dim_type.set, d, isl.Val(0))
            box = box.upper_bound_val(isl.dim_type.set, d, isl.Val(extent - 1))
        for access in self._accesses(copy, step):
            read = prefix.reverse().apply_range(access).reset_tuple_id(isl.dim_type.out)
            corner = isl.Map.from_multi_aff(copy.lower).intersect_domain(read.domain())
            if not read.sum(corner.neg()).range().is_subset(box):
                raise LegalityError(f"pass '{step}' fetches too little of {copy.storage} at {copy.mark}")

    def _accesses(self, copy: Copy, step: str) -> list[isl.Map]:
        """What is read from a copy.

        Threads of a GPU look for what lies outside the tensor elsewhere; a packed panel holds that, too.
        """
        statement = self.plan.scop.by_name[copy.statement]
        if self.plan.phases:
            return access_of(statement, copy.storage, copy.reads)
        if not all(has_box(self.plan.scop, read) for read in copy.reads):
            raise LegalityError(f"pass '{step}' packs {copy.storage} at {copy.mark}, which is read in no box")
        if len({read.boundary for read in copy.reads}) > 1:
            raise LegalityError(f"pass '{step}' packs {copy.storage} at {copy.mark} with one border for several")
        return [unfolded_access(self.plan.scop, statement, read) for read in copy.reads]

    def _vectors_are_whole(self, copy: Copy) -> bool:
        """Whether every vector that is fetched begins at a multiple of its length, and the tensor ends at one."""
        if copy.vector == 1:
            return True
        storage = self.plan.scop.storages[copy.storage]
        if self.plan.phases and copy.vector * storage.dtype.itemsize != VECTOR_BYTES:
            return False
        if self.plan.phases and joins_rows(copy, storage):
            corners = isl.Map.from_multi_aff(copy.lower).intersect_domain(
                self.marks[copy.mark].prefixes[copy.statement].range()
            )
            return runs_are_whole(copy, storage, corners.range())
        run = fetch_order(copy.shape, storage.strides)[-1]
        if storage.strides[run] != 1 or copy.shape[run] % copy.vector or storage.box.extent[run] % copy.vector:
            return False
        rows = [s for d, s in enumerate(storage.strides) if d != run and storage.box.extent[d] > 1]
        corners = isl.Map.from_multi_aff(copy.lower).intersect_domain(
            self.marks[copy.mark].prefixes[copy.statement].range()
        )
        rank = len(copy.shape)
        names = ", ".join(f"e{d}" for d in range(rank))
        whole = isl.Set(f"{{ [{names}] : (e{run} - {storage.box.origin[run]}) mod {copy.vector} = 0 }}")
        return all(s % copy.vector == 0 for s in rows) and bool(corners.range().is_subset(whole))

    def dealt(self, phase: Phase, step: str) -> None:
        """Every thread that a phase is dealt to exists, and a reduction that is not shared runs in one thread."""
        for statement, prefix in self.marks[phase.lanes].prefixes.items():
            depth = prefix.dim(isl.dim_type.out)
            values = prefix.range()
            for member, dimension in enumerate(phase.dimensions):
                place = depth - len(phase.dimensions) + member
                if not values.is_empty() and not (
                    values.dim_min_val(place).to_python() >= 0
                    and values.dim_max_val(place).to_python() < phase.shape[dimension]
                ):
                    raise LegalityError(f"pass '{step}' deals {statement} to threads that do not exist")
            together = self.plan.scop.pairs_in_order.get((statement, statement))
            if together is not None:
                leader = self.maps.leaders[statement]
                apart = together.subtract(leader.apply_range(leader.reverse()))
                if not apart.is_empty():
                    raise LegalityError(
                        f"pass '{step}' lets several threads reduce one element: {apart.wrap().sample_point()}"
                    )

    def multiplied(self, phase: Phase, step: str) -> None:
        """Warps that multiply matrices have results and operands where the instruction wants them."""
        operation = self.plan.operations.get(phase.mark)
        if operation is None or operation.kind != "contract":
            return
        copies = [c for c in self.plan.copies if c.mark == phase.mark]
        atom = BY_NAME.get(operation.atom)
        product = None if atom is None else product_at(self.plan, phase, copies, atom)
        if product is None or not Lanes.of(self.plan, phase, self.marks, self.maps).hold(product):
            raise LegalityError(f"pass '{step}' multiplies matrices at {phase.mark}, whose lanes do not hold them")

    def shared(self, phase: Phase, step: str) -> None:
        """Threads that reduce together have one element at a time, which one of them has started in the same loops.

        The result goes where its start went, to the elements of a thread there.
        """
        (name,) = self.marks[phase.lanes].prefixes
        update = self.plan.scop.by_name[name]
        starts = [s for s in self.plan.scop.statements if s.kind == "init" and s.target == update.target]
        if len(starts) != 1 or not _in_same_loops(self.plan, self.maps.phase_of[starts[0].name], phase):
            raise LegalityError(f"pass '{step}' starts {update.target} in other loops than {phase.mark}")
        started, reduced = (self._elements(s) for s in (starts[0], update))
        for elements in (reduced, started):
            if not elements.is_single_valued():
                raise LegalityError(
                    f"pass '{step}' lets the threads of {phase.mark} have several elements of {update.target} at a time"
                )
        apart = reduced.subtract(started)
        if not apart.is_empty():
            raise LegalityError(
                f"pass '{step}' starts {update.target} in other threads than reduce it: {apart.wrap().sample_point()}"
            )

    def _elements(self, statement: ScopStatement) -> isl.Map:
        """The loops around a phase with the number of a thread to the elements that it has there."""
        around = self.marks[self.maps.phase_of[statement.name].mark].prefixes[statement.name]
        return around.flat_range_product(self.maps.leaders[statement.name]).reverse().apply_range(statement.write)

    def fenced(self, copy: Copy, step: str) -> None:
        """Barriers stand between what is read from a copy and what is fetched before and after."""
        if self.plan.barriers.get(copy.mark + COPIED) != "block":
            raise LegalityError(f"pass '{step}' reads {copy.storage} before all of it is fetched at {copy.mark}")
        if copy.mark in self.plan.pipelines:
            self._pipelined(copy, step)
        elif self.plan.barriers.get(copy.mark) != "block" and _in_loop(self.plan, copy.mark):
            raise LegalityError(f"pass '{step}' fetches {copy.storage} at {copy.mark} while it is still being read")

    def _pipelined(self, copy: Copy, step: str) -> None:
        """What is asked for at tile t has the place of a tile before it, which all threads are done with.

        They met between tiles t - 1 and t.  The tile asked for is t + distance, which lies where t + distance - stages
        lay: that is t - 1 or earlier.  In front of the loop they meet, too, if they were in it before.
        """
        pipeline = self.plan.pipelines[copy.mark]
        if not 1 <= pipeline.distance < pipeline.stages:
            raise LegalityError(
                f"pass '{step}' asks for {copy.storage} at {copy.mark} {pipeline.distance} tiles ahead, where one is "
                f"still in use: {pipeline.stages} have places"
            )
        if not is_asynchronous(copy, self.plan.scop.storages[copy.storage].strides):
            raise LegalityError(f"pass '{step}' cannot fetch {copy.storage} asynchronously at {copy.mark}")
        if begins_again(self.plan, copy.mark) and self.plan.barriers.get(copy.mark + AHEAD) != "block":
            raise LegalityError(f"pass '{step}' asks for {copy.storage} ahead of {copy.mark} while it is being read")

    def scratch(self, phase: Phase, step: str) -> None:
        """The partial results that warps exchange are read before they are overwritten in the next round."""
        wide = shares_beyond_a_warp(self.plan, phase)
        if wide and _in_loop(self.plan, phase.mark) and not self._waits_around(phase.mark):
            raise LegalityError(f"pass '{step}' lets warps overwrite the partial results of {phase.mark}")

    def _waits_around(self, mark: str) -> bool:
        """Whether a barrier stands in the innermost loop around a mark."""
        inside = _phases_in_loop(self.plan, mark)
        return any(self.plan.barriers.get(m) == "block" or m + COPIED in self.plan.barriers for m in inside)

    def ordered(self, step: str) -> None:
        """Dependences between threads of a block cross a barrier, and so does what uses their memory again."""
        dates = _phase_dates(self.plan)
        block = functools.cache(lambda: self._waits(dates, ("block",)))
        warp = functools.cache(lambda: self._waits(dates, ("block", "warp")))
        together = [
            (self.maps.ends(self.plan, source, sink), pairs)
            for (source, sink), pairs in by_statements(self.plan.scop.dependences).items()
            if self._group(source) is self._group(sink)
        ]
        for ends, pairs in (*together, *reuses(self.plan, self.marks, self.maps)):
            crossing = between_threads(ends, pairs)
            if crossing.is_empty():
                continue
            far = between_warps(ends, crossing)
            self._covered(far, dates, block, step)
            if not crossing.is_equal(far):
                self._covered(crossing.subtract(far), dates, warp, step)

    @staticmethod
    def _covered(pairs: isl.Map, dates: isl.UnionMap, waits: Callable[[], isl.Map | None], step: str) -> None:
        """Every pair has a barrier in between."""
        if pairs.is_empty():
            return
        for timed in maps_of(isl.UnionMap.from_map(pairs).apply_domain(dates).apply_range(dates)):
            between = waits()
            if between is None or not timed.is_subset(between):
                raise LegalityError(
                    f"pass '{step}' lets threads exchange a value without a barrier: {pairs.wrap().sample_point()}"
                )

    def _group(self, statement: str) -> Group:
        return home_of(self.plan, statement)[0]

    def _waits(self, dates: isl.UnionMap, levels: tuple[str, ...]) -> isl.Map | None:
        """Pairs of dates of phases with a barrier in between: at the entry of a later one, or inside one between."""
        entries, insides = isl.UnionSet("{ }"), isl.UnionSet("{ }")
        for statement, phase in self.maps.phase_of.items():
            own = isl.UnionSet.from_set(self.plan.scop.by_name[statement].domain).apply(dates)
            at_entry = (self.plan.barriers.get(phase.mark), self.plan.barriers.get(phase.mark + COPIED))
            if any(level in levels for level in at_entry):
                entries = entries.union(own)
            if shares_beyond_a_warp(self.plan, phase):
                insides = insides.union(own)
        found: isl.Map | None = None
        for barriers, after in ((entries, isl.Map.lex_le), (insides, isl.Map.lex_lt)):
            for at in sets_of(barriers):
                space = at.get_space()
                waits = isl.Map.lex_lt(space).intersect_range(at).apply_range(after(space))
                found = waits if found is None else found.union(waits)
        return found


def _local_index(buffer: Buffer, prefix: isl.Map, write: isl.Map, step: str) -> isl.Map:
    """Instance to the place of the element that it writes among those of its thread."""
    assert buffer.lower is not None
    offsets = own_element(write, len(buffer.shape)).sum(prefix.apply_range(isl.Map.from_multi_aff(buffer.lower)).neg())
    names = [f"o{d}" for d in range(len(buffer.shape))]
    local = []
    for name, deal in zip(names, buffer.deals, strict=True):
        if deal.dimension is None:
            local.append(name)
        else:
            local.append(f"{deal.vector}*floor({name}/{deal.threads * deal.vector}) + {name} mod {deal.vector}")
    index = offsets.apply_range(isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(local)}] }}"))
    for d, extent in enumerate(buffer.shape):
        if index.range().is_empty():
            break
        low, high = index.range().dim_min_val(d).to_python(), index.range().dim_max_val(d).to_python()
        if low < 0 or high >= extent:
            raise LegalityError(f"pass '{step}' keeps {extent} elements of {buffer.storage}, but needs {low}..{high}")
    return index


def _phase_dates(plan: Plan) -> isl.UnionMap:
    """Instance to the date of the phase in which it runs: the schedule without what lies below phases."""
    return _without_phases(plan.tree.get_root(), plan).get_schedule().get_map()


def _without_phases(node: isl.ScheduleNode, plan: Plan) -> isl.ScheduleNode:
    """The same node of a tree that has nothing below the phases here."""
    if node.get_type() == isl.schedule_node_type.mark and node.mark_get_id().get_name() in plan.phases:
        return node.child(0).cut().parent()
    for position in range(node.n_children()):
        node = _without_phases(node.child(position), plan).parent()
    return node


def _in_same_loops(plan: Plan, first: Phase, second: Phase) -> bool:
    """Whether no loop around one phase is none around the other."""
    marks = {n.mark_get_id().get_name(): n for n in nodes_of(plan.tree) if n.get_type() == isl.schedule_node_type.mark}
    together = marks[first.mark].get_shared_ancestor(marks[second.mark]).get_tree_depth()
    for node in (marks[first.mark], marks[second.mark]):
        while node.get_tree_depth() > together:
            if node.get_type() == isl.schedule_node_type.band:
                return False
            node = node.parent()
    return True


def _in_loop(plan: Plan, mark: str) -> bool:
    """Whether control can reach a mark more than once in a tile."""
    return _loop_around(plan, mark) is not None


def _phases_in_loop(plan: Plan, mark: str) -> list[str]:
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
    above = next(n for n in marks if n.mark_get_id().get_name() == mark).parent()
    while above.get_type() != kinds.domain:
        if above.get_type() == kinds.mark and above.mark_get_id().get_name().startswith("group"):
            return None
        if above.get_type() == kinds.band:
            return above
        above = above.parent()
    return None
