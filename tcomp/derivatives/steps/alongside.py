"""Forward mode of blocks as they stand: in front of each statement, one for how far its result moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tcomp.derivatives.derivation import Derivative, spelling, statement_of
from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.steps.inplace import InPlace, moved_by
from tcomp.derivatives.steps.nests import mentioned, statements_in
from tcomp.derivatives.text import ONE, ZERO, Expr, element, name, product, total
from tcomp.derivatives.wish import chosen_inputs
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function, Index


def tangent_in_place(function: Function, wrt: Sequence[str] | None = None, ties: str = "even") -> Derivative:
    """The def ``NAME_jvp`` of a def with blocks, whatever stands in them.

    Raises:
        DerivativeError: ``wrt`` names no input of floats, or a statement has no derivative here.
    """
    return _Alongside(function, chosen_inputs(function, wrt), ties).run()


class _Alongside(InPlace):
    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        super().__init__(function, wrt, ties)
        self.results = {t.name: self.fresh(f"t_{t.name}") for t in function.outputs if t.dtype.is_float}
        self.given = {t: self.fresh(f"t_{t}") for t in wrt}
        self.tangents = {**self.given}
        for tensor in function.tensors:
            if tensor in self.moving and tensor not in self.tangents:
                self.tangents[tensor] = self._tangent(tensor)

    def _tangent(self, tensor: str) -> str:
        kind, own = self.wide(tensor), self.results.get(tensor)
        if own is None or kind != self.types[tensor] or not self._begins_at_zero(tensor):
            own = self.new(f"moved_{tensor}" if own is not None else f"t_{tensor}", kind)
        if any(self.function.statements[p].scatters for p in self.writers(tensor)):
            self.dims[own] = self.dims.get(tensor)
        return own

    def _begins_at_zero(self, tensor: str) -> bool:
        return all(not first.terms for first, _ in self.box(tensor))

    def run(self) -> Derivative:
        items = self.nest(lambda p: [*self._moved(p), self.as_written(p)])
        ended = [self._ended(t) for t, own in self.results.items() if self.tangents.get(t) != own]
        needed = {*self.results.values()} | {n for s in ended for n in mentioned(s)}
        grew = True
        while grew:
            before = len(needed)
            needed |= {n for s in statements_in(items) if s.target.name in needed for n in mentioned(s)}
            grew = len(needed) > before
        kept = [s for item in items for s in _only(item, needed)]
        results = [self.parameter(self.function.tensors[t], own) for t, own in self.results.items()]
        tangents = [self.parameter(self.inputs[t], own) for t, own in self.given.items()]
        wanted = f"{self.function.name}_jvp"
        text = self.written_out(
            wanted,
            (*self.function.definition.inputs, *tangents),
            results,
            [("each statement behind how far its result moves", kept), ("results", ended)],
        )
        return Derivative(
            text=text,
            name=wanted,
            inputs=tuple(t.name for t in self.function.inputs),
            sizes=(),
            saved=(),
            cotangents=tuple(self.given.values()),
            wrt=self.wrt,
            positive=(),
        )

    def _ended(self, tensor: str) -> syntax.Statement:
        """The tangent of an output that does not move, or is not what was added up."""
        own, box = self.tangents.get(tensor), self.box(tensor)
        cast = spelling(self.function.tensors[tensor])

        def value(indices: tuple[Expr, ...]) -> Expr:
            if own is None:
                return syntax.Cast(cast, ZERO)
            there = zip(indices, box, strict=True)
            places = (i if not first.terms else syntax.Binary("+", i, first.syntax()) for i, (first, _) in there)
            return syntax.Cast(cast, element(own, tuple(places)))

        return self.all_of(tensor, self.results[tensor], value, from_zero=True)

    def _moved(self, position: int) -> Iterator[syntax.Statement]:
        """How far the result of a statement moves."""
        statement = self.function.statements[position]
        own = self.tangents.get(statement.target)
        if own is None:
            return
        places, ranges = self.places(position), self.ranges(position)
        goes_on = statement.reduction is not None and not statement.initialise
        if not moved_by(self.moving, statement.value):
            yield from self._stays(position, own)
            return
        self.check(position)
        seed: Expr = ONE
        guards: tuple[Expr, ...] = ()
        before: Expr | None = None
        here = element(own, tuple(map(self._text, statement.subscripts)))
        if statement.reduction in ("max", "min"):
            found = self.extremes(position)
            yield from found.statements
            seed, guards = syntax.Binary("/", ONE, found.count), (found.is_new,)
            before = syntax.Conditional(found.was_new, syntax.Binary("/", here, found.count), ZERO)
        elif statement.reduction == "*":
            made, seed = self.others(position, ONE)
            yield from made
            if goes_on:
                made, factor = self.factor(position)
                yield from made
                before = product(here, factor)
        value: Expr = ZERO
        adjoints = self.chain(position).push(statement.value, seed, guards)
        moving = [a for a in adjoints if a.read.tensor in self.moving]
        parts = [self.cast(self._part(a), statement.target, statement) for a in moving]
        for number, part in enumerate(parts):
            value = part if not number else total(value, part)
        if goes_on and before is not None:
            there, at = self.aside(position)
            added = self.beside(position, f"added_{own}", self.wide(statement.target))
            operator = "+=!" if statement.reduction_indices or not self.tells(position) else "="
            yield statement_of(added, there, operator, value, ranges)
            yield from self._set(position, own, syntax.Binary("+", before, element(added, at)))
            return
        operator = "=" if statement.reduction is None else "+=" if goes_on else "+=!"
        yield statement_of(own, places, operator, value, ranges)

    def _stays(self, position: int, own: str) -> Iterator[syntax.Statement]:
        """The tangent behind a statement whose value does not move."""
        statement = self.function.statements[position]
        if statement.scatters and statement.initialise:
            yield self.all_of(statement.target, own, lambda indices: self.zero(statement.target))
            return
        places, wide = self.places(position), bool(self.widened(position))
        ranges = self.ranges(position) if wide else self.telling_ranges(position)
        if statement.reduction is None or statement.initialise:
            plain = statement.reduction is None or all(isinstance(s, Index) for s in statement.subscripts)
            operator = "=" if plain and not wide else "+=!"
            yield statement_of(own, places, operator, self.zero(statement.target), ranges)
            return
        if statement.reduction == "+":
            return
        self.check(position)
        here = element(own, tuple(map(self._text, statement.subscripts)))
        if statement.reduction == "*":
            made, factor = self.factor(position)
            yield from made
            yield from self._set(position, own, product(here, factor))
            return
        found = self.extremes(position)
        yield from found.statements
        shared = syntax.Binary("/", here, found.count)
        yield from self._set(position, own, syntax.Conditional(found.was_new, shared, ZERO))

    def _set(self, position: int, own: str, value: Expr) -> Iterator[syntax.Statement]:
        """A tangent of what a statement goes on from, made of what it was."""
        ranges = self.telling_ranges(position)
        if self.tells(position):
            yield self.setting(position, own, value)
            return
        there, at = self.aside(position)
        made = self.beside(position, f"new_{own}", self.wide(self.function.statements[position].target))
        yield statement_of(made, there, "max=!", value, ranges)
        yield self.setting(position, own, element(made, at))

    def _part(self, adjoint: Adjoint) -> Expr:
        """What the movement of one read contributes."""
        own = self.tangents[adjoint.read.tensor]
        moved = element(own, adjoint.subscripts)
        if adjoint.read.boundary is not None:
            outside = () if adjoint.read.boundary.value is None else (ZERO,)
            moved = syntax.Boundary(name(adjoint.read.boundary.kind), (name(own), *outside), adjoint.subscripts)
        value = product(moved, adjoint.value)
        for guard in reversed(adjoint.guards):
            value = syntax.Conditional(guard, value, ZERO)
        return value


def _only(item: syntax.Statement | syntax.Loop, needed: set[str]) -> Iterator[syntax.Statement | syntax.Loop]:
    """Of an item, the statements that write what is needed."""
    if isinstance(item, syntax.Statement):
        if item.target.name in needed:
            yield item
        return
    body = tuple(own for inner in item.body for own in _only(inner, needed))
    if body:
        yield syntax.Loop(item.index, item.lower, item.upper, body)
