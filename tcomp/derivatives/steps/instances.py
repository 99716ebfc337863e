"""Instances of statements in blocks, for all sizes: which of them write an element behind one that reads it.

A set of pairs of instances is a text for isl, whose parameters are sizes.  What is not affine in these becomes so:
products of sizes are parameters, and ``b*B``, of an index and a size, is a coordinate of its own, of which is known
that it grows by ``B`` at least from one step to the next.  Such a set has all pairs that there are, and may have more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import islpy as isl

from tcomp.grammar.ranges.linear import Linear, Rounded, linear
from tcomp.grammar.ranges.polynomials import Monomial, Polynomial
from tcomp.grammar.ranges.steps import common_steps
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree.function import Binary, Cast, Expr, Function, Statement
from tcomp.storage.forks import ISL

_OPERATIONS = 200_000
"""So many operations of isl are worth an array that is kept in vain."""


@dataclass(frozen=True, slots=True)
class Element:
    """What the statement at ``position`` reads or writes, in each of its instances; None for data choose it.

    It is what the tensor has before the statement runs in its step, or ``behind`` it.
    """

    position: int
    subscripts: tuple[Expr, ...] | None
    behind: bool = False


@dataclass(slots=True)
class _Instance:
    """The coordinates of an instance, and what is known of them; ``exact`` if that is all there is to know."""

    prefix: str
    position: int
    statement: Statement
    known: list[str] = field(default_factory=list)
    products: dict[tuple[str, Monomial], str] = field(default_factory=dict)
    exact: bool = True

    def coordinates(self) -> list[str]:
        return [*(self.prefix + index for index in self.statement.indices), *self.products.values()]


class Instances:
    """Questions about a def; ``spans`` has the intervals of the indices of each statement."""

    def __init__(self, function: Function, spans: Sequence[Mapping[str, Span]]) -> None:
        self.function = function
        self.spans = spans
        self._parameters: dict[Monomial, str] = {}

    def is_lost(self, read: Element, written: int) -> bool:
        """Whether a statement may be the first to overwrite what an instance of another, or of its own, reads.

        True, too, where that takes isl too long to tell.
        """
        with ISL.value:
            return self._is_lost(read, written)

    def _is_lost(self, read: Element, written: int) -> bool:
        target = self.function.statements[written].target
        others = [p for p, s in enumerate(self.function.statements) if s.target == target and not s.scatters]
        rank = len(self.function.statements[written].subscripts)
        context = isl.DEFAULT_CONTEXT
        previous = context.get_max_operations()
        context.reset_operations()
        context.set_max_operations(_OPERATIONS)
        try:
            pairs = self._pairs(read, written, rank, None)
            if pairs is None or pairs.is_empty():
                return False
            for other in others:
                between = self._pairs(read, written, rank, other)
                if between is not None:
                    pairs = pairs.subtract(between)
                    if pairs.is_empty():
                        return False
            return True
        except (isl.Error, TypeError):
            return True
        finally:
            context.set_max_operations(previous)
            context.reset_operations()

    def are_apart(self, position: int, subscripts: Sequence[Expr]) -> bool:
        """Whether no instance of a statement reads, at some subscripts, what it writes itself in the same step."""
        with ISL.value:
            return self._are_apart(position, subscripts)

    def _are_apart(self, position: int, subscripts: Sequence[Expr]) -> bool:
        statement = self.function.statements[position]
        one, other = self._instance("r_", position), self._instance("w_", position)
        same = [*self._same(one, subscripts, "e"), *self._same(other, statement.subscripts, "e")]
        steps = self._together(one, other, len(statement.steps))
        found = self._set([one, other], len(statement.subscripts), [], [*same, *steps])
        try:
            return bool(found.is_empty())
        except (isl.Error, TypeError):
            return False

    def _pairs(self, read: Element, written: int, rank: int, between: int | None) -> isl.Set | None:
        """Reads, what overwrites what they read, and the element; only those with a statement ``between``, if given.

        They are told by the steps of both.  None where there are no such pairs, or where what is between is not known
        exactly.
        """
        one, other = self._instance("r_", read.position), self._instance("w_", written)
        own = list(self._same(other, self.function.statements[written].subscripts, "e"))
        if read.subscripts is not None:
            own += self._same(one, read.subscripts, "e")
        orders = list(self._before(one, other, is_strict=read.behind))
        if between is None:
            return self._any([one, other], [], rank, own, orders) if orders else None
        third = self._instance("k_", between)
        own += self._same(third, self.function.statements[between].subscripts, "e")
        if not third.exact:
            return None
        after, before = self._before(one, third, is_strict=read.behind), [*self._before(third, other, is_strict=True)]
        cases = [[*a, *b] for a in after for b in before]
        shared = []
        for case in cases:
            # A product of a step is real only where another instance has the same step.
            near = [
                [f"{third.products[key]} = {x.products[key]}", f"{third.prefix}{key[0]} = {x.prefix}{key[0]}"]
                for key in third.products
                for x in (one, other)
                if key in x.products and self._share(third, x, key[0])
            ]
            if not third.products:
                shared.append(case)
            elif len(third.products) == 1:
                shared += [[*case, *each] for each in near]
        return self._any([one, other], [third], rank, own, shared) if shared else None

    def _any(
        self,
        told: Sequence[_Instance],
        hidden: Sequence[_Instance],
        rank: int,
        always: Sequence[str],
        cases: Sequence[Sequence[str]],
    ) -> isl.Set:
        found = None
        for case in cases:
            own = self._set(told, rank, hidden, [*always, *case])
            found = own if found is None else found.union(own)
        return found

    def _set(
        self, told: Sequence[_Instance], rank: int, hidden: Sequence[_Instance], conditions: Sequence[str]
    ) -> isl.Set:
        shown = [f"e{d}" for d in range(rank)]
        inner: list[str] = []
        for instance in told:
            steps = {step.index for step in instance.statement.steps}
            outer = [instance.prefix + step.index for step in instance.statement.steps]
            outer += [own for (index, _), own in instance.products.items() if index in steps]
            shown += outer
            inner += [c for c in instance.coordinates() if c not in outer]
        for instance in hidden:
            inner += instance.coordinates()
        known = [*conditions, *(k for instance in (*told, *hidden) for k in instance.known)]
        text = " and ".join(f"({k})" for k in known) or "true"
        if inner:
            text = f"exists {', '.join(inner)} : {text}"
        return isl.Set(f"[{', '.join(self._parameters.values())}] -> {{ [{', '.join(shown)}] : {text} }}")

    def _instance(self, prefix: str, position: int) -> _Instance:
        """An instance of a statement: its indices lie in their ranges."""
        statement = self.function.statements[position]
        found = _Instance(prefix, position, statement)
        given = {r.index: (r.lower, r.upper) for r in statement.ranges}
        given |= {s.index: (s.lower, s.upper) for s in statement.steps if s.lower is not None and s.upper is not None}
        spans = self.spans[position]
        for index in statement.indices:
            here, own = prefix + index, given.get(index)
            bounds = (None, None) if own is None else (self._text(own[0], found), self._text(own[1], found))
            if None not in bounds:
                found.known += [f"{here} >= {bounds[0]}", f"{here} < {bounds[1]}"]
                continue
            found.exact = found.exact and own is None and index in spans
            found.known += [f"{here} {op} {bound}" for op, bound in zip((">=", "<"), bounds, strict=True) if bound]
            if index in spans:
                first, last = (self._sum(Linear.of(end), found) for end in spans[index])
                found.known += [f"{here} >= {first}", f"{here} <= {last}"]
        for (index, monomial), product in found.products.items():
            begin = None if index not in given else linear(given[index][0])
            if begin is not None and not begin.terms and begin.constant.constant is not None:
                least, factor = begin.constant.constant, self._parameter(monomial)
                found.known.append(self._signed(factor, f"{product} {{}} {least} * {factor}"))
        return found

    @staticmethod
    def _signed(factor: str, grows: str) -> str:
        """A comparison that holds for a factor that is not negative, and turned round for one that is."""
        return f"({factor} >= 0 and {grows.format('>=')}) or ({factor} < 0 and {grows.format('<=')})"

    def _same(self, instance: _Instance, subscripts: Sequence[Expr], element: str) -> Iterator[str]:
        for d, subscript in enumerate(subscripts):
            text = self._text(subscript, instance)
            if text is not None:
                yield f"{element}{d} = {text}"
            else:
                instance.exact = False

    @staticmethod
    def _share(one: _Instance, other: _Instance, index: str) -> bool:
        """Whether a step stands around both."""
        common = common_steps(one.statement, other.statement)
        return any(step.index == index for step in one.statement.steps[:common])

    def _together(self, one: _Instance, other: _Instance, count: int) -> list[str]:
        """Both are in the same step of ``count`` blocks."""
        found = []
        for step in one.statement.steps[:count]:
            found.append(f"{one.prefix}{step.index} = {other.prefix}{step.index}")
            for key in one.products.keys() & other.products.keys():
                if key[0] == step.index:
                    found.append(f"{one.products[key]} = {other.products[key]}")
        return found

    def _before(self, one: _Instance, other: _Instance, *, is_strict: bool) -> Iterator[list[str]]:
        """The ways in which an instance may run before another, or, if not strictly, with it."""
        common = common_steps(one.statement, other.statement)
        for depth in range(common):
            step = one.statement.steps[depth].index
            found = [*self._together(one, other, depth), f"{one.prefix}{step} < {other.prefix}{step}"]
            for key in one.products.keys() & other.products.keys():
                if key[0] == step:
                    factor = self._parameter(key[1])
                    found.append(self._signed(factor, f"{other.products[key]} {{}} {one.products[key]} + {factor}"))
            yield found
        if one.position < other.position or (one.position == other.position and not is_strict):
            yield self._together(one, other, common)

    def _text(self, expr: Expr, instance: _Instance) -> str | None:
        """An expression for isl; None where it is not affine."""
        form = linear(expr)
        if form is not None:
            return self._sum(form, instance)
        match expr:
            case Cast() if expr.dtype.kind == "int":
                return self._text(expr.operand, instance)
            case Binary(op="min" | "max" | "+" | "-"):
                lhs, rhs = self._text(expr.lhs, instance), self._text(expr.rhs, instance)
                if lhs is None or rhs is None:
                    return None
                return f"{expr.op}({lhs}, {rhs})" if expr.op in ("min", "max") else f"({lhs} {expr.op} ({rhs}))"
            case _:
                return None

    def _sum(self, form: Linear, instance: _Instance) -> str | None:
        parts = [self._constant(form.constant)]
        for term, coefficient in form.terms:
            if isinstance(term, Rounded):
                inner, divisor = self._sum(term.operand, instance), term.divisor.constant
                if inner is None or divisor is None or coefficient.constant is None:
                    return None
                rounded = f"({inner}) mod {divisor}" if term.remainder else f"floor(({inner}) / {divisor})"
                parts.append(f"{coefficient.constant} * ({rounded})")
                continue
            for monomial, factor in coefficient.terms:
                if not monomial:
                    parts.append(f"{factor} * {instance.prefix}{term}")
                    continue
                steps = {step.index for step in instance.statement.steps}
                instance.exact = instance.exact and term in steps
                known = f"{instance.prefix}{term}_by_{self._parameter(monomial)}"
                parts.append(f"{factor} * {instance.products.setdefault((term, monomial), known)}")
        return f"({' + '.join(parts)})"

    def _constant(self, value: Polynomial) -> str:
        return " + ".join(f"{c} * {self._parameter(m)}" if m else str(c) for m, c in value.terms) or "0"

    def _parameter(self, monomial: Monomial) -> str:
        return self._parameters.setdefault(monomial, f"size{len(self._parameters)}")
