"""The steps of a schedule on loops that stand in a tree: each makes another state, or says why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tcomp.loops.unrolling import MOST_COPIES
from tcomp.mapping.fusion.inlining import can_inline, inlined
from tcomp.schedules.errors import ScheduleError
from tcomp.schedules.expressions import Negative, Quotient, Rest, Sum, names_in
from tcomp.schedules.placing import reads_in
from tcomp.schedules.stages import COPIES, PARALLEL, SERIAL, VECTORS, Loop, Place, Stage, main_of, range_of
from tcomp.schedules.state import State

_IN_STEP = (
    "what runs in step with a shift is computed once and kept as long as it is needed: store_at says nothing there"
)

ROOT = "root"
"""What stands for no loop: outside of all."""


def split(state: State, stage: Stage, loop: str, size: int, names: tuple[str, str] | None = None) -> State:
    """A loop as one over parts of so many iterations, and one inside each part."""
    old = stage.loop(loop)
    _positive(size, "the size of a part")
    outer, inner = (f"{loop}_o", f"{loop}_i") if names is None else _named(names, 2)
    statement = main_of(state.scop, stage)
    parts, rest = Quotient(old.value, size), Rest(old.value, size)
    new = (Loop(outer, parts, *range_of(statement, parts), old.how), Loop(inner, rest, *range_of(statement, rest)))
    return _with(state, stage, [new if item is old else (item,) for item in stage.loops])


def tile(state: State, stage: Stage, *given: str | int) -> State:
    """Some loops in parts: the loops over parts come first, those inside a part behind all of them."""
    count = len(given) // 2
    names, sizes = given[:count], given[count:]
    if not count or len(given) % 2 or not all(isinstance(n, str) for n in names):
        raise ScheduleError('tile takes names of loops, then as many sizes: tile("i", "j", 32, 64)')
    for name, size in zip(names, sizes, strict=True):
        assert isinstance(name, str)
        if not isinstance(size, int):
            raise ScheduleError(f"the size of a tile must be a number, not {size!r}")
        state = split(state, state.stage(stage.name), name, size)
    return reorder(state, state.stage(stage.name), *(f"{n}_o" for n in names), *(f"{n}_i" for n in names))


def reorder(state: State, stage: Stage, *names: str) -> State:
    """Some loops in another order, outermost first, on the places that they have together; others stay."""
    chosen = [stage.loop(name) for name in names]
    if len({*names}) < len(names) or not names:
        raise ScheduleError("reorder takes names of different loops")
    waiting = iter(chosen)
    return _with(state, stage, [(next(waiting) if item in chosen else item,) for item in stage.loops])


def interchange(state: State, stage: Stage, first: str, second: str) -> State:
    """Two loops with their places exchanged."""
    pair = {first: stage.loop(second), second: stage.loop(first)}
    return _with(state, stage, [(pair.get(item.name, item),) for item in stage.loops])


def fuse(state: State, stage: Stage, first: str, second: str, name: str | None = None) -> State:
    """Two loops, the second directly inside the first, as one."""
    outer, inner = stage.loop(first), stage.loop(second)
    if stage.depth(second) != stage.depth(first) + 1:
        raise ScheduleError(f"{second} of {stage.name} does not stand directly inside {first}")
    value = Sum(outer.value, max(1, inner.extent), inner.value, -inner.low)
    (joined,) = _named((f"{first}_{second}" if name is None else name,), 1)
    new = Loop(joined, value, *range_of(main_of(state.scop, stage), value), outer.how)
    return _with(state, stage, [(new,) if item is outer else () if item is inner else (item,) for item in stage.loops])


def skew(state: State, stage: Stage, loop: str, by: str, factor: int = 1) -> State:
    """A loop that begins ``factor`` iterations later in each iteration of another one around it."""
    old, other = stage.loop(loop), stage.loop(by)
    if stage.depth(by) >= stage.depth(loop):
        raise ScheduleError(f"{by} of {stage.name} does not stand around {loop}")
    if type(factor) is not int or not factor:
        raise ScheduleError(f"a loop is skewed by a whole number of iterations that is not 0, not by {factor!r}")
    value = Sum(other.value, factor, old.value)
    new = replace(old, value=value, low=0, high=0)
    low, high = range_of(main_of(state.scop, stage), value)
    new = replace(new, low=low, high=high)
    return _with(state, stage, [(new if item is old else item,) for item in stage.loops])


def reverse(state: State, stage: Stage, loop: str) -> State:
    """A loop from its end to its beginning."""
    old = stage.loop(loop)
    new = replace(old, value=Negative(old.value), low=-old.high, high=-old.low)
    return _with(state, stage, [(new if item is old else item,) for item in stage.loops])


def parallel(state: State, stage: Stage, *names: str) -> State:
    """The outermost loops on several threads."""
    if stage.place is not None:
        raise ScheduleError(
            f"{stage.name} is computed in a loop of {stage.place.consumer}, whose loops may run in parallel"
        )
    return _running(state, stage, PARALLEL, names or (stage.loops[0].name,) if stage.loops else names)


def vectorize(state: State, stage: Stage, loop: str) -> State:
    """The innermost loop in vectors."""
    if stage.depth(loop) != len(stage.loops):
        raise ScheduleError(f"only the innermost loop runs in vectors, and {loop} of {stage.name} has "
                            f"{stage.loops[-1].name} inside: reorder it, or split it before")  # fmt: skip
    return _running(state, stage, VECTORS, (loop,))


def unroll(state: State, stage: Stage, loop: str, size: int | None = None) -> State:
    """A loop as a copy of its body for each iteration; with a ``size``, parts of it."""
    if stage.loop(loop).how not in (SERIAL, COPIES):
        raise ScheduleError(f"{loop} of {stage.name} runs in parallel or in vectors, so it is not unrolled")
    if size is not None:
        state, loop = split(state, stage, loop, size), f"{loop}_i"
        stage = state.stage(stage.name)
    copies = stage.loop(loop).extent
    if stage.place is None and copies > MOST_COPIES:
        raise ScheduleError(f"{loop} of {stage.name} has {copies} iterations; no more than {MOST_COPIES} are unrolled")
    bodies = copies * prod(other.extent for other in stage.loops if other.how == COPIES)
    if stage.place is None and bodies > MOST_COPIES**2:
        message = f"{loop} of {stage.name} would have {bodies} copies with the loops that are unrolled already"
        raise ScheduleError(f"{message}; no more than {MOST_COPIES**2} are written")
    return _running(state, stage, COPIES, (loop,))


def serial(state: State, stage: Stage, *names: str) -> State:
    """Loops one iteration after another again."""
    return _running(state, stage, SERIAL, names)


def compute_at(
    state: State, stage: Stage, consumer: str, loop: str, store_at: str | None = None, shift: int | None = None
) -> State:
    """Inside a loop of a stage that reads it: in each iteration what that needs, or in step with a ``shift``."""
    reader = state.stage(consumer)
    reader.loop(loop)
    if state.position(consumer) <= state.position(stage.name):
        wrong = f"{consumer} comes before {stage.name}" if consumer != stage.name else f"{consumer} is this one"
        raise ScheduleError(f"compute_at names a later stage, which reads this one; {wrong}")
    if any(item.how == PARALLEL for item in stage.loops):
        raise ScheduleError(f"loops of {stage.name} run in parallel, so it stays outside of others")
    if shift is not None and type(shift) is not int:
        raise ScheduleError(f"a shift is a whole number of iterations, not {shift!r}")
    if shift is not None and store_at is not None:
        raise ScheduleError(_IN_STEP)
    return state.with_stage(replace(stage, place=Place(consumer, loop, _kept(reader, loop, store_at), shift)))


def compute_root(state: State, stage: Stage) -> State:
    """In loops of its own, before what reads it."""
    return state.with_stage(replace(stage, place=None))


def store_at(state: State, stage: Stage, loop: str) -> State:
    """Each element once in an iteration of a loop of its consumer, around that where it is computed; or once in all."""
    if stage.place is None:
        raise ScheduleError(f"{stage.name} is computed in loops of its own: say compute_at before store_at")
    if stage.place.shift is not None:
        raise ScheduleError(_IN_STEP)
    kept = _kept(state.stage(stage.place.consumer), stage.place.loop, loop)
    return state.with_stage(replace(stage, place=replace(stage.place, kept=kept)))


def _kept(reader: Stage, computed: str, loop: str | None) -> str | None:
    """The loop inside which values are kept, as a Place says it."""
    if loop is None or loop == ROOT:
        return None if loop is None else ""
    if reader.depth(loop) > reader.depth(computed):
        raise ScheduleError(f"{loop} of {reader.name} stands inside {computed}, where the stage is computed")
    return loop


def inline(state: State, stage: Stage) -> State:
    """Where it is read, as part of what reads it."""
    if (
        len(stage.statements) > 1
        or state.scop.storages[state.scop.by_name[stage.statements[0]].target].role != "temporary"
    ):
        raise ScheduleError(f"{stage.name} is a reduction or a result, which are computed and then read: only what one "
                            f"statement computes element by element can be inlined")  # fmt: skip
    (name,) = stage.statements
    if not can_inline(state.scop, name):
        raise ScheduleError(f"{stage.name} cannot be computed where it is read")
    if any(s.place is not None and s.place.consumer == stage.name for s in state.stages):
        raise ScheduleError(f"other stages are computed in loops of {stage.name}, which would be gone")
    scop = inlined(state.scop, name)
    stages = tuple(s for s in state.stages if s.name != stage.name)
    return State(state.function, scop, stages, (*state.inlined, name))


def cache_read(state: State, stage: Stage, tensor: str, at: str) -> State:
    """What is read of a tensor in an iteration of a loop, copied before so that it lies in the order of use."""
    stage.loop(at)
    if not reads_in(state.scop, stage, tensor):
        raise ScheduleError(f"{stage.name} does not read {tensor}")
    if not stage.tensorized:
        raise ScheduleError(
            f"the passes copy operands of products that run as one operation: tensorize {stage.name} before"
        )
    return state.with_stage(replace(stage, copied=((tensor, at),)))


def tensorize(state: State, stage: Stage) -> State:
    """The loops from the first one over what is reduced, as one operation that keeps its sums in registers."""
    if stage.shared == len(stage.loops):
        raise ScheduleError(f"{stage.name} has no loop over what is reduced, which an operation begins with")
    last = stage.loops[-1]
    if not names_in(last.value) <= {*stage.coordinates}:
        raise ScheduleError(
            f"{last.name} of {stage.name} is over what is reduced, but an operation has elements of the result "
            f"innermost: reorder the loops before"
        )
    return state.with_stage(replace(stage, tensorized=True))


STEPS: dict[str, Callable[..., State]] = {
    step.__name__: step
    for step in (
        split, tile, reorder, interchange, fuse, skew, reverse, parallel, vectorize, unroll, serial, compute_at,
        compute_root, store_at, inline, cache_read, tensorize,
    )
}  # fmt: skip
"""What a CPU's schedule can do, by name."""

_ALREADY = {PARALLEL: "runs in parallel", VECTORS: "runs in vectors", COPIES: "is unrolled"}
"""What is said of a loop that has a word already."""


def _running(state: State, stage: Stage, how: str, names: tuple[str, ...]) -> State:
    chosen = [stage.loop(name) for name in names]
    for item in chosen:
        if item.how == how != SERIAL:
            raise ScheduleError(f"{item.name} of {stage.name} {_ALREADY[how]} already")
    return _with(state, stage, [(replace(item, how=how) if item in chosen else item,) for item in stage.loops])


def _with(state: State, stage: Stage, parts: list[tuple[Loop, ...]]) -> State:
    return state.with_stage(stage.with_loops(tuple(loop for part in parts for loop in part)))


def _named(names: Sequence[str], count: int) -> Sequence[str]:
    """New names of loops."""
    if isinstance(names, str) or len(names) != count or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise ScheduleError(f"new loops have names like those of variables, {count} here, not {names!r}")
    return names


def _positive(size: int, what: str) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ScheduleError(f"{what} must be a number from 1 on, not {size!r}")
