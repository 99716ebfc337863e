"""Blocks of steps, ``for t in a:b { ... }``: their indices and bounds, and the types of what they read of themselves.

A tensor may be read in a block before the statement that writes it, since an earlier step has.  Its type then follows
from itself.  It is sought from the narrowest types on: each round takes a type for granted and sees which one the
statements give, until they give what was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tcomp.grammar.checking.expressions import ExpressionChecker, Place
from tcomp.grammar.checking.names import Environment, Scope, TensorEntry
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Expr, Index, Step, walk
from tcomp.values.operators import BOOL, FLOAT32, INT32, UINT8, DType, promote

_STARTS = (BOOL, UINT8, INT32, FLOAT32)
_MOST_ROUNDS = 8

Check = Callable[[syntax.Statement, tuple[Step, ...], Environment, Report], object]
"""Checks one statement inside some steps."""


class Blocks:
    """The blocks of one definition, checked one after another."""

    def __init__(self, environment: Environment, report: Report, check: Check) -> None:
        self.environment = environment
        self.report = report
        self.check = check
        self.count = 0

    def add(self, loop: syntax.Loop) -> None:
        """Check an outermost block."""
        if self._heads_are_right(loop, ()):
            self._find_types(loop)
        written = {s.target.name for s in syntax.statements(loop.body)}
        opened = [e for name, e in self.environment.tensors.items() if name in written and e.opened]
        self._body(loop, (), self.environment, self.report)
        for entry in opened:
            entry.opened = False

    def _heads_are_right(self, loop: syntax.Loop, outer: tuple[str, ...]) -> bool:
        """Whether a block and those in it have statements and indices of their own; errors are reported."""
        name, right = loop.index.name, True
        if not loop.body:
            self.report.error("this block has no statements", loop.span, "steps without statements compute nothing")
            right = False
        kind = "an index of the steps around it" if name in outer else self.environment.kind_of(name)
        if kind is not None:
            self.report.error(f"{name} already defined", loop.index.span, f"`{name}` is {kind}")
            right = False
        for item in loop.body:
            if isinstance(item, syntax.Loop):
                right = self._heads_are_right(item, (*outer, name)) and right
        return right

    def _body(self, loop: syntax.Loop, outer: tuple[Step, ...], environment: Environment, report: Report) -> None:
        number, self.count = self.count, self.count + 1
        bounds = [self._bound(bound, loop, outer, environment, report) for bound in (loop.lower, loop.upper)]
        steps = (*outer, Step(loop.index.name, number, bounds[0], bounds[1], loop.index.span))
        for item in loop.body:
            if isinstance(item, syntax.Loop):
                self._body(item, steps, environment, report)
            else:
                self.check(item, steps, environment, report)

    def _bound(
        self, bound: syntax.Expr | None, loop: syntax.Loop, outer: tuple[Step, ...], environment: Environment,
        report: Report,
    ) -> Expr | None:  # fmt: skip
        """A bound of a block, made of sizes, numbers and the indices of the steps around it."""
        if bound is None:
            return None
        scope = Scope({step.index: step.span for step in outer})
        expr = ExpressionChecker(environment, scope, report).integer(bound, Place.BOUND)
        for node in walk(expr):
            if isinstance(node, Index) and node.name not in {step.index for step in outer}:
                known = {*environment.scalars(), *(step.index for step in outer)} - {loop.index.name}
                hint = report.did_you_mean(node.name, known)
                report.error(f"undefined variable {node.name} used here", node.span, hint)
                break
        return expr

    def _find_types(self, loop: syntax.Loop) -> None:
        """Enter what a block writes first and reads before that, with the type that follows from itself."""
        first: dict[str, syntax.Statement] = {}
        early: set[str] = set()
        for statement in syntax.statements(loop.body):
            read = set(_names(statement))
            names = (statement.target.name, *(name.name for name in statement.others))
            early |= read - first.keys()
            for name in names:
                first.setdefault(name, statement)
        for name in early & first.keys():
            entry, statement = self.environment.tensors.get(name), first[name]
            if entry is None and self.environment.kind_of(name) is None:
                entry = TensorEntry(name, "temporary", statement.target.span)
                self.environment.tensors[name] = entry
            if entry is None or entry.role == "input" or entry.written:
                continue
            entry.opened = True
            if statement.declared is None and entry.rank is None:
                entry.rank = len(statement.subscripts or ())
        self._settle(loop)

    def _settle(self, loop: syntax.Loop) -> None:
        """Give opened tensors that have no type the first one of a few that is found again from itself."""
        unknown = [name for name, entry in self.environment.tensors.items() if entry.opened and entry.dtype is None]
        if not unknown:
            return
        settled: dict[str, DType] = {}
        for start in _STARTS:
            settled, right = self._fixed_point(loop, dict.fromkeys(unknown, start))
            if right:
                break
        for name in unknown:
            self.environment.tensors[name].dtype = settled[name]

    def _fixed_point(self, loop: syntax.Loop, taken: dict[str, DType]) -> tuple[dict[str, DType], bool]:
        """The types that are found from themselves, and whether nothing is wrong with them."""
        for _ in range(_MOST_ROUNDS):
            trial = replace(
                self.environment,
                tensors={name: replace(entry) for name, entry in self.environment.tensors.items()},
                needs_content=set(self.environment.needs_content),
            )
            for name, dtype in taken.items():
                trial.tensors[name].dtype = dtype
                trial.tensors[name].found = []
            report, count = Report(self.report.source), self.count
            self._body(loop, (), trial, report)
            self.count = count
            found = {}
            for name, dtype in taken.items():
                seen = trial.tensors[name].found or [dtype]
                found[name] = seen[0]
                for other in seen[1:]:
                    found[name] = promote(found[name], other)
            if report.errors or found == taken:
                return found, not report.errors
            taken = found
        return taken, False


def _names(statement: syntax.Statement) -> Iterator[str]:
    """The names that a statement mentions outside of what it writes."""
    stack = [statement.value, *(statement.subscripts or ())]
    for clause in statement.clauses:
        match clause:
            case syntax.Let():
                stack.append(clause.value)
            case syntax.Exists():
                stack.append(clause.read)
    while stack:
        node = stack.pop()
        match node:
            case syntax.Name():
                yield node.name
            case syntax.Apply():
                yield node.function.name
        stack.extend(syntax.children(node))
