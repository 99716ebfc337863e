"""The order in which a program runs: statement by statement, and step by step in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Protocol, Self, TypeVar

from tcomp.grammar.tree.forms import Interval, to_form, value
from tcomp.grammar.tree.function import Statement, Step

Own = TypeVar("Own", bound="Run")


class Run(Protocol):
    """What runs a statement over the values that its indices have by ``hull``."""

    @property
    def statement(self) -> Statement: ...

    @property
    def sizes(self) -> Mapping[str, int]: ...

    @property
    def hull(self) -> Mapping[str, Interval]: ...

    def within(self, hull: Mapping[str, Interval]) -> Self:
        """The same with other values of some indices."""
        ...


def in_order(runs: Sequence[Own]) -> Iterator[Own]:
    """The runs in the order in which they are due, those in blocks once for each step, at that step alone."""
    yield from _in_order(runs, {})


def _in_order(runs: Sequence[Own], at: Mapping[str, int]) -> Iterator[Own]:
    depth = len(at)

    def block(run: Run) -> tuple[int, int]:
        steps = run.statement.steps
        return (steps[depth].number, 0) if len(steps) > depth else (-1, id(run))

    for (number, _), group in groupby(runs, block):
        members = list(group)
        if number < 0:
            fixed = {name: (number, number) for name, number in at.items()}
            yield from (run.within(fixed) for run in members)
            continue
        step = members[0].statement.steps[depth]
        for number in _values(step, members[0], at):
            yield from _in_order(members, {**at, step.index: number})


def _values(step: Step, run: Run, at: Mapping[str, int]) -> range:
    """The values that a step takes inside of those ``at`` which others are."""
    if step.lower is None or step.upper is None:
        low, high = run.hull[step.index]
        return range(low, high + 1)
    ends = [to_form(bound, run.sizes) for bound in (step.lower, step.upper)]
    low, high = (value(end, at) for end in ends if end is not None)
    return range(low, high)
