"""Derived statements as a person would write them: without ranges that inference finds, repeated calls by name."""

from __future__ import annotations

from dataclasses import replace

from tcomp.derivatives.text import Expr, name, names_in, with_children
from tcomp.errors import SourceText, TcompError
from tcomp.grammar.checking.check import check
from tcomp.grammar.ranges.symbolic import SymbolicPass
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function, Index, Statement
from tcomp.values.operators import INTRINSICS

_NO_TEXT = SourceText("")


def without_inferred_ranges(definition: syntax.Definition) -> syntax.Definition:
    """The same program: a ``where`` clause goes if all ranges and extents stay as they are for all sizes.

    Ranges that other indices bound stay: what is compared are the intervals that indices go through.
    """
    try:
        function = check(definition, _NO_TEXT)
    except TcompError:
        return definition
    if len(function.statements) != len(definition.body) or function.recurs:
        return definition
    found, body = SymbolicPass(function), []
    found.begin(function)
    for item, statement in zip(definition.body, function.statements, strict=True):
        assert isinstance(item, syntax.Statement)
        spare = _spare(item, statement, found)
        kept = (c for c in item.clauses if _index_of(c) not in spare or _is_given_by_data(c, function))
        body.append(replace(item, clauses=tuple(kept)))
        found.add(statement)
    return replace(definition, body=tuple(body))


def _spare(item: syntax.Statement, statement: Statement, found: SymbolicPass) -> set[str]:
    """The indices of a statement whose ranges say nothing new behind the statements that were found before it."""
    if _reads_under_guard(item.value, guarded=False):
        return set()
    places = {s.name for s in statement.subscripts if isinstance(s, Index)}
    hidden = {*found.function.sizes, *found.function.tensors} - places
    tried = [
        c.index.name for c in item.clauses if isinstance(c, syntax.Range) and not _mentions_indices(c, item.clauses)
    ]
    expected = found.effect(statement)
    candidates = [index for index in tried if index not in hidden and index in expected.ranges]

    def may_go(indices: set[str]) -> bool:
        kept = tuple(given for given in statement.ranges if given.index not in indices)
        return found.effect(replace(statement, ranges=kept)) == expected

    if not candidates or may_go({*candidates}):
        return {*candidates}
    gone: set[str] = set()
    for index in candidates:
        if may_go({*gone, index}):
            gone.add(index)
    return gone


def _index_of(clause: syntax.Clause) -> str | None:
    return clause.index.name if isinstance(clause, syntax.Range) else None


def _is_given_by_data(clause: syntax.Clause, function: Function) -> bool:
    """Whether data give an end of a range, which says more than the interval that its index goes through."""
    if not isinstance(clause, syntax.Range):
        return False
    return any(
        name in function.tensors and function.tensors[name].role != "const"
        for name in names_in(clause.lower) | names_in(clause.upper)
    )


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
