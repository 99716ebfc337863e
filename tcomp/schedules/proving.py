"""Proof that a schedule computes what the program says, and what shows that it does not: two instances."""

from __future__ import annotations

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.mapping.proof.legality import prove
from tcomp.mapping.text.reader import read_plan
from tcomp.mapping.text.structure import check_structure
from tcomp.model.islbounds import bounded
from tcomp.model.scop import Scop
from tcomp.model.terms.unions import union_map
from tcomp.schedules.errors import IllegalStepError, ScheduleError, instances_in, refused
from tcomp.schedules.placing import Placing, values_of
from tcomp.schedules.stages import PARALLEL, VECTORS, Stage, loop_map
from tcomp.schedules.state import State


def check_side_by_side(state: State, step: str) -> None:
    """Prove that iterations of loops that are to run at the same time do not depend on each other.

    Raises IllegalStepError, naming the ``step`` that was done last.
    """
    for stage in state.stages:
        for depth, loop in enumerate(stage.loops, 1):
            if loop.how == VECTORS and depth < len(stage.loops):
                raise ScheduleError(f"{loop.name} of {stage.name} runs in vectors, so it must stay the innermost loop")
            if loop.how == VECTORS:
                _prove_apart(state, stage, depth, step, state.scop.dependences)
            elif loop.how == PARALLEL:
                _prove_apart(state, stage, depth, step, state.scop.reduction_dependences)


def check_readers(state: State, step: str) -> None:
    """Nothing outside reads what is computed again for those tiles alone that need it.  Raises IllegalStepError."""
    placed = Placing(state).placed
    for stage in state.stages:
        if stage.place is None or not placed[stage.name].rank:
            continue
        root = state.root(stage)
        for reader in state.stages:
            for source in reversed(stage.statements):
                for sink in reader.statements:
                    pairs = state.scop.values_between.get((source, sink))
                    if pairs is None or pairs.is_empty() or state.root(reader) is root:
                        continue
                    # What a start or an early update left is not there any more.
                    last = pairs.reverse().lexmax().reverse()
                    found = instances_in(str(last.wrap().sample_point()), state.scop, state.function)
                    why = f"{found[1]} reads {found[0]}, which would be computed for {root.name} only"
                    raise refused(f"{step} is illegal: {why}", found[0], found[1], state.scop, state.function)


def check(state: State, text: str, program: Scop, step: str) -> None:
    """Prove the plan of a state.

    ``program`` is the program as it was built, ``step`` what was done last.  Raises IllegalStepError, PlanError.
    """
    with bounded(state.function) as bounds:
        _, plan = bounds(lambda: read_plan(text, program))
        bounds(lambda: check_structure(plan, False))
        try:
            bounds(lambda: prove(plan, step))
        except LegalityError as error:
            raise _explained(error, state, plan.scop, step) from None


def _explained(error: LegalityError, state: State, scop: Scop, step: str) -> IllegalStepError:
    """A proof's failure in terms of the program."""
    found = instances_in(error.message, scop, state.function)
    first, second = (*found, None, None)[:2]
    reason = error.message.removeprefix(f"pass '{step}' ")
    if "in parallel" in reason:
        what = f"{first} and {second} would run at the same time, but one needs what the other leaves"
    elif "reverses" in reason:
        what = f"{first} must run before {second}, and would not"
    elif "other values" in reason:
        what = f"{second} would not read what {first} computes for it" if second else reason
    elif "outlives" in reason:
        what = f"{second} would read what {first} left in a place that is gone by then"
    elif first is not None:
        what = f"it {reason.split(',')[0].split(' such as')[0]}, such as {first}"
    else:
        what = f"it {reason}"
    return refused(f"{step} is illegal: {what} ({reason})", first, second, scop, state.function)


def _prove_apart(state: State, stage: Stage, depth: int, step: str, dependences: isl.UnionMap) -> None:
    """No two iterations of a loop, where the loops around are the same, depend on each other."""
    own = [state.scop.by_name[s] for s in stage.statements]
    running = [s for s in own if s.kind in ("update", "assign")]
    schedule = union_map([loop_map(s, values_of(stage)[:depth], s.domain, 0) for s in running])
    inside = dependences.intersect_domain(schedule.domain()).intersect_range(schedule.domain())
    front = "".join(f"o{d}, " for d in range(depth - 1))
    beside = isl.UnionMap(f"{{ [{front}a] -> [{front}b] : a != b }}")
    crossing = inside.intersect(schedule.apply_range(beside).apply_range(schedule.reverse()))
    if crossing.is_empty():
        return
    found = instances_in(str(crossing.wrap().sample_point()), state.scop, state.function)
    first, second = (*found, None, None)[:2]
    why = "but must run in this order"
    if stage.loops[depth - 1].how == PARALLEL:
        why = "but both change one element"
    what = f"{first} and {second} would run at the same time, {why}"
    raise refused(f"{step} is illegal: {what}", first, second, state.scop, state.function)
