"""Which sums of what products make are worth a kernel whose blocks take the steps in turns."""

from __future__ import annotations

from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.machines.fitted.gputurns import TURNS
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.rescaling.summing import Summed
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop, ScopStatement

LEAST_RANK = 2
"""Rows of sums that run in turns: heads and queries, say."""


def row_of_sums(scop: Scop, found: Summed) -> int | None:
    """The row of which tiles have several, by number; None where a block has no work for its threads, or too much.

    It is the innermost one that nothing else has which sums multiply: a tile of it reads each of that once.  The others
    are blocks of their own: there is one at least, for tiles of one row alone are few.
    """
    if found.rank < LEAST_RANK:
        return None
    if found.reach[1] < TURNS.least_steps or sum(_columns(s, found) or 0 for s in found.sums) > TURNS.most_columns:
        return None
    if any(_columns(s, found) is None for s in found.sums) or not _are_short(scop, found):
        return None
    free = [n for n in range(found.rank) if not any(_moves_with(scop, s, n, found) for s in found.sums)]
    if not free:
        return None
    places = {n: _row_index(s, n, found) for s in found.sums[:1] for n in free}
    first, row = found.sums[0], free[-1]
    return row if first.extents[first.indices.index(places[row])] >= TURNS.least_rows else None


def _are_short(scop: Scop, found: Summed) -> bool:
    """Whether products that are computed again for each sum have few steps each."""
    products = [s for name in found.made for s in scop.users[name] if s.target == name and s.kind == "update"]
    for statement in products:
        contraction = recognise_contraction(statement)
        extents = dict(zip(statement.indices, statement.extents, strict=True))
        if contraction is None or len(contraction.k) != 1 or extents[contraction.k[0]] > TURNS.most_columns:
            return False
    return True


def _row_index(statement: ScopStatement, number: int, found: Summed) -> str:
    """The index of a sum that is a row."""
    read = found.read_of(statement)
    place = found.made[read.tensor].index(number)
    return found.names(read)[place]


def _columns(statement: ScopStatement, found: Summed) -> int | None:
    """How many results a sum has for each row; None if they have several indices."""
    rows = {_row_index(statement, n, found) for n in range(found.rank)}
    sizes = zip(statement.indices[: statement.coordinates], statement.extents, strict=False)
    extents = [extent for index, extent in sizes if index not in rows]
    return extents[0] if len(extents) == 1 else None


def _moves_with(scop: Scop, statement: ScopStatement, number: int, found: Summed) -> bool:
    """Whether what a sum multiplies with what is made is another one for each value of a row."""
    index, own = _row_index(statement, number, found), found.read_of(statement)
    others = [e for e in walk(statement.value) if isinstance(e, Read) and e != own]
    return any(coefficient(s, index, scop.sizes) != 0 for e in others for s in e.subscripts)
