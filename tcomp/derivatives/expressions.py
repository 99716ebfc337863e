"""What reaches each read of an expression: the chain rule within one statement."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tcomp.derivatives.text import (
    ONE,
    ZERO,
    Expr,
    conjunction,
    folded,
    names_in,
    negated,
    partials,
    product,
    substitute,
    to_syntax,
    total,
)
from tcomp.errors import DerivativeError, Diagnostic, SourceText
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import function, syntax

Guards = tuple[Expr, ...]

_MANY = 12
"""So many reads that an adjoint reaches are written out, repeated ones and all: sums of few are simplified better."""


@dataclass(frozen=True, slots=True)
class Adjoint:
    """``value``, where all ``guards`` hold, is added to the adjoint of the element that ``read`` reads.

    ``subscripts`` are those of the read as text.
    """

    read: function.Read
    subscripts: tuple[Expr, ...]
    value: Expr
    guards: Guards


class ChainRule:
    """Pushes adjoints down checked expressions; tensors of ``renamed`` have other names in the text.

    ``known`` is an expression, such as a whole right-hand side, whose value stands in an element already.  ``box``
    tells the first and last coordinates of tensors.
    """

    def __init__(
        self,
        source: SourceText,
        renamed: Mapping[str, str],
        box: Callable[[str], tuple[Span, ...]],
        known: tuple[function.Expr, Expr] | None = None,
    ) -> None:
        self.source = source
        self.box = box
        self.renamed = renamed
        self.known = known
        self._repeated: Set[function.Expr] = frozenset()
        self._caught: dict[function.Expr, list[tuple[Guards, Expr]]] = {}
        self._root: function.Expr | None = None

    def text(self, expr: function.Expr) -> Expr:
        """The expression as text, or the element that holds its value."""
        if self.known is not None and expr is self.known[0]:
            return self.known[1]
        return to_syntax(expr, self.renamed)

    def push(self, expr: function.Expr, seed: Expr, guards: Guards = ()) -> list[Adjoint]:
        """Raises DerivativeError where an intrinsic has no derivative."""
        found = list(self._down(expr, seed, guards))
        if len(found) <= _MANY:
            return found
        occurrences = Counter(e for e in function.walk(expr) if function.children(e) and reads_floats(e))
        repeated = {e for e, count in occurrences.items() if count > 1 and not isinstance(e, function.Read)}
        if not repeated:
            return found
        shared = self._through(expr, seed, guards, repeated)
        return shared if 2 * len(shared) <= len(found) else found

    def _through(self, expr: function.Expr, seed: Expr, guards: Guards, repeated: Set[function.Expr]) -> list[Adjoint]:
        """The same, in which what comes to a repeated part is added up first, and goes on once.

        So what ``where`` names is gone through once.  Where no use of a part is under the fewest conditions, it is gone
        through for each: what is not chosen must not reach a sum.
        """
        caught: dict[function.Expr, list[tuple[Guards, Expr]]] = {}
        found = self._until(expr, seed, guards, repeated, caught)
        for part in sorted(repeated, key=lambda e: -sum(1 for _ in function.walk(e))):
            came = caught.pop(part, [])
            if not came:
                continue
            common = min((g for g, _ in came), key=len)
            if any(g[: len(common)] != common for g, _ in came):
                for own, value in came:
                    found += self._until(part, value, own, repeated, caught)
                continue
            values = [
                functools.reduce(lambda v, guard: syntax.Conditional(guard, v, ZERO), reversed(g[len(common) :]), value)
                for g, value in came
            ]
            found += self._until(part, functools.reduce(total, values), common, repeated, caught)
        return found

    def _until(
        self,
        expr: function.Expr,
        seed: Expr,
        guards: Guards,
        repeated: Set[function.Expr],
        caught: dict[function.Expr, list[tuple[Guards, Expr]]],
    ) -> list[Adjoint]:
        """What reaches the reads of an expression other than through repeated parts of it, which is ``caught``."""
        self._repeated, self._caught, self._root = repeated, caught, expr
        try:
            return list(self._down(expr, seed, guards))
        finally:
            self._repeated, self._caught, self._root = frozenset(), {}, None

    def _down(self, expr: function.Expr, seed: Expr, guards: Guards) -> Iterator[Adjoint]:
        if not expr.dtype.is_float or seed == ZERO or not reads_floats(expr):
            return
        if expr in self._repeated and expr is not self._root:
            self._caught.setdefault(expr, []).append((guards, seed))
            return
        match expr:
            case function.Read():
                subscripts = tuple(map(self.text, expr.subscripts))
                yield Adjoint(expr, subscripts, seed, guards)
                if expr.boundary is not None and expr.boundary.value is not None:
                    outside = syntax.Unary("!", self._inside(expr, subscripts))
                    yield from self._down(expr.boundary.value, seed, (*guards, outside))
            case function.Cast():
                yield from self._down(expr.operand, seed, guards)
            case function.Unary():
                yield from self._down(expr.operand, negated(seed), guards)
            case function.Select():
                condition = self.text(expr.condition)
                yield from self._down(expr.then, seed, (*guards, condition))
                yield from self._down(expr.otherwise, seed, (*guards, syntax.Unary("!", condition)))
            case function.Binary():
                yield from self._binary(expr, seed, guards)
            case function.Call():
                yield from self._call(expr, seed, guards)

    def _inside(self, read: function.Read, subscripts: Sequence[Expr]) -> Expr:
        """Whether a read through a boundary is inside its tensor."""
        tests: list[Expr] = []
        for subscript, (first, last) in zip(subscripts, self.box(read.tensor), strict=True):
            tests.append(syntax.Binary("<=", first.syntax(), subscript))
            tests.append(syntax.Binary("<", subscript, (last + 1).syntax()))
        return conjunction(tests)

    def _binary(self, expr: function.Binary, seed: Expr, guards: Guards) -> Iterator[Adjoint]:
        lhs, rhs = self.text(expr.lhs), self.text(expr.rhs)
        match expr.op:
            case "+" | "-":
                yield from self._down(expr.lhs, seed, guards)
                yield from self._down(expr.rhs, seed if expr.op == "+" else negated(seed), guards)
            case "*":
                yield from self._down(expr.lhs, product(seed, rhs), guards)
                yield from self._down(expr.rhs, product(seed, lhs), guards)
            case "/":
                yield from self._down(expr.lhs, syntax.Binary("/", seed, rhs), guards)
                quotient = syntax.Binary("/", product(seed, self.text(expr)), rhs)
                yield from self._down(expr.rhs, negated(quotient), guards)
            case "min" | "max":
                yield from self._extreme(expr, seed, guards)
            case "%":
                whole = syntax.Apply(syntax.Name("floor"), (syntax.Binary("/", lhs, rhs),))
                yield from self._down(expr.lhs, seed, guards)
                yield from self._down(expr.rhs, negated(product(seed, whole)), guards)

    def _extreme(self, expr: function.Binary, seed: Expr, guards: Guards) -> Iterator[Adjoint]:
        """Halves at ties of two operands that are data; all of it where the other one is none, as ``torch.clamp``."""
        lhs, rhs = self.text(expr.lhs), self.text(expr.rhs)
        both = reads_floats(expr.lhs) and reads_floats(expr.rhs)
        wins = ">" if expr.op == "max" else "<"
        for operand, own, other in ((expr.lhs, lhs, rhs), (expr.rhs, rhs, lhs)):
            if not both:
                yield from self._down(operand, seed, (*guards, syntax.Binary(f"{wins}=", own, other)))
                continue
            yield from self._down(operand, seed, (*guards, syntax.Binary(wins, own, other)))
            half = product(syntax.Number("0.5"), seed)
            yield from self._down(operand, half, (*guards, syntax.Binary("==", own, other)))

    def _call(self, expr: function.Call, seed: Expr, guards: Guards) -> Iterator[Adjoint]:
        derivatives = partials(expr.intrinsic, expr.dtype)
        if derivatives is None:
            message = f"{expr.intrinsic} has no derivative here"
            raise DerivativeError(Diagnostic(message, self.source, expr.span))
        places = dict(zip("abcd", map(self.text, expr.arguments), strict=False)) | {"y": self.text(expr)}
        if expr.intrinsic == "relu" and (self.known is None or expr is not self.known[0]):
            places["y"] = places["a"]  # Both are above 0, or neither is.
        for argument, derivative in zip(expr.arguments, derivatives, strict=True):
            hidden = {n for n in names_in(derivative) - places.keys() if n in self.renamed.values()}
            if hidden:
                message = f"the derivative of {expr.intrinsic} has {min(hidden)}, which is the name of a tensor here"
                raise DerivativeError(Diagnostic(message, self.source, expr.span, "give the tensor another name"))
            yield from self._by(argument, folded(substitute(derivative, places)), seed, guards)

    def _by(self, argument: function.Expr, factor: Expr, seed: Expr, guards: Guards) -> Iterator[Adjoint]:
        """A factor that chooses is a guard: what is not chosen must not reach the sum, not even as ``0 * inf``."""
        match factor:
            case syntax.Conditional():
                yield from self._by(argument, factor.then, seed, (*guards, factor.condition))
                others = (*guards, syntax.Unary("!", factor.condition))
                yield from self._by(argument, factor.otherwise, seed, others)
            case syntax.Binary(op="/") if factor.lhs == ONE:
                yield from self._down(argument, syntax.Binary("/", seed, factor.rhs), guards)
            case _:
                yield from self._down(argument, product(seed, factor), guards)


def reads_floats(expr: function.Expr) -> bool:
    """Whether a value has elements of floats in it, so that it may move."""
    return any(isinstance(e, function.Read) and e.dtype.is_float for e in function.walk(expr))


def chosen(value: function.Expr) -> function.Expr:
    """What a value is where it is no constant: adjoints of ``v`` count only where ``c ? v : 0.0`` is ``v``."""
    if (
        isinstance(value, function.Select)
        and isinstance(value.otherwise, function.Constant)
        and value.then.dtype == value.dtype
    ):
        return chosen(value.then)
    return value
