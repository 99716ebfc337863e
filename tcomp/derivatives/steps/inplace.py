"""Defs with blocks of steps under differentiation as they stand: statements in order, tensors that are overwritten.

Blocks in blocks, elements that a step writes several times, and reads of the same step have no form in which each
element is written once, with the step as a subscript.  Here the order stays, and derived tensors are overwritten, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from tcomp.derivatives.derivation import spelling, statement_of
from tcomp.derivatives.expressions import ChainRule
from tcomp.derivatives.steps.intervals import interval
from tcomp.derivatives.steps.nested import Nested
from tcomp.derivatives.text import (
    ONE,
    ZERO,
    Expr,
    element,
    name,
    on_the_left,
    product,
    range_text,
)
from tcomp.errors import Diagnostic, UnsaidError
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.polynomials import Polynomial, greatest, least
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Expr as FunctionExpr
from tcomp.grammar.tree.function import (
    Function,
    Index,
    Read,
    Select,
    Statement,
    children,
    walk,
)


@dataclass(frozen=True, slots=True)
class Extremes:
    """What a maximum or minimum becomes: its new value, and how many values are it, each by the ``outer`` indices."""

    statements: tuple[syntax.Statement, ...]
    is_new: Expr
    was_new: Expr
    count: Expr


class InPlace(Nested):
    """What both modes share."""

    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        super().__init__(function, wrt, ties)
        self.taken |= {c.name.name for s in self.written for c in s.clauses if isinstance(c, syntax.Let)}
        self.moving = _moving(function, wrt)
        self.compared: dict[str, syntax.Range] = {}
        """Indices that go through a dimension, where a subscript is compared with all of it."""

    def box(self, tensor: str) -> tuple[Span, ...]:
        """As declared, or as statements write it, where the ranges of steps are no sums.

        Where that is not all, derived text reads what is not written, and is refused for the sizes at hand.
        """
        if tensor in self.symbolic.boxes:
            return self.symbolic.boxes[tensor]
        dims, writers = self.function.tensors[tensor].dims, self.writers(tensor)
        ends = [interval(d, {}) for d in dims or ()]
        if dims is not None and None not in ends:
            return tuple((Polynomial(), end[1] - 1) for end in ends if end is not None)
        found: list[Span] | None = None
        for position in writers[:1] if writers and not self.function.statements[writers[0]].steps else writers:
            statement = self.function.statements[position]
            spans = [interval(s, self.spans[position]) for s in statement.subscripts]
            known = [span for span in spans if span is not None]
            if len(known) < len(spans):
                return super().box(tensor)
            found = known if found is None else list(map(_around, found, known))
        return super().box(tensor) if found is None else tuple(found)

    def writers(self, tensor: str) -> list[int]:
        return [p for p, s in enumerate(self.function.statements) if s.target == tensor]

    def new(self, wanted: str, kind: str) -> str:
        """A name for a tensor of some type."""
        own = self.fresh(wanted)
        self.types[own] = kind
        return own

    def wide(self, tensor: str) -> str:
        """The type in which derivatives of a tensor are added up."""
        found = self.function.tensors[tensor]
        return "float" if found.dtype.bits < 32 else spelling(found)

    def zero(self, tensor: str) -> Expr:
        return syntax.Cast("double", ZERO) if self.wide(tensor) == "double" else ZERO

    def chain(self, position: int) -> ChainRule:
        """What goes through the statement at a position."""
        return ChainRule(self.function.source, {t: t for t in self.function.tensors}, self.box)

    def places(self, position: int) -> tuple[Expr, ...]:
        """The subscripts of what a statement writes, as they stand on a left-hand side."""
        statement = self.function.statements[position]
        return self.as_target(map(self._text, statement.subscripts), statement)

    def as_target(self, subscripts: Iterable[Expr], statement: Statement) -> tuple[Expr, ...]:
        """The same subscripts where they are those of what is written."""
        return tuple(on_the_left(s, (*statement.indices, *self.compared)) for s in subscripts)

    def outer(self, position: int) -> tuple[str, ...]:
        """The indices that tell what a statement writes in a step."""
        statement = self.function.statements[position]
        steps = {step.index for step in statement.steps}
        return tuple(i for i in statement.indices if i not in steps and i not in statement.reduction_indices)

    def widened(self, position: int) -> frozenset[str]:
        """The outer indices that others bound which are summed up, as ``j`` in ``T(j) += .. where i in 0:N, j in 0:i``.

        Without the sum they go through all that they reach; of what is not written nothing changes.
        """
        statement = self.function.statements[position]
        found: set[str] = set()
        inner, before = {*statement.reduction_indices}, -1
        while len(found) > before:
            before = len(found)
            for given in statement.ranges:
                named = {e.name for bound in (given.lower, given.upper) for e in walk(bound) if isinstance(e, Index)}
                if named & (inner | found) and given.index not in inner:
                    found.add(given.index)
        return frozenset(found)

    def ranges(self, position: int, *, outer: bool = False) -> tuple[syntax.Range, ...]:
        """The ranges of the indices of a statement, those that say what is written or all."""
        statement, known = self.function.statements[position], self.spans[position]
        steps = {step.index for step in statement.steps}
        given = {r.index: r for r in statement.ranges}
        wanted = self.outer(position) if outer else [i for i in statement.indices if i not in steps]
        found: list[syntax.Range] = []
        wide = self.widened(position) if outer else frozenset()
        for index in wanted:
            if index in wide and index in known:
                found.append(range_text(index, known[index]))
            elif index in given:
                own = given[index]
                found.append(syntax.Range(name(index), self._text(own.lower), self._text(own.upper)))
            elif index in known:
                found.append(range_text(index, known[index]))
            else:
                message = f"the range of {index} cannot be said for all sizes, so there is no derivative"
                hint = f"add a range, such as `where {index} in 0:3`"
                raise UnsaidError(Diagnostic(message, self.function.source, statement.span, hint))
        return tuple(found)

    def as_written(self, position: int) -> syntax.Statement:
        """A statement of the def, with all its ranges."""
        statement = self.written[position]
        said = {c.index.name for c in statement.clauses if isinstance(c, syntax.Range)}
        others = tuple(r for r in self.ranges(position) if r.index.name not in said)
        return replace(statement, clauses=(*statement.clauses, *others), equivalent=None)

    def check(self, position: int) -> None:
        """Raises DerivativeError for a statement that moves and has no derivative where it stands."""
        statement = self.function.statements[position]
        if self.first_wins and statement.reduction in ("max", "min"):
            self.refuse(statement.span, "ties='first' is for reductions outside of such blocks")

    def tells(self, position: int) -> bool:
        """Whether different outer indices are different elements in a step: each is alone, as in ``T(t, 2*i + 1)``.

        Not so in ``T(2*i + k) max= ..``, where what is known of an element has its subscripts, and is set by ``max=!``
        of values that are equal: `=` writes no element twice.
        """
        found: list[str] = []
        outer = self.outer(position)
        for subscript in self.function.statements[position].subscripts:
            form = linear(subscript)
            own = [] if form is None else [(t, c) for t, c in form.terms if not isinstance(t, str) or t in outer]
            if form is None or len(own) > 1 or not all(isinstance(t, str) and c.constant for t, c in own):
                return False
            found += [str(t) for t, _ in own]
        return set(found) == {*outer}

    def cast(self, value: Expr, tensor: str, statement: Statement) -> Expr:
        """What a statement adds to a derivative, in the type of that where doubles are computed with on the way."""
        has_doubles = any(e.dtype.name == "float64" for e in walk(statement.value))
        return syntax.Cast("float", value) if has_doubles and self.wide(tensor) == "float" else value

    def sets(self, position: int) -> str:
        """The operator that gives each element that a statement writes a value, once or several times the same."""
        return "=" if self.tells(position) else "max=!"

    def setting(self, position: int, own: str, value: Expr) -> syntax.Statement:
        """What gives each element that a statement writes a value, once or several times the same."""
        statement = self.function.statements[position]
        found = statement_of(own, self.places(position), self.sets(position), value, self.telling_ranges(position))
        if not statement.scatters:
            return found
        chosen = [index for index in self.telling(position) if index not in self.outer(position)]
        orders = tuple(syntax.Order("last", name(index)) for index in chosen)
        return replace(found, operator="=", clauses=(*found.clauses, *orders))

    def telling(self, position: int) -> tuple[str, ...]:
        """The indices that tell what a statement writes in a step, data or not."""
        statement = self.function.statements[position]
        named = {e.name for s in statement.subscripts for e in walk(s) if isinstance(e, Index)}
        steps = {step.index for step in statement.steps}
        chosen = [i for i in statement.reduction_indices if i in named and i not in steps]
        return (*self.outer(position), *chosen) if statement.scatters else self.outer(position)

    def telling_ranges(self, position: int) -> tuple[syntax.Range, ...]:
        """The ranges of these indices."""
        if not self.function.statements[position].scatters:
            return self.ranges(position, outer=True)
        named = self.telling(position)
        return tuple(r for r in self.ranges(position) if r.index.name in named)

    def beside(self, position: int, wanted: str, kind: str) -> str:
        """A name for a tensor that has the elements that a statement writes; it is declared as theirs is."""
        own, statement = self.new(wanted, kind), self.function.statements[position]
        if statement.scatters:
            self.dims[own] = self.dims.get(statement.target)
        return own

    def aside(self, position: int) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """Where another tensor has what belongs to the element that a statement writes: as it is written, and read."""
        if self.tells(position):
            outer = tuple(map(name, self.outer(position)))
            return outer, outer
        return self.places(position), tuple(map(self._text, self.function.statements[position].subscripts))

    def extremes(self, position: int) -> Extremes:
        """The new value of a maximum or minimum, and how many of its values are it."""
        statement = self.function.statements[position]
        kind, (places, here) = spelling(self.function.tensors[statement.target]), self.aside(position)
        wide, ranges = self.wide(statement.target), self.ranges(position)
        own = self.beside(position, f"new_{statement.target}", kind)
        ties = self.beside(position, f"ties_{statement.target}", wide)
        new, value = element(own, here), self._text(statement.value)
        is_new, was_new = syntax.Binary("==", value, new), syntax.Binary("==", self.old(position), new)
        operator = f"{statement.reduction}="
        made: list[syntax.Statement] = []
        one = ONE if wide == "float" else syntax.Cast("double", ONE)
        if not statement.initialise:
            kept, sets = self.telling_ranges(position), "=" if self.tells(position) else "max=!"
            made.append(statement_of(own, places, sets, self.old(position), kept))
            made.append(statement_of(own, places, operator, value, ranges))
            made.append(statement_of(ties, places, sets, syntax.Conditional(was_new, one, ZERO), kept))
        else:
            made.append(statement_of(own, places, f"{operator}!", value, ranges))
        count = "+=!" if statement.initialise else "+="
        made.append(statement_of(ties, places, count, syntax.Conditional(is_new, one, ZERO), ranges))
        return Extremes(tuple(made), is_new, was_new, element(ties, here))

    def old(self, position: int) -> Expr:
        """The element that a statement writes, before it does."""
        statement = self.function.statements[position]
        return element(statement.target, tuple(map(self._text, statement.subscripts)))

    def others(self, position: int, seed: Expr) -> tuple[tuple[syntax.Statement, ...], Expr]:
        """What of ``seed`` reaches each factor of a product: all other factors, whatever of them is 0."""
        statement = self.function.statements[position]
        if not statement.initialise:
            seed = product(seed, self.old(position))
            if not statement.reduction_indices and self.tells(position):
                return (), seed
        (places, here), wide = self.aside(position), self.wide(statement.target)
        value, one = self._text(statement.value), ONE if wide == "float" else syntax.Cast("double", ONE)
        zeros = self.beside(position, f"zeros_{statement.target}", wide)
        rest = self.beside(position, f"nonzero_{statement.target}", wide)
        is_zero, ranges = syntax.Binary("==", value, ZERO), self.ranges(position)
        made = (
            statement_of(zeros, places, "+=!", syntax.Conditional(is_zero, one, ZERO), ranges),
            statement_of(rest, places, "*=!", syntax.Conditional(is_zero, one, value), ranges),
        )
        count, whole = element(zeros, here), product(seed, element(rest, here))
        alone = syntax.Conditional(syntax.Binary("&&", syntax.Binary("==", count, ONE), is_zero), whole, ZERO)
        none = syntax.Binary("==", count, ZERO)
        return made, syntax.Conditional(none, syntax.Binary("/", whole, value), alone)

    def factor(self, position: int) -> tuple[tuple[syntax.Statement, ...], Expr]:
        """What ``*=`` multiplies an element by."""
        statement = self.function.statements[position]
        if not statement.reduction_indices and self.tells(position):
            return (), self._text(statement.value)
        (places, here), own = self.aside(position), self.beside(position, "factor", self.wide(statement.target))
        made = statement_of(own, places, "*=!", self._text(statement.value), self.ranges(position))
        return (made,), element(own, here)

    def all_of(
        self, tensor: str, own: str, value: Callable[[tuple[Expr, ...]], Expr], *, from_zero: bool = False
    ) -> syntax.Statement:
        """A statement that writes all elements of a tensor that is shaped like another."""
        box = self.box(tensor)
        indices, ranges = self.whole(tensor)
        if from_zero:
            ranges = tuple(
                syntax.Range(r.index, syntax.Number("0"), (last - first + 1).syntax())
                for r, (first, last) in zip(ranges, box, strict=True)
            )
        return statement_of(own, indices, "=", value(indices), ranges)

    def from_zero(self, tensor: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The subscripts of an array that has the elements of a tensor, counted from 0."""
        return tuple(
            i if not first.terms else syntax.Binary("-", i, first.syntax())
            for i, (first, _) in zip(indices, self.box(tensor), strict=True)
        )


def _around(one: Span, other: Span) -> Span:
    return least([one[0], other[0]]), greatest([one[1], other[1]])


def _moving(function: Function, wrt: Collection[str]) -> set[str]:
    """The tensors of floats that depend on some inputs other than by conditions and integers."""
    found = set(wrt)
    grew = True
    while grew:
        grew = False
        for statement in function.statements:
            is_float = function.tensors[statement.target].dtype.is_float
            if is_float and statement.target not in found and moved_by(found, statement.value):
                found.add(statement.target)
                grew = True
    return found


def moved_by(active: Collection[str], value: FunctionExpr) -> bool:
    match value:
        case _ if not value.dtype.is_float:
            return False
        case Read():
            inside = value.boundary.value if value.boundary is not None else None
            return value.tensor in active or (inside is not None and moved_by(active, inside))
        case Select():
            return moved_by(active, value.then) or moved_by(active, value.otherwise)
        case _:
            return any(moved_by(active, child) for child in children(value))


def reads_its_target(statement: Statement) -> bool:
    return any(isinstance(e, Read) and e.tensor == statement.target for e in walk(statement.value))
