"""Checking one statement: names, lets and ranges, types, reduction variables."""

from __future__ import annotations

from collections.abc import Iterator

from tcomp.grammar.checking.dataranges import check_outside, guarded, outside_of
from tcomp.grammar.checking.expressions import ExpressionChecker, Place, narrowing
from tcomp.grammar.checking.mentions import indices_of, range_indices, ranges_of, reads, subscript_indices
from tcomp.grammar.checking.names import Environment, Scope, TensorEntry
from tcomp.grammar.checking.parameters import declare_in_statement
from tcomp.grammar.checking.quotients import (
    warn_of_chains,
    warn_of_infinities,
    warn_of_lost_fractions,
    warn_of_rounded_means,
)
from tcomp.grammar.checking.scatters import report_order
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.conversions import EIGHT_BITS, Typed, convert, widen
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import (
    Constant,
    Expr,
    Index,
    Range,
    Read,
    Statement,
    Step,
    children,
    is_indirect,
    walk,
)
from tcomp.grammar.tree.limits import MAX_INDICES, complaint
from tcomp.values.operators import BOOL, INT32, REDUCTIONS, DType, accumulation_type, arithmetic_type, narrows

_LOGICAL = {"+": "max", "*": "min"}
"""Sums of bools are disjunctions, products conjunctions."""

_VALUES = {
    **dict.fromkeys(("inf", "infinity"), "infinity is written `1.0 / 0.0`"),
    "nan": "a NaN is written `0.0 / 0.0`",
    "true": "there is no such constant; a condition that always holds is `0 == 0`",
    "false": "there is no such constant; a condition that never holds is `0 == 1`",
}
"""What names that stand for values elsewhere are written as here."""


def check_statement(
    statement: syntax.Statement, environment: Environment, report: Report, steps: tuple[Step, ...] = ()
) -> Statement | None:
    """The typed form of a statement inside ``steps``; None if errors were reported.

    Enters its target into the environment.
    """
    errors = len(report.errors)
    checker = StatementChecker(statement, environment, report, steps)
    entry = checker.target()
    result = checker.check(entry)
    if len(report.errors) > errors:
        result = None
    if entry is None:
        environment.misdirected = True
    else:
        entry.failed = entry.failed or result is None
        entry.written = True
    return result


