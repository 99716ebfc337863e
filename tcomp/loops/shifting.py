"""The last tile of a column, whole: it begins further back, as ``mapping/memory/runningagain.py`` allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    Variable,
    variables,
    walk,
)
from tcomp.mapping.memory.runningagain import Rows

PART = "of"
"""The operator of ``row of size``: a row divided by the rows of a tile, as a fraction.

No language has it: it is multiplied by ``part_times`` wherever it occurs.
"""


def shifted_back(node: LoopNode, tiles: Mapping[str, Rows]) -> LoopNode:
    """A nest in which the last tiles at some marks are whole, where loops are as such tiles have them."""
    if not tiles:
        return node
    match node:
        case For():
            return _whole(node, tiles) or replace(node, body=shifted_back(node.body, tiles))
        case Let() | Scope():
            return replace(node, body=shifted_back(node.body, tiles))
        case Block():
            return Block(tuple(shifted_back(child, tiles) for child in node.children))
        case If():
            otherwise = None if node.otherwise is None else shifted_back(node.otherwise, tiles)
            return If(node.condition, shifted_back(node.then, tiles), otherwise)
        case Execute():
            return node


def part_times(part: Operation, factor: int) -> tuple[LoopExpr, int]:
    """A multiple of a part: what is to be multiplied, and by what."""
    row, size = part.operands
    assert isinstance(size, Number)
    assert factor % size.value == 0, "a corner that is no whole number"
    return row, factor // size.value


def _whole(loop: For, tiles: Mapping[str, Rows]) -> For | None:
    """A loop over tiles of which each begins at a row that is given, the last one so that it is whole.

    None where its body is not one tile at each point of loops over other indices, or that is not chosen by its row.
    """
    tile = loop.body
    while isinstance(tile, For):
        tile = tile.body
    if not isinstance(tile, Scope) or tile.name not in tiles or loop.step != 1:
        return None
    rows = tiles[tile.name]
    first = Operation("*", (Number(rows.size), Variable(loop.iterator)))
    test = Operation("<=", (Operation("+", (first, Number(rows.size))), Number(rows.end)))
    if not isinstance(tile.body, If) or tile.body.condition != test:
        return None
    row = f"{loop.iterator}_row"
    moved = _from_row(_with_body(loop.body, tile, tile.body.then), loop.iterator, first, Variable(row))
    if any(loop.iterator in variables(expr) for node in walk(moved) for expr in _expressions(node)):
        return None
    return replace(loop, body=Let(row, Operation("min", (first, Number(rows.end - rows.size))), moved))


def _with_body(node: LoopNode, tile: Scope, body: LoopNode) -> LoopNode:
    """Loops around a tile with another body of that."""
    if isinstance(node, For):
        return replace(node, body=_with_body(node.body, tile, body))
    return replace(tile, body=body)


def _from_row(node: LoopNode, iterator: str, first: LoopExpr, row: Variable) -> LoopNode:
    """A tile with its first row in place of its number."""

    def moved(expr: LoopExpr) -> LoopExpr:
        if expr == first:
            return row
        if isinstance(expr, Operation):
            return Operation(expr.operator, tuple(map(moved, expr.operands)))
        return expr

    def member(expr: LoopExpr) -> LoopExpr:
        assert isinstance(first, Operation)
        return Operation(PART, (row, first.operands[0])) if expr == Variable(iterator) else moved(expr)

    def below(child: LoopNode) -> LoopNode:
        return _from_row(child, iterator, first, row)

    match node:
        case Block():
            return Block(tuple(map(below, node.children)))
        case For():
            return replace(node, lower=moved(node.lower), upper=moved(node.upper), body=below(node.body))
        case Let():
            return Let(node.iterator, moved(node.value), below(node.body))
        case If():
            otherwise = None if node.otherwise is None else below(node.otherwise)
            return If(moved(node.condition), below(node.then), otherwise)
        case Scope():
            return replace(node, around=tuple(map(member, node.around)), body=below(node.body))
        case Execute():
            return Execute(node.statement, tuple(map(moved, node.arguments)))


def _expressions(node: LoopNode) -> tuple[LoopExpr, ...]:
    """The expressions of a node itself."""
    match node:
        case For():
            return node.lower, node.upper
        case Let():
            return (node.value,)
        case If():
            return (node.condition,)
        case Scope():
            return node.around
        case Execute():
            return node.arguments
        case Block():
            return ()
