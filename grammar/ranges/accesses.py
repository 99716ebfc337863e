"""The tensor reads of a statement, their quasi-affine subscripts, the conditions that guard them; what they reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcomp.grammar.tree.forms import Form, Interval, to_form
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


_MOST_PIECES = 64
"""Pieces into which a box may fall; beyond, isl decides."""


def fills_box(forms: Sequence[Form | None]) -> bool:
    """Whether subscripts over a rectangular domain reach every element of their hull.

    Each is a number, an index that no other subscript has, shifted or turned around, or data choose it (None).
    """
    seen: set[object] = set()
    for form in forms:
        if form is None or not form.terms:
            continue
        ((term, coefficient), *more) = form.terms
        if more or not isinstance(term, str) or abs(coefficient) != 1 or term in seen:
            return False
        seen.add(term)
    return True


def covered(box: tuple[Interval, ...], boxes: Sequence[tuple[Interval, ...]]) -> bool:
    """Whether every element of a box lies in one of the others, as far as can be told in a few pieces."""
    pieces = [box] if all(low <= high for low, high in box) else []
    for other in boxes:
        pieces = [rest for piece in pieces for rest in _without(piece, other)]
        if not pieces or len(pieces) > _MOST_PIECES:
            break
    return not pieces


def _without(box: tuple[Interval, ...], other: tuple[Interval, ...]) -> list[tuple[Interval, ...]]:
    """The parts of a box outside of another: at most two for each dimension."""
    if any(high < first or last < low for (low, high), (first, last) in zip(box, other, strict=True)):
        return [box]
    parts: list[tuple[Interval, ...]] = []
    inner = list(box)
    for dimension, ((low, high), (first, last)) in enumerate(zip(box, other, strict=True)):
        for part in ((low, first - 1), (last + 1, high)):
            if part[0] <= part[1]:
                parts.append((*inner[:dimension], part, *inner[dimension + 1 :]))
        inner[dimension] = (max(low, first), min(high, last))
    return parts
