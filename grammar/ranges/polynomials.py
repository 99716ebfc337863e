"""Integer expressions over sizes in a normal form: ``H - KH + 1``, ``(W - KW) / S + 1``, ``min(N, M)``.

A polynomial is a sum of products of atoms.  An atom is the name of a size symbol or const parameter, a quotient that
is rounded down, or the least or greatest of several polynomials.  Equal polynomials compare equal as far as this form
goes, and ``str`` is program text.  Sizes are at least 0.  Const parameters count as positive: what is concluded from
that holds for such values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from tcomp.grammar.tree import syntax


@dataclass(frozen=True, slots=True)
class Quotient:
    """``numerator / divisor``, rounded down; the divisor is positive."""

    numerator: Polynomial
    divisor: Polynomial

    def __str__(self) -> str:
        return str(self.syntax())

    def syntax(self) -> syntax.Expr:
        return syntax.Binary("/", self.numerator.syntax(), self.divisor.syntax())

    def value(self, sizes: Mapping[str, int]) -> int:
        return self.numerator.value(sizes) // self.divisor.value(sizes)


@dataclass(frozen=True, slots=True)
class Extreme:
    """``min(a, b)`` or ``max(a, b)``."""

    op: Literal["min", "max"]
    operands: tuple[Polynomial, ...]

    def shifted(self, constant: int) -> Extreme:
        """The sum with a constant, ``min(M, N)`` for ``min(M - 1, N - 1) + 1``."""
        return Extreme(self.op, tuple(operand + constant for operand in self.operands))

    def __str__(self) -> str:
        return str(self.syntax())

    def syntax(self) -> syntax.Expr:
        first, *others = (operand.syntax() for operand in self.operands)
        for other in others:
            first = syntax.Apply(syntax.Name(self.op), (first, other))
        return first

    def value(self, sizes: Mapping[str, int]) -> int:
        values = [operand.value(sizes) for operand in self.operands]
        return min(values) if self.op == "min" else max(values)


Atom = str | Quotient | Extreme
Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of ``coefficient * monomial``, the monomials in one order and no coefficient 0."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @classmethod
    def of(cls, value: int | Atom) -> Polynomial:
        """An integer or an atom as a polynomial."""
        if isinstance(value, int):
            return cls((((), value),)) if value else cls()
        return cls((((value,), 1),))

    @classmethod
    def total(cls, terms: Iterable[tuple[Monomial, int]]) -> Polynomial:
        """The sum of some terms, whatever their order; equal monomials are brought together."""
        found: dict[Monomial, int] = {}
        for monomial, coefficient in terms:
            ordered = monomial if len(monomial) < 2 else tuple(sorted(monomial, key=str))
            found[ordered] = found.get(ordered, 0) + coefficient
        kept = {monomial: coefficient for monomial, coefficient in found.items() if coefficient}
        if len(kept) < 2:
            return cls(tuple(kept.items()))
        match list(kept.items()):
            case [((Extreme() as extreme,), 1), ((), shift)] | [((), shift), ((Extreme() as extreme,), 1)]:
                return cls.of(extreme.shifted(shift))
        return cls(tuple(sorted(kept.items(), key=lambda term: (not term[0], tuple(map(str, term[0]))))))

    @property
    def constant(self) -> int | None:
        """The value of a polynomial without atoms, else None."""
        if not self.terms:
            return 0
        (monomial, coefficient), *others = self.terms
        return coefficient if not monomial and not others else None

    def __add__(self, other: Polynomial | int) -> Polynomial:
        return Polynomial.total((*self.terms, *_polynomial(other).terms))

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -_polynomial(other)

    def __neg__(self) -> Polynomial:
        return Polynomial(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        others = _polynomial(other).terms
        return Polynomial.total(((*a, *b), m * n) for a, m in self.terms for b, n in others)

    def __floordiv__(self, divisor: Polynomial) -> Polynomial:
        """Rounded down.  Terms that the divisor divides leave the quotient."""
        whole: list[tuple[Monomial, int]] = []
        rest: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            shared = _divided(monomial, coefficient, divisor)
            (rest if shared is None else whole).append(shared or (monomial, coefficient))
        left = Polynomial.total(rest)
        return Polynomial.total(whole) + _rounded_down(left, divisor)

    def is_nonnegative(self) -> bool:
        """Whether it is at least 0 for all sizes; False where that is not plain to see."""
        if any(coefficient < 0 for _, coefficient in self.terms):
            own = self._with_numbers_for_extremes()
            return own != self and own.is_nonnegative()
        return all(all(map(_is_nonnegative, monomial)) for monomial, _ in self.terms)

    def _with_numbers_for_extremes(self) -> Polynomial:
        """No more than this: what is taken away at most, as of ``2 - min(2, N)``, as a number."""
        terms: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            match monomial:
                case (Extreme(op="min") as extreme,) if coefficient < 0:
                    known = [o.constant for o in extreme.operands if o.constant is not None]
                    terms.append(((), coefficient * min(known)) if known else (monomial, coefficient))
                case _:
                    terms.append((monomial, coefficient))
        return Polynomial.total(terms)

    def value(self, sizes: Mapping[str, int]) -> int:
        """The value for given sizes.  Raises ZeroDivisionError where a divisor is 0."""
        return sum(c * prod(_value(atom, sizes) for atom in monomial) for monomial, c in self.terms)

    def syntax(self) -> syntax.Expr:
        """Program text as a tree: what is added before what is taken away, the constant last."""
        ordered = sorted(self.terms, key=lambda term: (not term[0], term[1] < 0))
        if not ordered:
            return syntax.Number("0")
        (monomial, coefficient), *others = ordered
        result = _product(monomial, abs(coefficient))
        result = result if coefficient > 0 else syntax.Unary("-", result)
        for monomial, coefficient in others:
            result = syntax.Binary("+" if coefficient > 0 else "-", result, _product(monomial, abs(coefficient)))
        return result

    def __str__(self) -> str:
        return str(self.syntax())


def least(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The smallest of several, those left out that are plainly no smaller than another."""
    return _extreme("min", polynomials)


