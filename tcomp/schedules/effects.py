"""What steps ask for and what comes of it: a word that would change nothing is refused, with the reason."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence

import islpy as isl

from tcomp.backends.c.loops.windows import slides
from tcomp.driver import Compilation
from tcomp.errors import ProgramWarning
from tcomp.loops.ir import Execute, For, LoopNode, walk
from tcomp.mapping.machines.fitted.cputext import THREADS
from tcomp.mapping.plan.values import Plan
from tcomp.schedules.bounds import Runs
from tcomp.schedules.decisions import Step
from tcomp.schedules.errors import ScheduleError
from tcomp.schedules.placing import in_step
from tcomp.schedules.stages import COPIES, PARALLEL, VECTORS, Stage
from tcomp.schedules.state import State

_VECTOR = re.compile(r"\btc_[a-z]+\d+_x\d+\b")
_LOOP = re.compile(r"^ *for \(", re.MULTILINE)
_WORDS = {VECTORS: "vectorize", COPIES: "unroll"}


def check_loops(state: State) -> None:
    """Loops that are to run in vectors or as copies have iterations that can.  Raises ScheduleError."""
    if all(loop.how not in _WORDS for stage in state.stages for loop in stage.loops):
        return
    runs = Runs(state)
    for stage in state.stages:
        base = runs.base(stage)
        for depth, loop in enumerate(stage.loops, 1):
            if loop.how not in _WORDS or depth <= in_step(state, stage):
                continue
            inside = [s.name for s in state.inside(stage.name) if s.place and s.place.loop == loop.name]
            if loop.how == VECTORS and inside:
                raise ScheduleError(
                    f"{', '.join(inside)} is computed inside {loop.name} of {stage.name}, so {loop.name} is not the "
                    f"innermost loop and cannot run in vectors"
                )
            values = runs.within(stage, base + depth)
            if not values.is_empty() and _has_one(values):
                word = _WORDS[loop.how]
                raise ScheduleError(f"{loop.name} of {stage.name} has one iteration, so {word} would do nothing")


def _has_one(values: isl.Set) -> bool:
    """Whether the innermost loop has one value where the loops around it have theirs."""
    rank = values.dim(isl.dim_type.set)
    loop = isl.Map.from_range(values).move_dims(isl.dim_type.in_, 0, isl.dim_type.out, 0, rank - 1)
    return bool(loop.is_single_valued())


def promises(state: State) -> bool:
    """Whether steps ask for what a plan or its text may turn out not to have."""
    return any(s.copied or s.tensorized or any(loop.how == VECTORS for loop in s.loops) for s in state.stages)


def check_text(state: State, compilation: Compilation) -> None:
    """What loops were to be is what they are in the text of a kernel for a processor.  Raises ScheduleError."""
    plan = compilation.plan
    for stage in state.stages:
        for tensor, at in stage.copied:
            if all(c.storage != tensor for c in plan.copies):
                raise ScheduleError(
                    f"the passes see no use in a copy of {tensor} at {at} of {stage.name}: it is read where it lies"
                )
        if stage.tensorized and not _VECTOR.search(compilation.source.text):
            raise ScheduleError(
                f"the passes know no register tile for the loops inside {stage.loops[stage.shared].name} of "
                f"{stage.name}: rows and columns that lie side by side in memory must be innermost, columns last"
            )
        if any(loop.how == VECTORS for loop in stage.loops):
            _check_window(stage, plan, compilation.loops)


def warn_of_one_thread(state: State, text: str) -> None:
    """Say that loops run on one thread that were to run in parallel: a ProgramWarning."""
    for stage in state.stages:
        beside = [loop.name for loop in stage.loops if loop.how == PARALLEL]
        if not beside:
            continue
        if Runs(state).within(stage, len(beside)).is_singleton():
            why = "they have one iteration"
        elif "#pragma omp parallel" not in text:
            why = f"this machine has one, or less than {THREADS.parallel_instances} instances do not pay"
        else:
            continue
        warnings.warn(f"{', '.join(beside)} of {stage.name} run on one thread: {why}", ProgramWarning, stacklevel=3)


def _check_window(stage: Stage, plan: Plan, loops: LoopNode) -> None:
    for node in walk(loops):
        if isinstance(node, For) and not any(isinstance(n, For) for n in walk(node.body)):
            runs = {n.statement for n in walk(node.body) if isinstance(n, Execute)}
            if runs & {*stage.statements} and slides(node, plan):
                moved = ", ".join(sorted(b.storage.rpartition("_")[0] for b in plan.buffers.values() if b.folded))
                raise ScheduleError(
                    f"{stage.loops[-1].name} of {stage.name} moves the window of {moved}, whose places are used in "
                    f"turn: they do not lie side by side, so the loop cannot run in vectors"
                )


def check_options(steps: Sequence[Step], gpu: bool, compilation: Compilation) -> None:
    """What steps ask for beside the model is there.  Raises ScheduleError."""
    for step in steps:
        why = next(_missed(step, gpu, compilation), None)
        if why is not None:
            raise ScheduleError(f"{step.stage}.{step} would do nothing: {why}")


def _missed(step: Step, gpu: bool, compilation: Compilation) -> Iterator[str]:
    """Why a step has no effect, if it has none."""
    plan = compilation.plan
    shared = {c.storage for c in plan.copies} | {b.storage for b in plan.buffers.values() if b.space == "shared"}
    fetched = {name.rpartition("_")[0] or name for name in shared} | shared
    match step.word:
        case "shared":
            lacking = [name for name in step.given if name not in fetched]
            if not shared:
                yield "no element is read by several threads of a block, so nothing is fetched into shared memory"
            if lacking:
                yield (
                    f"the passes read {', '.join(lacking)} where it lies; in shared memory are "
                    f"{', '.join(sorted(shared)) or 'none'}"
                )
        case "registers" if gpu:
            if all(b.space not in ("private", "register") for b in plan.buffers.values()):
                yield "no value stays with one thread for several operations"
        case "registers":
            if all(o.kind != "contract" for o in plan.operations.values()):
                yield "the program has no sum of products, of which there are register tiles"
        case "threads" if gpu:
            most = max((math.prod(d.shape) for d in plan.dealt.values()), default=0)
            if 0 < most < math.prod(step.given):
                yield f"no tile has work for more than {most} threads"
        case "unroll" if not _LOOP.search(compilation.source.text):
            yield "a thread runs one instance of each statement, so there is no loop"
        case "double_buffer" if not plan.pipelines:
            yield "no operand is fetched in several parts, one after another: split a loop over what is summed"
