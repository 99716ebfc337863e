"""Derived statements as a person would write them: without ranges that inference finds, repeated calls by name."""

from __future__ import annotations

from dataclasses import replace

from tcomp.derivatives.text import Expr, name, names_in, with_children
from tcomp.errors import SourceText, TcompError
from tcomp.grammar.checking.check import check
from tcomp.grammar.ranges.symbolic import Symbolic, symbolic_ranges
from tcomp.grammar.tree import syntax
from tcomp.values.operators import INTRINSICS

_NO_TEXT = SourceText("")


def without_inferred_ranges(definition: syntax.Definition) -> syntax.Definition:
    """The same program: a ``where`` clause goes if all ranges and extents stay as they are for all sizes.

    Ranges that other indices bound stay: what is compared are the intervals that indices go through.
    """
    expected = _ranges(definition)
    body = list(definition.body)
    for position, statement in enumerate(body):
        assert isinstance(statement, syntax.Statement)
        if _reads_under_guard(statement.value, guarded=False):
            continue
        kept = tuple(
            clause
            for clause in statement.clauses
            if not isinstance(clause, syntax.Range) or _mentions_indices(clause, statement.clauses)
        )
        trials = [kept, *(_without(statement.clauses, c) for c in statement.clauses if c not in kept)]
        for trial in trials:
            shorter = replace(statement, clauses=tuple(c for c in statement.clauses if c in trial))
            body[position] = shorter
            if shorter.clauses == statement.clauses:
                break
            if _ranges(replace(definition, body=tuple(body))) == expected:
                statement = shorter
            body[position] = statement
            if not statement.clauses:
                break
    return replace(definition, body=tuple(body))


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
