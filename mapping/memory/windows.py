"""Windows: tiles of which few rows are in use at a time, so that rows so many apart have one place, in turn.

A stage that is computed a few rows ahead of what reads it (a sliding window) needs these rows alone.  Along one
dimension of its tile, the ``folded`` one, an element has the place of its subscript modulo the extent there.  That is
right where an element is not touched any more when another one is written into its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.mapping.memory.places import Place, own_element
from tcomp.mapping.plan.values import Buffer
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import maps_of

_OUT, _IN = isl.dim_type.out, isl.dim_type.in_


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """The elements of a buffer below a place, along one dimension, and the ``dates`` of all statements there."""

    scop: Scop
    buffer: Buffer
    place: Place
    dates: Mapping[str, isl.Map]
    dimension: int

    def too_early(self, step: int, apart: int) -> Iterator[tuple[ScopStatement, ScopStatement, isl.Map]]:
        """Pairs of instances in the wrong order: one touches an element, the other writes another into its place.

        The other element is a multiple of ``apart`` further on, upwards if ``step`` is 1, downwards if it is -1.
        """
        users = self.scop.users[self.buffer.storage]
        later = self._later(step, apart)
        for first in users:
            touched = self._touched(first)
            for second in (s for s in users if s.target == self.buffer.storage):
                pairs = touched.apply_range(later).apply_range(self._touched(second, writes=True).reverse())
                if first is second:
                    # An instance reads before it writes.
                    pairs = pairs.subtract(isl.Map.identity(pairs.get_space()))
                wrong = self._not_in_order(first, second, pairs)
                if not wrong.is_empty():
                    yield first, second, wrong

    def longest(self, step: int) -> int:
        """How far elements are apart of which a later one is written while the earlier one is still in use."""
        found = 0
        for first, second, wrong in self.too_early(step, 1):
            elements = self._touched(first).reverse().apply_range(wrong)
            elements = elements.apply_range(self._touched(second, writes=True)).intersect(self._later(step, 1))
            apart = elements.deltas().dim_max_val if step == 1 else elements.reverse().deltas().dim_max_val
            found = max(found, apart(elements.dim(_OUT) - len(self.buffer.shape) + self.dimension).to_python())
        return found

    def _later(self, step: int, apart: int) -> isl.Map:
        """An instance of the place and an element to those whose turn comes later, so far or a multiple of it away."""
        rounds = [f"p{d}" for d in range(next(iter(self.place.prefixes.values())).dim(_OUT))]
        names = [f"e{d}" for d in range(len(self.buffer.shape))]
        others = [f"{n}x = {n}" for d, n in enumerate(names) if d != self.dimension]
        own = names[self.dimension]
        moved = ["k >= 1", f"{own}x = {own} + {step * apart}*k", *others]
        into = [*rounds, *(f"{n}x" for n in names)]
        return isl.Map(
            f"{{ [{', '.join([*rounds, *names])}] -> [{', '.join(into)}] : exists k : {' and '.join(moved)} }}"
        )

    def _touched(self, statement: ScopStatement, writes: bool = False) -> isl.Map:
        """Instance to the instance of the place that it runs in, and the elements that it touches, or ``writes``."""
        name, rank = self.buffer.storage, len(self.buffer.shape)
        read = () if writes else statement.all_reads
        accesses = [r for r in read if r.get_tuple_name(_OUT) == name]
        accesses += [statement.write] if statement.target == name else []
        elements = own_element(accesses[0], rank)
        for access in accesses[1:]:
            elements = elements.union(own_element(access, rank))
        return self.place.prefixes[statement.name].flat_range_product(elements)

    def _not_in_order(self, first: ScopStatement, second: ScopStatement, pairs: isl.Map) -> isl.Map:
        dates = self.dates[first.name], self.dates[second.name]
        timed = pairs.apply_domain(dates[0]).apply_range(dates[1])
        late = timed.intersect(isl.Map.lex_ge(timed.get_space().domain()))
        return dates[0].apply_range(late).apply_range(dates[1].reverse()).intersect(pairs)


def dates_of(tree: isl.Schedule) -> dict[str, isl.Map]:
    """When the instances of each statement run."""
    return {m.get_tuple_name(_IN): m for m in maps_of(tree.get_map())}


def as_window(scop: Scop, buffer: Buffer, place: Place, dates: Mapping[str, isl.Map]) -> Buffer:
    """The buffer folded along the dimension along which fewest of its elements are in use, or as it is.

    Where that leaves more than half of it, its remainders cost more than its memory.
    """
    best = buffer
    for dimension, extent in enumerate(buffer.shape):
        turns = Turns(scop, buffer, place, dates, dimension)
        rows = 1 + min(turns.longest(step) for step in (1, -1)) if extent > 1 else extent
        shape = tuple(rows if d == dimension else n for d, n in enumerate(buffer.shape))
        if 2 * rows <= extent and replace(buffer, shape=shape).bytes < best.bytes:
            best = replace(buffer, shape=shape, folded=(dimension,))
    return best
