"""A schedule as values: the program, what of it is computed where it is read, and the stages of the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcomp.grammar.tree.function import Function
from tcomp.model.scop import Scop
from tcomp.schedules.errors import ScheduleError
from tcomp.schedules.stages import Stage


@dataclass(frozen=True, eq=False)
class State:
    """``scop`` is the program with the statements ``inlined`` computed where they are read."""

    function: Function
    scop: Scop
    stages: tuple[Stage, ...]
    inlined: tuple[str, ...] = ()

    def stage(self, name: str) -> Stage:
        """A stage by its name.  Raises ScheduleError."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        known = ", ".join(s.name for s in self.stages)
        raise ScheduleError(f"there is no stage {name!r}; the stages are {known}")

    def position(self, name: str) -> int:
        """Which of the stages one is."""
        return self.stages.index(self.stage(name))

    def with_stage(self, stage: Stage) -> State:
        """The state with another stage of that name."""
        return replace(self, stages=tuple(stage if s.name == stage.name else s for s in self.stages))

    def inside(self, name: str) -> tuple[Stage, ...]:
        """The stages that are computed inside loops of another one."""
        return tuple(s for s in self.stages if s.place is not None and s.place.consumer == name)

    def root(self, stage: Stage) -> Stage:
        """The stage in whose loops another one ends up."""
        while stage.place is not None:
            stage = self.stage(stage.place.consumer)
        return stage
