"""Ranges whose ends data give, as they stand in the values of statements: guards in front of what is computed."""

from __future__ import annotations

from collections.abc import Mapping

from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Cast, Expr, Read, Select, Within


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


def are_rows(within: Within, sizes: Mapping[str, int]) -> bool:
    """Whether a range is ``row(i):row(i+1)``, one of several that follow one another."""
    lower, upper = (e.operand if isinstance(e, Cast) else e for e in (within.lower, within.upper))
    if not (isinstance(lower, Read) and isinstance(upper, Read)) or lower.tensor != upper.tensor:
        return False
    if len(lower.subscripts) != 1 or lower.boundary is not None or upper.boundary is not None:
        return False
    first, after = to_form(lower.subscripts[0], sizes), to_form(upper.subscripts[0], sizes)
    if first is None or after is None or first.plus(1) != after:
        return False
    # With 2*i in place of i, ranges may overlap, though none ends before it begins.
    return [(type(term), factor) for term, factor in first.terms] == [(str, 1)]
