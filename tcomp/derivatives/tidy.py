"""Derived statements as a person would write them: without ranges that inference finds, repeated calls by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcomp.derivatives.text import Expr, name, names_in, with_children
from tcomp.errors import SourceText, TcompError
from tcomp.grammar.checking.check import check
from tcomp.grammar.ranges.symbolic import Symbolic, symbolic_ranges
from tcomp.grammar.tree import syntax
from tcomp.values.operators import INTRINSICS

_NO_TEXT = SourceText("")

MOST_STEPS = 1_000
"""Statements that are checked to find out which ranges say nothing new: some seconds.  Then ranges are left."""


def without_inferred_ranges(definition: syntax.Definition) -> syntax.Definition:
    """The same program: a ``where`` clause goes if all ranges and extents stay as they are for all sizes.

    Ranges that other indices bound stay: what is compared are the intervals that indices go through.
    """
    return _Ranges(definition).shortened()


class _Ranges:
    """Tries what a definition is without some of its ranges."""

    def __init__(self, definition: syntax.Definition) -> None:
        self.definition = definition
        self.expected = _ranges(definition)
        self.body = list(definition.body)
        self.steps = MOST_STEPS

    def shortened(self) -> syntax.Definition:
        self._without_any([n for n, item in enumerate(self.body) if self._kept(item) is not None])
        return replace(self.definition, body=tuple(self.body))

    def _kept(self, item: syntax.Statement | syntax.Loop) -> tuple[syntax.Clause, ...] | None:
        """The clauses that a statement keeps in any case; None where it keeps all."""
        assert isinstance(item, syntax.Statement)
        if _reads_under_guard(item.value, guarded=False):
            return None
        kept = tuple(
            clause
            for clause in item.clauses
            if not isinstance(clause, syntax.Range) or _mentions_indices(clause, item.clauses)
        )
        return kept if len(kept) < len(item.clauses) else None

    def _without_any(self, positions: list[int]) -> None:
        """Drop ranges of some statements: of all at once if that may be, else of each half, at last one by one."""
        shorter = {n: self._kept(self.body[n]) or () for n in positions}
        if not positions or self._holds(shorter):
            return
        if len(positions) > 1:
            middle = len(positions) // 2
            self._without_any(positions[:middle])
            self._without_any(positions[middle:])
            return
        (position,) = positions
        item = self.body[position]
        assert isinstance(item, syntax.Statement)
        for clause in item.clauses:
            if clause not in shorter[position]:
                now = self.body[position]
                assert isinstance(now, syntax.Statement)
                self._holds({position: _without(now.clauses, clause)})

    def _holds(self, clauses: Mapping[int, tuple[syntax.Clause, ...]]) -> bool:
        """Give statements these clauses, if all ranges and extents stay as they are."""
        self.steps -= len(self.body)
        if self.steps < 0:
            return False
        trial = list(self.body)
        for position, kept in clauses.items():
            item = trial[position]
            assert isinstance(item, syntax.Statement)
            trial[position] = replace(item, clauses=kept)
        if _ranges(replace(self.definition, body=tuple(trial))) != self.expected:
            return False
        self.body = trial
        return True


def _reads_under_guard(expr: Expr, *, guarded: bool) -> bool:
    """Whether a read that a condition guards is not at bare indices: it bounds these, guarded or not."""
    if isinstance(expr, syntax.Conditional):
        return any(_reads_under_guard(child, guarded=True) for child in syntax.children(expr))
    if guarded and isinstance(expr, syntax.Apply) and expr.function.name not in INTRINSICS:
        return not all(isinstance(argument, syntax.Name) for argument in expr.arguments)
    return any(_reads_under_guard(child, guarded=guarded) for child in syntax.children(expr))


def _mentions_indices(clause: syntax.Clause, clauses: tuple[syntax.Clause, ...]) -> bool:
    """Whether the bounds of a range depend on indices; those of derived statements all have ranges."""
    indices = {other.index.name for other in clauses if isinstance(other, syntax.Range)}
    return isinstance(clause, syntax.Range) and bool((names_in(clause.lower) | names_in(clause.upper)) & indices)


def _without(clauses: tuple[syntax.Clause, ...], left_out: syntax.Clause) -> tuple[syntax.Clause, ...]:
    return tuple(clause for clause in clauses if clause is not left_out)


def _ranges(definition: syntax.Definition) -> Symbolic | None:
    """None where the program is wrong without a clause."""
    try:
        return symbolic_ranges(check(definition, _NO_TEXT))
    except TcompError:
        return None


def with_repeated_calls_named(statement: syntax.Statement, taken: set[str]) -> syntax.Statement:
    """Calls of functions that a value has several times, named by ``where``; larger ones first."""
    value, lets = statement.value, list(statement.clauses)
    while True:
        calls = _calls(value)
        repeated = [c for c in calls if calls.count(c) > 1]
        if not repeated:
            return replace(statement, value=value, clauses=tuple(lets))
        call = max(repeated, key=lambda c: len(str(c)))
        own = "y"
        while own in taken:
            own += "_"
        taken.add(own)
        lets.append(syntax.Let(name(own), call))
        value = _with(value, call, name(own))


def _calls(expr: Expr) -> list[Expr]:
    own: list[Expr] = [expr] if isinstance(expr, syntax.Apply) and expr.function.name in INTRINSICS else []
    return own + [call for child in syntax.children(expr) for call in _calls(child)]


def _with(expr: Expr, old: Expr, new: Expr) -> Expr:
    return new if expr == old else with_children(expr, [_with(child, old, new) for child in syntax.children(expr)])
