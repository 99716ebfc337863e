"""What isl was asked is kept: passes ask the same about the same sets, and kernels of a network about equal ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TypeVar

import islpy as isl

T = TypeVar("T", isl.Map, isl.Set)
Value = TypeVar("Value")

MOST = 2000
"""How many answers of a function are kept: the last that were asked for.  A network of 40 kernels asks for 800."""


class _Content:
    """A set or a relation as a key: equal are those that isl sees to be equal without computing."""

    __slots__ = ("_hash", "of")

    def __init__(self, of: isl.Map | isl.Set) -> None:
        self.of = of
        self._hash = hash(of)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and bool(self.of.plain_is_equal(other.of))


def remembered(function: Callable[..., Value]) -> Callable[..., Value]:
    """The function of a set or relation and perhaps numbers, computed once for equal ones.

    Its value must be one of the points alone: it is also given for a relation whose constraints have another order, or
    other names.  It sees no names of statements and storages.  What it raises is not kept.
    """

    @functools.lru_cache(MOST)
    def made(content: _Content, more: tuple[Hashable, ...]) -> Value:
        return function(content.of, *more)

    @functools.wraps(function)
    def found(of: T, *more: Hashable) -> Value:
        return made(_Content(_nameless(of)), more)

    return found


def _nameless(of: T) -> T:
    """The same points without a name: isl's hash does not look at that, so that those of others would be compared."""
    if isinstance(of, isl.Set):
        return of.reset_tuple_id() if of.has_tuple_id() else of
    for side in (isl.dim_type.in_, isl.dim_type.out):
        of = of.reset_tuple_id(side) if of.has_tuple_id(side) else of
    return of
