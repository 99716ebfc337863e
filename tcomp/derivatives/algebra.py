"""Products and sums of floats as text, rearranged: common factors, equal terms, values that have a name already.

What is rearranged is computed with other roundings, as any reassociation of floats is; nothing is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tcomp.derivatives.text import ONE, ZERO, Expr, element, name, names_in, negated, substitute, with_children
from tcomp.grammar.tree import syntax
from tcomp.values.operators import INTRINSICS


@dataclass(frozen=True, slots=True)
class Product:
    """``over[0] * over[1] / under[0]``, with a sign."""

    over: tuple[Expr, ...] = ()
    under: tuple[Expr, ...] = ()
    negative: bool = False

    def __mul__(self, other: Product) -> Product:
        negative = self.negative != other.negative
        return Product((*self.over, *other.over), (*self.under, *other.under), negative)

    def without(self, other: Product) -> Product:
        """The rest beside the factors and divisors of another, which are all in it."""
        return Product(_left(self.over, other.over), _left(self.under, other.under), self.negative != other.negative)

    def text(self) -> Expr:
        """Factors that vary no more than the divisors are divided first: ``a / z(n) * exp(X(n, c))`` has one quotient a
        row."""
        first, rest = self._steady() if self.under and len(self.over) > 1 else (self.over, ())
        result: Expr = ONE
        for factor in first:
            result = factor if result == ONE else syntax.Binary("*", result, factor)
        for divisor in self.under:
            result = syntax.Binary("/", result, divisor)
        for factor in rest:
            result = syntax.Binary("*", result, factor)
        return negated(result) if self.negative else result

    def _steady(self) -> tuple[Sequence[Expr], Sequence[Expr]]:
        """The factors that vary no more than the divisors, if one of them is no number, and the others."""
        used = frozenset[str]().union(*map(_indices_of, self.under))
        steady = [_indices_of(factor) <= used for factor in self.over]
        first = [factor for factor, is_steady in zip(self.over, steady, strict=True) if is_steady]
        rest = [factor for factor, is_steady in zip(self.over, steady, strict=True) if not is_steady]
        worth_it = rest and any(not isinstance(factor, syntax.Number) for factor in first)
        return (first, rest) if worth_it else (self.over, ())


def _indices_of(expr: Expr) -> frozenset[str]:
    """The names in the subscripts of what an expression reads."""
    own = [names_in(a) for a in expr.arguments] if isinstance(expr, syntax.Apply) else []
    if isinstance(expr, syntax.Apply) and expr.function.name in INTRINSICS:
        own = []
    return frozenset[str]().union(*own, *map(_indices_of, syntax.children(expr)))


def terms_of(expr: Expr) -> list[Product]:
    """A sum of products as a list of them; what is neither is one factor."""
    match expr:
        case syntax.Binary(op="+"):
            return [*terms_of(expr.lhs), *terms_of(expr.rhs)]
        case syntax.Binary(op="-"):
            return [*terms_of(expr.lhs), *(replace(t, negative=not t.negative) for t in terms_of(expr.rhs))]
        case syntax.Unary(op="-", operand=syntax.Binary(op="+" | "-")):
            return [replace(term, negative=not term.negative) for term in terms_of(expr.operand)]
        case _:
            return [_folded(product_of(expr), 1)]


def product_of(expr: Expr) -> Product:
    """An expression as one product."""
    match expr:
        case syntax.Unary(op="-"):
            inner = product_of(expr.operand)
            return replace(inner, negative=not inner.negative)
        case syntax.Binary(op="*"):
            return product_of(expr.lhs) * product_of(expr.rhs)
        case syntax.Binary(op="/"):
            below = product_of(expr.rhs)
            if below.under:
                return product_of(expr.lhs) * Product((), (normal(expr.rhs),))
            return product_of(expr.lhs) * Product((), below.over or (ONE,), below.negative)
        case syntax.Binary(op="+" | "-"):
            factored = factor(terms_of(expr))
            return factored if isinstance(factored, Product) else Product((sum_text(factored),))
        case syntax.Number() if expr == ONE:
            return Product()
        case syntax.Conditional():
            return Product((replace(expr, then=normal(expr.then), otherwise=normal(expr.otherwise)),))
        case _:
            return Product((expr,))


def normal(expr: Expr) -> Expr:
    """The same value with common factors taken out and equal terms counted."""
    factored = factor(terms_of(expr))
    return factored.text() if isinstance(factored, Product) else sum_text(factored)


def factor(terms: Sequence[Product]) -> Product | list[Product]:
    """A sum with its common factors taken out, again in what is left; a list where there are none."""
    kept = _chosen_together(_counted(terms))
    if len(kept) == 1:
        return kept[0]
    shared = common(kept)
    if not shared.over and not shared.under and not shared.negative:
        return kept
    rest = factor([term.without(shared) for term in kept])
    inner = rest if isinstance(rest, Product) else Product((sum_text(rest),))
    return inner * shared


def common(products: Iterable[Product]) -> Product:
    """The factors and divisors that all have; the sign, where all have one."""
    first, *others = products
    over, under, negative = first.over, first.under, first.negative
    for other in others:
        over, under = _both(over, other.over), _both(under, other.under)
        negative = negative and other.negative
    return Product(over, under, negative)


def sum_text(terms: Sequence[Product]) -> Expr:
    """What is added before what is taken away."""
    ordered = sorted(terms, key=lambda term: term.negative)
    result = ordered[0].text()
    for term in ordered[1:]:
        text = replace(term, negative=False).text()
        result = syntax.Binary("-" if term.negative else "+", result, text)
    return result


def _chosen_together(terms: Sequence[Product]) -> list[Product]:
    """Terms that are chosen on one condition, and 0 otherwise, as one choice."""
    together: dict[Expr, list[Product]] = {}
    for position, term in enumerate(terms):
        match term:
            case Product(over=(syntax.Conditional(condition=condition, otherwise=otherwise),), under=()):
                key: Expr = condition if otherwise == ZERO else name(f"{position}")
            case _:
                key = name(f"{position}")
        together.setdefault(key, []).append(term)
    return [_choice(condition, same) if len(same) > 1 else same[0] for condition, same in together.items()]


def _choice(condition: Expr, terms: Sequence[Product]) -> Product:
    chosen = [
        replace(part, negative=part.negative != term.negative)
        for term in terms
        for choice in term.over
        if isinstance(choice, syntax.Conditional)
        for part in terms_of(choice.then)
    ]
    factored = factor(chosen)
    then = factored.text() if isinstance(factored, Product) else sum_text(factored)
    return Product((syntax.Conditional(condition, then, ZERO),))


def _counted(terms: Sequence[Product]) -> list[Product]:
    """Without zeros; terms that occur several times are multiplied."""
    numbers: dict[tuple[object, ...], int] = {}
    examples: dict[tuple[object, ...], Product] = {}
    for term in terms:
        if ZERO in term.over:
            continue
        key = (tuple(sorted(map(str, term.over))), tuple(sorted(map(str, term.under))), term.negative)
        numbers[key] = numbers.get(key, 0) + 1
        examples.setdefault(key, term)
    if not examples:
        return [Product((ZERO,))]
    return [_folded(term, numbers[key]) for key, term in examples.items()]


def _folded(term: Product, times: int) -> Product:
    """Literals multiplied, where float32 holds the result as exactly as it holds them, and put first."""
    value = np.float32(times)
    kept: list[Expr] = []
    for item in term.over:
        if not isinstance(item, syntax.Number) or "." not in item.text:
            kept.append(item)
            continue
        number = np.float32(item.text)
        if float(number) != float(item.text) or float(value) * float(number) != value * number:
            kept.append(item)
        else:
            value = value * number
    return replace(term, over=(*(() if value == 1 else (syntax.Number(str(value)),)), *kept))


def _left(items: Sequence[Expr], taken: Iterable[Expr]) -> tuple[Expr, ...]:
    left = list(items)
    for item in taken:
        left.remove(item)
    return tuple(left)


def _both(first: Sequence[Expr], second: Sequence[Expr]) -> tuple[Expr, ...]:
    left, found = list(second), []
    for item in first:
        if item in left:
            left.remove(item)
            found.append(item)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Value:
    """What the elements of a tensor are: ``Y(n,d)`` is ``E(n,d) / s(n)``, whatever ``n`` and ``d``."""

    tensor: str
    indices: tuple[str, ...]
    product: Product

    def found_in(self, whole: Product) -> Product | None:
        """A product in which the tensor's element stands for the factors that it is made of; None if it is not in."""
        for bound, over in _matches(self.product.over, whole.over, frozenset(self.indices), {}):
            for places, under in _matches(self.product.under, whole.under, frozenset(self.indices), bound):
                if set(places) == set(self.indices):
                    read = element(self.tensor, tuple(name(places[i]) for i in self.indices))
                    return Product((*over, read), under, whole.negative != self.product.negative)
        return None


