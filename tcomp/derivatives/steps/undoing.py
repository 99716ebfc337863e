"""What each statement of a block, run backwards, does to adjoints.

Adjoints are overwritten as values are: behind ``T(f) = e`` the adjoint of ``T(f)`` goes to what ``e`` reads, and starts
again from 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tcomp.derivatives.derivation import statement_of
from tcomp.derivatives.expressions import Adjoint, ChainRule
from tcomp.derivatives.gathering.folds import FOLDS
from tcomp.derivatives.gathering.gathers import Contribution, Place, contribution, dependent_ranges, rigid_indices
from tcomp.derivatives.steps.inplace import reads_its_target
from tcomp.derivatives.steps.instances import Instances
from tcomp.derivatives.steps.swept import Swept
from tcomp.derivatives.text import ZERO, Expr, element, name, names_in, product
from tcomp.derivatives.versions import tensors_read
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Binary, Call, Function, Index, Read, Statement, walk
from tcomp.grammar.tree.function import Expr as FunctionExpr


class Undoing(Swept):
    """``by_result`` has the statements whose derivatives read what they wrote, as that of ``y = exp(x)`` is ``y``."""

    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        super().__init__(function, wrt, ties)
        self.instances = Instances(function, self.spans)
        self.by_result = {p for p, statement in enumerate(function.statements) if _tells_by_result(statement)}

    def chain(self, position: int) -> ChainRule:
        statement = self.function.statements[position]
        known = None
        if position in self.by_result:
            known = (statement.value, self.old(position))
        return ChainRule(self.function.source, {t: t for t in self.function.tensors}, self.box, known)

    def undo(self, position: int) -> Iterator[syntax.Statement]:
        """What a statement does to adjoints."""
        statement = self.function.statements[position]
        if statement.target not in self.adjoints:
            return
        self.check(position)
        if statement.reduction is None:
            yield from self._assignment(position)
        else:
            yield from self._reduction(position)

    def _assignment(self, position: int) -> Iterator[syntax.Statement]:
        """``T(f) = e``: the adjoint of ``T(f)`` starts again from what ``e`` takes of ``T(f)``, or from 0."""
        statement = self.function.statements[position]
        own, places = self.adjoints[statement.target], self.places(position)
        here = element(own, tuple(map(self._text, statement.subscripts)))
        zero = statement_of(own, places, "=", self.zero(statement.target), self.ranges(position, outer=True))
        if not reads_its_target(statement):
            yield from self._pushed(position, here)
            if self._is_read_before(position):
                yield zero
            return
        sums = self.contributions(position, here)
        alone = [target for target, _ in sums].count(own) == 1
        if (alone and sums.get((own, places)) == here) or self._reads_others(position):
            kept = sums.pop((own, places), None)
            yield from self.added(position, sums)
            if kept != here and (kept is not None or self._is_read_before(position)):
                yield zero if kept is None else replace(zero, value=kept)
            return
        outer = tuple(map(name, self.outer(position)))
        taken = self.new(f"taken_{own}", self.wide(statement.target))
        yield statement_of(taken, outer, "=", here, self.ranges(position, outer=True))
        sums = self.contributions(position, element(taken, outer))
        kept = sums.pop((own, places), None)
        if kept is None:
            yield zero
        elif kept != element(taken, outer):
            yield replace(zero, value=kept)
        yield from self.added(position, sums)

    def _reads_others(self, position: int) -> bool:
        """Whether all that a statement reads of its tensor, but for its own element, it writes in no step at once."""
        statement = self.function.statements[position]
        reads = [e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == statement.target]
        if statement.scatters or any(read.boundary is not None for read in reads):
            return False
        others = {read.subscripts for read in reads} - {statement.subscripts}
        return all(self.instances.are_apart(position, subscripts) for subscripts in others)

    def _is_read_before(self, position: int) -> bool:
        """Whether an adjoint goes on behind a statement, towards the beginning of the def."""
        statement = self.function.statements[position]
        return bool(statement.steps) or any(
            s.target == statement.target or statement.target in tensors_read(s)
            for s in self.function.statements[:position]
        )

    def _reduction(self, position: int) -> Iterator[syntax.Statement]:
        statement = self.function.statements[position]
        own, places = self.adjoints[statement.target], self.places(position)
        here = seed = element(own, tuple(map(self._text, statement.subscripts)))
        goes_on = statement.reduction != "+" and not statement.initialise
        aside = reads_its_target(statement) or (goes_on and not self.tells(position))
        if aside:
            outer, ranges = self.telling(position), self.telling_ranges(position)
            taken, names = self.new(f"taken_{own}", self.wide(statement.target)), tuple(map(name, outer))
            yield statement_of(taken, names, "=", here, ranges)
            here = seed = element(taken, names)
        guards: tuple[Expr, ...] = ()
        value: Expr | None = self.zero(statement.target)
        if statement.reduction == "+" and not statement.initialise:
            value = None
        elif statement.reduction in ("max", "min"):
            found = self.extremes(position)
            yield from found.statements
            seed, guards = syntax.Binary("/", here, found.count), (found.is_new,)
            if not statement.initialise:
                value = syntax.Conditional(found.was_new, seed, ZERO)
        elif statement.reduction == "*":
            made, seed = self.others(position, here)
            yield from made
            if not statement.initialise:
                made, factor = self.factor(position)
                yield from made
                value = product(here, factor)
        is_single = {n for s in places for n in names_in(s)} <= self._scalars(statement)
        begun = []
        if value is not None and (not statement.initialise or self._is_read_before(position)):
            if statement.scatters and statement.initialise:
                begun = [self.all_of(statement.target, own, lambda indices: self.zero(statement.target))]
            elif goes_on and (not is_single or self.widened(position)):
                begun = [self.setting(position, own, value)]
            else:
                wide = bool(self.widened(position))  # then zeros go where the sum began, and nowhere else
                operator = "=" if is_single and not wide else "+=!"
                begun = [statement_of(own, places, operator, value, self.ranges(position, outer=not wide))]
        if aside:
            yield from begun
        yield from self._pushed(position, seed, guards)
        if not aside:
            yield from begun

    def _scalars(self, statement: Statement) -> set[str]:
        """What may stand in subscripts of which each names one element."""
        bare = {s.name for s in statement.subscripts if isinstance(s, Index)}
        return {*self.function.sizes, *(t.name for t in self.function.inputs if t.role == "const")} | bare

    def _pushed(self, position: int, seed: Expr, guards: tuple[Expr, ...] = ()) -> Iterator[syntax.Statement]:
        """What a statement adds to adjoints of what it reads, outside of blocks as sums over what reads an element."""
        if not self._is_plain(position):
            yield from self.added(position, self.contributions(position, seed, guards))
            return
        for adjoint in self.chain(position).push(self.function.statements[position].value, seed, guards):
            own, boundary = self.adjoints.get(adjoint.read.tensor), adjoint.read.boundary
            if own is None:
                continue
            if boundary is None or boundary.kind not in FOLDS:
                part = self._gathered(position, adjoint)
                value = self.cast(part.value, adjoint.read.tensor, self.function.statements[position])
                yield statement_of(own, part.subscripts, "+=", value, part.ranges)
            else:
                yield from self.added(position, self.scattered(position, [adjoint]))

    def _is_plain(self, position: int) -> bool:
        """Whether a statement stands outside of blocks, and sums end its ranges, so that reads can be solved."""
        statement = self.function.statements[position]
        bounds = [b for r in statement.ranges for b in (r.lower, r.upper) if any(isinstance(e, Index) for e in walk(b))]
        known = set(statement.indices) <= self.symbolic.ranges[position].keys()
        return not statement.steps and known and None not in map(linear, bounds) and not reads_its_target(statement)

    def _gathered(self, position: int, adjoint: Adjoint) -> Contribution:
        """What a statement outside of blocks adds, as a sum over what reads an element."""
        statement, ranges = self.function.statements[position], self.symbolic.ranges[position]
        outer = frozenset(self.outer(position))
        place = Place(statement.indices, outer, ranges, dependent_ranges(statement), ZERO, {}, rigid_indices(statement))
        part = contribution(adjoint, place, self.box(adjoint.read.tensor), frozenset(self.taken))
        self.positive |= part.positive
        return part


def _tells_by_result(statement: Statement) -> bool:
    """Whether a derivative may have the result of a call or quotient instead, and reads nothing that it overwrites."""
    value = statement.value
    if statement.reduction is not None or statement.scatters:
        return False
    if isinstance(value, Binary) and value.op == "/" and value.dtype.is_float:
        others = walk(value.rhs) if _is_own(value.lhs, statement) else walk(value)
        return not any(_is_own(e, statement) for e in others)
    return isinstance(value, Call) and not any(_is_own(e, statement) for e in walk(value))


def _is_own(expr: FunctionExpr, statement: Statement) -> bool:
    """Whether an expression reads the element that a statement writes."""
    return isinstance(expr, Read) and expr.tensor == statement.target and expr.subscripts == statement.subscripts
