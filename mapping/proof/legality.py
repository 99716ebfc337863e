"""Proof that a plan computes what its Scop says: checked on the final tree, not on how passes meant it.

Shown with isl, in the manner of translation validation: what tiles run reads the values that the program reads.  Every
dependence of that runs forward under the flattened schedule.  Instances of different tiles of a group, which may run at
the same time, depend on each other in no way, reductions included.  Every value that passes through a buffer is read
within the same instance of the place that declares the buffer, and every access of a tile buffer lies inside its box.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.mapping.gpu.turns.hidden import prove_hidden
from tcomp.mapping.memory.overhang import may_overhang
from tcomp.mapping.memory.places import Place, named_space, own_element, places
from tcomp.mapping.memory.runningagain import rows_again
from tcomp.mapping.memory.windows import Turns, dates_of
from tcomp.mapping.plan.tree import nodes_of
from tcomp.mapping.plan.values import Buffer, Plan
from tcomp.mapping.proof.threads import kept_by_threads, prove_barriers, prove_memories
from tcomp.model.opensizes import access_outside
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import map_from_text, maps_of, sets_of


def prove(plan: Plan, step: str, proved: Plan | None = None) -> None:
    """Raise LegalityError, naming the pass, two statement instances and the storage, if the plan is illegal.

    What the plan shares with one that was ``proved`` before is not shown again.
    """
    if plan is proved:
        return
    marks = {p.mark: p for p in places(plan.tree)}
    same = proved is not None and plan.program is proved.program and plan.scop is proved.scop
    if proved is None or not same or plan.tree is not proved.tree:
        _prove_schedule(plan, marks, step)
    for buffer in plan.buffers.values():
        _prove_room(plan, buffer, marks.get(buffer.mark), step)
    prove_memories(plan, step)
    for group in plan.groups:
        prove_hidden(plan, group, step)
    for operation in plan.operations.values():
        if operation.overhang and not may_overhang(plan, operation):
            raise LegalityError(
                f"pass '{step}' runs instances of {operation.statement} in {operation.mark} that the program lacks, "
                "which may touch what others need, or what is not there"
            )
        if operation.shifted and rows_again(plan, operation) is None:
            raise LegalityError(
                f"pass '{step}' runs rows of {operation.mark} again, which may change what was computed in between"
            )


def _prove_schedule(plan: Plan, marks: Mapping[str, Place], step: str) -> None:
    """Show what program, instances and tree alone decide: what runs, once, in which order, and beside what."""
    scop = plan.scop
    if scop is not plan.program:
        prove_expansion(plan.program, scop, step)
        _prove_inside(scop, step)
    _prove_once(plan.tree, step)
    _prove_order(scop, plan.tree, step)
    for place in marks.values():
        if place.mark.startswith(("group", "nest")):
            _prove_tiles_independent(scop, place, step)


def _prove_inside(scop: Scop, step: str) -> None:
    """Show that no statement leaves an array, whatever the sizes that calls say."""
    found = None if scop.around is None or not scop.around.open else access_outside(scop)
    if found is not None:
        statement, storage, outside = found
        raise LegalityError(f"pass '{step}' lets {statement.name} leave {storage} for some sizes, such as {outside}")


def prove_expansion(program: Scop, expanded: Scop, step: str) -> None:
    """Show that what tiles run is the program: every read finds the value that it finds in the program.

    An instance that runs, with or without a tile in front, must get its values from tile instances of exactly those
    instances of the program that it depends on there; and what writes the caller's arrays must run exactly once.
    """
    for original in program.statements:
        placed = expanded.by_name.get(original.name)
        complete = placed is not None and not placed.tile_rank and original.domain.is_subset(placed.domain)
        if program.storages[original.target].role != "temporary" and not complete:
            raise LegalityError(
                f"pass '{step}' does not run every instance of {original.name} once, which writes an output"
            )
    sources: dict[str, dict[str, None]] = {}
    for source, sink in (*program.values_between, *expanded.values_between):
        sources.setdefault(sink, {})[source] = None
    for name, statement in expanded.by_name.items():
        for source in (s for s in sources.get(name, {}) if s in program.by_name):
            wrong = _reads_amiss(program, expanded, source, statement)
            if wrong is not None:
                raise LegalityError(
                    f"pass '{step}' lets {name} read other values of {source} than the program does: {wrong}"
                )


def _reads_amiss(program: Scop, expanded: Scop, source: str, sink: ScopStatement) -> str | None:
    """Two instances of which one hands the other a value only in the program, or only in what runs; None if none."""
    wanted = program.values_between.get((source, sink.name))
    found = expanded.values_between.get((source, sink.name))
    if found is not None:
        found = found.apply_domain(_without_tile(expanded.by_name[source]))
    if wanted is not None:
        wanted = wanted.apply_range(_without_tile(sink).reverse())
    if wanted is not None and found is not None:
        if wanted.is_equal(found):
            return None
        wanted, found = wanted.subtract(found), found.subtract(wanted)
    if wanted is not None and not wanted.is_empty():
        return f"{wanted.wrap().sample_point()} is missing"
    if found is not None and not found.is_empty():
        return f"{found.wrap().sample_point()} should not be"
    return None


def _without_tile(statement: ScopStatement) -> isl.Map:
    """Instance to the instance of the program that it runs."""
    names = [f"i{d}" for d in range(len(statement.indices))]
    text = f"{statement.name}[{', '.join(names)}] -> {statement.name}[{', '.join(names[statement.tile_rank :])}]"
    return map_from_text(f"{{ {text} }}").intersect_domain(statement.domain)


def _prove_order(scop: Scop, tree: isl.Schedule, step: str) -> None:
    dates = tree.get_map()
    missing = scop.domain.subtract(dates.domain())
    if not missing.is_empty():
        raise LegalityError(f"pass '{step}' drops instances that the program runs, such as {_example_set(missing)}")
    own = {named_space(m.get_space().domain()): m for m in maps_of(dates)}
    for statement in scop.statements:
        dated = own.get(named_space(statement.domain.get_space()))
        if dated is not None and not dated.intersect_domain(statement.domain).is_injective():
            raise LegalityError(f"pass '{step}' runs several instances of {statement.name} at one date")
    if all(_runs_forward(m, own) for m in maps_of(scop.dependences)):
        return
    timed = scop.dependences.apply_domain(dates).apply_range(dates)
    reversed_in_time = [m.intersect(isl.Map.lex_ge(m.get_space().domain())) for m in maps_of(timed)]
    wrong = [m for m in reversed_in_time if not m.is_empty()]
    if wrong:
        pair = dates.apply_range(isl.UnionMap.from_map(wrong[0])).apply_range(dates.reverse())
        broken = maps_of(scop.dependences.intersect(pair))[0]
        raise LegalityError(
            f"pass '{step}' reverses a dependence on {_carrier(scop, broken)}: "
            f"{broken.wrap().sample_point()} must run in this order"
        )


def _runs_forward(dependence: isl.Map, dates: Mapping[tuple[str, int], isl.Map]) -> bool:
    """Whether the instances of two statements have their dates in the order in which one depends on the other.

    isl would look at all pairs of statements to date the dependences of all at once.
    """
    space = dependence.get_space()
    source, sink = dates.get(named_space(space.domain())), dates.get(named_space(space.range()))
    if source is None or sink is None:
        return bool(dependence.is_empty())
    timed = dependence.apply_domain(source).apply_range(sink)
    return bool(timed.intersect(isl.Map.lex_ge(timed.get_space().domain())).is_empty())


def _prove_once(tree: isl.Schedule, step: str) -> None:
    """No instance runs twice: bands are functions, so only two filters of a sequence could let it."""
    for node in nodes_of(tree):
        if node.get_type() == isl.schedule_node_type.sequence:
            before: dict[tuple[str, int], isl.Set] = {}
            for child in range(node.n_children()):
                for own in sets_of(node.child(child).filter_get_filter()):
                    space = named_space(own.get_space())
                    earlier = before.get(space)
                    before[space] = own if earlier is None else earlier.union(own)
                    if earlier is not None and not (both := earlier.intersect(own)).is_empty():
                        twice = node.get_domain().intersect(isl.UnionSet.from_set(both))
                        if not twice.is_empty():
                            raise LegalityError(f"pass '{step}' runs {_example_set(twice)} more than once")


def _carrier(scop: Scop, dependence: isl.Map) -> str:
    """The storage through which instances of two statements depend on each other."""
    source, sink = (scop.by_name[dependence.get_tuple_name(t)] for t in (isl.dim_type.in_, isl.dim_type.out))
    read = {r.get_tuple_name(isl.dim_type.out) for r in sink.all_reads}
    return source.target if source.target in read else sink.target


def _prove_tiles_independent(scop: Scop, place: Place, step: str) -> None:
    for (source, sink), pairs in scop.pairs_among(place.prefixes.keys()).items():
        crossing = _leaving(place, source, sink, pairs)
        if crossing is not None:
            raise LegalityError(
                f"pass '{step}' lets tiles of {place.mark} run in parallel, but {crossing} depend on each other "
                f"through {_carrier(scop, pairs)}"
            )


def _leaving(place: Place, source: str, sink: str, pairs: isl.Map) -> str | None:
    """A pair of instances that lie in different instances of a place, or None."""
    leaving = pairs
    if source in place.prefixes and sink in place.prefixes:
        together = place.prefixes[source].apply_range(place.prefixes[sink].reverse())
        if pairs.is_subset(together):
            return None
        leaving = pairs.subtract(together)
    return str(leaving.wrap().sample_point())


def prove_complete(plan: Plan, step: str) -> None:
    """Raise LegalityError if a temporary of a final plan has no buffer, or threads do not wait for each other."""
    for statement in plan.scop.statements:
        storage = plan.scop.storages[statement.target]
        if storage.role == "temporary" and storage.name not in plan.buffers:
            raise LegalityError(f"pass '{step}' gives the temporary {storage.name} no buffer")
    prove_barriers(plan, step)


def _prove_room(plan: Plan, buffer: Buffer, place: Place | None, step: str) -> None:
    """Values stay within the place that declares the buffer, and every element written lies in its box.

    What is read has been written, so reads lie in the box too.  What threads of a GPU keep for themselves is proved
    thread by thread (``threads.py``).
    """
    scop = plan.scop
    writers = [s for s in scop.users[buffer.storage] if s.target == buffer.storage]
    if place is None:
        if buffer.space != "global":
            raise LegalityError(f"pass '{step}' declares {buffer.storage} at a place {buffer.mark!r} that is not there")
        for writer in writers:
            everywhere = isl.Map.from_domain_and_range(isl.Set("{ [] }"), writer.domain)
            _prove_box(buffer, everywhere.apply_range(writer.write), step)
        return
    for (source, sink), passed in scop.values_through[buffer.storage].items():
        leaving = _leaving(place, source, sink, passed)
        if leaving is not None:
            raise LegalityError(
                f"pass '{step}' declares {buffer.storage} at {place.mark}, which its value outlives: {leaving}"
            )
    if plan.phases and kept_by_threads(buffer):
        return
    for writer in writers:
        _prove_box(buffer, place.prefixes[writer.name].reverse().apply_range(writer.write), step)
    if buffer.folded and buffer.space == "tile":
        _prove_window(plan, buffer, place, step)


def _prove_window(plan: Plan, buffer: Buffer, place: Place, step: str) -> None:
    """Nothing touches an element any more when another one is written into its place."""
    (dimension,) = buffer.folded
    turns = Turns(plan.scop, buffer, place, dates_of(plan.tree), dimension)
    upwards, downwards = (next(turns.too_early(way, buffer.shape[dimension]), None) for way in (1, -1))
    if upwards is not None and downwards is not None:
        raise LegalityError(
            f"pass '{step}' keeps {buffer.shape[dimension]} of {buffer.storage} along dimension {dimension}, but one "
            f"is still in use when another is written into its place: {upwards[2].wrap().sample_point()}"
        )


def _prove_box(buffer: Buffer, writes: isl.Map, step: str) -> None:
    """``writes`` maps an instance of the place to the elements written in it."""
    extra = writes.dim(isl.dim_type.out) - len(buffer.shape)
    if buffer.space == "register":
        if not writes.is_single_valued():
            raise LegalityError(f"pass '{step}' makes {buffer.storage} a register, but it holds several elements")
        return
    corner = buffer.lower
    ranks = None if corner is None else (corner.dim(isl.dim_type.in_), corner.dim(isl.dim_type.out))
    if extra < 0 or ranks not in (None, (writes.dim(isl.dim_type.in_), len(buffer.shape))):
        raise LegalityError(f"pass '{step}' gives {buffer.storage} a box of the wrong rank")
    if extra and not writes.project_out(isl.dim_type.out, extra, len(buffer.shape)).is_single_valued():
        raise LegalityError(f"pass '{step}' lets tiles that have a {buffer.storage} of their own share one")
    elements = own_element(writes, len(buffer.shape))
    offsets = elements
    if buffer.lower is not None:
        offsets = elements.sum(isl.Map.from_multi_aff(buffer.lower).intersect_domain(elements.domain()).neg())
    box = isl.Set.universe(offsets.get_space().range())
    for d, extent in enumerate(buffer.shape):
        if d in buffer.folded:
            continue
        low = buffer.origin[d] if buffer.lower is None else 0
        box = box.lower_bound_val(isl.dim_type.set, d, isl.Val(low))
        box = box.upper_bound_val(isl.dim_type.set, d, isl.Val(low + extent - 1))
    outside = offsets.subtract(isl.Map.from_domain_and_range(offsets.domain(), box))
    if not outside.is_empty():
        raise LegalityError(
            f"pass '{step}' gives {buffer.storage} a box of {list(buffer.shape)}, but {outside.sample()} is outside"
        )


def _example_set(instances: isl.UnionSet) -> str:
    return str(instances.sample_point())
