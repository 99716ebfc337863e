"""How large and how deep an expression may be, so that every later stage may recurse on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

MAX_DEPTH = 250
"""Deepest expression: operators and calls from the outermost to the innermost, lets inlined."""

MAX_NODES = 20_000
"""Largest expression, lets inlined."""

MAX_INDICES = 64
"""Most dimensions of a tensor, and most index variables of a statement."""

Node = TypeVar("Node")


def measure(root: Node, children: Callable[[Node], tuple[Node, ...]]) -> tuple[int, int]:
    """The number of nodes and the depth of a tree, in time linear in its distinct nodes (shared ones count again)."""
    known: dict[int, tuple[int, int]] = {}
    stack = [(root, False)]
    while stack:
        node, operands_known = stack.pop()
        if id(node) in known:
            continue
        operands = children(node)
        if operands and not operands_known:
            stack.append((node, True))
            stack.extend((operand, False) for operand in operands)
            continue
        sizes = [known[id(operand)] for operand in operands]
        known[id(node)] = 1 + sum(nodes for nodes, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)
    return known[id(root)]


def complaint(root: Node, children: Callable[[Node], tuple[Node, ...]]) -> str | None:
    """What is wrong with the size of an expression; None if nothing is."""
    nodes, depth = measure(root, children)
    if depth > MAX_DEPTH:
        return f"this expression nests {depth} levels deep, more than {MAX_DEPTH}"
    if nodes > MAX_NODES:
        return f"this expression has {nodes} parts, more than {MAX_NODES}"
    return None
