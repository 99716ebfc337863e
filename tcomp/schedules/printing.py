"""A schedule as the loops that it is."""

from __future__ import annotations

from collections.abc import Iterator

from tcomp.schedules.expressions import names_in
from tcomp.schedules.placing import in_step
from tcomp.schedules.stages import COPIES, PARALLEL, SERIAL, VECTORS, Loop, Stage
from tcomp.schedules.state import State


def loops_text(state: State) -> str:
    """One line a loop or statement, indented."""
    lines = [line for stage in state.stages if stage.place is None for line in _from(state, stage, 0, 0)]
    return "\n".join(lines) + "\n"


def _from(state: State, stage: Stage, level: int, indent: int) -> Iterator[str]:
    for inner in state.inside(stage.name):
        assert inner.place is not None
        if stage.depth(inner.place.loop) == level:
            yield from _inner(state, inner, indent)
    lead = "  " * indent
    statements = [state.scop.by_name[s] for s in stage.statements]
    starts = any(s.kind == "init" for s in statements)
    ends = any(s.kind == "finish" for s in statements)
    if level == stage.shared and starts and level < len(stage.loops):
        yield f"{lead}start {stage.name}{_left(stage, level)}"
    if level == len(stage.loops):
        yield f"{lead}{_statement(state, stage)}"
    else:
        loop = stage.loops[level]
        note = "  # one operation" if stage.tensorized and level == stage.shared else ""
        copied = "".join(f"  # copies {tensor} inside" for tensor, at in stage.copied if at == loop.name)
        yield f"{lead}{_head(loop, _partly(state, stage))}{note}{copied}"
        yield from _from(state, stage, level + 1, indent + 1)
    if level == stage.shared and ends and level < len(stage.loops):
        yield f"{lead}end {stage.name}{_left(stage, level)}"


def _inner(state: State, stage: Stage, indent: int) -> Iterator[str]:
    assert stage.place is not None
    kept = {None: "", "": ", each element once"}.get(stage.place.kept, f", each element once in {stage.place.kept}")
    shift = "" if stage.place.shift is None else f", {_moved(stage.place.shift)}"
    yield f"{'  ' * indent}# {stage.name}, {f'in step{shift}' if shift else f'as needed here{kept}'}:"
    yield from _from(state, stage, in_step(state, stage), indent)


def _moved(shift: int) -> str:
    if not shift:
        return "in the same iteration"
    return f"{abs(shift)} iteration{'s' * (abs(shift) > 1)} {'later' if shift > 0 else 'earlier'}"


def _partly(state: State, stage: Stage) -> bool:
    """Whether loops run over what is needed somewhere else."""
    return stage.place is not None and stage.place.shift is None


def _left(stage: Stage, level: int) -> str:
    names = [loop.name for loop in stage.loops[level:] if names_in(loop.value) <= {*stage.coordinates}]
    return f" for all {', '.join(names)}" if names else ""


def _head(loop: Loop, partly: bool) -> str:
    how = {SERIAL: "", PARALLEL: "parallel ", VECTORS: "vectorized ", COPIES: "unrolled "}[loop.how]
    if partly:
        return f"{how}for {loop.name} in what is needed:"
    return f"{how}for {loop.name} in {loop.low} .. {loop.high + 1}:"


def _statement(state: State, stage: Stage) -> str:
    statement = state.function.statements[state.scop.by_name[stage.statements[-1]].origin]
    source = state.function.source
    text = source.text[statement.span.start : statement.span.end] if statement.span else ""
    return " ".join(text.split()) or stage.name
