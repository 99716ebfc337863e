"""Guards as a person would write them: ``m < 250`` instead of what isl makes of it in the iterators of loops.

isl states a bound in the iterator of the loop that it bounds, with divisions by tile sizes.  Wherever the same
condition says that an index of a statement below is inside its range, for its first or its last value there, that is
what is written.  isl itself shows that the two are the same under the ranges of the iterators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import (
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
    children,
    conjunction,
    flattened,
    substitute,
    variables,
)
from tcomp.model.scop import ScopStatement


def readable(condition: LoopExpr, below: LoopNode, ranges: Ranges, statements: Mapping[str, ScopStatement]) -> LoopExpr:
    """An equal condition; ``below`` is what it guards."""
    parts = flattened(ranges.condition(condition), "&&")
    if all(_is_plain(p) for p in parts):
        return conjunction(parts)
    candidates = list(dict.fromkeys(_candidates(below, ranges, statements)))
    return conjunction(list(dict.fromkeys(_replaced(p, candidates, ranges) for p in parts)))


def _is_plain(condition: LoopExpr) -> bool:
    """Whether a condition has no division in it."""
    match condition:
        case Operation(operator="floordiv" | "mod"):
            return False
        case Operation():
            return all(_is_plain(o) for o in condition.operands)
        case _:
            return True


def _replaced(condition: LoopExpr, candidates: list[LoopExpr], ranges: Ranges) -> LoopExpr:
    if _is_plain(condition):
        return condition
    mine = _set(condition, ranges)
    if mine is None:
        return condition
    for candidate in candidates:
        if not isinstance(candidate, Number) and variables(candidate) <= variables(condition):
            other = _set(candidate, ranges, variables(condition))
            if other is not None and mine.is_equal(other):
                return candidate
    return condition


def _candidates(node: LoopNode, ranges: Ranges, statements: Mapping[str, ScopStatement]) -> Iterator[LoopExpr]:
    """Conditions that an index is inside its range, for the first and the last values of the loops below."""
    for execute, inner in _instances(node, Ranges({})):
        statement = statements[execute.statement]
        for position in range(statement.tile_rank, len(statement.indices)):
            argument = execute.arguments[position]
            low = statement.domain.dim_min_val(position).to_python()
            high = statement.domain.dim_max_val(position).to_python()
            for end in (0, 1):
                value = argument
                for name, bounds in inner.known.items():
                    value = substitute(value, name, Number(bounds[end]))
                value = ranges.simplify(value)
                if variables(value) <= set(ranges.known):
                    yield ranges.condition(Operation("<", (value, Number(high + 1))))
                    yield ranges.condition(Operation(">=", (value, Number(low))))


def _instances(node: LoopNode, inner: Ranges) -> Iterator[tuple[Execute, Ranges]]:
    """Statement instances below, with the ranges of those loops between whose bounds are numbers."""
    match node:
        case Execute():
            yield node, inner
        case For():
            low, high = inner.bounds(node.lower), inner.bounds(_constant_end(node))
            known = inner if low is None or high is None else inner.knowing(node.iterator, low[0], high[1] - 1)
            yield from _instances(node.body, known)
        case Let() | Scope() | If():
            for child in children(node):
                yield from _instances(child, inner)
        case _:
            for child in children(node):
                yield from _instances(child, inner)


def _constant_end(loop: For) -> LoopExpr:
    """The end of a loop in full tiles: the number among the bounds of which it is the least."""
    match loop.upper:
        case Operation(operator="min", operands=operands):
            numbers = [o for o in operands if isinstance(o, Number)]
            return numbers[0] if numbers else loop.upper
        case _:
            return loop.upper


def _set(condition: LoopExpr, ranges: Ranges, names: frozenset[str] | None = None) -> isl.Set | None:
    """The values of the iterators for which a condition holds; None if isl has no word for it."""
    order = sorted(names or variables(condition))
    place = {name: f"x{n}" for n, name in enumerate(order)}
    text = _isl_text(condition, place)
    if text is None or not set(order) <= set(ranges.known):
        return None
    bounds = [f"{ranges.known[name][0]} <= {x} <= {ranges.known[name][1]}" for name, x in place.items()]
    return isl.Set(f"{{ [{', '.join(place.values())}] : {' and '.join([*bounds, text])} }}")


def _isl_text(expr: LoopExpr, place: Mapping[str, str]) -> str | None:
    match expr:
        case Number(value=value):
            return str(value)
        case Variable(name=name):
            return place[name]
        case Operation(operator="floordiv" | "mod" as operator, operands=(a, Number(value=divisor))) if divisor > 0:
            inner = _isl_text(a, place)
            if inner is None:
                return None
            return f"floor(({inner})/{divisor})" if operator == "floordiv" else f"(({inner}) mod {divisor})"
        case Operation(operator="+" | "-" | "*" | "<" | "<=" | ">" | ">=" | "==" as operator, operands=(a, b)):
            left, right = _isl_text(a, place), _isl_text(b, place)
            spelled = "=" if operator == "==" else operator
            return None if left is None or right is None else f"({left} {spelled} {right})"
        case _:
            return None
