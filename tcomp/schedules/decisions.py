"""Schedules as mapping options: some decisions are fixed, the model of the target makes the others.

On a GPU this is what there is: its passes take tiles, threads and memories as options, and place loops themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tcomp.mapping.options.options import MappingOptions
from tcomp.schedules.errors import ScheduleError
from tcomp.schedules.stages import Stage


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the stage that it is of, its word, and what it was given."""

    stage: str
    word: str
    given: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        parts = [*map(repr, self.given), *(f"{k}={v!r}" for k, v in self.named if v is not None)]
        text = ", ".join(parts).replace("'", '"')
        return f"{self.word}({text})"


@dataclass(slots=True)
class _Decisions:
    """Values of options, and the step that gave each."""

    gpu: bool
    stages: Sequence[Stage]
    values: dict[str, Any] = field(default_factory=dict)
    behind: dict[str, Step] = field(default_factory=dict)

    def decide(self, step: Step, option: str, value: Any) -> None:
        if option in self.values and self.values[option] != value:
            raise ScheduleError(
                f"{step.stage}.{step} and {self.behind[option].stage}.{self.behind[option]} differ, but the passes "
                f"take one value of {option} for the whole program"
            )
        self.values[option] = value
        self.behind[option] = step

    def stage(self, step: Step) -> Stage:
        return next(s for s in self.stages if s.name == step.stage)


def options_of(steps: Sequence[Step], stages: Sequence[Stage], gpu: bool) -> MappingOptions:
    """The options that steps stand for.  Raises ScheduleError for one that is none, TcompError for a wrong value."""
    decisions = _Decisions(gpu, stages)
    for step in steps:
        meaning = _MEANINGS.get(step.word)
        others = _OF_PROCESSORS if gpu else _OF_GPUS
        if meaning is None or step.word in others:
            where = "a GPU" if gpu else "a processor whose model chooses the rest"
            raise ScheduleError(
                f"{step.stage}.{step}: the passes for {where} do not take this; they take "
                f"{', '.join(w for w in _MEANINGS if w not in others)}"
            )
        meaning(decisions, step)
    return MappingOptions(**decisions.values)


def _tile(found: _Decisions, step: Step) -> None:
    count = len(step.given) // 2
    names, sizes = step.given[:count], step.given[count:]
    stage = found.stage(step)
    if not count or len(names) != len(sizes):
        raise ScheduleError('tile takes names of loops, then as many sizes: tile("i", "j", 32, 64)')
    wrong = next((n for n in names if n not in stage.coordinates), None)
    if wrong is not None:
        raise ScheduleError(
            f"{wrong} of {stage.name} is no loop over its elements; they are {', '.join(stage.coordinates)}"
        )
    by_name = dict(zip(names, sizes, strict=True))
    found.decide(step, "tile_sizes", tuple(by_name.get(c, 0) for c in stage.coordinates))


def _split(found: _Decisions, step: Step) -> None:
    loop, size = step.given[:2]
    if step.named:
        raise ScheduleError(f"{step.stage}.{step}: loops of a GPU's passes have no names to be given")
    if not found.gpu or loop not in found.stage(step).reduced:
        raise ScheduleError(
            f"{step.stage}.{step}: the passes split loops over what is reduced, on a GPU; others are tiled"
        )
    found.decide(step, "reduction_tile", size)


def _flag(option: str, value: bool) -> Callable[[_Decisions, Step], None]:
    def decide(found: _Decisions, step: Step) -> None:
        if step.given:
            raise ScheduleError(f"{step.stage}.{step}: here the passes choose what {step.word} is for; give no names")
        found.decide(step, option, value)

    return decide


def _numbers(option: str) -> Callable[[_Decisions, Step], None]:
    def decide(found: _Decisions, step: Step) -> None:
        if not step.given or not all(type(n) is int for n in step.given):
            raise ScheduleError(f"{step.stage}.{step}: {step.word} takes numbers")
        found.decide(step, option, step.given)

    return decide


def _threads(found: _Decisions, step: Step) -> None:
    if not found.gpu and len(step.given) != 1:
        raise ScheduleError(f"{step.stage}.{step}: on a processor threads takes how many there may be at most")
    _numbers("threads")(found, step)


def _unroll(found: _Decisions, step: Step) -> None:
    if len(step.given) != 1 or type(step.given[0]) is not int:
        raise ScheduleError(f"{step.stage}.{step}: unroll takes how many copies of loop bodies there may be at most")
    found.decide(step, "unroll", step.given[0])


def _registers(found: _Decisions, step: Step) -> None:
    if found.gpu:
        _flag("use_private_memory", True)(found, step)
    else:
        if len(step.given) != 2:
            raise ScheduleError(f"{step.stage}.{step}: registers takes rows and columns of a register tile")
        _numbers("register_tile")(found, step)


def _shared(found: _Decisions, step: Step) -> None:
    """Names are promises about what comes of it, which are checked when there is a plan."""
    if not all(isinstance(name, str) for name in step.given):
        raise ScheduleError(f"{step.stage}.{step}: shared takes names of tensors")
    found.decide(step, "use_shared_memory", True)


_MEANINGS: dict[str, Callable[[_Decisions, Step], None]] = {
    "tile": _tile,
    "split": _split,
    "blocks": _numbers("blocks"),
    "threads": _threads,
    "unroll": _unroll,
    "shared": _shared,
    "registers": _registers,
    "double_buffer": _flag("prefetch", True),
    "compute_root": _flag("fusion_strategy", "min"),  # type: ignore[arg-type]
    "parallel": _flag("parallel", True),
    "serial": _flag("parallel", False),
}
_OF_GPUS = ("split", "blocks", "unroll", "shared", "double_buffer")
_OF_PROCESSORS = ("parallel", "serial")
