"""How many threads share a range that data give, where one thread would take it entry by entry.

They are neighbours in a warp: each takes every so-manieth entry, as CSR-vector kernels do (Bell and Garland, SC 2009),
and their sums are combined by shuffles, in one order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Cast, Expr, Index, Read, Within
from tcomp.mapping.machines.fitted.gpu import CONTRACTIONS, DEALING
from tcomp.mapping.machines.fitted.gpuranges import DATA_RANGES
from tcomp.mapping.machines.gpu import WARP
from tcomp.mapping.plan.operations import indices_in
from tcomp.mapping.tiles.sizes import indices_of_ends, vector_position
from tcomp.model.scop import Scop, ScopStatement


@dataclass(frozen=True, slots=True)
class RangeLanes:
    """So many ``threads``, a power of two, take the steps of the index at ``position`` together."""

    position: int
    threads: int


def lanes_of_range(scop: Scop, statement: ScopStatement) -> RangeLanes | None:
    """Which threads share a reduction over ranges that data give; None where neighbours take neighbouring elements.

    Their number follows from the mean length of ranges: how many entries and how many ranges there are is known.  A
    warp has the longest ones, a block those that leave each of its threads many entries.  Steps that lie together but
    have no such range are shared as they always are.
    """
    vector = vector_position(scop, statement)
    if vector is None or vector < statement.coordinates:
        return None
    if not _of_index(statement, vector) and statement.extents[vector] >= DEALING.long_reduction:
        return RangeLanes(vector, WARP)
    # What others depend on stays in order.
    steps = range(statement.coordinates, len(statement.indices))
    free = [p for p in steps if _of_index(statement, p) and statement.indices[p] not in indices_of_ends(statement)]
    if not free:
        return None
    position = vector if vector in free else free[-1]
    within = _of_index(statement, position)
    mean = statement.extents[position] // max(_ranges(scop, statement, w) for w in within)
    if mean >= DATA_RANGES.least_of_a_block:
        return RangeLanes(position, CONTRACTIONS.block_threads)
    lanes = min(WARP, 1 << (-(-max(1, mean) // DATA_RANGES.entries_of_a_lane) - 1).bit_length())
    return RangeLanes(position, lanes) if lanes > 1 else None


def _of_index(statement: ScopStatement, position: int) -> list[Within]:
    """The ranges of an index that data give."""
    index = statement.indices[position]
    return [w for w in ranges_of(statement.value) if isinstance(w.index, Index) and w.index.name == index]


def _ranges(scop: Scop, statement: ScopStatement, within: Within) -> int:
    """How many different ranges there are: one for each element of what has their beginnings, or for each that asks."""
    extents = dict(zip(statement.indices, statement.extents, strict=True))
    asking = math.prod(extents.get(i, 1) for i in indices_in(within.lower) | indices_in(within.upper))
    ends = [math.prod(scop.storages[e.tensor].box.extent) for e in _ends(within)]
    return max(1, min([asking, *ends]))


def _ends(within: Within) -> list[Read]:
    bare: list[Expr] = [e.operand if isinstance(e, Cast) else e for e in (within.lower, within.upper)]
    return [e for e in bare if isinstance(e, Read)]
