"""What loops of a C text are in the program: ``k of C`` is that over k in the statement that computes C."""

from __future__ import annotations

import re
from collections.abc import Sequence

import islpy as isl

from tcomp.backends.dialect import mangle
from tcomp.driver import Compilation
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import Execute, For, LoopNode, Variable, variables, walk
from tcomp.model.scop import ScopStatement

_HEAD = re.compile(r"\s*for \((?:long (?=c\d+ =)|; )(c\d+)\b")
_TOUCHED = re.compile(r"\bv_\w+")


class LoopNames:
    """Finds, for a loop of the text, the loop of the plan with its iterator that touches most of the same tensors."""

    def __init__(self, compilation: Compilation) -> None:
        self.statements = compilation.plan.scop.by_name
        self.function: Function = compilation.function
        self.loops: dict[str, list[For]] = {}
        for node in walk(compilation.loops):
            if isinstance(node, For):
                self.loops.setdefault(node.iterator, []).append(node)

    def of(self, lines: Sequence[str]) -> str:
        """What a loop is, given its lines; empty for lines of other things."""
        head = _HEAD.match(lines[0])
        known = self.loops.get(head[1], []) if head else []
        touched = {name for line in lines for name in _TOUCHED.findall(line)}
        if not known or not touched:
            return ""
        loop = max(known, key=lambda node: _alike(touched, self._tensors(node)))
        targets = dict.fromkeys(self.function.statements[s.origin].target for s in self._statements(loop))
        index = self._index(loop)
        return f"{index} of {', '.join(targets)}" if index else ""

    def _statements(self, node: LoopNode) -> list[ScopStatement]:
        names = dict.fromkeys(n.statement for n in walk(node) if isinstance(n, Execute))
        return [self.statements[name] for name in names]

    def _tensors(self, node: LoopNode) -> set[str]:
        found = set()
        for s in self._statements(node):
            found |= {mangle(s.target), *(mangle(r.get_tuple_name(isl.dim_type.out)) for r in s.reads)}
        return found

    def _index(self, loop: For) -> str:
        """The index that a loop counts, or of which it counts tiles."""
        for node in walk(loop.body):
            if isinstance(node, Execute):
                statement = self.statements[node.statement]
                for index, argument in zip(statement.indices, node.arguments, strict=True):
                    if argument == Variable(loop.iterator):
                        return index
            if isinstance(node, For) and loop.iterator in variables(node.lower):
                inner = self._index(node)
                return inner if not inner or inner.startswith("tiles") else f"tiles of {inner}"
        return ""


def _alike(some: set[str], others: set[str]) -> float:
    return len(some & others) / max(1, len(some | others))