def greatest(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The largest of several, those left out that are plainly no larger than another."""
    return _extreme("max", polynomials)


def _extreme(op: Literal["min", "max"], polynomials: Iterable[Polynomial]) -> Polynomial:
    kept: list[Polynomial] = []
    for new in polynomials:
        if any(_no_less(new, old) if op == "min" else _no_less(old, new) for old in kept):
            continue
        kept = [old for old in kept if not (_no_less(old, new) if op == "min" else _no_less(new, old))]
        kept.append(new)
    return kept[0] if len(kept) == 1 else Polynomial.of(Extreme(op, tuple(sorted(kept, key=str))))


def _no_less(a: Polynomial, b: Polynomial) -> bool:
    """Whether ``a >= b`` for all sizes, as far as that is plain: ``(N - 1) / 2`` is no less than ``N / 2 - 1``."""
    if (a - b).is_nonnegative():
        return True
    first, second = _over_one_divisor(a), _over_one_divisor(b)
    return (
        first is not None and second is not None and first[1] == second[1] and (first[0] - second[0]).is_nonnegative()
    )


def _over_one_divisor(polynomial: Polynomial) -> tuple[Polynomial, Polynomial] | None:
    """``numerator, divisor`` of a polynomial that is one quotient, and perhaps a sum beside it."""
    quotients = [monomial[0] for monomial, coefficient in polynomial.terms if len(monomial) == 1 and coefficient == 1]
    match [atom for atom in quotients if isinstance(atom, Quotient)]:
        case [quotient]:
            rest = polynomial - Polynomial.of(quotient)
            return quotient.numerator + rest * quotient.divisor, quotient.divisor
    return None


def _polynomial(value: Polynomial | int) -> Polynomial:
    return value if isinstance(value, Polynomial) else Polynomial.of(value)


def _is_nonnegative(atom: Atom) -> bool:
    match atom:
        case str():
            return True
        case Quotient():
            return atom.numerator.is_nonnegative()
        case Extreme(op="min"):
            return all(operand.is_nonnegative() for operand in atom.operands)
        case Extreme():
            return any(operand.is_nonnegative() for operand in atom.operands)


def _divided(monomial: Monomial, coefficient: int, divisor: Polynomial) -> tuple[Monomial, int] | None:
    """A term by a divisor of one term, or None where the division leaves something."""
    if len(divisor.terms) != 1:
        return None
    ((by, times),) = divisor.terms
    left = list(monomial)
    for atom in by:
        if atom not in left:
            return None
        left.remove(atom)
    return (tuple(left), coefficient // times) if coefficient % times == 0 else None


def _rounded_down(numerator: Polynomial, divisor: Polynomial) -> Polynomial:
    over, by = numerator.constant, divisor.constant
    if over is not None and by:
        return Polynomial.of(over // by)
    if over in (0, -1):
        return numerator
    return Polynomial.of(Quotient(numerator, divisor))


def _value(atom: Atom, sizes: Mapping[str, int]) -> int:
    return sizes[atom] if isinstance(atom, str) else atom.value(sizes)


def _product(monomial: Monomial, coefficient: int) -> syntax.Expr:
    factors: list[syntax.Expr] = [syntax.Number(str(coefficient))] if coefficient != 1 or not monomial else []
    # A quotient first, since `2 * (N / 3)` needs its parentheses and `N / 3 * 2` does not.
    factors += [syntax.Name(atom) if isinstance(atom, str) else atom.syntax() for atom in monomial]
    result, *others = sorted(factors, key=lambda factor: not isinstance(factor, syntax.Binary))
    for factor in others:
        result = syntax.Binary("*", result, factor)
    return result
