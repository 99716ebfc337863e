"""How steps are taken: what all schedules of a program share, and the state that a step makes of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tcomp.grammar.tree.function import Function
from tcomp.model.scop import Scop
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.kernel import Kernel
from tcomp.schedules import steps as words
from tcomp.schedules.choices import Choice
from tcomp.schedules.decisions import Step
from tcomp.schedules.errors import ScheduleError
from tcomp.schedules.state import State

Compile = Callable[..., Kernel]
"""Makes the kernel for some sizes, a target, options and the text of a plan."""


@dataclass(frozen=True, eq=False)
class Base:
    """What all schedules of one program, sizes and target have in common."""

    function: Function
    sizes: Sizes
    target: str
    program: Scop
    compile: Compile

    @property
    def gpu(self) -> bool:
        """Whether the target's passes are those of a GPU."""
        return self.target.partition(":")[0] != "cpu"


def applied(state: State, step: Step) -> State:
    """The state after a step.  Raises ScheduleError."""
    word = words.STEPS.get(step.word)
    if word is None:
        raise ScheduleError(
            f"{step.stage}.{step}: on a processor the passes take this beside the model, if at all: say auto() before; "
            f"without it they take {', '.join(words.STEPS)}"
        )
    try:
        return word(state, state.stage(step.stage), *step.given, **dict(step.named))
    except TypeError as error:
        raise ScheduleError(f"{step.stage}.{step}: {error}") from None


def resolved(step: Step, chosen: Mapping[str, Any]) -> Step:
    """A step with values instead of choices."""

    def value(given: Any) -> Any:
        return chosen.get(given.name, given.values[0]) if isinstance(given, Choice) else given

    return replace(
        step, given=tuple(map(value, step.given)), named=tuple((name, value(given)) for name, given in step.named)
    )
