"""Subscripts and bounds as sums of indices whose coefficients are polynomials over sizes: ``S*h + kh - P``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tcomp.grammar.ranges.polynomials import Polynomial, greatest, least
from tcomp.grammar.tree.function import Binary, Cast, Constant, Expr, Index, Size, Unary

_ZERO = Polynomial()


@dataclass(frozen=True, slots=True)
class Rounded:
    """``operand / divisor``, rounded down, or with ``remainder`` what that leaves; the divisor is positive."""

    operand: Linear
    divisor: Polynomial
    remainder: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """The least or greatest value of an index, inclusive."""

    value: Polynomial
    is_lower: bool


@dataclass(frozen=True, slots=True)
class Linear:
    """A polynomial plus terms ``coefficient * index`` or ``coefficient * rounded``, each index once."""

    terms: tuple[tuple[str | Rounded, Polynomial], ...]
    constant: Polynomial

    @classmethod
    def of(cls, value: Polynomial) -> Linear:
        """A polynomial without indices."""
        return cls((), value)

    def __add__(self, other: Linear) -> Linear:
        return _total((*self.terms, *other.terms), self.constant + other.constant)

    def scaled(self, factor: Polynomial) -> Linear:
        """The product with a polynomial."""
        return _total(((term, coefficient * factor) for term, coefficient in self.terms), self.constant * factor)

    def indices(self) -> frozenset[str]:
        """Every index that occurs, under roundings too."""
        found: set[str] = set()
        for term, _ in self.terms:
            found |= {term} if isinstance(term, str) else term.operand.indices()
        return frozenset(found)

    def interval(self, spans: Mapping[str, tuple[Polynomial, Polynomial]]) -> tuple[Polynomial, Polynomial] | None:
        """First and last value while indices go through their spans; None where a span or a sign is not known.

        Spans count as never empty, so a coefficient that is the extent of one, as in ``i*M + j``, is not negative.
        """
        low = high = self.constant
        extents = {last - first + 1 for first, last in spans.values()}
        for term, coefficient in self.terms:
            span = spans.get(term) if isinstance(term, str) else _rounded_interval(term, spans)
            if span is None:
                return None
            if coefficient.is_nonnegative() or coefficient in extents:
                low, high = low + span[0] * coefficient, high + span[1] * coefficient
            elif (-coefficient).is_nonnegative():
                low, high = low + span[1] * coefficient, high + span[0] * coefficient
            else:
                return None
        return low, high

    def reach(self, spans: Mapping[str, tuple[Polynomial, Polynomial]]) -> tuple[Polynomial, Polynomial] | None:
        """First and last value that are taken, where terms share an index, too; None where that is not plain to say.

        Of ``i ^ 1``, which is ``i + 1 - 2 * (i % 2)``, the interval is larger.
        """
        if self._rises_or_falls():
            return self.interval(spans)
        steps = _in_rows(self)
        if steps is None or (span := steps.operand.interval(spans)) is None:
            return None
        if (first := span[0].constant) is None or first % steps.count:
            return None
        low, high = steps.reach(span)
        return low + self.constant, high + self.constant

    def _rises_or_falls(self) -> bool:
        """Whether terms that share an index all rise with it, or all fall."""
        signs: dict[str, set[int]] = {}
        for term, coefficient in self.terms:
            sign = 1 if coefficient.is_nonnegative() else -1 if (-coefficient).is_nonnegative() else 0
            for index, own in _directions(term, sign):
                signs.setdefault(index, set()).add(own)
        shared = [i for i in signs if sum(i in _indices_of(term) for term, _ in self.terms) > 1]
        return all(signs[index] in ({1}, {-1}) for index in shared)

    def within(self, span: tuple[Polynomial, Polynomial]) -> Iterator[Linear]:
        """What is at least 0 exactly where this lies in a span; less where that is not plain to say."""
        match self.terms:
            case ((Rounded(remainder=False) as rounded, coefficient),) if coefficient.constant == 1:
                first, last = (end - self.constant for end in span)
                divisor = rounded.divisor
                yield from rounded.operand.within((first * divisor, last * divisor + divisor - 1))
            case _:
                yield self + Linear.of(-span[0])
                yield self.scaled(Polynomial.of(-1)) + Linear.of(span[1])

    def holds_for_all_remainders(self) -> bool:
        """Whether a sum of remainders is at least 0 whatever is divided: it says nothing of its indices."""
        least_value = self.constant
        for term, coefficient in self.terms:
            if isinstance(term, str) or not term.remainder:
                return False
            if (-coefficient).is_nonnegative():
                least_value += coefficient * (term.divisor - 1)
            elif not coefficient.is_nonnegative():
                return False
        return least_value.is_nonnegative()

    def bound(self, index: str) -> Bound | None:
        """What being at least 0 says of the only index; None where that cannot be told."""
        match self.terms:
            case ((str() as name, coefficient),) if name == index:
                if coefficient.is_nonnegative():
                    return Bound((coefficient - 1 - self.constant) // coefficient, is_lower=True)
                if (-coefficient).is_nonnegative():
                    return Bound(self.constant // -coefficient, is_lower=False)
        return None

    def at_worst(self, index: str, low: Linear, high: Linear) -> Linear | None:
        """The least value while an index goes from ``low`` to ``high``; None where that cannot be told."""
        if index not in self.indices():
            return self
        coefficient = dict(self.terms).get(index)
        others = tuple((term, c) for term, c in self.terms if term != index)
        rest = Linear(others, self.constant)
        if coefficient is None or index in rest.indices():
            return None
        if coefficient.is_nonnegative():
            return rest + low.scaled(coefficient)
        return rest + high.scaled(coefficient) if (-coefficient).is_nonnegative() else None


def _indices_of(term: str | Rounded) -> frozenset[str]:
    return frozenset({term}) if isinstance(term, str) else term.operand.indices()


def _directions(term: str | Rounded, sign: int) -> Iterator[tuple[str, int]]:
    """Each index of a term that counts with a sign, and how the term moves with it: 1 up, -1 down, 0 either way."""
    if isinstance(term, str):
        yield term, sign
        return
    for inner, coefficient in term.operand.terms:
        own = 1 if coefficient.is_nonnegative() else -1 if (-coefficient).is_nonnegative() else 0
        for index, direction in _directions(inner, own):
            yield index, 0 if term.remainder else sign * direction


@dataclass(frozen=True, slots=True)
class _Rows:
    """``along * (operand / count) + across * (operand % count)``: values in rows of so many."""

    operand: Linear
    count: int
    along: int
    across: int

    def reach(self, span: tuple[Polynomial, Polynomial]) -> tuple[Polynomial, Polynomial]:
        """First and last value while the operand goes through a span that begins with a row."""
        if self.along < 0 or (self.along == 0 and self.across > 0):
            low, high = _Rows(self.operand, self.count, -self.along, -self.across).reach(span)
            return -high, -low
        first, last = span[0] // Polynomial.of(self.count), span[1] // Polynomial.of(self.count)
        in_last = span[1] - last * self.count
        if self.across < 0:
            most = least([span[1] - span[0], Polynomial.of(self.count - 1)])
            return first * self.along + most * self.across, last * self.along
        return first * self.along, last * self.along + in_last * self.across


def _in_rows(form: Linear) -> _Rows | None:
    """A form of one index and of what rounds it by one number; None where its last value is not in the last row."""
    rounded = [(t, c.constant) for t, c in form.terms if isinstance(t, Rounded)]
    plain = [(t, c.constant) for t, c in form.terms if isinstance(t, str)]
    if not rounded or len(plain) > 1:
        return None
    operand, count = rounded[0][0].operand, rounded[0][0].divisor.constant
    if count is None or any(t.operand != operand or t.divisor.constant != count for t, _ in rounded):
        return None
    along = across = 0
    parts: list[tuple[str | Rounded, int | None]] = [*plain, *rounded]
    for own, factor in parts:
        if factor is None:
            return None
        if isinstance(own, str):
            if operand != Linear(((own, Polynomial.of(1)),), _ZERO):
                return None
            along, across = along + factor * count, across + factor
        elif own.remainder:
            across += factor
        else:
            along += factor
    rises = along >= across * (count - 1) >= 0 or (along >= 0 >= across)
    falls = along <= across * (count - 1) <= 0 or (along <= 0 <= across)
    return _Rows(operand, count, along, across) if rises or falls else None


def linear(expr: Expr) -> Linear | None:
    """An integer expression as such a sum; None where it reads a tensor, chooses, or multiplies indices."""
    match expr:
        case Constant() if isinstance(expr.value, int):
            return Linear.of(Polynomial.of(int(expr.value)))
        case Size():
            return Linear.of(Polynomial.of(expr.name))
        case Index():
            return Linear(((expr.name, Polynomial.of(1)),), _ZERO)
        case Cast() if expr.dtype.kind == "int":
            return linear(expr.operand)
        case Unary(op="-"):
            operand = linear(expr.operand)
            return None if operand is None else operand.scaled(Polynomial.of(-1))
        case Binary():
            lhs, rhs = linear(expr.lhs), linear(expr.rhs)
            return None if lhs is None or rhs is None else _binary(expr.op, lhs, rhs)
        case _:
            return None


def _binary(op: str, lhs: Linear, rhs: Linear) -> Linear | None:
    match op:
        case "+":
            return lhs + rhs
        case "-":
            return lhs + rhs.scaled(Polynomial.of(-1))
        case "*" if not rhs.terms:
            return lhs.scaled(rhs.constant)
        case "*" if not lhs.terms:
            return rhs.scaled(lhs.constant)
        case "/" | "%" if not rhs.terms and rhs.constant.terms and rhs.constant.is_nonnegative():
            return _rounded(lhs, rhs.constant, op == "%")
        case "min" | "max" if not lhs.terms and not rhs.terms:
            return Linear.of((least if op == "min" else greatest)([lhs.constant, rhs.constant]))
        case _:
            return None


def _rounded(operand: Linear, divisor: Polynomial, remainder: bool) -> Linear:
    if operand.terms:
        return Linear(((Rounded(operand, divisor, remainder), Polynomial.of(1)),), _ZERO)
    quotient = operand.constant // divisor
    return Linear.of(operand.constant - quotient * divisor if remainder else quotient)


def _rounded_interval(
    rounded: Rounded, spans: Mapping[str, tuple[Polynomial, Polynomial]]
) -> tuple[Polynomial, Polynomial] | None:
    inner = rounded.operand.interval(spans)
    if inner is None:
        return None
    low, high = inner
    if not rounded.remainder:
        return low // rounded.divisor, high // rounded.divisor
    last = rounded.divisor - 1
    return (_ZERO, least([high, last])) if low == _ZERO else (_ZERO, last)


def _total(terms: Iterable[tuple[str | Rounded, Polynomial]], constant: Polynomial) -> Linear:
    found: dict[str | Rounded, Polynomial] = {}
    for term, coefficient in terms:
        found[term] = found.get(term, _ZERO) + coefficient
    return Linear(tuple((term, c) for term, c in found.items() if c.terms), constant)
