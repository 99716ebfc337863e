"""Sums of what another sum has added up already: ``d_eps +=! s`` beside ``d_var(c) +=! s`` is the sum of ``d_var``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tcomp.derivatives.steps.blocks import Group
from tcomp.derivatives.text import element, name, names_in
from tcomp.grammar.tree import syntax


def sharing_sums(groups: Sequence[Group]) -> list[Group]:
    """The same results, up to rounding, with each sum of equal values over fewer indices from one over more."""
    writes = Counter(s.target.name for group in groups for s in group.statements)
    known: list[syntax.Statement] = []
    found: list[Group] = []
    for group in groups:
        statements: list[syntax.Statement] = []
        for statement in group.statements:
            if group.steps is not None or not _is_plain_sum(statement):
                statements.append(statement)
                continue
            parts = [s for s in known if _adds_up(s, statement)]
            fewest = min(parts, key=lambda s: len(s.subscripts or ()), default=None)
            statements.append(statement if fewest is None else _from(fewest, statement))
            if writes[statement.target.name] == 1:
                known.append(statement)
        found.append(replace(group, statements=statements))
    return found


def _is_plain_sum(statement: syntax.Statement) -> bool:
    """Whether a statement begins a sum, over ranges alone, at indices that occur once each."""
    places = _places(statement)
    is_sum = statement.operator == "+=!" and statement.declared is None
    return is_sum and places is not None and all(isinstance(c, syntax.Range) for c in statement.clauses)


def _places(statement: syntax.Statement) -> tuple[str, ...] | None:
    own = tuple(s.name for s in statement.subscripts or () if isinstance(s, syntax.Name))
    return own if len(set(own)) == len(statement.subscripts or ()) else None


def _adds_up(earlier: syntax.Statement, later: syntax.Statement) -> bool:
    """Whether the elements of one sum are parts of those of another, which are wherever data do not say."""
    places = set(_places(earlier) or ())
    if (
        earlier.value != later.value
        or {*earlier.clauses} != {*later.clauses}
        or not {*(_places(later) or ())} <= places
    ):
        return False
    ranges = {c.index.name: c for c in earlier.clauses if isinstance(c, syntax.Range)}
    others = set(ranges) - places
    return places <= set(ranges) and not any(
        (names_in(ranges[p].lower) | names_in(ranges[p].upper)) & others for p in places
    )


def _from(earlier: syntax.Statement, later: syntax.Statement) -> syntax.Statement:
    places = _places(earlier) or ()
    kept = tuple(c for c in later.clauses if isinstance(c, syntax.Range) and c.index.name in places)
    operator = "=" if {*places} == {*(_places(later) or ())} else "+=!"
    return replace(later, operator=operator, value=element(earlier.target.name, tuple(map(name, places))), clauses=kept)
