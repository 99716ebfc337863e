"""The loops of a register tile: which of them are its rows and columns, and how long they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tcomp.backends.spelling import loop_text
from tcomp.loops.indexing import Ranges, constant_extent
from tcomp.loops.ir import Execute, For, Let, LoopExpr, LoopNode, Number, Variable, flattened, variables
from tcomp.mapping.machines.fitted.cputext import LOOPS
from tcomp.model.scop import ScopStatement


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of a register tile: outer ones, ``inner`` below them those of the reduction, the rows and columns."""

    outer: tuple[For | Let, ...]
    inner: LoopNode
    steps: tuple[For | Let, ...]
    row: For | None
    column: For
    call: Execute
    torn: frozenset[str] = frozenset()
    """Iterators of loops of which one at least does not have its full extent."""

    def may_have(self, rows: int, columns: int) -> bool:
        """Whether a tile of so many rows and columns can occur, as far as is known from what is torn."""
        sides = {self.column.iterator: (self.column, columns)}
        if self.row is not None:
            sides[self.row.iterator] = (self.row, rows)
        if not self.torn or not self.torn <= sides.keys():
            return True
        torn = [sides[name] for name in self.torn]
        return any(constant_extent(loop.lower, loop.upper) or extents_of(loop)[0] != extent for loop, extent in torn)

    def corner(self) -> dict[str, LoopExpr]:
        """The first value of the iterators of rows and columns."""
        loops = [self.column] if self.row is None else [self.column, self.row]
        return {loop.iterator: loop.lower for loop in loops}


def nest_of(node: LoopNode, statement: ScopStatement, torn: frozenset[str] = frozenset()) -> Nest | None:
    """The loops of an update below a ``contract`` mark, if the innermost are over columns and perhaps rows."""
    loops: list[For | Let] = []
    below: list[LoopNode] = [node]
    while isinstance(node, For | Let):
        loops.append(node)
        node = node.body
        below.append(node)
    if not isinstance(node, Execute):
        return None
    coordinates = node.arguments[: statement.coordinates]
    column = _taken(loops, coordinates)
    if column is None:
        return None
    row = _taken(loops, coordinates)
    named = frozenset().union(*(variables(c) for c in coordinates))
    first = next((n for n, loop in enumerate(loops) if loop.iterator not in named), len(loops))
    outer, steps = loops[:first], loops[first:]
    inside = {loop.iterator for loop in steps} | ({row.iterator} if row is not None else set())
    tile = [column] if row is None else [column, row]
    if named & {loop.iterator for loop in steps}:
        return None
    if any((variables(loop.lower) | variables(loop.upper)) & inside for loop in tile):
        return None
    return Nest(tuple(outer), below[first], tuple(steps), row, column, node, torn)


def _taken(loops: list[For | Let], coordinates: tuple[LoopExpr, ...]) -> For | None:
    """The innermost loop, taken off, if its iterator is one coordinate and in no other."""
    if not loops or not isinstance(loops[-1], For) or loops[-1].step != 1:
        return None
    found = [c for c in coordinates if loops[-1].iterator in variables(c)]
    if found != [Variable(loops[-1].iterator)]:
        return None
    loop = loops.pop()
    assert isinstance(loop, For)
    return loop


def loop_head(loop: For | Let) -> str:
    name = loop.iterator
    if isinstance(loop, Let):
        return f"{{ const long {name} = {loop_text(loop.value)};"
    step = f"{name}++" if loop.step == 1 else f"{name} += {loop.step}"
    return f"for (long {name} = {loop_text(loop.lower)}; {name} < {loop_text(loop.upper)}; {step}) {{"


def heads_of_steps(nest: Nest, rows: int) -> Iterator[str]:
    """The heads of the loops of a reduction, each one level deeper, in a register tile of so many rows.

    A short innermost loop over one row is unrolled, so that more loads are under way.  With more rows, steps read
    what others have read, and gcc would rather spill accumulators than read it again.
    """
    for depth, loop in enumerate(nest.steps):
        extents = extents_of(loop) if isinstance(loop, For) and depth == len(nest.steps) - 1 else ()
        if rows == 1 and extents and extents[0] <= LOOPS.most_unrolled:
            yield "  " * depth + f"#pragma GCC unroll {LOOPS.most_unrolled}"
        yield "  " * depth + loop_head(loop)


def has_no_others(loop: For) -> bool:
    """Whether a loop of a tile has no extents but those of ``extents_of``."""
    lower = Ranges({}).sum_of(loop.lower)
    ends = flattened(loop.upper, "min")
    apart = {constant_extent(loop.lower, end) for end in ends if not isinstance(end, Number) or not lower.terms}
    numbers = any(isinstance(end, Number) for end in ends) and bool(lower.terms)
    return len(apart) == 1 and None not in apart and (not numbers or apart == {math.gcd(*lower.terms.values())})


def may_be_empty(loop: For | None) -> str:
    """The C condition that a loop of a tile runs at all; empty where it does as far as its bounds tell.

    Tiles of elements that others write, too, may lie behind the end of a contraction.
    """
    if loop is None or not Ranges({}).sum_of(loop.lower).terms:
        return ""
    ends = [end for end in flattened(loop.upper, "min") if isinstance(end, Number)]
    return " && ".join(f"{loop_text(loop.lower)} < {loop_text(end)}" for end in ends)


def may_have(loop: For, iterations: int) -> bool:
    """Whether a loop may run so often, as far as its bounds tell."""
    known = (constant_extent(loop.lower, end) for end in flattened(loop.upper, "min"))
    return all(extent is None or extent >= iterations for extent in known)


def extents_of(loop: For) -> tuple[int, ...]:
    """Extents that a loop of a tile may have: that of a full tile first, and what the last tile has left."""
    unknown = Ranges({})
    lower = unknown.sum_of(loop.lower)
    found = [constant_extent(loop.lower, upper) for upper in flattened(loop.upper, "min")]
    full = next((e for e in found if e is not None and e > 0), None)
    if full is None:
        return ()
    step = math.gcd(*lower.terms.values())
    ends = [upper.value for upper in flattened(loop.upper, "min") if isinstance(upper, Number)]
    left = {(end - lower.constant) % step for end in ends} if step == full else set()
    return (full, *sorted(e for e in left if e))
