"""The shape of a loop nest in one line, for explanations and assertions.

``p0 p1 (m n S0i ; m kk n S0 ; m n S0f)`` reads: two parallel tile loops around three nests, each loop named after the
index it runs over, each nest after its statement.  ``t`` is a loop over inner tiles; the versions of a loop for full
and partial tiles have one shape and are shown once.
"""

from __future__ import annotations

from collections.abc import Mapping

from tcomp.loops import Block, Execute, For, If, Let, LoopNode, Scope, Variable, walk


def nest(loops: LoopNode, indices: Mapping[str, tuple[str, ...]]) -> str:
    """The shape of ``loops``; ``indices`` names the indices of each statement."""
    return _shape(loops, indices, 0)


def _shape(node: LoopNode, indices: Mapping[str, tuple[str, ...]], tiles: int) -> str:
    match node:
        case Block():
            parts = [_shape(child, indices, 0) for child in node.children]
            return parts[0] if len(parts) == 1 else f"({' ; '.join(parts)})"
        case For():
            label = f"p{tiles - 1}" if tiles else _index(node, indices)
            return f"{label} {_shape(node.body, indices, tiles + 1 if tiles else 0)}"
        case Scope():
            return _shape(node.body, indices, 1 if node.name.startswith("parallel") else 0)
        case Let():
            return _shape(node.body, indices, tiles)
        case If():
            then = _shape(node.then, indices, 0)
            otherwise = then if node.otherwise is None else _shape(node.otherwise, indices, 0)
            return then if then == otherwise else f"({then} | {otherwise})"
        case Execute():
            return node.statement


def _index(loop: For, indices: Mapping[str, tuple[str, ...]]) -> str:
    """The index that a loop runs over; "t" for a loop over inner tiles."""
    for node in walk(loop.body):
        if isinstance(node, Execute):
            for index, argument in zip(indices[node.statement], node.arguments, strict=True):
                if argument == Variable(loop.iterator):
                    return index
    return "t"
