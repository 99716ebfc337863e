"""Separate full tiles from partial ones, so that the loops of a full tile have constant trip counts and no guards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tcomp.loops import (
    Block,
    Execute,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Scope,
    Variable,
    conjunction,
    flattened,
    variables,
)

INNER_TILES = ("cluster", "steps")
"""Marks of inner tiles: of a processor's registers, and of what one thread of a GPU reduces."""


def separate_full_tiles(node: LoopNode) -> LoopNode:
    """Below every mark of an inner tile: one version for full tiles, chosen by a test, and the general one."""
    match node:
        case Scope() if node.name.startswith(INNER_TILES):
            found = _Separation(_bound_below(node.body))
            full = found.full(node.body)
            if not found.conditions:
                return node
            condition = conjunction(tuple(found.conditions))
            return replace(node, body=If(condition, full, node.body))
        case Scope() | For() | Let():
            return replace(node, body=separate_full_tiles(node.body))
        case Block():
            return Block(tuple(separate_full_tiles(c) for c in node.children))
        case If():
            otherwise = None if node.otherwise is None else separate_full_tiles(node.otherwise)
            return If(node.condition, separate_full_tiles(node.then), otherwise)
        case Execute():
            return node


@dataclass(slots=True)
class _Separation:
    """Gathers what must hold for a tile to be full; ``inside`` are the iterators that a test in front cannot use."""

    inside: frozenset[str]
    conditions: dict[LoopExpr, None] = field(default_factory=dict)

    def full(self, node: LoopNode) -> LoopNode:
        """The node with every loop that has a constant trip count in full tiles given that count."""
        match node:
            case For():
                return self._loop(replace(node, body=self.full(node.body)))
            case Scope() | Let():
                return replace(node, body=self.full(node.body))
            case Block():
                return Block(tuple(self.full(c) for c in node.children))
            case _:
                return node

    def _loop(self, loop: For) -> For:
        lowers, uppers = flattened(loop.lower, "max"), flattened(loop.upper, "min")
        if len(lowers) == len(uppers) == 1:
            return loop
        for lower in lowers:
            for upper in uppers:
                if _is_constant_apart(lower, upper):
                    tests = [Operation("<=", (upper, other)) for other in uppers if other != upper]
                    tests += [Operation(">=", (lower, other)) for other in lowers if other != lower]
                    if any(variables(t) & self.inside for t in tests):
                        continue
                    self.conditions.update(dict.fromkeys(tests))
                    return replace(loop, lower=lower, upper=upper)
        return loop


def _bound_below(node: LoopNode) -> frozenset[str]:
    match node:
        case For() | Let():
            return _bound_below(node.body) | {node.iterator}
        case Scope():
            return _bound_below(node.body)
        case Block():
            return frozenset().union(*(_bound_below(c) for c in node.children))
        case _:
            return frozenset()


def _is_constant_apart(lower: LoopExpr, upper: LoopExpr) -> bool:
    a, b = linear(lower), linear(upper)
    if a is None or b is None:
        return False
    return all(a.get(name, 0) == b.get(name, 0) for name in a.keys() | b.keys() if name)


def linear(expr: LoopExpr) -> Mapping[str, int] | None:
    """Coefficients by variable, the constant under the empty name; None if the expression is not linear."""
    match expr:
        case Number():
            return {"": expr.value}
        case Variable():
            return {expr.name: 1}
        case Operation(operator="+" | "-" as sign, operands=(a, b)):
            left, right = linear(a), linear(b)
            if left is None or right is None:
                return None
            factor = 1 if sign == "+" else -1
            return {n: left.get(n, 0) + factor * right.get(n, 0) for n in left.keys() | right.keys()}
        case Operation(operator="*", operands=(a, b)):
            left, right = linear(a), linear(b)
            for constant, other in ((left, right), (right, left)):
                if constant is not None and other is not None and not constant.keys() - {""}:
                    return {n: constant.get("", 0) * c for n, c in other.items()}
    return None
