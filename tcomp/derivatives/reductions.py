"""Reductions under differentiation: what of an adjoint reaches each value, and what was there before."""

from __future__ import annotations

from dataclasses import replace

from tcomp.derivatives.derivation import Derivation, statement_of
from tcomp.derivatives.expressions import ChainRule
from tcomp.derivatives.gathering.datarows import Owner, range_clauses, written_down
from tcomp.derivatives.steps.blocks import Group
from tcomp.derivatives.text import ONE, ZERO, Expr, element, name, product, to_syntax
from tcomp.derivatives.versions import Version
from tcomp.errors import Diagnostic, UnsaidError
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.function import Function, Index, Within, walk

_LAST = syntax.Number("2147483647")
"""Behind every place in a reduction."""


class Reductions(Derivation):
    """What reverse and forward mode share about statements that combine values."""

    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        super().__init__(function, wrt, ties)
        self.ties: dict[str, str] = {}
        self.sought: set[str] = set()
        """Extrema that are compared with the values that they are extrema of."""
        self.owners: dict[str, Owner] = {}

    def seed(self, position: int, version: Version, rule: ChainRule, seed: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        """What of ``seed`` reaches each value that a statement reduces, and where."""
        match self.function.statements[position].reduction:
            case "min" | "max":
                return self._ties(position, version, rule, seed)
            case "*":
                return self._products(position, version, rule, seed), ()
            case _:
                return seed, ()

    def kept(self, version: Version, indices: tuple[Expr, ...], seed: Expr) -> Expr:
        """What of ``seed`` reaches an element that was there before a maximum or minimum went on from it."""
        assert version.base is not None
        ties = self.ties.get(version.name)
        shared = syntax.Binary("/", seed, element(ties, indices)) if ties is not None else seed
        return syntax.Conditional(self._was_extreme(version, indices), shared, ZERO)

    def _was_extreme(self, version: Version, indices: tuple[Expr, ...]) -> Expr:
        assert version.base is not None
        self.sought.add(version.name)
        return syntax.Binary("==", element(version.base, indices), element(version.name, indices))

    def _ties(self, position: int, version: Version, rule: ChainRule, seed: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        """Elements that are the extreme share its adjoint evenly, or the first of them has it."""
        self.sought.add(version.name)
        statement = self.function.statements[position]
        subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
        value = statement.value if self._clauses(position) is None else inside_ranges(statement.value)
        is_extreme = syntax.Binary("==", rule.text(value), element(version.name, subscripts))
        goes_on = self._goes_on(position, version)
        if self.first_wins and (statement.reduction_indices or goes_on):
            guards: tuple[Expr, ...] = (is_extreme,)
            if goes_on:
                guards = (*guards, syntax.Unary("!", self._was_extreme(version, subscripts)))
            if statement.reduction_indices:
                first, own = self.fresh(f"first_{version.name}"), self._place_in_reduction(position)
                self._helper(position, first, subscripts, "min=!", syntax.Conditional(is_extreme, own, _LAST), _LAST)
                guards = (*guards, syntax.Binary("==", own, element(first, subscripts)))
            return seed, guards
        one: Expr = ONE if statement.value.dtype.name != "float64" else syntax.Cast("double", ONE)
        ties = self.ties[version.name] = self.fresh(f"ties_{version.name}")
        counted = syntax.Conditional(is_extreme, one, ZERO)
        self._helper(position, ties, subscripts, "+=" if goes_on else "+=!", counted, _zero(one))
        if goes_on:
            indices, ranges = self.whole(version.tensor, version.before)
            own = syntax.Conditional(self._was_extreme(version, indices), one, ZERO)
            self.groups[-1].statements.insert(0, statement_of(ties, indices, "=", own, ranges))
        return syntax.Binary("/", seed, element(ties, subscripts)), (is_extreme,)

    def _goes_on(self, position: int, version: Version) -> bool:
        """Whether a statement combines with what was there, and does not only leave some of it as it is."""
        return version.base is not None and not self.function.statements[position].initialise

    def _place_in_reduction(self, position: int) -> Expr:
        """Numbers the values that a statement reduces, in the order of its indices."""
        statement, ranges = self.function.statements[position], self.symbolic.ranges[position]
        number: Expr | None = None
        for index in statement.reduction_indices:
            if index not in ranges:
                message = f"the range of {index} cannot be said for all sizes, so there is no first of equal values"
                raise UnsaidError(Diagnostic(message, self.function.source, statement.span))
            first, last = ranges[index]
            own: Expr = name(index) if not first.terms else syntax.Binary("-", name(index), first.syntax())
            extent = (last - first + 1).syntax()
            number = own if number is None else syntax.Binary("+", syntax.Binary("*", number, extent), own)
        assert number is not None
        return number

    def _products(self, position: int, version: Version, rule: ChainRule, seed: Expr) -> Expr:
        """The product of the others: right for any number of zeros."""
        statement = self.function.statements[position]
        subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
        value = rule.text(statement.value)
        if self._goes_on(position, version):
            assert version.base is not None
            seed = product(seed, element(version.base, subscripts))
            if self.multiplies_once(position):
                return seed
        one: Expr = ONE if statement.value.dtype.name != "float64" else syntax.Cast("double", ONE)
        is_zero = syntax.Binary("==", value, ZERO)
        zeros, rest = self.fresh(f"zeros_{version.name}"), self.fresh(f"nonzero_{version.name}")
        self._helper(position, zeros, subscripts, "+=!", syntax.Conditional(is_zero, one, ZERO), _zero(one))
        self._helper(position, rest, subscripts, "*=!", syntax.Conditional(is_zero, one, value), one)
        count, others = element(zeros, subscripts), product(seed, element(rest, subscripts))
        alone = syntax.Conditional(syntax.Binary("&&", syntax.Binary("==", count, ONE), is_zero), others, ZERO)
        none = syntax.Binary("==", count, ZERO)
        return syntax.Conditional(none, syntax.Binary("/", others, value), alone)

    def owner(self, position: int, within: Within, entry: str, row: str) -> Owner:
        """What knows the row of an entry, written down before where it was not yet."""
        version, ranges = self.versions[position], {r.index.name: r for r in self.bounds(position)}
        own = {entry: ranges[entry], row: ranges[row]}
        key = ", ".join(map(str, (*own.values(), to_syntax(within.lower, version.reads))))
        if key not in self.owners:
            known, step = self.fresh(f"{row}_of_{entry}"), self.fresh(f"{entry}_of_{row}", keep=False)
            made = Owner(row, entry, known, written_down(within, version.reads, own, known, step))
            self.owners[key] = made
            self.groups.append(Group(f"{known}: the {row} of each {entry}", [*made.statements]))
        return self.owners[key]

    def multiplies_once(self, position: int) -> bool:
        """Whether a statement combines each element with one value, which its subscripts tell."""
        statement = self.function.statements[position]
        own = [s.name for s in statement.subscripts if isinstance(s, Index)]
        return set(own) == set(statement.indices)

    def _helper(
        self, position: int, own: str, subscripts: tuple[Expr, ...], operator: str, value: Expr, neutral: Expr
    ) -> None:
        group = Group(f"for the derivative of `{_first_line(self.function, position)}`")
        *begun, update = self.reduced(position, own, subscripts, operator, value, neutral)
        clauses = self._clauses(position) or ()
        group.statements += [*begun, replace(update, clauses=(*update.clauses, *clauses))]
        self.groups.append(group)

    def _clauses(self, position: int) -> list[syntax.Range] | None:
        """The ranges that data give of a statement, as clauses; None where it asks in each instance."""
        statement = self.function.statements[position]
        left = {e.name for s in statement.subscripts for e in walk(s) if isinstance(e, Index)}
        return range_clauses(ranges_of(statement.value), self.versions[position].reads, left)


def _zero(one: Expr) -> Expr:
    """In the type that a one has."""
    return ZERO if one == ONE else syntax.Cast("double", ZERO)


def _first_line(function: Function, position: int) -> str:
    statement = list(syntax.statements(function.definition.body))[position]
    return str(replace(statement, clauses=())).split("\n", 1)[0]
