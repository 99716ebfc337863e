"""What the value of a loop is, as a function of the indices of a statement."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Name:
    """An index of the statement."""

    name: str


@dataclass(frozen=True, slots=True)
class Quotient:
    """The number of the part, each so long, that a value falls into."""

    value: Expression
    size: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Where in its part a value is."""

    value: Expression
    size: int


@dataclass(frozen=True, slots=True)
class Sum:
    """``first * times + second + shift``."""

    first: Expression
    times: int
    second: Expression
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Negative:
    """A value counted downwards."""

    value: Expression


Expression = Name | Quotient | Rest | Sum | Negative


def names_in(expression: Expression) -> frozenset[str]:
    """The indices that a loop depends on."""
    match expression:
        case Name(name):
            return frozenset({name})
        case Sum(first, _, second):
            return names_in(first) | names_in(second)
        case Quotient(value) | Rest(value) | Negative(value):
            return names_in(value)


def text_of(expression: Expression) -> str:
    """It as isl reads it."""
    match expression:
        case Name(name):
            return f"({name})"
        case Quotient(value, size):
            return f"floor({text_of(value)}/{size})"
        case Rest(value, size):
            return f"({text_of(value)} mod {size})"
        case Sum(first, times, second, shift):
            return f"({times}*{text_of(first)} + {text_of(second)} + {shift})"
        case Negative(value):
            return f"(-{text_of(value)})"


def within(expression: Expression, outer: Collection[Expression]) -> Expression:
    """A value that orders the iterations of a loop in the same way where the loops ``outer`` are around it.

    Where the part is known, the value itself tells where in the part it is: loops then count as the program's do.
    """
    match expression:
        case Rest(value, size) if Quotient(value, size) in outer:
            return within(value, outer)
        case Quotient(Rest(value, size), part) if Quotient(value, size) in outer and size % part == 0:
            return within(Quotient(value, part), outer)
        case Rest(Rest(value, size), part) if Quotient(Rest(value, size), part) in outer and size % part == 0:
            return within(Rest(value, size), outer) if Quotient(value, size) in outer else Rest(value, size)
        case _:
            return expression


def as_counted(value: Expression, text: str, outer: Mapping[Expression, str]) -> str:
    """The text of a loop's own value, from that of the one that ``within`` has in its place.

    ``outer`` has the texts of the loops around, as they count.
    """
    match value:
        case Rest(inner, size) if Quotient(inner, size) in outer:
            return f"({as_counted(inner, text, outer)} - {size}*{outer[Quotient(inner, size)]})"
        case Quotient(Rest(inner, size), part) if Quotient(inner, size) in outer and size % part == 0:
            there = as_counted(Quotient(inner, part), text, outer)
            return f"({there} - {size // part}*{outer[Quotient(inner, size)]})"
        case _:
            return text


def as_within(value: Expression, text: str, outer: Mapping[Expression, str]) -> str:
    """The other way round."""
    match value:
        case Rest(inner, size) if Quotient(inner, size) in outer:
            return as_within(inner, f"({text} + {size}*{outer[Quotient(inner, size)]})", outer)
        case Quotient(Rest(inner, size), part) if Quotient(inner, size) in outer and size % part == 0:
            there = f"({text} + {size // part}*{outer[Quotient(inner, size)]})"
            return as_within(Quotient(inner, part), there, outer)
        case _:
            return text
