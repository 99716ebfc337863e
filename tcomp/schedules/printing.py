"""A schedule as the loops that it is, each with the bounds that it has."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from tcomp.schedules.bounds import Runs, bounds_of, condition_of, counted, runs_apart
from tcomp.schedules.errors import stage_name
from tcomp.schedules.expressions import names_in
from tcomp.schedules.placing import in_step
from tcomp.schedules.stages import COPIES, PARALLEL, SERIAL, VECTORS, Stage
from tcomp.schedules.state import State


def loops_text(state: State) -> str:
    """One line a loop, a condition or a statement, indented."""
    listing = _Listing(state)
    lines = [f"# {name} is computed where it is read" for name in _inlined(state)]
    for stage in state.stages:
        lines += listing.of(stage, 0, 0, isl.Set("{ [] }")) if stage.place is None else ()
    return "\n".join(lines) + "\n"


def _inlined(state: State) -> Iterator[str]:
    for name in state.inlined:
        number = "".join(c for c in name if c.isdigit())
        yield stage_name(int(number), state.function)


class _Listing:
    """The lines of stages; in each ``around`` are the iterations of the loops that stand around a line."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.runs = Runs(state)

    def of(self, stage: Stage, level: int, indent: int, around: isl.Set) -> Iterator[str]:
        """What is inside the outermost ``level`` loops of a stage."""
        depth = self.runs.base(stage) + level
        for inner in self.state.inside(stage.name):
            assert inner.place is not None
            if stage.depth(inner.place.loop) == level:
                yield from self._inner(inner, indent, around)
        kinds = {self.state.scop.by_name[s].kind: s for s in stage.statements}
        ends = level == stage.shared and level < len(stage.loops)
        if ends and "init" in kinds:
            run = self.runs.of(stage, [kinds["init"]], depth)
            yield from self._where(stage, run, around, indent, [f"start {stage.name}{_left(stage, level)}"])
        last, running = level == len(stage.loops), self._running(stage)
        if last and not running:  # a sum of nothing
            words = [word for kind, word in (("init", "start"), ("finish", "end")) if kind in kinds]
            run = self.runs.of(stage, stage.statements, depth)
            yield from self._where(stage, run, around, indent, [f"{word} {stage.name}" for word in words])
            return
        run = self.runs.of(stage, running, depth) if last else self._below(stage, depth)
        condition = condition_of(run, around, self._names(stage, depth))
        lead = indent + bool(condition)
        if condition:
            yield f"{'  ' * indent}if {condition}:"
        here = around.intersect(run)
        if last:
            yield f"{'  ' * lead}{_statement(self.state, stage)}"
        else:
            yield from self._loop(stage, level, lead, here)
        if ends and "finish" in kinds:
            run = self.runs.of(stage, [kinds["finish"]], depth)
            yield from self._where(stage, run, around, indent, [f"end {stage.name}{_left(stage, level)}"])

    def _running(self, stage: Stage) -> list[str]:
        return [s for s in stage.statements if self.state.scop.by_name[s].kind in ("update", "assign")]

    def _below(self, stage: Stage, depth: int) -> isl.Set:
        return self.runs.within(stage, depth + 1).project_out(isl.dim_type.set, depth, 1)

    def _names(self, stage: Stage, depth: int) -> list[str]:
        """The names of loops around; with that of the stage where a loop inside has the same one."""
        found = self.runs.named(stage, depth)
        own = {loop.name for loop in stage.loops[in_step(self.state, stage) :]}
        names = [name for of, name in found if of != stage.name]
        return [
            name if of == stage.name or (name not in own and names.count(name) == 1) else f"{of}.{name}"
            for of, name in found
        ]

    def _where(self, stage: Stage, run: isl.Set, around: isl.Set, indent: int, lines: list[str]) -> Iterator[str]:
        """Lines below the condition on which they are run, if there is one."""
        condition = condition_of(run, around, self._names(stage, around.dim(isl.dim_type.set)))
        if condition:
            yield f"{'  ' * indent}if {condition}:"
        yield from ("  " * (indent + bool(condition)) + line for line in lines)

    def _loop(self, stage: Stage, level: int, indent: int, around: isl.Set) -> Iterator[str]:
        loop, depth = stage.loops[level], self.runs.base(stage) + level
        run = self.runs.within(stage, depth + 1)
        bounds = bounds_of(run.intersect(_any(around)), around, self._names(stage, depth), loop)
        how = {SERIAL: "", PARALLEL: "parallel ", VECTORS: "vectorized ", COPIES: "unrolled "}[loop.how]
        step = f" by {bounds.step}" if bounds.step > 1 else ""
        notes = [] if bounds.known else ["at most"]
        notes += [f"counts {counted(loop.value)}"] if runs_apart(loop.value) else []
        notes += ["one operation"] if stage.tensorized and level == stage.shared else []
        notes += [f"copies {tensor} inside" for tensor, at in stage.copied if at == loop.name]
        note = "".join(f"  # {n}" for n in notes)
        yield f"{'  ' * indent}{how}for {loop.name} in {bounds.low} .. {bounds.high}{step}:{note}"
        if bounds.condition:
            yield f"{'  ' * (indent + 1)}if {bounds.condition}:"
        yield from self.of(stage, level + 1, indent + 1 + bool(bounds.condition), run.intersect(_any(around)))

    def _inner(self, stage: Stage, indent: int, around: isl.Set) -> Iterator[str]:
        assert stage.place is not None
        depth = self.runs.placed[stage.name].depth
        run = self.runs.within(stage, depth)
        lines = [f"# {stage.name}, {self._how(stage)}:"]
        common = in_step(self.state, stage)
        condition = condition_of(run, around, self._names(stage, depth))
        yield f"{'  ' * indent}{lines[0]}"
        if condition:
            yield f"{'  ' * indent}if {condition}:"
        yield from self.of(stage, common, indent + bool(condition), around.intersect(run))

    def _how(self, stage: Stage) -> str:
        assert stage.place is not None
        shift = stage.place.shift
        if shift is None:
            kept = {None: "", "": ", each element once"}
            return f"as needed here{kept.get(stage.place.kept, f', each element once in {stage.place.kept}')}"
        if not shift:
            return "in step, in the same iteration"
        loop, other = stage.loops[in_step(self.state, stage) - 1].name, f"{stage.place.consumer}.{stage.place.loop}"
        when = f"in step, {abs(shift)} iteration{'s' * (abs(shift) > 1)} {'later' if shift > 0 else 'earlier'}"
        return f"{when}, so that {stage.name}.{loop} is {other} {'-' if shift > 0 else '+'} {abs(shift)}"


def _any(around: isl.Set) -> isl.Set:
    """The same with one more loop inside, of whatever values."""
    return around.insert_dims(isl.dim_type.set, around.dim(isl.dim_type.set), 1)


def _left(stage: Stage, level: int) -> str:
    names = [loop.name for loop in stage.loops[level:] if names_in(loop.value) <= {*stage.coordinates}]
    return f" for all {', '.join(names)}" if names else ""


def _statement(state: State, stage: Stage) -> str:
    statement = state.function.statements[state.scop.by_name[stage.statements[-1]].origin]
    source = state.function.source
    text = source.text[statement.span.start : statement.span.end] if statement.span else ""
    return " ".join(text.split()) or stage.name
