"""Ranges whose ends data give, as they stand in the values of statements: guards in front of what is computed."""

from __future__ import annotations

from tcomp.grammar.tree.function import Expr, Select, Within


def ranges_of(value: Expr) -> tuple[Within, ...]:
    """The ranges that data give in which alone a statement computes a value, the one that is asked first in front."""
    found: list[Within] = []
    while isinstance(value, Select) and isinstance(value.condition, Within):
        found.append(value.condition)
        value = value.then
    return tuple(found)


def inside_ranges(value: Expr) -> Expr:
    """What a statement computes inside of its ranges."""
    while isinstance(value, Select) and isinstance(value.condition, Within):
        value = value.then
    return value
