"""How often each node of a loop nest runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tcomp.loops.ir import (
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Variable,
    children,
    variables,
)

_TRIED, _LOOKED_AT = 9, 4000
"""Iterations of a loop that are looked at one by one, where what is inside depends on its iterator; nests in all."""


Path = tuple[int, ...]
"""Where a node is: which child of the outermost node, which child of that, and so on.  A node may be in two places."""


def runs(node: LoopNode) -> dict[Path, float]:
    """How often each node below ``node``, and itself, runs while ``node`` runs once.

    Exact where bounds and conditions inside loops of more than nine iterations do not depend on their iterators; else
    some iterations stand for all.  A bound that something else than iterators decides counts as one iteration, such a
    condition as true.
    """
    count = _Count()
    count.run(node, (), 1.0, {}, _LOOKED_AT)
    return count.found


def placed(node: LoopNode, path: Path = ()) -> Iterator[tuple[Path, LoopNode]]:
    """The node and everything below it with its path, in execution order."""
    yield path, node
    for place, child in enumerate(children(node)):
        yield from placed(child, (*path, place))


class _Count:
    def __init__(self) -> None:
        self.found: dict[Path, float] = {}
        self._decisive_of: dict[int, frozenset[str]] = {}

    def run(self, node: LoopNode, path: Path, weight: float, known: Mapping[str, int], budget: int) -> None:
        """Count ``weight`` runs of a node where the iterators have the values ``known``."""
        self.found[path] = self.found.get(path, 0.0) + weight
        match node:
            case For():
                begin, end = _value(node.lower, known), _value(node.upper, known)
                iterations = range(begin, end, node.step) if begin is not None and end is not None else range(1)
                matters = node.iterator in self._decisive(node.body)
                stand = _standing(iterations, budget) if matters else _alike(iterations)
                for value, part in stand:
                    inside = {**known, node.iterator: value}
                    self.run(node.body, (*path, 0), weight * part, inside, budget // len(stand))
            case Let():
                only = _value(node.value, known)
                given = known if only is None else {**known, node.iterator: only}
                self.run(node.body, (*path, 0), weight, given, budget)
            case If():
                holds = _value(node.condition, known) != 0
                for place, child in enumerate(children(node)):
                    if holds == (place == 0):
                        self.run(child, (*path, place), weight, known, budget)
            case _:
                for place, child in enumerate(children(node)):
                    self.run(child, (*path, place), weight, known, budget)

    def _decisive(self, node: LoopNode) -> frozenset[str]:
        """The names on which bounds and conditions below depend."""
        if id(node) not in self._decisive_of:
            below = frozenset[str]().union(*map(self._decisive, children(node)))
            match node:
                case For():
                    below = (below - {node.iterator}) | variables(node.lower) | variables(node.upper)
                case Let() if node.iterator in below:
                    below = (below - {node.iterator}) | variables(node.value)
                case If():
                    below |= variables(node.condition)
                case _:
                    pass
            self._decisive_of[id(node)] = below
        return self._decisive_of[id(node)]


def _alike(iterations: range) -> list[tuple[int, float]]:
    return [(iterations[0], float(len(iterations)))] if iterations else []


def _standing(iterations: range, budget: int) -> list[tuple[int, float]]:
    """Some iterations, and for how many each of them stands: the first and the last for themselves."""
    count, tried = len(iterations), max(3, min(_TRIED, budget))
    if count <= tried:
        return [(value, 1.0) for value in iterations]
    inner = tried - 2
    between = [iterations[1 + (2 * place + 1) * (count - 2) // (2 * inner)] for place in range(inner)]
    return [(iterations[0], 1.0), *((value, (count - 2) / inner) for value in between), (iterations[-1], 1.0)]


def _value(expr: LoopExpr, known: Mapping[str, int]) -> int | None:
    """The value of an expression; None if it has names that are not known."""
    match expr:
        case Number():
            return expr.value
        case Variable():
            return known.get(expr.name)
        case Operation():
            values = [_value(o, known) for o in expr.operands]
            return None if None in values else _applied(expr.operator, [v for v in values if v is not None])


def _applied(operator: str, values: list[int]) -> int:
    match operator, values:
        case "?:", [condition, then, otherwise]:
            return then if condition else otherwise
        case "-", [a]:
            return -a
        case "-", [a, b]:
            return a - b
        case "floordiv", [a, b]:
            return a // b
        case "mod", [a, b]:
            return a % b
        case "==" | "<" | "<=" | ">" | ">=", [a, b]:
            return int({"==": a == b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator])
        case "&&", _:
            return int(all(values))
        case "||", _:
            return int(any(values))
        case "+", _:
            return sum(values)
        case "min", _:
            return min(values)
        case "max", _:
            return max(values)
        case "*", [a, b]:
            return a * b
    raise AssertionError(operator)
