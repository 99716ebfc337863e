"""Where the instances of each stage run: in which iterations of the loops around, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import map_from_text
from tcomp.schedules.errors import ScheduleError
from tcomp.schedules.expressions import Expression, as_within, within
from tcomp.schedules.stages import PARALLEL, Place, Stage, loop_map
from tcomp.schedules.state import State

_OUT, _IN = isl.dim_type.out, isl.dim_type.in_


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The ``domains`` of a stage's statements, with ``rank`` dimensions of a tile in front of their indices, and what
    ``depth`` loops of other stages ``around`` are for each instance."""

    domains: Mapping[str, isl.Set]
    around: Mapping[str, isl.Map]
    rank: int
    depth: int


def values_of(stage: Stage) -> list[Expression]:
    """What the loops of a stage count, each as the loops around it let it."""
    values = [loop.value for loop in stage.loops]
    return [within(value, values[:depth]) for depth, value in enumerate(values)]


def in_step(state: State, stage: Stage) -> int:
    """How many of a stage's outer loops are its consumer's, because it runs in step with that."""
    if stage.place is None or stage.place.shift is None:
        return 0
    return state.stage(stage.place.consumer).depth(stage.place.loop)


class Placing:
    """Places all stages of a state, consumers before what they read.

    ``bands`` has, for each stage that is in no other, how many of its outer loops run in parallel or have tiles in
    them that compute something for themselves.  Raises ScheduleError where that is not possible.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.placed: dict[str, Placed] = {}
        self.bands: dict[str, int] = {}
        for stage in reversed(state.stages):
            if stage.place is None:
                self.bands[stage.name] = _parallel(stage)
                statements = [state.scop.by_name[s] for s in stage.statements]
                nowhere = {s.name: _nowhere(s.domain) for s in statements}
                self.placed[stage.name] = Placed({s.name: s.domain for s in statements}, nowhere, 0, 0)
            else:
                self.placed[stage.name] = self._inside(stage, stage.place)

    def _inside(self, stage: Stage, place: Place) -> Placed:
        consumer = self.state.stage(place.consumer)
        if place.shift is not None:
            return self._in_step(stage, consumer, place)
        if consumer.place is not None and consumer.depth(place.loop) < in_step(self.state, consumer):
            raise ScheduleError(
                f"{stage.name} is computed in {place.loop} of {consumer.name}, but there {consumer.name} runs in step "
                f"with {consumer.place.consumer}: compute {stage.name} in a loop of {consumer.place.consumer}"
            )
        depth = self._base(consumer) + consumer.depth(place.loop)
        where = self._needed(stage, consumer, place, depth)
        if where is None:
            raise ScheduleError(f"nothing inside {place.loop} of {consumer.name} reads {stage.name}")
        if where.is_single_valued():
            return self._plain(stage, where, depth)
        root = self.state.root(consumer).name
        if place.kept == "":
            return self._plain(stage, where.lexmin(), depth)
        written = {self.state.scop.by_name[s].target for s in stage.statements}
        if any(self.state.scop.storages[name].role != "temporary" for name in written):
            raise ScheduleError(
                f"{stage.name} is a result, of which each element is computed once, but several iterations of "
                f'{place.loop} need it: say store_at="root", or compute it in loops of its own'
            )
        others = (s for s in self.state.scop.statements if s.name not in stage.statements)
        if any(s.target in written for s in others):
            raise ScheduleError(
                f"another statement writes {stage.name.partition('#')[0]}, too, so it is not computed again in each "
                f'iteration of {place.loop}: say store_at="root", or compute it in loops of its own'
            )
        rank = depth
        if place.kept is not None:
            rank = self._base(consumer) + consumer.depth(place.kept)
        there = self.bands[root]
        if there > rank:
            raise ScheduleError(
                f"{stage.name} would be computed again in tiles of {rank} loops, but the first {there} loops of {root} "
                f"run in parallel or have such tiles already; name a loop further in, or let fewer run in parallel"
            )
        if not there and self.placed[consumer.name].depth:
            raise ScheduleError(
                f"{stage.name} would be computed again inside {consumer.name}, which is itself inside {root}; "
                f"only tiles of {root} compute something again: say store_at, or compute {stage.name} in {root}"
            )
        rank = there or rank
        self.bands[root] = rank
        kept = None if place.kept is None else self._base(consumer) + consumer.depth(place.kept)
        return self._expanded(stage, where, depth, rank, kept)

    def _base(self, stage: Stage) -> int:
        """Loops of other stages around one that are not its own."""
        return self.placed[stage.name].depth - in_step(self.state, stage)

    def _in_step(self, stage: Stage, consumer: Stage, place: Place) -> Placed:
        depth = consumer.depth(place.loop)
        if consumer.place is not None:
            raise ScheduleError(
                f"{stage.name} runs in step with {consumer.name}, which must not be inside another stage"
            )
        if depth > stage.shared:
            known = ", ".join(loop.name for loop in stage.loops[: stage.shared])
            raise ScheduleError(f"{stage.name} has only the loops {known} that can be in step with {place.loop}")
        domains, around = {}, {}
        values = [loop.value for loop in stage.loops[:depth]]
        there = [loop.value for loop in consumer.loops[:depth]]
        counts = [f"o{d}" for d in range(depth)]
        counts[-1] = f"(o{depth - 1} + {place.shift})"
        outs = [as_within(v, counts[d], dict(zip(there[:d], counts, strict=False))) for d, v in enumerate(there)]
        moved = map_from_text(f"{{ [{', '.join(f'o{d}' for d in range(depth))}] -> [{', '.join(outs)}] }}")
        for name in stage.statements:
            s = self.state.scop.by_name[name]
            around[name] = loop_map(s, values, s.domain, 0).apply_range(moved)
            domains[name] = s.domain
        return Placed(domains, around, 0, depth)

    def _needed(self, stage: Stage, consumer: Stage, place: Place, depth: int) -> isl.Map | None:
        """Coordinates of a stage to the iterations of ``depth`` loops in which something reads them."""
        scop = self.state.scop
        found: isl.Map | None = None
        for user in self._within(consumer, consumer.depth(place.loop)):
            for name, prefix in self.prefixes(user, depth):
                for own in stage.statements:
                    passed = scop.values_between.get((own, name))
                    if passed is None or own == name:
                        continue
                    lifted = passed.apply_range(_behind_tile(scop.by_name[name], self.placed[user.name]).reverse())
                    where = _coordinates(scop.by_name[own], stage).reverse().apply_range(lifted).apply_range(prefix)
                    found = where if found is None else found.union(where)
        return None if found is None or found.is_empty() else found.coalesce()

    def _within(self, consumer: Stage, depth: int) -> Iterator[Stage]:
        """A stage, and those that are computed inside so many of its loops, or more."""
        yield consumer
        for inner in self.state.inside(consumer.name):
            assert inner.place is not None
            if inner.name in self.placed and consumer.depth(inner.place.loop) >= depth:
                yield from self._within(inner, 0)

    def prefixes(self, stage: Stage, depth: int) -> Iterator[tuple[str, isl.Map]]:
        """Instance to the outermost ``depth`` loops, for statements of a stage that are in so many."""
        placed = self.placed[stage.name]
        own = depth - placed.depth
        common = in_step(self.state, stage)
        for name, around in placed.around.items():
            statement = self.state.scop.by_name[name]
            if own <= 0:
                yield name, around.project_out(_OUT, depth, placed.depth - depth)
            elif common + own <= (len(stage.loops) if statement.kind in ("update", "assign") else stage.shared):
                values = values_of(stage)[common : common + own]
                yield name, around.flat_range_product(loop_map(statement, values, placed.domains[name], placed.rank))

    def _plain(self, stage: Stage, where: isl.Map, depth: int) -> Placed:
        """Each instance once."""
        domains, around = {}, {}
        for name in stage.statements:
            s = self.state.scop.by_name[name]
            own = _coordinates(s, stage).apply_range(where)
            around[name] = own
            domains[name] = own.domain().coalesce()
        return Placed(domains, around, 0, depth)

    def _expanded(self, stage: Stage, where: isl.Map, depth: int, rank: int, kept: int | None) -> Placed:
        """In each iteration of the outermost ``rank`` loops what it needs; each element once in one of
        ``kept`` loops if that is asked for."""
        domains, around = {}, {}
        for name in stage.statements:
            s = self.state.scop.by_name[name]
            own = _coordinates(s, stage).apply_range(where)
            tiles = own.project_out(_OUT, rank, depth - rank)
            domain = tiles.reverse().wrap().flatten().set_tuple_name(name).coalesce()
            fronts = [f"t{d}" for d in range(rank)]
            inner = [f"i{d}" for d in range(len(s.indices))]
            behind = isl.Map(f"{{ {name}[{', '.join([*fronts, *inner])}] -> {name}[{', '.join(inner)}] }}")
            rest = [f"o{d}" for d in range(depth - rank)]
            same = isl.Map(f"{{ {name}[{', '.join([*fronts, *inner])}] -> [{', '.join([*fronts, *rest])}] }}")
            full = behind.intersect_domain(domain).apply_range(own).intersect(same)
            if not full.is_single_valued():
                if kept is None:
                    raise ScheduleError(
                        f"{stage.name} would be computed again in loops inside the tiles; say store_at for the loop in "
                        f"which each of its elements is computed once"
                    )
                if kept > rank:
                    raise ScheduleError(
                        f"{stage.name} would be computed again in loops inside the tiles, which {rank} loops make; say "
                        f"store_at for the last of these, in which each of its elements is computed once"
                    )
                full = full.lexmin()
            domains[name], around[name] = domain, full
        return Placed(domains, around, rank, depth)


def _parallel(stage: Stage) -> int:
    """How many outer loops run in parallel.  Raises ScheduleError where others are around them."""
    flags = [loop.how == PARALLEL for loop in stage.loops]
    count = sum(flags)
    if any(flags[count:]):
        wrong = next(loop.name for loop, flag in zip(stage.loops[count:], flags[count:], strict=True) if flag)
        raise ScheduleError(f"{wrong} of {stage.name} cannot run in parallel inside other loops: reorder it outwards")
    return count


def _nowhere(domain: isl.Set) -> isl.Map:
    return isl.Map.from_domain_and_range(domain, isl.Set("{ [] }"))


def _coordinates(statement: ScopStatement, stage: Stage) -> isl.Map:
    """Instance to the coordinates of the element that it has to do with."""
    indices = statement.indices[statement.tile_rank :]
    values = ", ".join(stage.coordinates)
    return isl.Map(f"{{ {statement.name}[{', '.join(indices)}] -> [{values}] }}").intersect_domain(statement.domain)


def _behind_tile(statement: ScopStatement, placed: Placed) -> isl.Map:
    """Placed instance to the instance of the program."""
    fronts = [f"t{d}" for d in range(placed.rank)]
    inner = [f"i{d}" for d in range(len(statement.indices))]
    name = statement.name
    text = f"{{ {name}[{', '.join([*fronts, *inner])}] -> {name}[{', '.join(inner)}] }}"
    return isl.Map(text).intersect_domain(placed.domains[name])


def reads_in(scop: Scop, stage: Stage, tensor: str) -> bool:
    """Whether a stage reads a tensor."""
    return any(r.get_tuple_name(_OUT) == tensor for s in stage.statements for r in scop.by_name[s].reads)
