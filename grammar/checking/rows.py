"""Entries that know their row: ``P(e) = S(e) / z(i) where e in row(i):row(i+1)``, as the statements that it stands for.

An index on the left whose range says to which ``i`` it belongs needs that ``i``.  It is written down first, by going
over the rows, and read where the statement has ``i``::

    i_of_e(e)            = -1            where exists S(e)
    i_of_e(row(i) + k)   max= i          where k in 0:row(i + 1) - row(i), exists S(k)
    P(e)                 = S(e) / z(i_of_e(e))

What follows knows of nothing else: entries run in parallel and in vectors however long their rows are, and derivatives
follow.  No entry is in two ranges of ``row(i):row(i+1)``, since these are checked to be in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tcomp.grammar.checking.names import Environment, is_function
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.syntax import Apply, Binary, Clause, Exists, Expr, Name, Number, Range, Statement, Unary


class Rows:
    """Replaces statements of one definition; ``fresh`` makes a name of its own of one that is wanted."""

    def __init__(self, environment: Environment, report: Report, fresh: Callable[[str], str]) -> None:
        self.environment = environment
        self.report = report
        self._fresh = fresh

    def expanded(self, statement: Statement) -> tuple[Statement, ...]:
        """What a statement stands for; itself, where no entry on the left needs to know its row."""
        found = [c for c in statement.clauses if isinstance(c, Range) and self._needs_row(c, statement)]
        made: list[Statement] = []
        for given in found:
            row = _row_of(given)
            if row is None:
                self._refuse(given)
                return (replace(statement, clauses=tuple(c for c in statement.clauses if c is not given)),)
            before, statement = self._written_down(statement, given, row)
            made += before
        return (*made, statement)

    def _needs_row(self, given: Range, statement: Statement) -> bool:
        """Whether data give the range of an index on the left, and an index of its ends is not there."""
        left = {e.name for s in statement.subscripts or () for e in walked(s) if isinstance(e, Name)}
        if given.index.name not in left or not (self._reads(given.lower) or self._reads(given.upper)):
            return False
        mentioned = {e.name for bound in (given.lower, given.upper) for e in walked(bound) if isinstance(e, Name)}
        lets = {c.name.name for c in statement.clauses if isinstance(c, syntax.Let)}
        return any(not self.environment.kind_of(name) for name in mentioned - left - lets)

    def _reads(self, bound: Expr) -> bool:
        return any(isinstance(e, Apply) and self._is_tensor(e.function.name) for e in walked(bound))

    def _is_tensor(self, name: str) -> bool:
        return name in self.environment.tensors or (name in self.environment.written_later and not is_function(name))

    def _refuse(self, given: Range) -> None:
        message = f"`{given}` does not say to which of them each {given.index} belongs: ranges may overlap"
        hint = f"write it as `{given.index} in row(i):row(i+1)`, or find out before and read it from a tensor"
        self.report.error(message, given.span, hint)
        self.environment.misdirected = True

    def _written_down(self, statement: Statement, given: Range, row: Name) -> tuple[list[Statement], Statement]:
        """What writes down the rows of all entries, and the statement that reads them."""
        entry, span = given.index, given.span
        others = tuple(c for c in statement.clauses if c is not given)
        rows = tuple(c for c in others if isinstance(c, Range) and c.index.name == row.name)
        there = tuple(self._where(entry, statement, others))
        owner, step = Name(self._fresh(f"{row}_of_{entry}"), row.span), Name(self._fresh(f"{entry}_of_{row}"), span)
        nothing = Unary("-", Number("1", span), span)
        known = Apply(owner, (entry,), row.span)
        length = Binary("-", given.upper, given.lower, given.lower.span.to(given.upper.span))
        steps = Range(step, Number("0", span), length, span)
        inside = tuple(_clause_with(c, {entry.name: step}) for c in there)
        first = Statement(owner, (entry,), "=", nothing, None, there, span, span)
        each = Binary("+", given.lower, step, span)
        then = Statement(owner, (each,), "max=", Name(row.name, row.span), None, (steps, *inside, *rows), span, span)
        places: dict[str, Expr] = {row.name: known}
        clauses = tuple(_clause_with(c, places) for c in others if c not in rows)
        return [first, then], replace(statement, value=replaced(statement.value, places), clauses=clauses)

    def _where(self, entry: Name, statement: Statement, clauses: tuple[Clause, ...]) -> Iterator[Clause]:
        """Clauses that say which entries there are: the range that sizes give, or else accesses to them alone."""
        given = _bounds(entry, clauses)
        if given is not None:
            yield given
            return
        seen: set[str] = set()
        for expr in _expressions(statement, clauses):
            for read in walked(expr):
                if not isinstance(read, Apply) or not self._is_tensor(read.function.name):
                    continue
                alone = [isinstance(a, Name) and a.name == entry.name for a in read.arguments]
                if any(alone):
                    arguments = (
                        a if own else Number("0", a.span) for a, own in zip(read.arguments, alone, strict=True)
                    )
                    access = replace(read, arguments=tuple(arguments))
                    if str(access) not in seen:
                        seen.add(str(access))
                        yield Exists(access, read.span)


def _row_of(given: Range) -> Name | None:
    """The index of the rows of ``row(i):row(i+1)``; None for any other range."""
    lower, upper = given.lower, given.upper
    if not (isinstance(lower, Apply) and isinstance(upper, Apply) and lower.function == upper.function):
        return None
    if len(lower.arguments) != len(upper.arguments):
        return None
    differing = [(a, b) for a, b in zip(lower.arguments, upper.arguments, strict=True) if a != b]
    match differing:
        case [(Name() as row, Binary(op="+", lhs=a, rhs=b))] if row in (a, b) and Number("1") in (a, b):
            uses = sum(_mentions(a, row.name) for a in lower.arguments)
            return row if uses == 1 else None
    return None


def _bounds(entry: Name, clauses: tuple[Clause, ...]) -> Range | None:
    """The range of an entry beside that which data give."""
    return next((c for c in reversed(clauses) if isinstance(c, Range) and c.index.name == entry.name), None)


def _expressions(statement: Statement, clauses: tuple[Clause, ...]) -> Iterator[Expr]:
    """The value of a statement, its lets and what exists."""
    yield statement.value
    for clause in clauses:
        match clause:
            case syntax.Let():
                yield clause.value
            case Exists():
                yield clause.read


def _mentions(expr: Expr, name: str) -> bool:
    return any(isinstance(e, Name) and e.name == name for e in walked(expr))


def _clause_with(clause: Clause, places: dict[str, Expr]) -> Clause:
    match clause:
        case Range():
            own = places.get(clause.index.name)
            index = own if isinstance(own, Name) else clause.index
            return replace(
                clause, index=index, lower=replaced(clause.lower, places), upper=replaced(clause.upper, places)
            )
        case syntax.Let():
            return replace(clause, value=replaced(clause.value, places))
        case Exists():
            return replace(clause, read=replaced(clause.read, places))
        case syntax.Order():
            return clause


def replaced(expr: Expr, places: dict[str, Expr]) -> Expr:
    """The expression with other expressions for some names."""
    match expr:
        case Name():
            return replace(places[expr.name], span=expr.span) if expr.name in places else expr
        case Apply():
            return replace(expr, arguments=tuple(replaced(a, places) for a in expr.arguments))
        case syntax.Boundary():
            arguments, subscripts = (
                tuple(replaced(a, places) for a in args) for args in (expr.arguments, expr.subscripts)
            )
            return replace(expr, arguments=arguments, subscripts=subscripts)
        case syntax.Cast() | Unary():
            return replace(expr, operand=replaced(expr.operand, places))
        case Binary():
            return replace(expr, lhs=replaced(expr.lhs, places), rhs=replaced(expr.rhs, places))
        case syntax.Conditional():
            condition, then, otherwise = (replaced(e, places) for e in (expr.condition, expr.then, expr.otherwise))
            return syntax.Conditional(condition, then, otherwise, expr.span)
        case _:
            return expr


def walked(expr: Expr) -> Iterator[Expr]:
    """An expression and all in it."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(syntax.children(node)))
