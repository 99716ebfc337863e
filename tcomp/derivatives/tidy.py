"""Derived statements as a person would write them: without ranges that inference finds, repetitions by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tcomp.derivatives.text import ZERO, Expr, name, names_in, total, with_children
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


_Item = TypeVar("_Item", syntax.Statement, syntax.Loop)

_WORTH_A_NAME = 30
"""Characters that occurrences of an expression have together."""

_VALUES, _PLACES = "yzvwx", "ijkpqrs"
"""Names of repeated values, and of repeated subscripts."""


def with_repetitions_named(
    item: syntax.Statement | syntax.Loop, taken: Collection[str]
) -> syntax.Statement | syntax.Loop:
    """What values have several times, named by ``where``: calls, then longer sums and products, larger ones first."""
    if isinstance(item, syntax.Loop):
        body = (with_repetitions_named(own, taken) for own in item.body)
        return replace(item, body=tuple(body))
    value, lets = _with_alternatives(item.value), list[syntax.Let]()
    used = {*taken, *names_in(value)}.union(*(names_in(s) for s in item.subscripts or ()))
    used |= {c.index.name for c in item.clauses if isinstance(c, syntax.Range)}
    while True:
        found = Counter(_parts(value))
        repeated = [e for e, count in found.items() if count > 1 and (_is_call(e) or _is_worth_a_name(e, count))]
        if not repeated:
            return replace(item, value=value, clauses=(*item.clauses, *_in_order(lets)))
        part = max(repeated, key=lambda e: (_is_call(e), len(str(e))))
        own = _fresh(_PLACES if _is_place(part) else _VALUES, used)
        used.add(own)
        value = _with(value, part, name(own))
        lets = [replace(let, value=_with(let.value, part, name(own))) for let in lets]
        lets.append(syntax.Let(name(own), part))


def _in_order(lets: Sequence[syntax.Let]) -> Iterator[syntax.Let]:
    """Each behind those that it mentions."""
    left = list(lets)
    while left:
        names = {let.name.name for let in left}
        for let in [let for let in left if not names_in(let.value) & names]:
            left.remove(let)
            yield let


def _is_worth_a_name(expr: Expr, count: int) -> bool:
    return isinstance(expr, syntax.Binary) and expr.op in "+-*/%" and count * len(str(expr)) >= _WORTH_A_NAME


def _is_place(expr: Expr) -> bool:
    """Whether an expression is one of indices and sizes, as far as can be seen."""
    match expr:
        case syntax.Name():
            return True
        case syntax.Number():
            return expr.text.isdigit()
        case syntax.Binary() | syntax.Unary():
            return all(map(_is_place, syntax.children(expr)))
        case _:
            return False


def _fresh(letters: str, used: Collection[str]) -> str:
    own = next((letter for letter in letters if letter not in used), letters[0])
    while own in used:
        own += "_"
    return own


def _is_call(expr: Expr) -> bool:
    return isinstance(expr, syntax.Apply) and expr.function.name in INTRINSICS


def _parts(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in syntax.children(expr):
        yield from _parts(child)


def _with(expr: Expr, old: Expr, new: Expr) -> Expr:
    return new if expr == old else with_children(expr, [_with(child, old, new) for child in syntax.children(expr)])


def _with_alternatives(expr: Expr) -> Expr:
    """``(c ? a : 0) + (!c ? b : 0)`` as ``c ? a : b``, and with the same condition as ``c ? a + b : 0``."""
    expr = with_children(expr, [_with_alternatives(child) for child in syntax.children(expr)])
    match expr:
        case syntax.Binary(
            op="+",
            lhs=syntax.Conditional(condition=chosen, otherwise=other) as first,
            rhs=syntax.Conditional(condition=syntax.Unary(op="!", operand=left_out), then=then, otherwise=zero),
        ) if chosen == left_out and other == zero == ZERO:
            return replace(first, otherwise=then)
        case syntax.Binary(
            op="+",
            lhs=syntax.Conditional(condition=one, then=mine, otherwise=other) as first,
            rhs=syntax.Conditional(condition=too, then=then, otherwise=zero),
        ) if one == too and other == zero == ZERO:
            return replace(first, then=total(mine, then))
        case syntax.Binary(op="+", lhs=syntax.Binary(op="+", lhs=first_of, rhs=middle), rhs=last):
            joined = _with_alternatives(syntax.Binary("+", middle, last))
            return expr if isinstance(joined, syntax.Binary) else syntax.Binary("+", first_of, joined)
        case _:
            return expr
