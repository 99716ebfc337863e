"""Updates that run only those instances that data send into one stretch of the elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tcomp.backends.spelling import Gather, Speller
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index
from tcomp.model.scop import ScopStatement, Stretch
from tcomp.values.operators import INT64

Spells = TypeVar("Spells", bound=Speller)

PLACE = "tc_place"
"""The name of the subscript that data choose, once it is known.  Who gives a speller that name has asked before whether
it is inside."""


@dataclass(frozen=True, slots=True)
class Sent(Generic[Spells]):
    """Where data send an instance: the C text of its ``place``, checked, and whether that is ``inside`` its stretch,
    in terms of ``PLACE``.  ``speller`` knows the place by that name, too."""

    place: str
    inside: str
    speller: Spells


def sent(statement: ScopStatement, speller: Spells) -> Sent[Spells] | None:
    """Where an instance of an update with a stretch goes; None for others, and where that was asked before."""
    stretch = statement.stretch
    if stretch is None or speller.known.get(chosen(statement, stretch)) == PLACE:
        return None
    gather = chosen(statement, stretch)
    place = speller.known.get(gather) or speller.gathered(gather.tensor, gather.dimension, gather.subscript)
    first = speller.subscript(first_of(statement, stretch))
    inside = f"{PLACE} >= {first} && {PLACE} - {first} < {stretch.width}"
    return Sent(place, inside, replace(speller, known={**speller.known, gather: PLACE}))


def chosen(statement: ScopStatement, stretch: Stretch) -> Gather:
    """The subscript that says to which stretch an instance belongs."""
    return Gather(statement.target, stretch.dimension, statement.subscripts[stretch.dimension])


def first_of(statement: ScopStatement, stretch: Stretch) -> Expr:
    """The first element of the stretch of an instance."""
    span = statement.value.span
    first: Expr = Index(stretch.index, INT64, span)
    if stretch.width > 1:
        first = Binary("*", Constant(stretch.width, INT64, span), first, INT64, span)
    if stretch.origin:
        first = Binary("+", Constant(stretch.origin, INT64, span), first, INT64, span)
    return first