def match(pattern: Expr, item: Expr, variables: Sequence[str]) -> dict[str, str] | None:
    """What the variables of a pattern are called in an expression that is the same but for these; None if it is not."""
    return _match(pattern, item, frozenset(variables), {})


def with_known_values(expr: Expr, values: Sequence[Value]) -> Expr:
    """An expression in which products that some tensor holds are read from it."""
    match expr:
        case syntax.Binary(op="+" | "-") | syntax.Conditional():
            if isinstance(expr, syntax.Conditional):
                return replace(
                    expr,
                    then=with_known_values(expr.then, values),
                    otherwise=with_known_values(expr.otherwise, values),
                )
            return with_children(expr, [with_known_values(child, values) for child in syntax.children(expr)])
        case syntax.Binary(op="*" | "/") | syntax.Unary(op="-"):
            product = product_of(expr)
            for value in values:
                product = value.found_in(product) or product
            over = tuple(with_known_values(f, values) if isinstance(f, syntax.Binary) else f for f in product.over)
            return replace(product, over=over).text()
        case _:
            return expr


def _matches(
    patterns: Sequence[Expr], items: Sequence[Expr], variables: frozenset[str], bound: Mapping[str, str]
) -> Iterable[tuple[dict[str, str], tuple[Expr, ...]]]:
    """Every way to find each pattern among the items: what its indices are called there, and the items left."""
    if not patterns:
        yield dict(bound), tuple(items)
        return
    for position, item in enumerate(items):
        places = _match(patterns[0], item, variables, dict(bound))
        if places is not None:
            rest = (*items[:position], *items[position + 1 :])
            yield from _matches(patterns[1:], rest, variables, places)


def _match(pattern: Expr, item: Expr, variables: frozenset[str], bound: dict[str, str]) -> dict[str, str] | None:
    if isinstance(pattern, syntax.Name) and pattern.name in variables:
        if not isinstance(item, syntax.Name) or bound.get(pattern.name, item.name) != item.name:
            return None
        return bound | {pattern.name: item.name}
    parts, others = syntax.children(pattern), syntax.children(item)
    if type(pattern) is not type(item) or len(parts) != len(others):
        return None
    if not parts:
        return bound if pattern == item else None
    if with_children(item, parts) != pattern:
        return None
    for part, other in zip(parts, others, strict=True):
        found = _match(part, other, variables, bound)
        if found is None:
            return None
        bound = found
    return bound


def at(expr: Expr, indices: Sequence[str], places: Sequence[Expr]) -> Expr:
    """An expression of some indices at other places."""
    return substitute(expr, dict(zip(indices, places, strict=True)))
