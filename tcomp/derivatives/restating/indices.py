"""Indices that are called like a size, ``D(N) = X(N)`` for ``float(N) X``, under other names.

Derived statements have a range for each index, and what bounds ``N`` cannot be said of ``N``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcomp.derivatives.text import Expr, name, substitute
from tcomp.grammar import define
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function


def with_own_indices(function: Function) -> Function:
    """The same def, in which no index has the name of a size."""
    hidden = [index for s in function.statements for index in s.indices if index in function.sizes]
    written = list(syntax.statements(function.definition.body))
    if not hidden or len(written) != len(function.statements):
        return function
    taken = {*function.tensors, *function.sizes, *(i for s in function.statements for i in s.indices)}
    taken |= {c.name.name for s in written for c in s.clauses if isinstance(c, syntax.Let)}
    places: dict[str, str] = {}
    for index in dict.fromkeys(hidden):
        own = index.lower()
        while own in taken:
            own += "_"
        taken.add(own)
        places[index] = own
    statements = iter(function.statements)

    def renamed(item: syntax.Statement | syntax.Loop) -> syntax.Statement | syntax.Loop:
        if isinstance(item, syntax.Loop):
            return replace(item, body=tuple(map(renamed, item.body)))
        indices = next(statements).indices
        return _renamed(item, {index: own for index, own in places.items() if index in indices})

    definition = replace(function.definition, body=tuple(map(renamed, function.definition.body)))
    return define(f"{definition}\n", function.source.name)[function.name]


def _renamed(statement: syntax.Statement, places: Mapping[str, str]) -> syntax.Statement:
    names: dict[str, Expr] = {old: name(new) for old, new in places.items()}

    def moved(clause: syntax.Clause) -> syntax.Clause:
        match clause:
            case syntax.Range():
                own = name(places.get(clause.index.name, clause.index.name))
                lower, upper = substitute(clause.lower, names), substitute(clause.upper, names)
                return replace(clause, index=own, lower=lower, upper=upper)
            case syntax.Let():
                return replace(clause, value=substitute(clause.value, names))
            case syntax.Exists():
                return replace(clause, read=substitute(clause.read, names))
            case _:
                return replace(clause, index=name(places.get(clause.index.name, clause.index.name)))

    subscripts = statement.subscripts
    return replace(
        statement,
        subscripts=None if subscripts is None else tuple(substitute(s, names) for s in subscripts),
        value=substitute(statement.value, names),
        clauses=tuple(map(moved, statement.clauses)),
        equivalent=None,
    )
