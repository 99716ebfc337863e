"""The terms of a value that is a sum of products: ``A(i,k) * B(k,j) - C(i,k) * D(k,j)`` has two.

A sum of such values is a sum of all their terms, which may be added in any order, as those of every sum may.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcomp.grammar.tree.function import Binary, Cast, Expr, Read

Term = tuple[int, Expr]
"""1 or -1, and the product that is added or subtracted."""


def products_of(value: Expr) -> tuple[Term, ...]:
    """The products of two elements whose sum a value is; none unless all of it is made of them, in its own type."""
    found = tuple(_terms(value, 1))
    products = all(_is_product(term) and term.dtype == value.dtype for _, term in found)
    return found if len(found) > 1 and products else ()


def _terms(value: Expr, sign: int) -> Iterator[Term]:
    if isinstance(value, Binary) and value.op in ("+", "-"):
        yield from _terms(value.lhs, sign)
        yield from _terms(value.rhs, sign if value.op == "+" else -sign)
    else:
        yield sign, value


def _is_product(value: Expr) -> bool:
    return isinstance(value, Binary) and value.op == "*" and all(map(_is_element, (value.lhs, value.rhs)))


def _is_element(value: Expr) -> bool:
    while isinstance(value, Cast):
        value = value.operand
    return isinstance(value, Read)
