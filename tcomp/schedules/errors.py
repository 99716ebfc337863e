"""What is wrong with a step of a schedule: the passes cannot do it, or it is illegal, as two instances show."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tcomp.errors import Diagnostic, LegalityError, PlanError
from tcomp.grammar.tree.function import Function
from tcomp.model.scop import Scop


class ScheduleError(PlanError):
    """A step names what is not there, or asks for what the passes cannot do; the message says which."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One run of a statement: its stage, which is the tensor that it writes (``B#2`` for the second statement that
    writes B), its name in the model, and the values of its indices."""

    tensor: str
    statement: str
    indices: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.indices)
        return f"{self.tensor} at {values}" if values else self.tensor


class IllegalStepError(LegalityError):
    """A step that would compute something else.

    ``first`` must run before ``second``, or may not run at the same time, and would not, or would; where one alone
    shows what is wrong, ``second`` is None.
    """

    def __init__(self, *diagnostics: Diagnostic | str, first: Instance | None = None, second: Instance | None = None):
        super().__init__(*diagnostics)
        self.first = first
        self.second = second

    def __reduce__(self) -> tuple[type[LegalityError], tuple[Diagnostic, ...]]:
        return LegalityError, self.diagnostics


_INSTANCE = re.compile(r"\b(S\d+\w*)\[([^\[\]]*)\]")
_NUMBER = re.compile(r"-?\d+\s*$")


def instances_in(text: str, scop: Scop, function: Function) -> list[Instance]:
    """The instances that a proof's message names, in order, without tiles in front of indices."""
    found = []
    for name, values in _INSTANCE.findall(text):
        numbers = [int(m[0]) for part in values.split(",") if (m := _NUMBER.search(part))]
        statement = scop.by_name.get(name)
        if statement is not None:
            found.append(instance(statement.name, numbers, scop, function))
    return found


def instance(name: str, numbers: list[int], scop: Scop, function: Function) -> Instance:
    """An instance of a statement of the program; more numbers than it has indices are a tile in front."""
    statement = scop.by_name[name]
    indices = statement.indices[statement.tile_rank :]
    own = numbers[len(numbers) - len(indices) :] if indices else []
    kinds = {"init": "the start of ", "finish": "the end of "}
    stage = stage_name(statement.origin, function)
    return Instance(f"{kinds.get(statement.kind, '')}{stage}", name, tuple(zip(indices, own, strict=False)))


def stage_name(origin: int, function: Function) -> str:
    """The tensor that a statement of the text writes; with a number where earlier ones of the program write it, too."""
    target = function.statements[origin].target
    earlier = sum(s.target == target for s in function.statements[:origin])
    return target if not earlier else f"{target}#{earlier + 1}"


def refused(
    message: str, first: Instance | None, second: Instance | None, scop: Scop, function: Function
) -> IllegalStepError:
    """The error, with the lines of the program that its instances are runs of."""
    origins = {scop.by_name[i.statement].origin: i.tensor.rpartition(" ")[2] for i in (first, second) if i is not None}
    notes = [
        Diagnostic(f"this is {name}", function.source, function.statements[origin].span, severity="note")
        for origin, name in origins.items()
    ]
    return IllegalStepError(message, *notes, first=first, second=second)
