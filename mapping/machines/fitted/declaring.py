"""How a fitted number is declared: its value, its unit, what it means, and on which machine it was found, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

Value = TypeVar("Value")

NOT_RECORDED = "not recorded"
"""The machine of a number, or how it was found, where nobody wrote it down."""

THAT_DAY = "not recorded; that day's benchmarks ran on a Zen 5"
"""The machine of a number that came with a change which was measured, without saying where."""

_KEY = "fitting"


@dataclass(frozen=True, slots=True)
class Fitting:
    """What is known of a fitted number beside its value.

    ``help`` says what it means, ``how`` when it was found and what was measured.
    """

    unit: str
    help: str
    machine: str
    how: str


def fitted(value: Value, unit: str, help: str, *, machine: str, how: str) -> Value:  # noqa: A002 - as options have it
    """A field of a dataclass of fitted numbers."""
    return field(default=value, metadata={_KEY: Fitting(unit, help, machine, how)})


def fittings(group: Any) -> Iterator[tuple[str, object, Fitting]]:
    """The names, the values and the declarations of the numbers of a group, in the order of their declaration."""
    for each in fields(group):
        found = each.metadata[_KEY]
        assert isinstance(found, Fitting)
        yield each.name, getattr(group, each.name), found
