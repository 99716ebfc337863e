"""Proof of what threads fetch into shared memory: it covers what is read from it, and lies between barriers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.mapping.contraction.columns import has_box
from tcomp.mapping.gpu.banks import ASYNCHRONOUS_BYTES, fetch_order, is_asynchronous
from tcomp.mapping.gpu.barriers import COPIED
from tcomp.mapping.gpu.joining import joins_rows, runs_are_whole
from tcomp.mapping.gpu.matrices.operands import has_panels
from tcomp.mapping.gpu.pipelines import AHEAD, begins_again, loop_of_tiles, runs_on
from tcomp.mapping.gpu.threads import ThreadMaps
from tcomp.mapping.machines.atoms import BY_NAME
from tcomp.mapping.machines.gpu import VECTOR_BYTES
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import Place
from tcomp.mapping.memory.references import access_of, is_written_beside, unfolded_access
from tcomp.mapping.plan.values import TENSOR, Copy, Group, Plan
from tcomp.mapping.proof.copies import prove_conversion, prove_groups
from tcomp.mapping.proof.dates import in_loop, phase_dates
from tcomp.model.terms.unions import maps_of, sets_of


@dataclass(frozen=True, slots=True, eq=False)
class Fetches:
    """The facts about a plan: ``marks`` are the marks of the tree, ``maps`` the threads of its statements."""

    plan: Plan
    marks: Mapping[str, Place]
    maps: ThreadMaps

    def copy(self, copy: Copy, step: str) -> None:
        """What is read from a copy is in its box, which has a place for each element, and is not written meanwhile."""
        prefix = self.marks[copy.mark].prefixes.get(copy.statement) if copy.mark in self.marks else None
        if prefix is None or prefix.dim(isl.dim_type.out) != copy.lower.dim(isl.dim_type.in_):
            raise LegalityError(f"pass '{step}' fetches {copy.storage} where {copy.statement} does not run")
        in_steps = copy.step == 1 or (1 <= copy.step <= max(copy.shape) and not self.plan.phases)
        swizzled = copy.swizzle is None or (self._read_by_groups(copy) and has_panels(copy))
        if sorted(copy.order) != list(range(len(copy.shape))) or copy.padding < 0 or not in_steps or not swizzled:
            raise LegalityError(f"pass '{step}' has no place for every element of {copy.storage} at {copy.mark}")
        if not self._vectors_are_whole(copy):
            raise LegalityError(f"pass '{step}' fetches vectors of {copy.storage} that are half outside at {copy.mark}")
        reader = self.plan.scop.by_name[copy.statement]
        if any(r.tensor != copy.storage or is_written_beside(self.plan, reader, r) for r in copy.reads):
            raise LegalityError(f"pass '{step}' fetches {copy.storage}, which is written meanwhile or not read")
        if copy.storage in self.plan.scop.partly:
            raise LegalityError(f"pass '{step}' fetches {copy.storage}, which some of the steps lack")
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

    def _read_by_groups(self, copy: Copy) -> bool:
        """Whether warpgroups multiply what a copy holds: nobody else knows where it has what."""
        operation = self.plan.operations.get(copy.mark)
        atom = None if operation is None else BY_NAME.get(operation.atom)
        return atom is not None and atom.in_groups

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
        width, alone = copy.vector * storage.dtype.itemsize, copy.mark in self.plan.pipelines
        if self.plan.phases and width != VECTOR_BYTES and not (alone and width in ASYNCHRONOUS_BYTES):
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

    def fenced(self, copy: Copy, step: str) -> None:
        """Barriers stand between what is read from a copy and what is fetched before and after."""
        if copy.route == TENSOR:
            return  # see feeding.py
        if self.plan.barriers.get(copy.mark + COPIED) != "block":
            raise LegalityError(f"pass '{step}' reads {copy.storage} before all of it is fetched at {copy.mark}")
        if copy.mark in self.plan.pipelines:
            self._pipelined(copy, step)
        elif (
            self.plan.barriers.get(copy.mark) != "block" and in_loop(self.plan, copy.mark) and not self._met_since(copy)
        ):
            raise LegalityError(f"pass '{step}' fetches {copy.storage} at {copy.mark} while it is still being read")

    def _met_since(self, copy: Copy) -> bool:
        """Whether threads met at another phase since they were in that of a copy the last time, in a tile."""
        dates = phase_dates(self.plan)
        group, _ = home_of(self.plan, copy.statement)
        place = self.marks[f"group{self.plan.groups.index(group)}"].prefixes[copy.statement]
        (own,) = maps_of(dates.intersect_domain(isl.UnionSet.from_set(place.domain())))
        together = place.apply_range(place.reverse()).apply_domain(own).apply_range(own)
        again = together.intersect(isl.Map.lex_lt(together.get_space().domain()))
        between: isl.Map | None = None
        for statement, phase in self.maps.phase_of.items():
            meets = "block" in (self.plan.barriers.get(phase.mark), self.plan.barriers.get(phase.mark + COPIED))
            if meets and phase.mark != copy.mark:
                at = isl.UnionSet.from_set(self.plan.scop.by_name[statement].domain).apply(dates)
                for dated in sets_of(at):
                    before = isl.Map.lex_lt(dated.get_space())
                    found = before.intersect_range(dated).apply_range(before)
                    between = found if between is None else between.union(found)
        return between is not None and bool(again.is_subset(between))

    def _pipelined(self, copy: Copy, step: str) -> None:
        """What is asked for at tile t has the place of a tile before it, which all threads are done with.

        They met between tiles t - 1 and t.  The tile asked for is t + distance, which lies where t + distance - stages
        lay: that is t - 1 or earlier.  In front of the loop they meet, too, if they were in it before.
        """
        pipeline = self.plan.pipelines[copy.mark]
        if not 1 <= pipeline.distance < pipeline.stages - pipeline.flight:
            raise LegalityError(
                f"pass '{step}' asks for {copy.storage} at {copy.mark} {pipeline.distance} tiles ahead, where one is "
                f"still in use: {pipeline.stages} have places"
            )
        if pipeline.flight and not (runs_on(self.plan, copy.mark) and _is_all_of_its_loop(self.plan, copy.mark)):
            raise LegalityError(
                f"pass '{step}' has products under way at {copy.mark}, which no warpgroup makes, or others may use"
            )
        if not is_asynchronous(copy, self.plan.scop.storages[copy.storage].strides):
            raise LegalityError(f"pass '{step}' cannot fetch {copy.storage} asynchronously at {copy.mark}")
        loop = loop_of_tiles(self.plan, copy.mark)
        others = [p for m, p in self.plan.pipelines.items() if loop is not None and _is_in(self.plan, m, loop)]
        if any(other.distance != pipeline.distance for other in others):
            raise LegalityError(f"pass '{step}' asks for copies of one loop different numbers of tiles ahead")
        if begins_again(self.plan, copy.mark) and self.plan.barriers.get(copy.mark + AHEAD) != "block":
            raise LegalityError(f"pass '{step}' asks for {copy.storage} ahead of {copy.mark} while it is being read")

    def _group(self, statement: str) -> Group:
        return home_of(self.plan, statement)[0]


def _is_all_of_its_loop(plan: Plan, mark: str) -> bool:
    """Whether a loop over tiles consists of one phase: nobody touches its sums while products are under way."""
    loop = loop_of_tiles(plan, mark)
    kinds = isl.schedule_node_type
    child = None if loop is None else loop.child(0)
    return child is not None and child.get_type() == kinds.mark and child.mark_get_id().get_name() == mark


def _is_in(plan: Plan, mark: str, loop: isl.ScheduleNode) -> bool:
    """Whether the tiles of a phase are those of a loop."""
    own = loop_of_tiles(plan, mark)
    return own is not None and bool(own.is_equal(loop))
