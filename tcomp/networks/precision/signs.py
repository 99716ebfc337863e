"""Which tensors of a network have few different elements: what comparisons give, and what is made of that."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcomp.grammar.tree import function as tree
from tcomp.grammar.tree.conversions import rounded
from tcomp.networks.kept.checked import checked
from tcomp.networks.network import Call, Network
from tcomp.values.operators import BOOL, DType, arithmetic_type

_MOST = 8
"""Different elements that are still few."""

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "&&": lambda x, y: bool(x) and bool(y),
    "||": lambda x, y: bool(x) or bool(y),
}
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "min": min,
    "max": max,
}
_FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "sign": lambda x: float(np.sign(x)),
    "abs": abs,
    "relu": lambda x: max(x, 0.0),
    "floor": math.floor,
    "ceil": math.ceil,
}
_MOVING = ("max_pool2d", "expand_", "concat_", "flip_", "repeat_", "gather_", "upsample_nearest2d")
"""Calls whose results have elements of their arguments alone, beside those that are views."""


@dataclass(frozen=True, slots=True)
class Few:
    """All elements that a tensor may have; ``nan``: it may have NaN as well."""

    elements: frozenset[float]
    nan: bool = False

    def __or__(self, other: Few) -> Few:
        return Few(self.elements | other.elements, self.nan or other.nan)


class Elements:
    """What elements tensors of a network may have."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._makers = {name: call for call in network.calls if len(call.results) == 1 for name in call.results}
        self._found: dict[str, Few | None] = {}

    def of(self, name: str) -> Few | None:
        """The elements that a tensor may have; None where they are many, or nobody knows."""
        waiting = [name]
        while waiting:
            call = self._makers.get(waiting[-1])
            left = [] if call is None or not self._passes(call) else [n for n in call.arguments if n not in self._found]
            if left:
                waiting += left
                continue
            made = waiting.pop()
            self._found[made] = self._of_weight(made) if call is None else self._made(call)
        return self._found[name]

    def _passes(self, call: Call) -> bool:
        """Whether elements of a result follow from those of the arguments."""
        definition = self._network.definitions[call.function]
        if definition.outside is not None:
            return False
        return definition.pointwise or bool(definition.view) or call.function.startswith((*_MOVING, "pad_"))

    def _of_weight(self, name: str) -> Few | None:
        array = self._network.weights.get(name)
        if array is None or array.size > _MOST:
            return None
        return _few(array.ravel().astype(np.float64).tolist())

    def _made(self, call: Call) -> Few | None:
        if not self._passes(call):
            return None
        definition, numbers = self._network.definitions[call.function], dict(call.constants)
        given = [self._found[name] for name in call.arguments]
        if definition.pointwise:
            function = checked(definition.text, definition.name, self._network.name).function
            names = [tensor.name for tensor in function.inputs]
            known: dict[str, Few | None] = dict(zip(names, given, strict=False))
            known |= {name: _few([float(number)]) for name, number in numbers.items()}
            (*_, last) = function.statements
            return few(last.value, known) if len(function.statements) == 1 else None
        if call.function.startswith("pad_"):
            given.append(_few([float(numbers["v"])]))
        return _together(given)


def few(expr: tree.Expr, known: Mapping[str, Few | None]) -> Few | None:
    """The values that an expression may have, by the elements of tensors; None where they are many."""
    dtype = expr.dtype if isinstance(expr, tree.Cast) else arithmetic_type(expr.dtype)
    return _as_held(_few_of(expr, known), dtype)


def _as_held(found: Few | None, dtype: DType) -> Few | None:
    """What a type has of some numbers; None where these are none of its own, which targets convert as they like."""
    if found is None:
        return None
    if dtype.is_float:
        held = _few([rounded(x, dtype) for x in found.elements])
        return None if held is None else Few(held.elements, found.nan)
    return found if not found.nan and all(dtype.lowest <= x <= dtype.highest for x in found.elements) else None


def _few_of(expr: tree.Expr, known: Mapping[str, Few | None]) -> Few | None:
    match expr:
        case tree.Constant(value=value):
            return _few([float(value)])
        case tree.Read(tensor=tensor, boundary=None):
            return known.get(tensor)
        case tree.Unary(op=op, operand=operand):
            return _each(few(operand, known), lambda x: -x if op == "-" else float(not x))
        case tree.Cast(operand=operand, dtype=dtype):
            return _each(few(operand, known), float if dtype.is_float else bool if dtype == BOOL else math.trunc)
        case tree.Select(condition=condition, then=then, otherwise=otherwise):
            asked = few(condition, known)
            branches = [few(branch, known) for branch in (then, otherwise)]
            if asked is not None and len(asked.elements) == 1 and not asked.nan:
                return branches[0 if next(iter(asked.elements)) else 1]
            return _together(branches)
        case tree.Call(intrinsic="copysign", arguments=(size, _)):
            sizes = few(size, known)
            return _together([_each(sizes, lambda x: -abs(x)), _each(sizes, abs)])
        case tree.Call(intrinsic=name, arguments=(argument,)) if name in _FUNCTIONS:
            found = _each(few(argument, known), _FUNCTIONS[name])
            return Few(frozenset({-1.0, 0.0, 1.0}), nan=True) if found is None and name == "sign" else found
        case tree.Binary(op=op, lhs=lhs, rhs=rhs):
            return _of_two(op, few(lhs, known), few(rhs, known))
    return None


def _of_two(op: str, left: Few | None, right: Few | None) -> Few | None:
    compared = _COMPARISONS.get(op)
    compute = compared or _ARITHMETIC.get(op)
    if left is None or right is None or compute is None or (compared and (left.nan or right.nan)):
        return None if compared is None else Few(frozenset({0.0, 1.0}))
    found = _few([float(compute(x, y)) for x, y in itertools.product(left.elements, right.elements)])
    return None if found is None else Few(found.elements, left.nan or right.nan)


def _each(given: Few | None, change: Callable[[float], float]) -> Few | None:
    found = None if given is None else _few([float(change(x)) for x in given.elements])
    return None if found is None or given is None else Few(found.elements, given.nan)


def _together(given: Sequence[Few | None]) -> Few | None:
    whole = Few(frozenset())
    for one in given:
        if one is None:
            return None
        whole |= one
    return whole if len(whole.elements) <= _MOST else None


def _few(numbers: Sequence[float]) -> Few | None:
    found = frozenset(numbers)
    return Few(found) if len(found) <= _MOST and all(map(math.isfinite, found)) else None
