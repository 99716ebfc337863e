"""Program text evaluated in rational numbers, which round nothing, element by element: for small sizes only."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from tcomp.errors import NetworkError
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree import function as tree

Tensor = dict[tuple[int, ...], Fraction]


class Numbers:
    """Numbers at random, and functions that give such: the same ones for the same arguments."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._made: dict[tuple[str | Fraction, ...], Fraction] = {}

    def any(self) -> Fraction:
        """A number of either sign, of 31 bits."""
        sign = self._random.choice((-1, 1))
        return Fraction(sign * self._random.randrange(1, 2**31), 2**29)

    def tensor(self, shape: tuple[int, ...]) -> Tensor:
        return {at: self.any() for at in itertools.product(*map(range, shape))}

    def truths(self, shape: tuple[int, ...]) -> Tensor:
        """Truth values at random, of both kinds where there are several."""
        found = {at: Fraction(self._random.randrange(2)) for at in itertools.product(*map(range, shape))}
        if len(found) > 1:
            first, second = self._random.sample(list(found), 2)
            found[first], found[second] = Fraction(0), Fraction(1)
        return found

    def call(self, name: str, given: list[Fraction]) -> Fraction:
        """What is rational is computed; any other function gives a positive number of which nothing is known."""
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*given)
        if name == "rsqrt":
            return 1 / self.call("sqrt", given)
        if name == "sigmoid":
            return 1 / (1 + self.call("exp", [-given[0]]))
        if name == "pow" and given[1] == 2:
            return given[0] * given[0]
        key: tuple[str | Fraction, ...] = (name, *given)
        if key not in self._made:
            self._made[key] = abs(self.any())
        return self._made[key]


_FUNCTIONS: Mapping[str, Callable[..., Fraction]] = {
    "relu": lambda x: max(x, Fraction(0)),
    "clamp": lambda x, low, high: min(max(x, low), high),
    "abs": abs,
    "fmax": max,
    "fmin": min,
}

_BINARY: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "%": lambda x, y: x - y * math.floor(x / y),
    "min": min,
    "max": max,
    "<": lambda x, y: Fraction(x < y),
    "<=": lambda x, y: Fraction(x <= y),
    ">": lambda x, y: Fraction(x > y),
    ">=": lambda x, y: Fraction(x >= y),
    "&&": lambda x, y: Fraction(bool(x and y)),
    "||": lambda x, y: Fraction(bool(x or y)),
}


def computed(
    function: tree.Function, given: Mapping[str, Tensor], sizes: Mapping[str, int], numbers: Numbers
) -> Tensor:
    """The first output of a def, in rational numbers.  Raises NetworkError for what has no such value."""
    ranges = infer(function, sizes)
    evaluation = _Evaluation(sizes, dict(given), numbers)
    for statement, domain in zip(function.statements, ranges.domains, strict=True):
        evaluation.run(statement, domain.hull)
    return evaluation.tensors[function.outputs[0].name]


@dataclass(frozen=True, slots=True)
class _Evaluation:
    sizes: Mapping[str, int]
    tensors: dict[str, Tensor]
    numbers: Numbers

    def run(self, statement: tree.Statement, hull: Mapping[str, tuple[int, int]]) -> None:
        """Do one statement, which reads what was there before it."""
        made: Tensor = {}
        before = self.tensors.setdefault(statement.target, {})
        spans = [range(hull[name][0], hull[name][1] + 1) for name in statement.indices]
        for point in itertools.product(*spans):
            at = dict(zip(statement.indices, point, strict=True))
            if not all(self.value(r.lower, at) <= at[r.index] < self.value(r.upper, at) for r in statement.ranges):
                continue
            place = tuple(int(self.value(s, at)) for s in statement.subscripts)
            value = self.value(statement.value, at)
            old = made.get(place, None if statement.initialise else before.get(place))
            if statement.reduction is not None and old is not None:
                value = _BINARY[statement.reduction](old, value)
            made[place] = value
        before.update(made)

    def value(self, expr: tree.Expr, at: Mapping[str, int]) -> Fraction:
        """The value of an expression where indices are these."""
        match expr:
            case tree.Constant():
                return Fraction(expr.value)
            case tree.Size():
                return Fraction(self.sizes[expr.name])
            case tree.Index():
                return Fraction(at[expr.name])
            case tree.Cast():
                return self.value(expr.operand, at)
            case tree.Unary(op="-"):
                return -self.value(expr.operand, at)
            case tree.Call():
                return self.numbers.call(expr.intrinsic, [self.value(a, at) for a in expr.arguments])
            case tree.Select():
                return self.value(expr.then if self.value(expr.condition, at) else expr.otherwise, at)
            case tree.Binary() if expr.op in _BINARY:
                value = _BINARY[expr.op](self.value(expr.lhs, at), self.value(expr.rhs, at))
                return Fraction(math.floor(value)) if expr.dtype.is_integer else value
            case tree.Read():
                return self._read(expr, at)
        raise NetworkError(f"the proof of rules knows no {type(expr).__name__}")

    def _read(self, read: tree.Read, at: Mapping[str, int]) -> Fraction:
        found = self.tensors[read.tensor].get(tuple(int(self.value(s, at)) for s in read.subscripts))
        if found is not None:
            return found
        if read.boundary is None or read.boundary.value is None:
            raise NetworkError("the proof of rules knows no other border than that of constants")
        return self.value(read.boundary.value, at)
