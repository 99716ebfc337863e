"""The checks of ranges whose ends data give."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.backends.source import IndexCheck
from tcomp.errors import SourceText
from tcomp.grammar.tree.function import Expr, Index, Within, depends_on_data, walk
from tcomp.model.dataranges import range_ends, range_part


def indices_told(within: Within, reported: Sequence[tuple[str, Expr]]) -> tuple[tuple[str, Expr], ...]:
    """Of the indices that are ``reported`` those on which the ends of a range depend."""
    used = _indices(within.lower) | _indices(within.upper)
    return tuple((name, value) for name, value in reported if _indices(value) <= used)


def range_checks(within: Within, source: SourceText, names: tuple[str, ...]) -> dict[str, IndexCheck]:
    """The checks of a range by what is checked of it; none of an end that does not depend on data.

    ``names`` are the indices that they tell.
    """
    if within.box is None:
        return {}
    known = {"starts": depends_on_data(within.lower), "ends": depends_on_data(within.upper), "turns": True}
    found: dict[str, IndexCheck] = {}
    for part, (origin, extent) in range_ends(*within.box).items():
        if known[part]:
            text, span = range_part(within, part, source)
            found[part] = IndexCheck("", 0, extent, origin, text, span.start, span.end, names, part=part)
    return found


def _indices(expr: Expr) -> set[str]:
    return {e.name for e in walk(expr) if isinstance(e, Index)}