class StatementChecker:
    """The state of checking one statement."""

    def __init__(
        self, statement: syntax.Statement, environment: Environment, report: Report, steps: tuple[Step, ...] = ()
    ) -> None:
        self.statement = statement
        self.environment = environment
        self.report = report
        self.steps = steps
        self.late: set[str] = set()
        self.scope = Scope({step.index: step.span for step in steps})
        self.expressions = ExpressionChecker(environment, self.scope, report)
        self.reduction = statement.operator.rstrip("!").removesuffix("=") or None
        self.initialise = statement.operator.endswith("!")

    def target(self) -> TensorEntry | None:
        """The entry of the tensor that is written, made if it is new; None if it may not be written."""
        name, span = self.statement.target.name, self.statement.target.span
        entry = self.environment.tensors.get(name)
        declared = self.statement.declared
        if entry is None and self.environment.kind_of(name):
            self.report.error(f"{name} already defined", span, f"`{name}` is {self.environment.kind_of(name)}")
        elif entry is not None and entry.role == "input":
            if not entry.failed:
                message = f"TC inputs are immutable, but input {name} is written here"
                self.report.error(message, span, "write to another tensor")
        elif entry is None:
            entry = TensorEntry(name, "temporary", span)
            self.environment.tensors[name] = entry
            if declared is not None:
                declare_in_statement(declared, entry, self.environment, self.report)
            return entry
        else:
            if declared is not None and (entry.declared or entry.written):
                kind = "an output with a type" if entry.declared and entry.role == "output" else "written above"
                self.report.error(f"{name} already defined", declared.span, f"`{name}` is {kind}")
            elif declared is not None:
                declare_in_statement(declared, entry, self.environment, self.report)
            return entry
        return None

    def check(self, entry: TensorEntry | None) -> Statement | None:
        """The typed statement, as far as it can be made; errors go to the report."""
        statement = self.statement
        self._report_ignored(entry)
        errors = len(self.report.errors)
        subscripts = self._subscripts()
        are_subscripts_known = len(self.report.errors) == errors
        self._check_rank(entry, len(subscripts))
        ranges, chosen_ranges, exists = self._clauses()
        value = self._limited(self._value(entry))
        chosen = tuple(s for s in subscripts if is_indirect(s))
        are_subscripts_known = self._check_scatter(chosen) and are_subscripts_known
        own = indices_of(s for s in subscripts if not is_indirect(s))
        indices = tuple(dict.fromkeys((*(step.index for step in self.steps), *own)))
        bounds = [bound for given in chosen_ranges.values() for bound in (given.lower, given.upper)]
        inner = (*indices_of((*chosen, value.expr)), *range_indices(ranges), *range_indices(chosen_ranges))
        inner = (*inner, *indices_of(exists))
        reduced = tuple(name for name in dict.fromkeys(inner) if name not in indices)
        if max(len(subscripts), len(indices) + len(reduced)) > MAX_INDICES:
            message = f"a statement has at most {MAX_INDICES} subscripts and {MAX_INDICES} index variables"
            self.report.error(message, statement.span, "split the statement")
            return None
        if are_subscripts_known:
            self._check_reduced(reduced, (*chosen, value.expr, *exists, *bounds), {**ranges, **chosen_ranges})
        if len(self.report.errors) == errors:
            check_outside(entry, self.reduction, chosen_ranges, self.report)
        typed = self._assign(entry, value)
        if entry is None or typed is None:
            return None
        reduction, accumulator, expr = typed
        warn_of_lost_fractions(expr, self.report)
        warn_of_infinities(expr, self.report)
        if reduction == "+":
            warn_of_rounded_means(expr, self.report)
        for part in (statement.value, *(c.value for c in statement.clauses if isinstance(c, syntax.Let))):
            warn_of_chains(part, self.report)
        if chosen_ranges:
            element = Read(entry.name, subscripts, accumulator, statement.span)
            outside = outside_of(entry, element, reduction)
            expr = self._limited(Typed(guarded(expr, outside, chosen_ranges, self.expressions), accumulator)).expr
        return Statement(
            statement.target.name,
            subscripts,
            reduction,
            self.initialise,
            expr,
            accumulator,
            (*ranges_of(self.steps), *ranges.values()),
            exists,
            (*indices, *reduced),
            reduced,
            statement.span,
            self.steps,
        )

    def _report_ignored(self, entry: TensorEntry | None) -> None:
        statement = self.statement
        if statement.equivalent is not None:
            self.report.warn(
                f"the equivalent call `{statement.equivalent.function}` is ignored", statement.equivalent.span
            )
        if self.reduction is None or self.initialise or entry is None or entry.written:
            return
        name, operator = statement.target.name, statement.operator
        if entry.role == "output":
            self.environment.needs_content.add(name)
            self.report.warn(
                f"Reduction without initialization. If {name} is not pre-initialized before calling the TC function,"
                f" consider using the !-suffixed reduction operator {operator}! instead of {operator}",
                statement.operator_span,
            )
        else:
            self.report.error(
                f"`{operator}` accumulates into `{name}`, which holds nothing yet",
                statement.operator_span,
                f"did you mean `{operator}!`?",
            )

    def _subscripts(self) -> tuple[Expr, ...]:
        """Left-hand subscripts; a bare identifier is always an index unless it is a compile-time scalar."""
        result: list[Expr] = []
        for subscript in self.statement.subscripts or ():
            if isinstance(subscript, syntax.Name) and subscript.name not in self.environment.constants:
                self.scope.indices.setdefault(subscript.name, subscript.span)
                result.append(Index(subscript.name, INT32, subscript.span))
            else:
                result.append(self.expressions.integer(subscript, Place.TARGET))
        return tuple(result)

    def _check_scatter(self, chosen: tuple[Expr, ...]) -> bool:
        """False after a report of elements that data choose and `=` writes: several instances may name one."""
        scalars = [e for s in chosen for e in walk(s) if isinstance(e, Read) and not e.subscripts]
        for subscript in chosen if self.reduction is None else ():
            hint = "use a reduction such as `+=!` or `max=!`"
            if scalars:
                hint += f", or make it a compile-time scalar: `const {scalars[0].dtype} {scalars[0].tensor}`"
            message = "`=` cannot write to elements that data choose: several instances may write the same one"
            self.report.error(message, subscript.span, hint)
        return self.reduction is not None or not chosen

    def _clauses(self) -> tuple[dict[str, Range], dict[str, Range], tuple[Read, ...]]:
        """The last range of each index, the last one that data give, and the reads after ``exists``; lets go to the
        scope."""
        ranges: dict[str, Range] = {}
        chosen: dict[str, Range] = {}
        exists: list[Read] = []
        for clause in self.statement.clauses:
            match clause:
                case syntax.Range():
                    given = self._range(clause)
                    own = chosen if is_indirect(given.lower) or is_indirect(given.upper) else ranges
                    own.pop(given.index, None)
                    own[given.index] = given
                case syntax.Let():
                    self._let(clause)
                case syntax.Exists():
                    exists.extend(self._exists(clause))
                case syntax.Order():
                    report_order(clause, self.report)
        for found in (ranges, chosen):
            for name in [name for name in found if name not in self.scope.indices]:
                del found[name]
        return ranges, chosen, tuple(exists)

    def _range(self, clause: syntax.Range) -> Range:
        name, span = clause.index.name, clause.index.span
        if any(step.index == name for step in self.steps):
            message = f"{name} already defined: the block says which values it takes"
            self.report.error(message, clause.span, "guard the value with `?:` where some steps differ")
        if name in self.scope.lets:
            self.report.error(f"undefined variable {name} used here: it is a let, which cannot have a range", span)
        elif name not in self.scope.indices and self.environment.kind_of(name):
            kind = self.environment.kind_of(name)
            self.report.error(f"undefined variable {name} used here: it is {kind}, not an index", span)
        else:
            self.scope.indices.setdefault(name, span)
        bounds = [
            self._limited(Typed(self.expressions.integer(bound, Place.VALUE), INT32)).expr
            for bound in (clause.lower, clause.upper)
        ]
        if name in indices_of(bounds):
            self.report.error(f"the range of `{name}` depends on `{name}` itself", clause.span)
        return Range(name, bounds[0], bounds[1], clause.span)

    def _let(self, clause: syntax.Let) -> None:
        name = clause.name.name
        if self._is_used_in_front(clause):
            self.late.add(name)
            self.report.error(
                f"`{name}` is used in front of its definition",
                clause.name.span,
                f"write `{name} = ...` in front of what uses it",
            )
        elif name in self.scope.lets or name in self.scope.indices:
            kind = "a let" if name in self.scope.lets else "an index"
            self.report.error(f"{name} already defined", clause.name.span, f"`{name}` is {kind} of this statement")
        self.scope.lets.setdefault(name, self._limited(self.expressions.check(clause.value)))

    def _is_used_in_front(self, clause: syntax.Let) -> bool:
        """Whether a clause of this statement that stands before uses the name as an index that nothing declares."""
        name, clauses = clause.name.name, self.statement.clauses
        found = self.scope.indices.get(name)
        ranged = any(isinstance(c, syntax.Range) and c.index.name == name for c in clauses)
        return found is not None and not ranged and clauses[0].span.start <= found.start < clause.span.start

    def _exists(self, clause: syntax.Exists) -> Iterator[Read]:
        errors = len(self.report.errors)
        typed = self._limited(self.expressions.check(clause.read, Place.EXISTS))
        reads = [node for node in walk(typed.expr) if isinstance(node, Read)]
        if not reads and len(self.report.errors) == errors:
            self.report.error("expected a tensor access after `exists`", clause.read.span)
        yield from reads

    def _limited(self, typed: Typed) -> Typed:
        """The expression, unless inlined lets made it too large to be walked."""
        too_large = complaint(typed.expr, children)
        if too_large is None:
            return typed
        self.report.error(too_large, typed.expr.span, "split the statement")
        return Typed(Constant(0, INT32, typed.expr.span), None)

    def _value(self, entry: TensorEntry | None) -> Typed:
        """The typed right-hand side.

        Where the statement reads its own undeclared target before anything wrote it, the type of the target is first
        taken to be the narrowest, then that of the value found with it.
        """
        value = self.statement.value
        if self._is_misplaced_bang():
            hint = "did you mean `+=!`? Whether a number is 0 is told by `== 0`"
            self.report.error("`!` applies to bool only", self.statement.operator_span, hint)
            return Typed(Constant(0, INT32, value.span), None)
        if entry is None or entry.dtype is not None or entry.written or not reads(value, entry.name):
            return self.expressions.check(value)
        trial = ExpressionChecker(self.environment, self.scope, Report(self.report.source))
        entry.dtype = BOOL
        found = trial.check(value).nominal
        entry.dtype = None if found in (None, BOOL) else self._target_type(found)
        errors = len(self.report.errors)
        entry.failed = found is None
        typed = self.expressions.check(value)
        if entry.failed and len(self.report.errors) == errors:
            entry.failed = False
            typed = self.expressions.check(value)
        return typed

    def _is_misplaced_bang(self) -> bool:
        """Does the value begin with a ``!`` that stands before a number, as in ``O(i) =! A(i, k) * B(k)``?"""
        first = self.statement.value
        while isinstance(first, syntax.Binary | syntax.Conditional):
            first = first.lhs if isinstance(first, syntax.Binary) else first.condition
        if not isinstance(first, syntax.Unary) or first.op != "!":
            return False
        trial = ExpressionChecker(self.environment, self.scope, Report(self.report.source))
        return trial.check(first.operand).nominal not in (None, BOOL)

    def _check_rank(self, entry: TensorEntry | None, rank: int) -> None:
        if entry is None:
            return
        if entry.rank is not None and entry.rank != rank:
            span = self.statement.target.span
            if entry.declared and not entry.written:
                kind = "as an output " if entry.role == "output" else ""
                message = f"tensor defined with {rank} dimensions but declared {kind}with"
                self.report.error(f"{message} {entry.rank} dimensions.", span)
            else:
                self.report.error(f"expected {entry.rank} dimensions but found {rank} dimensions.", span)
        if entry.rank is None:
            entry.rank = rank

    def _check_reduced(self, reduced: tuple[str, ...], exprs: tuple[Expr, ...], ranges: dict[str, Range]) -> None:
        """Report reduction variables without a reduction, and variables that nothing can give a range."""
        known = {*self.environment.scalars(), *self.scope.lets, *(i for i in self.scope.indices if i not in reduced)}
        located = {*ranges, *subscript_indices(exprs)}
        unspecified = []
        for name in (name for name in reduced if name not in self.late):
            span = self.scope.indices[name]
            hint = None if name in located else _VALUES.get(name.lower()) or self.report.did_you_mean(name, known)
            if name not in located and name in self.environment.written_later:
                self.report.error(f"`{name}` is read here, before any statement writes it", span)
            elif hint:
                self.report.error(f"undefined variable {name} used here", span, hint)
            elif self.reduction is None:
                unspecified.append(name)
        for name in unspecified[:1]:
            self.report.error(
                f"this statement includes reduction variable '{name}' but does not specify a reduction.",
                self.scope.indices[name],
                "did you mean `+=!`?",
            )

    def _target_type(self, nominal: DType) -> DType:
        """The type of an undeclared target whose first value has type ``nominal``."""
        if self.reduction is None or not REDUCTIONS[self.reduction].widens or nominal not in EIGHT_BITS:
            return nominal
        return accumulation_type(nominal)

    def _assign(self, entry: TensorEntry | None, value: Typed) -> tuple[str | None, DType, Expr] | None:
        """The reduction, the accumulator's type and the value converted to it."""
        if entry is None or value.nominal is None:
            return None
        if entry.dtype is None and not entry.failed:
            entry.dtype = self._target_type(value.nominal)
        target = entry.dtype
        if entry.found is not None:
            entry.found.append(self._target_type(value.nominal))
            return None
        if target is None:
            return None
        if narrows(value.nominal, target):
            hint = f"write `{target}(...)`, or declare `{entry.name}` wider"
            self.report.error(narrowing(value.nominal, target), self.statement.value.span, hint)
            return None
        if self.reduction is None or not REDUCTIONS[self.reduction].widens:
            return self.reduction, target, value.converted(target)
        if target == BOOL:
            return _LOGICAL[self.reduction], target, value.expr
        accumulator = arithmetic_type(target)
        expr = value.expr
        if value.nominal in EIGHT_BITS and target not in EIGHT_BITS:
            expr = widen(expr, target if target.is_integer else accumulation_type(value.nominal))
        widened = expr is not value.expr
        return self.reduction, accumulator, convert(expr, accumulator) if widened else value.converted(accumulator)
