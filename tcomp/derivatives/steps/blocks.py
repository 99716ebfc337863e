"""Groups of statements, blocks of steps in derived text, and what a step adds to what an earlier one wrote."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.text import (
    Expr,
    name,
    on_the_left,
    range_text,
    shortest,
    substitute,
    with_short_subscripts,
)
from tcomp.errors import DerivativeError, Diagnostic, SourceText
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Index, walk
from tcomp.values.operators import INT32


@dataclass(frozen=True, slots=True)
class Steps:
    """A block of steps in derived text; ``backwards`` if its last step comes first."""

    index: str
    span: Span
    number: int
    backwards: bool = False

    def loop(self, statements: Sequence[syntax.Statement], times: Sequence[int]) -> syntax.Loop:
        """The block of some statements, each with the dimension that the step subscripts."""
        body = [self._within(s, time) for s, time in zip(statements, times, strict=True)]
        own = range_text(self.index, self.span)
        return syntax.Loop(own.index, own.lower, own.upper, tuple(body))

    def _within(self, statement: syntax.Statement, time: int) -> syntax.Statement:
        subscripts = statement.subscripts or ()
        at = subscripts[time]
        assert isinstance(at, syntax.Name)
        clauses = tuple(c for c in statement.clauses if not isinstance(c, syntax.Range) or c.index.name != at.name)
        now: Expr = name(self.index)
        if self.backwards:
            total = (self.span[0] + self.span[1]).syntax()
            now = syntax.Binary("-", total, now)
        places, indices = {at.name: now}, {self.index, *indices_of(statement)}
        return replace(
            statement,
            subscripts=tuple(on_the_left(shortest(substitute(s, places)), indices) for s in subscripts),
            value=with_short_subscripts(substitute(statement.value, places)),
            clauses=tuple(_moved_clause(c, places) for c in clauses),
        )


@dataclass(slots=True)
class Group:
    """Statements that belong together, and what they come from; adjoints may be rearranged.

    ``steps`` is the block in which they stand, and ``time`` the dimension that the step subscripts.
    """

    comment: str
    statements: list[syntax.Statement] = field(default_factory=list)
    is_adjoint: bool = False
    steps: Steps | None = None
    time: int = 0


def with_blocks(groups: Sequence[Group]) -> list[tuple[list[str], syntax.Statement | syntax.Loop]]:
    """The statements of groups and the comments before them; those of neighbours in one block stand in it."""
    found: list[tuple[list[str], syntax.Statement | syntax.Loop]] = []
    for steps, together in itertools.groupby(groups, key=lambda group: group.steps):
        members = list(together)
        if steps is None:
            for group in members:
                for number, statement in enumerate(group.statements):
                    found.append(([group.comment] if group.comment and not number else [], statement))
            continue
        statements = [s for group in members for s in group.statements]
        times = [group.time for group in members for _ in group.statements]
        comments = list(dict.fromkeys(group.comment for group in members if group.comment))
        if statements:
            found.append((comments, steps.loop(statements, times)))
    return found


def indices_of(statement: syntax.Statement) -> set[str]:
    """The names that are indices of a derived statement: bare ones on the left, and those with ranges."""
    bare = {s.name for s in statement.subscripts or () if isinstance(s, syntax.Name)}
    return bare | {c.index.name for c in statement.clauses if isinstance(c, syntax.Range)}


def _moved_clause(clause: syntax.Clause, places: Mapping[str, Expr]) -> syntax.Clause:
    match clause:
        case syntax.Range():
            return replace(clause, lower=substitute(clause.lower, places), upper=substitute(clause.upper, places))
        case syntax.Let():
            return replace(clause, value=with_short_subscripts(substitute(clause.value, places)))
        case _:
            return clause


def at_the_step(adjoint: Adjoint, steps: Steps, time: int, source: SourceText, *, is_bounded: bool) -> Adjoint:
    """What a read in a later step adds, told by the step that wrote what it reads: ``t - 1`` becomes ``t``.

    ``time`` is the dimension that the step subscripts.  Raises DerivativeError where what is read was written no number
    of steps before, or before a step that bounds (``is_bounded``) what is added up there.
    """
    form = linear(adjoint.read.subscripts[time])
    lag = None if form is None or form.terms != ((steps.index, Polynomial.of(1)),) else -form.constant
    if lag is None or not lag.is_nonnegative():
        message = f"{adjoint.read.tensor} is read at a step that is no number of steps before: no derivative yet"
        raise DerivativeError(Diagnostic(message, source, adjoint.read.span))
    if not lag.terms:
        return adjoint
    if is_bounded:
        message = f"{adjoint.read.tensor} is read at an earlier step, and the step bounds a range: no derivative yet"
        raise DerivativeError(Diagnostic(message, source, adjoint.read.span))
    others = [s for d, s in enumerate(adjoint.read.subscripts) if d != time]
    if any(isinstance(e, Index) and e.name == steps.index for s in others for e in walk(s)):
        # Moved, as `h(t-1,i,t)` to `h(t,i,t+1)`, it may lead outside behind the last step.
        message = f"{adjoint.read.tensor} is read at an earlier step, at a place that the step tells: no derivative yet"
        raise DerivativeError(Diagnostic(message, source, adjoint.read.span))
    later: dict[str, Expr] = {steps.index: syntax.Binary("+", name(steps.index), lag.syntax())}
    move: Callable[[Expr], Expr] = lambda expr: with_short_subscripts(substitute(expr, later))  # noqa: E731
    runs = syntax.Binary("<", later[steps.index], (steps.span[1] + 1).syntax())
    subscripts = [shortest(move(s)) for s in adjoint.subscripts]
    subscripts[time] = name(steps.index)
    of_read = list(adjoint.read.subscripts)
    of_read[time] = Index(steps.index, INT32, adjoint.read.span)
    guards = (runs, *(move(guard) for guard in adjoint.guards if not _holds_later(guard, steps, lag)))
    moved = replace(adjoint.read, subscripts=tuple(of_read))
    return replace(adjoint, read=moved, subscripts=tuple(subscripts), value=move(adjoint.value), guards=guards)


def _holds_later(guard: Expr, steps: Steps, lag: Polynomial) -> bool:
    """Whether a condition says that a step is not one of the first, which it is not so many steps later."""
    first = steps.span[0].syntax()
    earlier = syntax.Binary("-", name(steps.index), lag.syntax())
    tests = (syntax.Binary("==", name(steps.index), first), syntax.Binary("<", earlier, first))
    return guard in [syntax.Unary("!", test) for test in tests]
