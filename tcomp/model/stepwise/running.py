"""Blocks that combine one element with the next, written as the cumulative reductions that they are.

``for t in a:b { H(t) = max(H(t-1), X(t)) }`` becomes ``C(t) max=! X(j) where t in a:b, j in a:t+1`` and
``H(t) = max(H(a-1), C(t))``, which run in vectors and in parts, not element by element.  Integers come out
the same, and so do minima and maxima but for the sign of a zero, as of 0 and -0 either is the greater; sums and
products of floats are taken in another order, so they are left as they are but with ``fast_math``.
The new program is proved to combine the same values into each element as the old one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.affine import to_set
from tcomp.grammar.ranges.ranges import Ranges
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import (
    Binary,
    Constant,
    Expr,
    Function,
    Index,
    Range,
    Read,
    Select,
    Statement,
    Tensor,
    map_children,
    walk,
    with_indices,
)
from tcomp.model.accesses import Frame, element_map
from tcomp.values.operators import BOOL, INT32, REDUCTIONS, DType, accumulation_type

LEAST_STEPS = 16
"""Blocks with fewer steps stay as they are."""

_SET = isl.dim_type.set


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """A program with a block as a cumulative reduction and what it was.

    Statement ``number`` of the one is written as ``count`` statements from there on of the other, of which that at
    ``update`` combines the values of the steps from ``first`` on.
    """

    before: Function
    ranges: Ranges
    after: Function
    number: int
    count: int
    update: int
    first: int


def as_reductions(function: Function, ranges: Ranges, reassociate: bool) -> Running | None:
    """The function with its first block that is a running reduction written as that; None where it has none.

    ``reassociate`` says that sums and products of floats may be taken in another order than they are written.
    """
    if len(ranges.domains) != len(function.statements):
        return None
    for number, statement in enumerate(function.statements):
        if len(statement.steps) != 1 or sum(_shares(s, statement) for s in function.statements) != 1:
            continue
        made = _Writer(function, ranges, number, reassociate).write()
        if made is not None:
            return made
    return None


def _shares(statement: Statement, other: Statement) -> bool:
    return any(step.number == other.steps[0].number for step in statement.steps)


def prove_running(made: Running, after: Ranges) -> None:
    """Raise LegalityError unless each element follows from the one before it, and combines the values up to its own."""
    old, new = made.before.statements[made.number], made.after.statements[made.number + made.update]
    domain = made.ranges.domains[made.number].domain
    rank = domain.dim(_SET)
    step = old.indices.index(old.steps[0].index)
    names = [f"i{d}" for d in range(rank)]
    earlier = [*names]
    earlier[step] = f"{names[step]} - 1"
    write = element_map(Frame(domain, made.ranges.sizes, made.ranges.boxes), old.target, old.subscripts)
    back = isl.Map(
        f"{{ {domain.get_tuple_name()}[{', '.join(names)}] -> {domain.get_tuple_name()}[{', '.join(earlier)}] }}"
    )
    reads = [e for e in walk(old.value) if isinstance(e, Read) and e.tensor == old.target]
    follows = write.is_injective()
    for read in reads:
        there = element_map(Frame(domain, made.ranges.sizes, made.ranges.boxes), old.target, read.subscripts)
        follows = follows and there.apply_range(write.reverse()).is_subset(back)
    # What the reduction combines into an element: the values of all steps from the first to its own.
    order = [old.indices.index(index) for index in new.indices[:rank]]
    pairs = isl.Set(f"{{ [{', '.join([*(names[d] for d in order), 'j'])}] : {made.first} <= j <= {names[step]} }}")
    own = after.domains[made.number + made.update].domain.reset_tuple_id()
    turned = isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(names[d] for d in order)}] }}")
    elements = (
        domain.reset_tuple_id()
        .intersect(isl.Set(f"{{ [{', '.join(names)}] : {names[step]} >= {made.first} }}"))
        .apply(turned)
    )
    wanted = pairs.intersect(elements.insert_dims(_SET, rank, 1).reset_tuple_id())
    if not (follows and own.is_equal(wanted)):
        raise LegalityError(f"statement {made.number} of {made.before.name} is no cumulative reduction")


class _Writer:
    """Writes one block of a function as a reduction."""

    def __init__(self, function: Function, ranges: Ranges, number: int, reassociate: bool) -> None:
        self.function, self.ranges, self.number, self.reassociate = function, ranges, number, reassociate
        self.statement = function.statements[number]
        self.domain = ranges.domains[number]
        self.step = self.statement.steps[0].index
        self.span = self.statement.span
        self.taken = {*function.tensors, *function.sizes, *(i for s in function.statements for i in s.indices)}

    def write(self) -> Running | None:
        statement, target = self.statement, self.function.tensors[self.statement.target]
        named = [s.name if isinstance(s, Index) else None for s in statement.subscripts]
        plain = named and named[-1] == self.step and sorted(map(str, named)) == sorted(statement.indices)
        if not plain or statement.reduction is not None or statement.exists or not self.domain.rectangular:
            return None
        low, high = self.domain.hull[self.step]
        if high - low + 1 < LEAST_STEPS or self.domain.domain.is_empty():
            return None
        reads = [e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == target.name]
        if not reads or any(r != reads[0] or not self._is_one_before(r) for r in reads):
            return None
        head, rest = (self._settled(statement.value, self._at(sign, low)) for sign in ("=", ">"))
        begins = not _reads(head, target.name)
        rest = rest if begins else self._settled(statement.value, self.domain.domain)
        found = self._combined(rest, target)
        if found is None:
            return None
        op, value = found
        own = [name for name in named if name is not None]
        if begins:
            first = self._without_identity(op, head, target.dtype)
            step = Index(self.step, INT32, self.span)
            condition = Binary("==", step, Constant(low, INT32, self.span), BOOL, self.span)
            same = self._first_is(first, value, low)
            value = value if same else Select(condition, first, value, target.dtype, self.span)
            return self._made([self._reduction(target.name, own, op, value, low, high)], (), 0, low)
        carried = self._temporary("before", target, target.rank - 1)
        running = self._temporary("running", target, target.rank)
        elements = tuple(self._index(name) for name in own)
        around = own[:-1]
        start = Read(target.name, (*elements[:-1], Constant(low - 1, INT32, self.span)), target.dtype, self.span)
        both = Binary(
            op, Read(carried.name, elements[:-1], target.dtype, self.span),
            Read(running.name, elements, target.dtype, self.span), target.dtype, self.span,
        )  # fmt: skip
        return self._made(
            [
                self._assignment(carried.name, around, start),
                self._reduction(running.name, own, op, value, low, high),
                self._assignment(target.name, own, both),
            ],
            (carried, running), 1, low,
        )  # fmt: skip

    def _made(self, statements: list[Statement], tensors: tuple[Tensor, ...], update: int, first: int) -> Running:
        all_of_them = [*self.function.statements]
        all_of_them[self.number : self.number + 1] = statements
        temporaries = (*self.function.temporaries, *tensors)
        after = replace(self.function, statements=tuple(all_of_them), temporaries=temporaries)
        return Running(self.function, self.ranges, after, self.number, len(statements), update, first)

    def _is_one_before(self, read: Read) -> bool:
        forms = [to_form(s, self.ranges.sizes) for s in read.subscripts]
        wanted = [to_form(s, self.ranges.sizes) for s in self.statement.subscripts]
        if read.boundary is not None or wanted[-1] is None or None in forms:
            return False
        return forms == [*wanted[:-1], wanted[-1].plus(-1)]

    def _at(self, sign: str, low: int) -> isl.Set:
        domain = self.domain.domain
        names = [f"i{d}" for d in range(domain.dim(_SET))]
        step = names[self.statement.indices.index(self.step)]
        where = isl.Set(f"{{ {domain.get_tuple_name()}[{', '.join(names)}] : {step} {sign} {low} }}")
        return domain.intersect(where)

    def _settled(self, expr: Expr, domain: isl.Set) -> Expr:
        """The expression without choices that are the same everywhere in a domain."""
        if isinstance(expr, Select):
            holds = to_set(expr.condition, domain.get_space(), self.ranges.sizes)
            if holds is not None and domain.is_subset(holds):
                return self._settled(expr.then, domain)
            if holds is not None and domain.is_disjoint(holds):
                return self._settled(expr.otherwise, domain)
        return map_children(expr, lambda child: self._settled(child, domain))

    def _combined(self, value: Expr, target: Tensor) -> tuple[str, Expr] | None:
        """By which reduction a value combines the element before with something else, and what that is."""
        if not isinstance(value, Binary) or value.op not in REDUCTIONS or value.dtype != target.dtype:
            return None
        dtype = value.dtype
        widened = REDUCTIONS[value.op].widens and accumulation_type(dtype) != dtype
        exact = value.op in ("min", "max") or dtype.is_integer
        if widened or not (exact or (self.reassociate and dtype.is_float and dtype.bits > 16)):
            return None
        for before, other in ((value.lhs, value.rhs), (value.rhs, value.lhs)):
            if isinstance(before, Read) and before.tensor == target.name and not _reads(other, target.name):
                return value.op, other
        return None

    def _without_identity(self, op: str, value: Expr, dtype: DType) -> Expr:
        """The value without a neutral element that it is combined with."""
        if isinstance(value, Binary) and value.op == op:
            for one, other in ((value.lhs, value.rhs), (value.rhs, value.lhs)):
                if isinstance(one, Constant) and one.value == REDUCTIONS[op].identity(dtype):
                    return other
        return value

    def _first_is(self, first: Expr, value: Expr, low: int) -> bool:
        """Whether the value of the first step is that of others, at that step."""
        at: dict[str, Expr] = {self.step: Constant(low, INT32, self.span)}
        return first == value or with_indices(first, at) == with_indices(value, at)

    def _reduction(self, target: str, own: list[str], op: str, value: Expr, low: int, high: int) -> Statement:
        other = self._name("j")
        span, dtype = self.span, value.dtype
        end = Binary("+", self._index(self.step), Constant(1, INT32, span), INT32, span)
        ranges = (
            *(r for r in self.statement.ranges if r.index != self.step),
            Range(self.step, Constant(low, INT32, span), Constant(high + 1, INT32, span), span),
            Range(other, Constant(low, INT32, span), end, span),
        )
        return Statement(
            target, tuple(self._index(name) for name in own), op, True,
            with_indices(value, {self.step: self._index(other)}), dtype, ranges, (), (*own, other), (other,), span,
        )  # fmt: skip

    def _assignment(self, target: str, own: list[str], value: Expr) -> Statement:
        low, high = self.domain.hull[self.step]
        ranges = [r for r in self.statement.ranges if r.index in own and r.index != self.step]
        if self.step in own:
            first, last = Constant(low, INT32, self.span), Constant(high + 1, INT32, self.span)
            ranges.append(Range(self.step, first, last, self.span))
        for name in own:
            if name != self.step and all(r.index != name for r in ranges):
                a, b = self.domain.hull[name]
                ends = Constant(a, INT32, self.span), Constant(b + 1, INT32, self.span)
                ranges.append(Range(name, *ends, self.span))
        subscripts = tuple(self._index(name) for name in own)
        return Statement(
            target, subscripts, None, False, value, value.dtype, tuple(ranges), (), tuple(own), (), self.span
        )  # fmt: skip

    def _temporary(self, suffix: str, like: Tensor, rank: int) -> Tensor:
        return Tensor(self._name(f"{like.name}_{suffix}"), like.dtype, rank, None, "temporary", self.span)

    def _index(self, name: str) -> Index:
        return Index(name, INT32, self.span)

    def _name(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _reads(expr: Expr, tensor: str) -> bool:
    return any(isinstance(e, Read) and e.tensor == tensor for e in walk(expr))
