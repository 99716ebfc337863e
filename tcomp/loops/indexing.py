"""Integer expressions of loops under known ranges: bounds, and a normal form that divisions and remainders leave.

What isl generates for a mapped tile is linear in iterators of known range, but for divisions by tile sizes that undo
each other.  ``simplify`` writes an expression as a sum of multiples, cancels ``floordiv`` and ``mod`` against multiples
of their divisor, and drops what ranges decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.loops.ir import For, LoopExpr, Number, Operation, Variable, flattened, variables

Range = tuple[int, int]
"""The least and the greatest value."""

_COMPARISONS = ("==", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Sum:
    """``constant`` plus multiples of variables and of operations that are not linear."""

    terms: Mapping[LoopExpr, int]
    constant: int

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """The sum with ``factor`` times another added."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * coefficient
        return Sum({a: c for a, c in terms.items() if c}, self.constant + factor * other.constant)

    def divided(self, divisor: int) -> tuple[Sum, Sum]:
        """Quotient and rest, neither with a division: multiples of the divisor are in the quotient."""
        whole = Sum({a: c // divisor for a, c in self.terms.items() if c % divisor == 0}, self.constant // divisor)
        return whole, Sum({a: c for a, c in self.terms.items() if c % divisor}, self.constant % divisor)

    def expression(self) -> LoopExpr:
        """The sum as an expression: positive terms first, the constant last."""
        result: LoopExpr | None = None
        if self.constant > 0 and self.terms and all(c < 0 for c in self.terms.values()):
            result = Number(self.constant)
        leads = result is not None
        for atom, coefficient in sorted(self.terms.items(), key=lambda item: item[1] < 0):
            term = atom if abs(coefficient) == 1 else Operation("*", (Number(abs(coefficient)), atom))
            if result is None:
                result = term if coefficient > 0 else Operation("-", (Number(0), term))
            else:
                result = Operation("+" if coefficient > 0 else "-", (result, term))
        if result is None:
            return Number(self.constant)
        if self.constant == 0 or leads:
            return result
        return Operation("+" if self.constant > 0 else "-", (result, Number(abs(self.constant))))


@dataclass(frozen=True, slots=True)
class Ranges:
    """What is known of iterators; unknown ones have no entry."""

    known: Mapping[str, Range]

    def knowing(self, name: str, low: int, high: int) -> Ranges:
        """These ranges and one more."""
        return Ranges({**self.known, name: (low, high)})

    def inside(self, loop: For) -> Ranges:
        """What is known inside a loop: of its iterator, too, where bounds of it are known."""
        lows = [self.bounds(part) for part in flattened(loop.lower, "max")]
        highs = [self.bounds(part) for part in flattened(loop.upper, "min")]
        low = max((found[0] for found in lows if found), default=None)
        high = min((found[1] for found in highs if found), default=None)
        if low is None or high is None or low >= high:
            return Ranges({name: known for name, known in self.known.items() if name != loop.iterator})
        return self.knowing(loop.iterator, low, high - 1)

    def simplify(self, expr: LoopExpr) -> LoopExpr:
        """An equal expression in normal form."""
        return self.sum_of(expr).expression()

    def bounds(self, expr: LoopExpr) -> Range | None:
        """Values between which an expression lies; None where an iterator in it has no range."""
        return self._of_sum(self.sum_of(expr))

    def decide(self, condition: LoopExpr) -> bool | None:
        """The value of a condition where ranges fix it."""
        match condition:
            case Operation(operator="&&", operands=(a, b)):
                left, right = self.decide(a), self.decide(b)
                return False if False in (left, right) else True if left and right else None
            case Operation(operator="||", operands=(a, b)):
                left, right = self.decide(a), self.decide(b)
                return True if True in (left, right) else False if left is False and right is False else None
            case (
                Operation(operator="<" | "<=", operands=(a, Operation(operator="min", operands=(x, y))))
                | Operation(operator=">" | ">=", operands=(a, Operation(operator="max", operands=(x, y))))
            ):
                return self.decide(
                    Operation("&&", tuple(Operation(condition.operator, (a, bound)) for bound in (x, y)))
                )
            case Operation(operator=operator, operands=(a, b)) if operator in _COMPARISONS:
                return self._compare(operator, self._of_sum(self.sum_of(a).plus(self.sum_of(b), -1)))
            case Number(value=value):
                return value != 0
            case _:
                return None

    @staticmethod
    def _compare(operator: str, difference: Range | None) -> bool | None:
        if difference is None:
            return None
        low, high = difference
        holds, fails = {
            "==": (low == high == 0, low > 0 or high < 0),
            "<": (high < 0, low >= 0),
            "<=": (high <= 0, low > 0),
            ">": (low > 0, high <= 0),
            ">=": (low >= 0, high < 0),
        }[operator]
        return True if holds else False if fails else None

    def condition(self, condition: LoopExpr) -> LoopExpr:
        """An equal condition without the parts that always hold."""
        match condition:
            case Operation(operator="&&" | "||" as operator, operands=(a, b)):
                parts = [self.condition(a), self.condition(b)]
                neutral = Number(1) if operator == "&&" else Number(0)
                kept = [p for p in parts if p != neutral]
                return Operation(operator, (kept[0], kept[1])) if len(kept) == 2 else kept[0] if kept else neutral
            case Operation(operator="<" | "<=", operands=(a, Operation(operator="min", operands=(x, y)))):
                both = tuple(Operation(condition.operator, (a, bound)) for bound in (x, y))
                return self.condition(Operation("&&", both))
            case Operation(operator=">" | ">=", operands=(a, Operation(operator="max", operands=(x, y)))):
                both = tuple(Operation(condition.operator, (a, bound)) for bound in (x, y))
                return self.condition(Operation("&&", both))
            case Operation(operator=operator, operands=(a, b)) if operator in _COMPARISONS:
                decided = self.decide(condition)
                if decided is not None:
                    return Number(int(decided))
                return _balanced(operator, self.sum_of(a).plus(self.sum_of(b), -1))
            case _:
                return condition

    def sum_of(self, expr: LoopExpr) -> Sum:
        """The normal form."""
        match expr:
            case Number(value=value):
                return Sum({}, value)
            case Variable(name=name):
                low, high = self.known.get(name, (0, 1))
                return Sum({}, low) if low == high else Sum({expr: 1}, 0)
            case Operation(operator="+" | "-" as sign, operands=(a, b)):
                return self.sum_of(a).plus(self.sum_of(b), 1 if sign == "+" else -1)
            case Operation(operator="*", operands=(a, b)):
                return self._product(self.sum_of(a), self.sum_of(b))
            case Operation(operator="floordiv" | "mod" as operator, operands=(a, b)):
                return self._quotient(operator, self.sum_of(a), self.sum_of(b))
            case Operation(operator="min" | "max" as operator, operands=(a, b)):
                return self._extremum(operator, self.sum_of(a), self.sum_of(b))
            case Operation(operator="?:", operands=(condition, then, otherwise)):
                decided = self.decide(condition)
                if decided is not None:
                    return self.sum_of(then if decided else otherwise)
                parts = (self.condition(condition), self.simplify(then), self.simplify(otherwise))
                return Sum({Operation("?:", parts): 1}, 0)
            case _:
                return Sum({self.condition(expr): 1}, 0)

    @staticmethod
    def _product(a: Sum, b: Sum) -> Sum:
        if not a.terms:
            return Sum({}, 0).plus(b, a.constant)
        if not b.terms:
            return Sum({}, 0).plus(a, b.constant)
        return Sum({Operation("*", (a.expression(), b.expression())): 1}, 0)

    def _quotient(self, operator: str, a: Sum, b: Sum) -> Sum:
        if b.terms or b.constant <= 0:
            return Sum({Operation(operator, (a.expression(), b.expression())): 1}, 0)
        divisor = b.constant
        whole, rest = a.divided(divisor)
        bounds = self._of_sum(rest)
        inside = bounds is not None and bounds[0] >= 0 and bounds[1] < divisor
        if not inside and bounds is not None and bounds[0] // divisor == bounds[1] // divisor:
            shift = bounds[0] // divisor
            whole, rest, inside = (
                Sum(whole.terms, whole.constant + shift),
                Sum(rest.terms, rest.constant - shift * divisor),
                True,
            )
        if operator == "mod":
            return rest if inside else Sum({Operation("mod", (rest.expression(), Number(divisor))): 1}, 0)
        if inside:
            return whole
        return whole.plus(Sum({Operation("floordiv", (rest.expression(), Number(divisor))): 1}, 0))

    def _extremum(self, operator: str, a: Sum, b: Sum) -> Sum:
        difference = self._of_sum(a.plus(b, -1))
        if difference is not None and difference[1] <= 0:
            return a if operator == "min" else b
        if difference is not None and difference[0] >= 0:
            return b if operator == "min" else a
        return Sum({Operation(operator, (a.expression(), b.expression())): 1}, 0)

    def _of_sum(self, total: Sum) -> Range | None:
        low = high = total.constant
        for atom, coefficient in total.terms.items():
            found = self._of_atom(atom)
            if found is None:
                return None
            ends = (coefficient * found[0], coefficient * found[1])
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _of_atom(self, atom: LoopExpr) -> Range | None:
        match atom:
            case Variable(name=name):
                return self.known.get(name)
            case Operation(operator="mod", operands=(_, Number(value=divisor))):
                return (0, divisor - 1)
            case Operation(operator="floordiv", operands=(a, Number(value=divisor))):
                found = self.bounds(a)
                return None if found is None else (found[0] // divisor, found[1] // divisor)
            case Operation(operator="min" | "max" as operator, operands=(a, b)):
                return self._of_extremum(operator, self.bounds(a), self.bounds(b))
            case Operation(operator="?:", operands=(_, a, b)):
                left, right = self.bounds(a), self.bounds(b)
                return None if left is None or right is None else (min(left[0], right[0]), max(left[1], right[1]))
            case Operation(operator="*", operands=(a, b)):
                left, right = self.bounds(a), self.bounds(b)
                if left is None or right is None:
                    return None
                corners = [x * y for x in left for y in right]
                return min(corners), max(corners)
            case _:
                return (0, 1)

    @staticmethod
    def _of_extremum(operator: str, left: Range | None, right: Range | None) -> Range | None:
        if left is None or right is None:
            return None
        choose = min if operator == "min" else max
        return choose(left[0], right[0]), choose(left[1], right[1])


def constant_extent(lower: LoopExpr, upper: LoopExpr) -> int | None:
    """How far two bounds are apart, if that is a number."""
    unknown = Ranges({})
    distance = unknown.sum_of(upper).plus(unknown.sum_of(lower), -1)
    return None if distance.terms else distance.constant


def _balanced(operator: str, difference: Sum) -> LoopExpr:
    """``difference`` compared with 0, written with positive terms on both sides."""
    left = Sum({a: c for a, c in difference.terms.items() if c > 0}, 0)
    right = Sum({a: -c for a, c in difference.terms.items() if c < 0}, 0)
    if difference.constant > 0 and left.terms:
        left = Sum(left.terms, difference.constant) if right.terms else left
        right = right if right.terms else Sum({}, -difference.constant)
    else:
        right = Sum(right.terms, -difference.constant)
    return Operation(operator, (left.expression(), right.expression()))


def step_of(expr: LoopExpr, iterator: str) -> int | None:
    """How far an expression moves with an iterator; None if it is not linear in that."""
    step = 0
    for atom, coefficient in Ranges({}).sum_of(expr).terms.items():
        if atom == Variable(iterator):
            step = coefficient
        elif iterator in variables(atom):
            return None
    return step
