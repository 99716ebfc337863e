"""Loops that a plan declares unrolled: below a mark, a copy of the body for each iteration."""

from __future__ import annotations

from dataclasses import replace

from tcomp.errors import PlanError
from tcomp.loops.indexing import Ranges, constant_extent
from tcomp.loops.ir import Block, For, If, Let, LoopExpr, LoopNode, Number, Operation, conjunction, flattened

UNROLLED = "unrolled"
"""What the names of marks begin with of which the loop is unrolled."""

MOST_COPIES = 64
"""Longer loops are refused: their text would be long, and no faster."""


def unrolled(node: LoopNode, mark: str) -> LoopNode:
    """The node below a mark with its loop as copies.

    Raises PlanError where nobody knows how many there are at most, or there would be too many.
    """
    match node:
        case If():
            other = None if node.otherwise is None else unrolled(node.otherwise, mark)
            return replace(node, then=unrolled(node.then, mark), otherwise=other)
        case Block():
            return Block(tuple(unrolled(child, mark) for child in node.children))
        case For():
            return _copies(node, mark)
        case _:
            return node


def _copies(loop: For, mark: str) -> LoopNode:
    starts, ends = flattened(loop.lower, "max"), flattened(loop.upper, "min")
    extents = [n for start in starts for end in ends if (n := constant_extent(start, end)) is not None]
    if not extents:
        raise PlanError(f"the loop below {mark} cannot be unrolled: nobody knows how many iterations it has at most")
    count = -(-max(0, min(extents)) // loop.step)
    if count > MOST_COPIES:
        raise PlanError(f"the loop below {mark} has up to {count} iterations; no more than {MOST_COPIES} are unrolled")
    values = [_moved(loop, number) for number in range(count)]
    copies: list[LoopNode] = [Let(loop.iterator, value, loop.body) for value in values]
    guards = [_guard(loop, value) for value in values]
    if guards[-1:] in ([], [None]):
        return Block(tuple(copies))
    some = [c if guard is None else If(guard, c, None) for c, guard in zip(copies, guards, strict=True)]
    return If(guards[-1] or Number(1), Block(tuple(copies)), Block(tuple(some[:-1]))) if count > 1 else some[0]


def _moved(loop: For, number: int) -> LoopExpr:
    return Ranges({}).simplify(Operation("+", (loop.lower, Number(number * loop.step))))


def _guard(loop: For, value: LoopExpr) -> LoopExpr | None:
    """What tells whether an iteration is one of the loop; None if it always is."""
    unknown = [Operation("<", (value, end)) for end in flattened(loop.upper, "min") if not _below(value, end)]
    return conjunction(unknown) if unknown else None


def _below(value: LoopExpr, end: LoopExpr) -> bool:
    extent = constant_extent(value, end)
    return extent is not None and extent > 0
