"""The tensor reads of a statement with their quasi-affine subscripts and the conditions that guard them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tcomp.grammar.tree.forms import Form, to_form
from tcomp.grammar.tree.function import Expr, Read, Select, Statement, children

Guard = tuple[Expr, bool]
"""A condition and the truth value under which the access happens."""


@dataclass(frozen=True, slots=True)
class Access:
    """A read of a tensor element.

    ``forms`` has one entry per subscript, None where the subscript is not quasi-affine (it holds a read, or a product
    of indices).  ``emitted`` is False for the reads of ``where exists``, which only take part in range inference.
    """

    read: Read
    forms: tuple[Form | None, ...]
    guards: tuple[Guard, ...]
    emitted: bool


def accesses(statement: Statement, sizes: Mapping[str, int]) -> tuple[Access, ...]:
    """All reads of a statement, those inside subscripts included, in order of evaluation."""
    found = [_access(read, guards, sizes, True) for read, guards in _reads((statement.value, *statement.subscripts))]
    found += [_access(read, guards, sizes, False) for read, guards in _reads(statement.exists)]
    return tuple(found)


def _access(read: Read, guards: tuple[Guard, ...], sizes: Mapping[str, int], emitted: bool) -> Access:
    return Access(read, tuple(to_form(subscript, sizes) for subscript in read.subscripts), guards, emitted)


def _reads(expressions: tuple[Expr, ...]) -> Iterator[tuple[Read, tuple[Guard, ...]]]:
    stack: list[tuple[Expr, tuple[Guard, ...]]] = [(expr, ()) for expr in reversed(expressions)]
    while stack:
        node, guards = stack.pop()
        if isinstance(node, Read):
            yield node, guards
        if isinstance(node, Select):
            stack.append((node.otherwise, (*guards, (node.condition, False))))
            stack.append((node.then, (*guards, (node.condition, True))))
            stack.append((node.condition, guards))
        else:
            stack.extend((child, guards) for child in reversed(children(node)))
