"""Inner tiles that a diagonal cuts, filled: loops run over all of a tile, as ``mapping/memory/overhang.py`` allows.

Only what starts and updates sums is filled, not what stores results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tcomp.loops.indexing import Ranges, constant_extent
from tcomp.loops.ir import (
    Block,
    Execute,
    For,
    If,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Scope,
    Variable,
    flattened,
    variables,
)

Sides = Mapping[str, tuple[tuple[int, int], ...]]
"""For a statement the least value of each index of its elements, and the one behind the greatest."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The nodes of a tile in order, with whether each is filled, and what must hold for that.

    ``clipped`` is the tile where that does not hold: filled as far as indices have values.
    """

    children: tuple[tuple[LoopNode, bool], ...]
    tests: tuple[LoopExpr, ...]
    clipped: LoopNode


def filled_tile(tile: LoopNode, sides: Sides, around: Ranges) -> Filled | None:
    """A tile with nests of ``sides`` filled; None if there is nothing to fill."""
    children = tile.children if isinstance(tile, Block) else (tile,)
    filling = _Filling(sides, around)
    found = tuple(_filled(child, filling) for child in children)
    if not any(done for _, done in found):
        return None
    clipped = Block(tuple(_filled(child, replace(filling, clips=True))[0] for child in children))
    return Filled(found, tuple(filling.tests), clipped)


def _filled(node: LoopNode, filling: _Filling) -> tuple[LoopNode, bool]:
    inside = node.body if isinstance(node, Scope) else node
    if isinstance(inside, If) and inside.otherwise is None:
        then, done = _filled(inside.then, filling)
        guarded = replace(inside, then=then)
        return (replace(node, body=guarded) if isinstance(node, Scope) else guarded), done
    nest = filling.nest(inside)
    if nest is None or nest == inside:
        return node, False
    return (replace(node, body=nest) if isinstance(node, Scope) else nest), True


@dataclass(slots=True)
class _Filling:
    sides: Sides
    around: Ranges
    clips: bool = False
    """Whether loops end where their indices do, so that nothing need hold."""
    tests: dict[LoopExpr, None] = field(default_factory=dict)

    def nest(self, node: LoopNode) -> LoopNode | None:
        """A nest of one statement that may be filled, with all values of its tile; None for any other."""
        loops = list(_chain(node))
        call = loops.pop() if loops else None
        if not isinstance(call, Execute) or call.statement not in self.sides:
            return None
        limits = dict(zip(call.arguments, self.sides[call.statement], strict=False))
        iterators = frozenset(loop.iterator for loop in loops if isinstance(loop, For))
        tests: list[LoopExpr] = []
        result: LoopNode = call
        for loop in reversed(loops):
            assert isinstance(loop, For)
            limit = limits.get(Variable(loop.iterator))
            bounds = _of_tile(loop, iterators) or _of_index(loop, limit)
            if bounds is None or limit is None:
                if (variables(loop.lower) | variables(loop.upper)) & iterators:
                    return None
                result = replace(loop, body=result)
                continue
            lower, upper = self._clipped(bounds, limit) if self.clips else bounds
            tests += self._tests(bounds, limit)
            result = replace(loop, lower=lower, upper=upper, body=result)
        self.tests.update(dict.fromkeys(tests))
        return result

    def _tests(self, bounds: tuple[LoopExpr, LoopExpr], limit: tuple[int, int]) -> Iterator[LoopExpr]:
        """What must hold for a loop over the tile to stay among the values that its index has."""
        for operator, bound, end in zip((">=", "<="), bounds, limit, strict=True):
            test = Operation(operator, (bound, Number(end)))
            if not self.around.decide(test):
                yield test

    def _clipped(self, bounds: tuple[LoopExpr, LoopExpr], limit: tuple[int, int]) -> tuple[LoopExpr, LoopExpr]:
        """The bounds of a loop over the tile that stays among these values."""
        over = {test.operator for test in self._tests(bounds, limit) if isinstance(test, Operation)}
        lower = Operation("max", (bounds[0], Number(limit[0]))) if ">=" in over else bounds[0]
        return lower, Operation("min", (bounds[1], Number(limit[1]))) if "<=" in over else bounds[1]


def _chain(node: LoopNode) -> Iterator[LoopNode]:
    """Loops that are nested in each other, and what is inside."""
    while isinstance(node, For):
        yield node
        node = node.body
    yield node


def _of_tile(loop: For, iterators: frozenset[str]) -> tuple[LoopExpr, LoopExpr] | None:
    """The bounds of a loop that a tile gives it: so far apart wherever the tile is, whatever other loops are at."""
    lowers, uppers = flattened(loop.lower, "max"), flattened(loop.upper, "min")
    found = [
        (lower, upper)
        for lower in lowers
        for upper in uppers
        if constant_extent(lower, upper) is not None and not (variables(lower) | variables(upper)) & iterators
    ]
    return found[0] if len(found) == 1 else None


def _of_index(loop: For, limit: tuple[int, int] | None) -> tuple[LoopExpr, LoopExpr] | None:
    """The bounds of a loop that begins with the least value of its index: to the greatest, as tiles do not cut it."""
    if limit is None or loop.lower != Number(limit[0]) or constant_extent(loop.lower, loop.upper) is not None:
        return None
    return Number(limit[0]), Number(limit[1])
