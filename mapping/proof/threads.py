"""Proof that the threads of a block may share a plan: what no order of tiles shows (``legality.py``).

Every dependence stays in one thread or crosses a barrier: there is one at the entry of a phase whose date lies after
that of the source's phase and not after that of the sink's.  What a buffer of a thread hands on stays in that thread,
and no two of its elements fall on one place.  What is fetched covers what is read from it, and lies between barriers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.mapping.gpu.barriers import COPIED, shares_beyond_a_warp
from tcomp.mapping.gpu.matrices.products import product_at
from tcomp.mapping.gpu.rounds import in_one_place, reuses
from tcomp.mapping.gpu.rows.results import written_everywhere
from tcomp.mapping.gpu.threads import Ends, ThreadMaps, between_threads, between_warps, shared_dimensions
from tcomp.mapping.gpu.turns.fetching import copies_at
from tcomp.mapping.machines.atoms import BY_NAME
from tcomp.mapping.memory.owners import BLOCK_LEVEL, home_of
from tcomp.mapping.memory.places import Place, own_element, places
from tcomp.mapping.plan.deals import Phase
from tcomp.mapping.plan.tree import nodes_of
from tcomp.mapping.plan.values import Buffer, Group, Plan
from tcomp.mapping.proof.atoms import Lanes
from tcomp.mapping.proof.copies import prove_partners
from tcomp.mapping.proof.dates import in_loop, phase_dates, phases_in_loop
from tcomp.mapping.proof.feeding import prove_feeding
from tcomp.mapping.proof.fetches import Fetches
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import by_statements, maps_of, sets_of


def kept_by_threads(buffer: Buffer) -> bool:
    """Whether every thread has elements of a tile of its block for itself."""
    return buffer.space in ("register", "private") and buffer.mark.startswith(BLOCK_LEVEL)


def prove_memories(plan: Plan, step: str) -> None:
    """Raise LegalityError, naming the pass, if registers or what is fetched do not hold what is read from them."""
    proof = _Proof.of(plan)
    for phase in plan.phases.values():
        proof.dealt(phase, step)
        proof.multiplied(phase, step)
        proof.everywhere(phase, step)
        if shared_dimensions(plan, phase):
            proof.shared(phase, step)
    if plan.phases:
        for buffer in plan.buffers.values():
            proof.private(buffer, step)
            proof.folded(buffer, step)
    fetches = Fetches(plan, proof.marks, proof.maps)
    for copy in plan.copies:
        fetches.copy(copy, step)
    prove_partners(plan, step)


def prove_barriers(plan: Plan, step: str) -> None:
    """Raise LegalityError, naming the pass and two instances, if threads exchange values without waiting.

    For final plans only: barriers are the last thing that is decided.
    """
    if plan.phases:
        proof = _Proof.of(plan)
        fetches = Fetches(plan, proof.marks, proof.maps)
        for copy in plan.copies:
            fetches.fenced(copy, step)
        prove_feeding(plan, step)
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
            for d in sorted(buffer.folded, reverse=True):
                elements = elements.project_out(isl.dim_type.out, d, 1)
            if not elements.is_single_valued():
                raise LegalityError(f"pass '{step}' gives two elements of {buffer.storage} one register")

    def folded(self, buffer: Buffer, step: str) -> None:
        """What has a place in turn is not needed any more when the next one takes it."""
        if not buffer.folded:
            return
        single = buffer.lower is not None and all(buffer.lower.get_at(d).plain_is_zero() for d in buffer.folded)
        if not single or any(buffer.shape[d] != 1 for d in buffer.folded):
            raise LegalityError(f"pass '{step}' folds {buffer.storage}, but not onto one place")
        dates = {m.get_tuple_name(isl.dim_type.in_): m for m in maps_of(self.plan.tree.get_map())}
        for first, second, pairs in in_one_place(self.plan, self.marks, buffer):
            if first is second:
                # An instance reads before it writes.
                pairs = pairs.subtract(isl.Map.identity(pairs.get_space()))
            timed = pairs.apply_domain(dates[first.name]).apply_range(dates[second.name])
            late = timed.intersect(isl.Map.lex_ge(timed.get_space().domain()))
            if not late.is_empty():
                wrong = dates[first.name].apply_range(late).apply_range(dates[second.name].reverse()).intersect(pairs)
                raise LegalityError(
                    f"pass '{step}' lets elements of {buffer.storage} have one place, but one is still in use when the "
                    f"next is written: {wrong.wrap().sample_point()}"
                )

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

    def everywhere(self, phase: Phase, step: str) -> None:
        """What all threads do alike they do on copies of their own, of what all of them have."""
        if phase.everywhere and not written_everywhere(self.plan, phase):
            raise LegalityError(
                f"pass '{step}' lets all threads run {phase.mark} alike, but not all have what it reads and writes"
            )

    def multiplied(self, phase: Phase, step: str) -> None:
        """Warps that multiply matrices have results and operands where the instruction wants them."""
        operation = self.plan.operations.get(phase.mark)
        if operation is None or operation.kind != "contract":
            return
        copies = copies_at(self.plan, phase.mark)
        atom = BY_NAME.get(operation.atom)
        product = None if atom is None else product_at(self.plan, phase, copies, atom)
        if product is None or not Lanes.of(self.plan, phase, product, self.marks, self.maps).hold():
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

    def scratch(self, phase: Phase, step: str) -> None:
        """The partial results that warps exchange are read before they are overwritten in the next round."""
        wide = shares_beyond_a_warp(self.plan, phase)
        if wide and in_loop(self.plan, phase.mark) and not self._waits_around(phase.mark):
            raise LegalityError(f"pass '{step}' lets warps overwrite the partial results of {phase.mark}")

    def _waits_around(self, mark: str) -> bool:
        """Whether a barrier stands in the innermost loop around a mark."""
        inside = phases_in_loop(self.plan, mark)
        return any(self.plan.barriers.get(m) == "block" or m + COPIED in self.plan.barriers for m in inside)

    def ordered(self, step: str) -> None:
        """Dependences between threads of a block cross a barrier, and so does what uses their memory again."""
        dates = phase_dates(self.plan)
        together = {
            pair: pairs
            for pair, pairs in by_statements(self.plan.scop.dependences).items()
            if self._group(pair[0]) is self._group(pair[1])
        }
        results = [(self.maps.ends(self.plan, *pair), pairs) for pair, pairs in together.items()]
        self._separated([*results, *reuses(self.plan, self.marks, self.maps)], dates, isl.Map.lex_lt, step)
        # What the steps of a shared reduction read they have read in front of the barrier inside its own phase.
        read = [m for pair, pairs in together.items() for m in self.maps.overwritten(self.plan, *pair, pairs)]
        self._separated(read, dates, isl.Map.lex_le, step)

    def _separated(
        self,
        meetings: Sequence[tuple[Ends, isl.Map]],
        dates: isl.UnionMap,
        inside: Callable[[isl.Space], isl.Map],
        step: str,
    ) -> None:
        """Meetings of threads cross a barrier; ``inside`` tells for which dates one inside a phase comes later."""
        block = functools.cache(lambda: self._waits(dates, ("block",), inside))
        warp = functools.cache(lambda: self._waits(dates, ("block", "warp"), inside))
        for ends, pairs in meetings:
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

    def _waits(
        self, dates: isl.UnionMap, levels: tuple[str, ...], inside: Callable[[isl.Space], isl.Map]
    ) -> isl.Map | None:
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
        for barriers, before, after in (
            (entries, isl.Map.lex_lt, isl.Map.lex_le),
            (insides, inside, isl.Map.lex_lt),
        ):
            for at in sets_of(barriers):
                space = at.get_space()
                waits = before(space).intersect_range(at).apply_range(after(space))
                found = waits if found is None else found.union(waits)
        return found


def _local_index(buffer: Buffer, prefix: isl.Map, write: isl.Map, step: str) -> isl.Map:
    """Instance to the place of the element that it writes among those of its thread."""
    assert buffer.lower is not None
    offsets = own_element(write, len(buffer.shape)).sum(prefix.apply_range(isl.Map.from_multi_aff(buffer.lower)).neg())
    names = [f"o{d}" for d in range(len(buffer.shape))]
    local = []
    for d, (name, deal) in enumerate(zip(names, buffer.deals, strict=True)):
        if d in buffer.folded:
            local.append("0")
        elif deal.dimension is None:
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
