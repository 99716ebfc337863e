"""Separate full tiles from partial ones, so that the loops of a full tile have constant trip counts and no guards.

Of a partial tile some loops have constant trip counts, too: those that it shares with the last tile alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tcomp.loops.indexing import Ranges, constant_extent
from tcomp.loops.ir import (
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
    conjunction,
    flattened,
    variables,
)
from tcomp.loops.overhang import Sides, filled_tile
from tcomp.loops.slanted import at_worst, with_whole_steps
from tcomp.mapping.memory.places import INNER_TILES

_OUTSIDE = Ranges({})


def separate_full_tiles(node: LoopNode, around: Ranges = _OUTSIDE, sides: Sides = MappingProxyType({})) -> LoopNode:
    """Below every mark of an inner tile: one version for full tiles, chosen by a test, and the general one.

    ``around`` is what is known of the iterators around the node; statements of ``sides`` may fill their tiles.
    """

    def below(child: LoopNode, known: Ranges = around) -> LoopNode:
        return separate_full_tiles(child, known, sides)

    match node:
        case Scope() if node.name.startswith(INNER_TILES):
            filled = filled_tile(node.body, sides, around)
            if filled is None:
                return replace(node, body=_separated(node.body, around))
            children = tuple(c if done else _separated(c, around, by_rows=True) for c, done in filled.children)
            if not filled.tests:
                return replace(node, body=Block(children))
            return replace(node, body=If(conjunction(filled.tests), Block(children), _torn(filled.clipped, around)))
        case For():
            return replace(node, body=below(node.body, around.inside(node)))
        case Scope() | Let():
            return replace(node, body=below(node.body))
        case Block():
            return Block(tuple(below(c) for c in node.children))
        case If():
            otherwise = None if node.otherwise is None else below(node.otherwise)
            return If(node.condition, below(node.then), otherwise)
        case Execute():
            return node


def _separated(tile: LoopNode, around: Ranges, by_rows: bool = False) -> LoopNode:
    """An inner tile in two versions; ``by_rows`` is that of ``_Separation``."""
    body = with_whole_steps(tile, OPERATION)
    found = _Separation(_bound_below(body), around, by_rows)
    full = found.full(body)
    return If(conjunction(tuple(found.conditions)), full, found.torn(body)) if found.conditions else body


def _torn(tile: LoopNode, around: Ranges) -> LoopNode:
    """An inner tile that is not full."""
    body = with_whole_steps(tile, OPERATION)
    found = _Separation(_bound_below(body), around)
    found.full(body)
    return found.torn(body)


OPERATION = "contract"
"""Marks of what is spelled with accumulators for every row and column."""


@dataclass(slots=True)
class _Separation:
    """Gathers what must hold for a tile to be full; ``inside`` are the iterators that a test in front cannot use."""

    inside: frozenset[str]
    around: Ranges
    by_rows: bool = False
    """Whether two loops may be full where bounds of the inner one depend on the outer one, as those of operations."""
    conditions: dict[LoopExpr, set[str]] = field(default_factory=dict)
    """The tests, with the iterators of the loops that they are for."""
    operations: dict[int, _Separation] = field(default_factory=dict)
    """What was found below an operation, by the identity of its mark."""
    is_slanted: bool = False
    """Whether the end of a column depends on its row: then no test says which loop of a tile is not full."""

    def full(self, node: LoopNode) -> LoopNode:
        """The node with every loop that has a constant trip count in full tiles given that count."""
        match node:
            case For(body=For()) if self.by_rows:
                return self._sides(node)
            case For():
                return self._loop(replace(node, body=self.full(node.body)))
            case Scope() if node.name.startswith(OPERATION):
                own = self.operations[id(node)] = _Separation(self.inside, self.around)
                body = own._sides(node.body)
                for test, iterators in own.conditions.items():
                    self.conditions.setdefault(test, set()).update(iterators)
                return replace(node, body=body)
            case Scope() | Let():
                return replace(node, body=self.full(node.body))
            case Block():
                return Block(tuple(self.full(c) for c in node.children))
            case _:
                return node

    def _sides(self, node: LoopNode) -> LoopNode:
        """The same for the two innermost loops of some: rows and columns.  How long the others run does not matter."""
        match node:
            case For() | Let() if _depth(node) > 2:
                return replace(node, body=self._sides(node.body))
            case For(body=For() as column):
                row = self._loop(node)
                return replace(row, body=self._loop(replace(column, body=self.full(column.body)), row))
        return self.full(node)

    def torn(self, node: LoopNode) -> LoopNode:
        """The node where not all tests hold: operations whose own loops all the tests are about are told of it.

        Loops that the only test is about run over what the last tile has left.
        """
        match node:
            case Scope() if node.name.startswith(OPERATION):
                own = self.operations[id(node)].conditions
                known = own.keys() == self.conditions.keys() and not self.operations[id(node)].is_slanted
                torn = frozenset[str]().union(*own.values()) if known else node.torn
                return replace(node, body=self.torn(node.body), torn=torn)
            case For():
                return replace(self._last(node), body=self.torn(node.body))
            case Let() | Scope():
                return replace(node, body=self.torn(node.body))
            case Block():
                return Block(tuple(self.torn(c) for c in node.children))
            case _:
                return node

    def _loop(self, loop: For, row: For | None = None) -> For:
        """A loop with its full extent, where tests in front tell so; for all iterations of a ``row`` around it."""
        lowers, uppers = flattened(loop.lower, "max"), flattened(loop.upper, "min")
        if len(lowers) == len(uppers) == 1:
            return loop
        for lower in lowers:
            for upper in uppers:
                if constant_extent(lower, upper) is not None:
                    tests = [Operation("<=", (upper, at_worst(o, row, -1))) for o in uppers if o != upper]
                    tests += [Operation(">=", (lower, at_worst(o, row, 1))) for o in lowers if o != lower]
                    if any(variables(t) & self.inside for t in tests):
                        continue
                    others = [o for o in (*lowers, *uppers) if o not in (lower, upper)]
                    self.is_slanted |= row is not None and any(row.iterator in variables(o) for o in others)
                    for test in tests:
                        self.conditions.setdefault(test, set()).add(loop.iterator)
                    return replace(loop, lower=lower, upper=upper)
        return loop

    def _last(self, loop: For) -> For:
        """A loop where the only test fails: in the last tile, if there is something left, it runs over that."""
        match [*self.conditions]:
            case [Operation(operator="<=", operands=(end, Number() as limit))]:
                extent, low = constant_extent(loop.lower, end), Ranges({}).sum_of(loop.lower)
                both = {*flattened(loop.upper, "min")} == {end, limit}
                begins = self.around.decide(Operation("<", (loop.lower, limit)))
                if extent and both and begins and math.gcd(*low.terms.values()) % extent == 0:
                    left = (limit.value - low.constant) % extent
                    return replace(loop, upper=Operation("+", (loop.lower, Number(left))))
        return loop


def _depth(node: LoopNode) -> int:
    """Loops that are nested in each other from here on."""
    return 1 + _depth(node.body) if isinstance(node, For | Let) else 0


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
