"""Reductions into elements that data choose, ``H(b(i)) +=! v(i)``, in shares where nothing else could run in parallel.

All instances of such a reduction may meet, so without an index of the elements they run one after another.  Where the
elements are few, each share of the steps is reduced into elements of its own, ``P(s, b(..)) +=! v(..)``, and each
element adds up its shares, ``H(e) +=! P(s, e)``.  How many there are follows from the sizes, so it is the same on every
machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.ranges.domains import StatementDomain
from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index, Statement, with_indices
from tcomp.values.operators import INT64

MOST_SHARES = 16
LEAST_INSTANCES = 1 << 15
"""Instances from which on threads are worth it."""

INSTANCES_OF_AN_ELEMENT = 4
"""Of a share: its elements are started and added up once."""

INDEPENDENT = 64
"""Elements side by side from which on these run in parallel."""


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """The steps of the reduction index at a ``position``, from ``first``, in ``count`` shares of so many ``steps``.

    ``share`` is the index of the share, which is in front of those of the statement.
    """

    statement: Statement
    position: int
    first: int
    steps: int
    count: int
    share: str

    @property
    def indices(self) -> tuple[str, ...]:
        """The indices of an instance: its share, and those of the statement, of which one counts from 0 in each."""
        return (self.share, *self.statement.indices)

    def domain(self, whole: isl.Set) -> isl.Set:
        """The instances, of those of the statement."""
        names = [f"i{d}" for d in range(len(self.indices))]
        places = names[1:]
        own = places[self.position]
        places[self.position] = f"{self.first} + {self.steps}*i0 + {own}"
        moved = isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(places)}] : 0 <= {own} < {self.steps} }}")
        return whole.reset_tuple_id().apply(moved.reverse())

    def moved(self, expr: Expr) -> Expr:
        """An expression of the statement in the indices of an instance."""
        index, span = self.statement.indices[self.position], self.statement.span
        before = Binary("*", Constant(self.steps, INT64, span), Index(self.share, INT64, span), INT64, span)
        start = Binary("+", Constant(self.first, INT64, span), before, INT64, span)
        return with_indices(expr, {index: Binary("+", start, Index(index, INT64, span), INT64, span)})

    @property
    def reported(self) -> tuple[tuple[str, Expr], ...]:
        """The indices of the program in those of an instance."""
        return tuple((i, self.moved(Index(i, INT64, self.statement.span))) for i in self.statement.indices)


def shares_of(statement: Statement, instances: StatementDomain, elements: int) -> Shares | None:
    """The shares of a reduction into so many elements; None where one is enough, copies would cost more,
    or data say how many instances there are."""
    if not (statement.scatters and statement.reduction_indices) or instances.domain.is_empty():
        return None
    if ranges_of(statement.value):
        return None
    extents = {name: high - low + 1 for name, (low, high) in instances.hull.items()}
    longest = max(statement.reduction_indices, key=lambda name: extents[name])
    beside = math.prod(n for name, n in extents.items() if name not in statement.reduction_indices)
    count = math.prod(extents.values())
    most = min(MOST_SHARES, extents[longest], count // (INSTANCES_OF_AN_ELEMENT * max(1, elements)))
    if beside >= INDEPENDENT or count < LEAST_INSTANCES or most < 2:
        return None
    steps = -(-extents[longest] // most)
    share = "share"
    while share in statement.indices:
        share += "_"
    position = statement.indices.index(longest)
    return Shares(statement, position, instances.hull[longest][0], steps, -(-extents[longest] // steps), share)
