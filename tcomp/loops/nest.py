"""The shape of a loop nest in one line, for explanations and assertions.

``p0 p1 (m n S0i ; m kk n S0 ; m n S0f)`` reads: two parallel tile loops around three nests, each loop named after the
index it runs over, each nest after its statement.  ``t`` is a loop over inner tiles; the versions of a loop for full
and partial tiles have one shape and are shown once.  On a GPU ``b0 b1`` are tile loops mapped to blocks, and ``t0 t1``
loops mapped to threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tcomp.loops.ir import Block, Execute, For, If, Let, LoopNode, Scope, Variable, walk


def nest(loops: LoopNode, indices: Mapping[str, tuple[str, ...]], phases: Collection[str] = ()) -> str:
    """The shape of ``loops``; ``indices`` names the indices of each statement, ``phases`` the marks above threads."""
    return _Shape(indices, phases).of(loops, "")


@dataclass(frozen=True, slots=True)
class _Shape:
    indices: Mapping[str, tuple[str, ...]]
    phases: Collection[str]

    def of(self, node: LoopNode, kind: str, depth: int = 0) -> str:
        """The shape of a node; ``kind`` is the letter of the band that it is in, below ``depth`` loops of that."""
        match node:
            case Block():
                parts = [self.of(child, "") for child in node.children]
                return parts[0] if len(parts) == 1 else f"({' ; '.join(parts)})"
            case For():
                label = f"{kind}{depth}" if kind else _index(node, self.indices)
                return f"{label} {self.of(node.body, kind, depth + 1)}"
            case Scope():
                return self.of(node.body, self._kind(node.name))
            case Let():
                return self.of(node.body, kind, depth)
            case If():
                then = self.of(node.then, kind, depth)
                otherwise = then if node.otherwise is None else self.of(node.otherwise, kind, depth)
                return then if then == otherwise else f"({then} | {otherwise})"
            case Execute():
                return node.statement

    def _kind(self, mark: str) -> str:
        if mark in self.phases:
            return "t"
        if mark.startswith("parallel"):
            return "b" if self.phases else "p"
        return ""


def _index(loop: For, indices: Mapping[str, tuple[str, ...]]) -> str:
    """The index that a loop runs over; "t" for a loop over inner tiles."""
    for node in walk(loop.body):
        if isinstance(node, Execute):
            for index, argument in zip(indices[node.statement], node.arguments, strict=True):
                if argument == Variable(loop.iterator):
                    return index
    return "t"
