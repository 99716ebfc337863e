"""What expressions and ranges of a statement mention: tensors by name, and indices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Expr, Index, Range, Read, Step, walk


def reads(expr: syntax.Expr, name: str) -> bool:
    """Does an expression mention a tensor?"""
    stack = [expr]
    while stack:
        node = stack.pop()
        match node:
            case syntax.Name():
                if node.name == name:
                    return True
            case syntax.Apply():
                if node.function.name == name:
                    return True
        stack.extend(syntax.children(node))
    return False


def indices_of(exprs: Iterable[Expr]) -> Iterator[str]:
    for expr in exprs:
        yield from (node.name for node in walk(expr) if isinstance(node, Index))


def ranges_of(steps: tuple[Step, ...]) -> Iterator[Range]:
    """The ranges of steps that have bounds."""
    for step in steps:
        if step.lower is not None and step.upper is not None:
            yield Range(step.index, step.lower, step.upper, step.span)


def range_indices(ranges: dict[str, Range]) -> Iterator[str]:
    for clause in ranges.values():
        yield clause.index
        yield from indices_of((clause.lower, clause.upper))


def subscript_indices(exprs: tuple[Expr, ...]) -> Iterator[str]:
    """Indices that occur in a subscript of a read."""
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Read):
                yield from indices_of(node.subscripts)
