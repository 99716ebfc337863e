"""``argmax=!`` and ``argmin=!``, which say where an extremum stands, as the statements that they stand for.

``I(n) argmax=! A(n, k)`` is ``best(n) max=! A(n, k)`` and then, of all ``k`` that reach it, the least one::

    I(n) min=! A(n, k) == best(n) || A(n, k) != A(n, k) ? k : 2147483647

Extrema and minima of integers are the same in whatever order they are taken, and so is the first place.  Schedules,
proofs, targets and derivatives need to know of nothing else.  ``best`` is NaN where a value is, which equals nothing,
so the first NaN is then the place, as NumPy has it; without a NaN no value differs from itself.

Several reduction indices have as many targets, one for each: ``I, J(n) argmax=! A(n, i, j)``.  Those behind the first
are sought where the ones before are what was found, so that the first place is the first in the order of the indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tcomp.grammar.checking.names import Environment, is_function
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.syntax import Apply, Binary, Conditional, Expr, Name, Number, Statement, Unary
from tcomp.values.operators import INT32

PLACES: dict[str, str] = {"argmin=!": "min", "argmax=!": "max"}
"""The operators that say where an extremum stands, with the reduction that gives it."""

NOWHERE = str(INT32.highest)
"""The place of the extremum of nothing: the neutral element of ``min``, which no loop reaches."""


def is_place(statement: Statement) -> bool:
    """Whether a statement says where an extremum stands."""
    return statement.operator in PLACES


class Places:
    """Replaces statements of one definition."""

    def __init__(self, definition: syntax.Definition, environment: Environment, report: Report) -> None:
        self.definition = definition
        self.environment = environment
        self.report = report
        self._words: set[str] = set()

    def expanded(self, statement: Statement, steps: frozenset[str] = frozenset()) -> tuple[Statement, ...]:
        """What a statement with one of ``PLACES`` stands for; itself, with a reduction, where something is wrong.

        ``steps`` are the indices of the blocks around it, over which nothing is sought.
        """
        reduction = PLACES[statement.operator]
        reduced = tuple(name for name in self._reduced(statement) if name not in steps)
        if not self._is_right(statement, reduced):
            failed = replace(statement, operator=f"{reduction}=!", others=())
            self.environment.misdirected = True
            return (failed,)
        made: list[Statement] = []
        value, clauses = statement.value, statement.clauses
        ranges = tuple(clause for clause in clauses if isinstance(clause, syntax.Range))
        if not _is_exact(value, frozenset({statement.target.name, *(name.name for name in statement.others)})):
            kept = self._indices(statement, reduced)
            value = self._element(f"{statement.target}_values", kept, statement)
            assert isinstance(value, Apply | Name)
            target = value.function if isinstance(value, Apply) else value
            made.append(replace(statement, target=target, subscripts=kept, operator="=", others=(), declared=None))
            clauses = ranges
        best = self._element(f"{statement.target}_best", statement.subscripts, statement)
        target = best.function if isinstance(best, Apply) else best
        made.append(
            replace(
                statement,
                target=target,
                operator=f"{reduction}=!",
                value=value,
                clauses=clauses,
                others=(),
                declared=None,
                equivalent=None,
            )
        )
        is_here: Expr = _binary("||", _binary("==", value, best), _binary("!=", value, value))
        for target, index in zip((statement.target, *statement.others), reduced, strict=True):
            where = Conditional(is_here, Name(index, value.span), Number(NOWHERE, value.span), value.span)
            made.append(
                replace(
                    statement, target=target, operator="min=!", value=where, clauses=clauses, others=(), equivalent=None
                )
            )
            found = target if statement.subscripts is None else Apply(target, statement.subscripts, target.span)
            is_here = _binary("&&", _binary("==", Name(index, value.span), found), is_here)
        return tuple(made)

    def _is_right(self, statement: Statement, reduced: tuple[str, ...]) -> bool:
        """Report targets that do not fit the indices, and places that data choose."""
        targets, operator = (statement.target, *statement.others), statement.operator
        chosen = [s for s in statement.subscripts or () if any(isinstance(e, Apply) for e in _walk(s))]
        if chosen:
            message = f"`{operator}` cannot write to elements that data choose"
            self.report.error(message, chosen[0].span, "find the extremum by `max=!` first")
        elif not reduced:
            message = f"`{operator}` says at which index an extremum stands, but no index stands on the right alone"
            hint = f"as in `{statement.target}(n) {operator} A(n, k)`"
            self.report.error(message, statement.operator_span, hint)
        elif len(reduced) != len(targets):
            names = ", ".join(f"`{name}`" for name in reduced)
            message = f"`{operator}` needs a target for each index that it seeks: {names}; found {len(targets)}"
            fitting = ", ".join([*map(str, targets[: len(reduced)]), *(n.upper() for n in reduced[len(targets) :])])
            subscripts = f"({', '.join(map(str, statement.subscripts))})" if statement.subscripts else ""
            hint = f"write `{fitting}{subscripts} {operator} ...`"
            self.report.error(message, statement.operator_span, hint)
        elif len({t.name for t in targets}) < len(targets):
            self.report.error("one tensor cannot hold two coordinates", statement.target.span)
        else:
            return True
        return False

    def _reduced(self, statement: Statement) -> tuple[str, ...]:
        """The indices that stand on the right alone, in the order of their first mention."""
        lets = {c.name.name: c.value for c in statement.clauses if isinstance(c, syntax.Let)}
        ranged = [c.index.name for c in statement.clauses if isinstance(c, syntax.Range)]
        outer = {e.name for s in statement.subscripts or () for e in _walk(s) if isinstance(e, Name)}
        found = dict.fromkeys(self._names(statement.value, lets, frozenset(ranged) | outer))
        bounds = [b for c in statement.clauses if isinstance(c, syntax.Range) for b in (c.lower, c.upper)]
        found |= dict.fromkeys(ranged)
        for bound in bounds:
            found |= dict.fromkeys(self._names(bound, lets, frozenset(ranged) | outer))
        return tuple(name for name in found if name not in outer)

    def _names(self, expr: Expr, lets: Mapping[str, Expr], indices: frozenset[str]) -> Iterator[str]:
        for node in _walk(expr):
            if not isinstance(node, Name):
                continue
            name = node.name
            if name in lets and name not in indices:
                rest = {other: value for other, value in lets.items() if other != name}
                yield from self._names(lets[name], rest, indices)
            elif name in indices or not self.environment.kind_of(name):
                yield name

    def _indices(self, statement: Statement, reduced: tuple[str, ...]) -> tuple[Expr, ...] | None:
        """The indices of a statement, those on the left first."""
        outer = dict.fromkeys(
            e.name
            for s in statement.subscripts or ()
            for e in _walk(s)
            if isinstance(e, Name) and not self.environment.kind_of(e.name)
        )
        return tuple(Name(name, statement.span) for name in (*outer, *reduced)) or None

    def _element(self, wanted: str, subscripts: tuple[Expr, ...] | None, statement: Statement) -> Apply | Name:
        """An element of a tensor of its own, with a name that means nothing here."""
        name = Name(self.fresh(wanted), statement.target.span)
        return name if subscripts is None else Apply(name, subscripts, statement.value.span)

    def fresh(self, wanted: str) -> str:
        """A name that means nothing here, the one that is wanted if it does not."""
        if not self._words:
            for expr in syntax.expressions(self.definition):
                self._words.update(node.name for node in _walk(expr) if isinstance(node, Name))
                self._words.update(node.function.name for node in _walk(expr) if isinstance(node, Apply))
            for statement in syntax.statements(self.definition.body):
                self._words.update(c.index.name for c in statement.clauses if isinstance(c, syntax.Range))
            self._words |= {p.name.name for p in (*self.definition.inputs, *self.definition.outputs)}
        name, number = wanted, 2
        while name in self._words or name in self.environment.written_later or self.environment.kind_of(name):
            name, number = f"{wanted}_{number}", number + 1
        self._words.add(name)
        return name


def _is_exact(value: Expr, targets: frozenset[str]) -> bool:
    """Whether a value is the same wherever it is computed, as elements and choices between elements are.

    Compilers may contract a product and a sum in one loop and not in another.  What is written here is not the same
    afterwards.
    """
    match value:
        case Name() | Number():
            return str(value) not in targets
        case Apply():
            name = value.function.name
            return not (name in ("min", "max", *targets) or is_function(name)) and _reads_none(value, targets)
        case Unary():
            return _is_exact(value.operand, targets)
        case Binary():
            return isinstance(value.lhs, Number | Unary) and isinstance(value.rhs, Number) and _is_number(value.lhs)
        case Conditional():
            whole = _is_exact(value.then, targets) and _is_exact(value.otherwise, targets)
            return whole and _is_choice(value.condition, targets)
        case _:
            return False


def _is_number(value: Expr) -> bool:
    return isinstance(value, Number) or (isinstance(value, Unary) and _is_number(value.operand))


def _is_choice(condition: Expr, targets: frozenset[str]) -> bool:
    """Whether a condition compares what is exact."""
    if isinstance(condition, Binary) and condition.op in ("&&", "||"):
        return _is_choice(condition.lhs, targets) and _is_choice(condition.rhs, targets)
    if isinstance(condition, Binary) and syntax.PRECEDENCE[condition.op] == syntax.PRECEDENCE["=="]:
        return _is_exact(condition.lhs, targets) and _is_exact(condition.rhs, targets)
    return _is_exact(condition, targets)


def _reads_none(value: Expr, targets: frozenset[str]) -> bool:
    return not any(isinstance(e, Name) and e.name in targets for e in _walk(value)) and not any(
        isinstance(e, Apply) and e.function.name in targets for e in _walk(value)
    )


def _binary(op: str, lhs: Expr, rhs: Expr) -> Binary:
    return Binary(op, lhs, rhs, lhs.span.to(rhs.span))


def _walk(expr: Expr) -> Iterator[Expr]:
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(syntax.children(node)))
