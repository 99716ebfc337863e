"""How the rows and the columns of a product are dealt to warps and their lanes.

A side has one index of a tile or several, as the pixels of an image have two.  Lanes have the innermost one, eight of
its values as rows, or pairs of eight as columns; warps share that index and one of those around it.  What is left of
them for one thread are its *elements*, counted with the innermost index fastest: two of rows make an atom.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tcomp.mapping.machines.atoms import COLUMNS, GROUP_WARPS, LANES_OF_COLUMNS, LANES_OF_ROWS, ROWS
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Deal

MOST_WARPS = 8


def warps_of(rows: int, options: MappingOptions, in_groups: bool = False) -> int:
    """How many warps share so many rows of a tile: each has two atoms of them where there are enough; 0 if none fit.

    Where they are ``in_groups`` of four, each has one where there are enough.  The threads of a block that a user gives
    must be four columns by eight rows for each warp.
    """
    blocks, rest = divmod(rows, ROWS)
    if rest or not blocks:
        return 0
    each = 1 if in_groups else min(2, -(-blocks // 2))
    possible = [w for w in range(1, MOST_WARPS + 1) if blocks % w == 0 and (w % GROUP_WARPS == 0 or not in_groups)]
    if options.threads is not None:
        given = [w for w in possible if options.threads == (LANES_OF_COLUMNS, LANES_OF_ROWS * w)]
        return max(given, default=0)
    return max((w for w in possible if w == 1 or blocks // w >= each), default=0)


def deals_of_rows(extents: Sequence[int], options: MappingOptions, in_groups: bool = False) -> tuple[Deal, ...] | None:
    """The deals of the indices of rows, outermost first; None where they are no whole atoms.

    Dimensions of threads are those of a block of rows by columns; where warps share an outer index, too, it has the
    first dimension, and the others are one further.
    """
    if len(extents) == 1:
        warps = warps_of(extents[0], options, in_groups)
        return (Deal(extents[0], LANES_OF_ROWS * warps, 1, 0),) if warps else None
    if options.threads is not None:
        return None
    if in_groups:
        return _rows_of_groups(extents)
    *outer, last = extents
    groups = -(-last // LANES_OF_ROWS)
    blocks = -(-groups * math.prod(outer) // 2)
    over = max(range(len(outer)), key=lambda n: (outer[n], n))
    found: list[tuple[tuple[bool, int, int, int], tuple[Deal, ...]]] = []
    for across, along in itertools.product(range(1, MOST_WARPS + 1), repeat=2):
        if across * along > MOST_WARPS or across > outer[over] or groups % along:
            continue
        shared = Deal(outer[over], across, 1, 0) if across > 1 else _alone(outer[over])
        around = [shared if n == over else _alone(e) for n, e in enumerate(outer)]
        lanes = Deal(last, LANES_OF_ROWS * along, 1, 1 if across > 1 else 0)
        elements = math.prod(d.elements for d in (*around, lanes))
        if elements % 2:
            continue
        enough = across * along == 1 or elements // 2 >= min(2, -(-blocks // 2))
        found.append(((enough, -elements * across * along, across * along, across), (*around, lanes)))
    return max(found, key=lambda entry: entry[0])[1] if found else None


def _rows_of_groups(extents: Sequence[int]) -> tuple[Deal, ...] | None:
    """The same for warpgroups, whose rows lie one behind another: all of the innermost index is lanes'.

    Then a group of eight rows belongs to the next warp, whichever index it is along, as those of one index do.
    """
    *outer, last = extents
    wide = [n for n, extent in enumerate(outer) if extent > 1]
    along, rest = divmod(last, LANES_OF_ROWS)
    if rest or not along or len(wide) != 1 or MOST_WARPS % along:
        return None
    (over,) = wide
    for across in range(MOST_WARPS // along, 0, -1):
        elements, left = divmod(outer[over], across)
        if not left and elements and elements % 2 == 0 and across * along % GROUP_WARPS == 0:
            shared = Deal(outer[over], across, 1, 0) if across > 1 else _alone(outer[over])
            around = [shared if n == over else _alone(e) for n, e in enumerate(outer)]
            return (*around, Deal(last, LANES_OF_ROWS * along, 1, 1 if across > 1 else 0))
    return None


def warps_of_rows(deals: Sequence[Deal]) -> int:
    """Warps that share the rows of a tile."""
    return math.prod(d.threads for d in deals if d.dimension is not None) // LANES_OF_ROWS


def follow_each_other(deals: Sequence[Deal]) -> bool:
    """Whether groups of eight rows belong to warps in turn, whichever index they are along."""
    *outer, last = deals
    if not outer:
        return True
    dealt = [d for d in outer if d.extent > 1]
    whole = last.elements == 1 and last.extent == last.threads and len(dealt) <= 1
    return whole and all((d.extent == d.threads * d.elements and d.vector == 1) or d.dimension is None for d in dealt)


def deals_of_columns(extents: Sequence[int], dimension: int) -> tuple[Deal, ...] | None:
    """The deals of the indices of columns, outermost first, lanes along a dimension; None where they are no pairs."""
    lanes = Deal(extents[-1], LANES_OF_COLUMNS, 2, dimension)
    deals = (*(_alone(e) for e in extents[:-1]), lanes)
    whole = len(extents) > 1 or extents[0] % COLUMNS == 0
    return deals if whole and column_blocks(deals) % 2 == 0 else None


def column_blocks(deals: Sequence[Deal]) -> int:
    """Atoms of columns that such deals leave a warp."""
    return math.prod(d.elements for d in deals) // 2


def _alone(extent: int) -> Deal:
    return Deal(extent, 1, max(1, extent), None)
