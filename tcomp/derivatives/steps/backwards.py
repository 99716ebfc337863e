"""Reverse mode of blocks as they stand: the same blocks with their steps and statements from the last to the first.

What a statement overwrites is kept by the forward pass, an element for each that is written, and put back on the way:
each derivative sees the values that the statement saw.  Adjoints are overwritten as values are: behind ``T(f) = e`` the
adjoint of ``T(f)`` goes to what ``e`` reads, and starts again from 0.

The method is that of stores and restores in Griewank and Walther, "Evaluating Derivatives" (2008), chapter 4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tcomp.derivatives.derivation import Derivative, chosen_inputs, dependent_ranges, statement_of
from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.gathering.folds import FOLDS
from tcomp.derivatives.gathering.gathers import Contribution, Place, contribution, rigid_indices
from tcomp.derivatives.saving import check_save
from tcomp.derivatives.steps.inplace import moved_by, reads_its_target
from tcomp.derivatives.steps.nests import Item, mentioned, statements_in
from tcomp.derivatives.steps.relative import begins
from tcomp.derivatives.steps.sweeps import sweeps_of
from tcomp.derivatives.steps.swept import Swept
from tcomp.derivatives.text import (
    ZERO,
    Expr,
    element,
    name,
    names_in,
    product,
)
from tcomp.derivatives.versions import are_disjoint, tensors_read, writes_all
from tcomp.derivatives.wish import Wish
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Expr as FunctionExpr
from tcomp.grammar.tree.function import Function, Index, Read, Statement, walk


def gradient_in_place(function: Function, wish: Wish) -> Derivative:
    """The def that computes the gradients of a def with blocks, whatever stands in them; all values are computed again.

    Raises:
        DerivativeError: ``wrt`` names no input of floats, ``save`` nothing that can be saved, or a statement has no
            derivative here.
    """
    chosen = chosen_inputs(function, wish.wrt)
    check_save(function, {s.target for s in function.statements}, wish.save)
    return _Backwards(function, chosen, wish.ties, wish.without).run(wish.name or f"{function.name}_grad")


class _Backwards(Swept):
    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str, without: Collection[str]) -> None:
        super().__init__(function, wrt, ties)
        self.results = {t.name: t for t in function.outputs if t.dtype.is_float}
        given = [t for t in self.results if t not in without]
        self.cotangents = {t: self.fresh(f"d_{t}") for t in given}
        self.gradients = {t: self.fresh(f"d_{t}") for t in wrt}
        useful = self._useful(given)
        for tensor in function.tensors:
            if tensor in self.moving & useful:
                self.adjoints[tensor] = self._adjoint(tensor)
        self.sweeps |= {p: sweep for sweep in sweeps_of(function, self.adjoints) for p in sweep.positions}
        others = (p for p in range(len(function.statements)) if p not in self.sweeps)
        self.undone |= {p: list(self._undo(p)) for p in others}
        for sweep in dict.fromkeys(self.sweeps.values()):
            self.undone |= self.sweep(sweep)
        self.kept: dict[int, str] = {}
        read = {n for found in self.undone.values() for s in found for n in mentioned(s)}
        while True:
            more = [p for p, s in enumerate(function.statements) if s.target in read and self._is_lost(p)]
            if len(more) == len(self.kept):
                break
            for position in (p for p in more if p not in self.kept):
                target = function.statements[position].target
                self.kept[position] = self.new(f"was_{target}", self.types[target])
                read |= {n for s in self.places(position) for n in names_in(s)}

    def _useful(self, outputs: Collection[str]) -> set[str]:
        """The tensors on which outputs depend."""
        found, grew = set(outputs), True
        while grew:
            grew = False
            for statement in self.function.statements:
                if statement.target in found:
                    more = {t for t in self.function.tensors if moved_by({t}, statement.value)}
                    grew = grew or not more <= found
                    found |= more
        return found

    def _adjoint(self, tensor: str) -> str:
        """The name of the adjoint while it is added up, which is not that of what is taken or handed out."""
        kind = self.wide(tensor)
        if tensor in self.gradients:
            own = self.gradients[tensor]
            return own if kind == self.types[tensor] else self.new(f"wide_{own}", kind)
        return self.new(f"all_d_{tensor}" if tensor in self.results else f"d_{tensor}", kind)

    def run(self, wanted: str) -> Derivative:
        back = self.nest(lambda p: [*self._put_back(p), *self.undone[p]], backwards=True)
        begun = [*(self._first(tensor) for tensor in self.adjoints), *self.nothing_given]
        ended = [self._ended(tensor) for tensor in self.wrt if self.adjoints.get(tensor) != self.gradients[tensor]]
        forward = self._forward({n for s in statements_in((*begun, *back, *ended)) for n in mentioned(s)})
        results = [self.parameter(self.inputs[n], self.gradients[n]) for n in self.wrt]
        cotangents = [self.parameter(self.results[t], own) for t, own in self.cotangents.items()]
        everything = {n for s in statements_in((*forward, *begun, *back, *ended)) for n in mentioned(s)}
        everything |= {n for p in (*results, *cotangents) for d in p.dims or () for n in names_in(d)}
        everything |= {n for item in (*forward, *back) for n in _names_of_steps(item)}
        dims = [d for s in statements_in(forward) for d in self.dims.get(s.target.name) or ()]
        everything |= {n for d in dims for n in names_in(d)}
        taken = [t.name for t in self.function.inputs if t.name in everything]
        inputs = [p for p in self.function.definition.inputs if p.name.name in taken]
        sizes = self._unsaid(everything, inputs, cotangents)
        constants = [syntax.Parameter(name(size), "int", const=True) for size in sizes]
        parts = [
            ("the forward pass, which keeps what it overwrites", forward),
            ("adjoints, and the same statements from the last to the first", [*begun, *back, *ended]),
        ]
        text = self.written_out(wanted, (*inputs, *constants, *cotangents), results, parts)
        return Derivative(
            text=text,
            name=wanted,
            inputs=tuple(taken),
            sizes=sizes,
            saved=(),
            cotangents=tuple(self.cotangents.values()),
            wrt=self.wrt,
            positive=self._positive(),
        )

    def _first(self, tensor: str) -> syntax.Statement:
        """An adjoint before anything is added: the cotangent, or 0."""
        own, given = self.adjoints[tensor], self.cotangents.get(tensor)
        if given is None:
            return self.all_of(tensor, own, lambda indices: self.zero(tensor))
        return self.all_of(tensor, own, lambda indices: element(given, self.from_zero(tensor, indices)))

    def _ended(self, tensor: str) -> syntax.Statement:
        """The gradient of an input on which nothing depends, or that is narrower than what was added up."""
        own = self.adjoints.get(tensor)
        cast = self.types[tensor]

        def value(indices: tuple[Expr, ...]) -> Expr:
            return syntax.Cast(cast, ZERO if own is None else element(own, indices))

        return self.all_of(tensor, self.gradients[tensor], value)

    def _forward(self, read: set[str]) -> list[Item]:
        """The statements whose values are read, and what keeps those that they overwrite."""
        grew = True
        while grew:
            before = len(read)
            for position, statement in enumerate(self.function.statements):
                if statement.target in read:
                    read |= mentioned(self.as_written(position))
            grew = len(read) > before
        positions = [p for p, s in enumerate(self.function.statements) if s.target in read]
        filled: list[str] = []
        for position in self.kept:
            target = self.function.statements[position].target
            first = self.writers(target)[0]
            in_block = bool(self.function.statements[first].steps)
            whole = not in_block and writes_all(first, self.function, self.symbolic, self.box(target))
            if target not in filled and not whole:
                filled.append(target)

        def written(position: int) -> Iterator[syntax.Statement]:
            if position in positions:
                if position in self.kept:
                    yield self._keep(position)
                yield self.as_written(position)

        zeros = [self._filled(tensor) for tensor in filled]
        return [*zeros, *self.nest(written)]

    def _filled(self, tensor: str) -> syntax.Statement:
        """Some value for elements that nobody reads, but that are kept."""
        kind = self.types[tensor]
        value = ZERO if kind == "float" else syntax.Cast(kind, ZERO if kind == "double" else syntax.Number("0"))
        return self.all_of(tensor, tensor, lambda indices: value)

    def _overwritten(self, position: int) -> tuple[tuple[Expr, ...], tuple[Expr, ...], tuple[syntax.Range, ...]]:
        """What a statement may overwrite in a step: its subscripts, those where it is kept, and ranges.

        It is kept by steps and indices, each counted from where its part begins.  Where data choose it, that is all of
        the tensor.
        """
        statement = self.function.statements[position]
        outer = () if statement.scatters else self.outer(position)
        parts = begins(statement, outer)

        def counted(index: str) -> Expr:
            return syntax.Binary("-", name(index), self._text(parts[index])) if index in parts else name(index)

        kept = tuple(map(counted, (*(step.index for step in statement.steps), *outer)))
        if statement.scatters:
            indices, ranges = self.whole(statement.target)
            return indices, (*kept, *indices), ranges
        return self.places(position), kept, self.ranges(position, outer=True)

    def _keep(self, position: int) -> syntax.Statement:
        places, kept, ranges = self._overwritten(position)
        old = self.old(position)
        if self.function.statements[position].scatters:
            old = element(self.function.statements[position].target, places)
        return statement_of(self.kept[position], kept, "=", old, ranges)

    def _put_back(self, position: int) -> Iterator[syntax.Statement]:
        if position in self.kept:
            places, kept, ranges = self._overwritten(position)
            value = element(self.kept[position], kept)
            operator = "=" if self.function.statements[position].scatters else self.sets(position)
            yield statement_of(self.function.statements[position].target, places, operator, value, ranges)

    def _is_lost(self, position: int) -> bool:
        """Whether a derivative may read what a statement overwrites."""
        return self._overwrites(position) and any(self._reads_before(p, position) for p in self.undone)

    def _reads_before(self, reader: int, writer: int) -> bool:
        """Whether the derivative of a statement may read what another one, or itself in a later step, overwrites."""
        statements = self.function.statements
        one, other = statements[reader], statements[writer]
        read = {n for s in self.undone[reader] for n in mentioned(s)}
        if other.target not in read.union(*map(names_in, self.places(reader))):
            return False
        if not (one.steps and other.steps and one.steps[0].number == other.steps[0].number):
            return reader <= writer
        return not self._is_written_first(other.target, reader, writer)

    def _is_written_first(self, tensor: str, reader: int, writer: int) -> bool:
        """Whether each step writes one element, which others read in later steps only, or behind it in that step."""
        one, other = self.function.statements[reader], self.function.statements[writer]
        steps = [step.index for step in other.steps]
        places = {s.name: d for d, s in enumerate(other.subscripts) if isinstance(s, Index)}
        if one.steps != other.steps or not places.keys() >= set(steps) or one.reduction not in (None, "+"):
            return False
        for read in (e for x in one.expressions() for e in walk(x) if isinstance(e, Read) and e.tensor == tensor):
            lags = [_lag(read.subscripts[places[step]], step) for step in steps]
            first = next((lag for lag in lags if lag != 0), 0)
            if read.boundary is not None or first is None or first < 0 or (first == 0 and reader <= writer):
                return False
        return True

    def _overwrites(self, position: int) -> bool:
        """Whether a statement may write what was written before: by another one, or by itself in an earlier step."""
        statement, function = self.function.statements[position], self.function
        for other, found in enumerate(function.statements):
            around = bool(statement.steps and found.steps and statement.steps[0].number == found.steps[0].number)
            before = other != position and found.target == statement.target and (other < position or around)
            if before and not are_disjoint(function, self.symbolic, position, other):
                return True
        plain = {s.name for s in statement.subscripts if isinstance(s, Index)}
        return not {step.index for step in statement.steps} <= plain

    def _undo(self, position: int) -> Iterator[syntax.Statement]:
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
        if sums.get((own, places)) == here and [target for target, _ in sums].count(own) == 1:
            del sums[own, places]  # `T(f) = T(f) + ..` leaves it as it is
            yield from self.added(position, sums)
            return
        if self._reads_others(position):
            kept = sums.pop((own, places), None)
            yield from self.added(position, sums)
            if kept is not None or self._is_read_before(position):
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
        """Whether a statement writes one element in a step, and all else that it reads of the tensor are other ones."""
        statement = self.function.statements[position]
        if self.outer(position) or statement.scatters:
            return False
        for read in (e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == statement.target):
            pairs = zip(read.subscripts, statement.subscripts, strict=True)
            apart = [_difference(a, b) for a, b in pairs]
            if read.boundary is not None or (any(d != 0 for d in apart) and not any(apart)):
                return False
        return True

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
            outer = self._telling(position)
            ranges = tuple(r for r in self.ranges(position) if r.index.name in outer)
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
            operator = "=" if is_single else self.sets(position) if goes_on else "+=!"
            begun = [statement_of(own, places, operator, value, self.ranges(position, outer=True))]
        if aside:
            yield from begun
        yield from self._pushed(position, seed, guards)
        if not aside:
            yield from begun

    def _telling(self, position: int) -> tuple[str, ...]:
        """The indices that tell what a statement writes in a step, data or not."""
        statement = self.function.statements[position]
        named = {e.name for s in statement.subscripts for e in walk(s) if isinstance(e, Index)}
        steps = {step.index for step in statement.steps}
        chosen = [i for i in statement.reduction_indices if i in named and i not in steps]
        return (*self.outer(position), *chosen) if statement.scatters else self.outer(position)

    def _scalars(self, statement: Statement) -> set[str]:
        """What may stand in subscripts of which each names one element."""
        bare = {s.name for s in statement.subscripts if isinstance(s, Index)}
        return {*self.function.sizes, *(t.name for t in self.function.inputs if t.role == "const")} | bare

    def _pushed(self, position: int, seed: Expr, guards: tuple[Expr, ...] = ()) -> Iterator[syntax.Statement]:
        """What a statement adds to adjoints of what it reads, outside of blocks as sums over what reads an element."""
        if not self._is_plain(position):
            yield from self.added(position, self.contributions(position, seed, guards))
            return
        for adjoint in self.chain().push(self.function.statements[position].value, seed, guards):
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


def _difference(one: FunctionExpr, other: FunctionExpr) -> int | None:
    """How far one subscript is behind another, if that is always the same."""
    first, second = linear(one), linear(other)
    if first is None or second is None:
        return None
    apart = first + second.scaled(Polynomial.of(-1))
    return apart.constant.constant if not apart.terms else None


def _lag(subscript: FunctionExpr, step: str) -> int | None:
    """How many steps before a step a subscript is, if that is always the same."""
    form = linear(subscript)
    if form is None or form.terms != ((step, Polynomial.of(1)),):
        return None
    return (-form.constant).constant


def _names_of_steps(item: Item) -> set[str]:
    """What the bounds of blocks mention."""
    if isinstance(item, syntax.Statement):
        return set()
    bounds = [names_in(e) for e in (item.lower, item.upper) if e is not None]
    return set().union(*bounds, *map(_names_of_steps, item.body))
